# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of a plan that cannot be made."""

from __future__ import annotations


class PlanError(Exception):
    """There is nothing to plan, or it contradicts itself; the message says what to do."""
