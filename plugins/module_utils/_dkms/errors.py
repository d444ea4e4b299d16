# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The error of an archive that cannot be used."""

from __future__ import annotations


class TreeError(Exception):
    """An archive that must not be given to DKMS; the text says why."""
