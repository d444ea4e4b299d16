# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change kernel packages in the background, with a limit for each answer of the node."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._background import BackgroundAction


class ActionModule(BackgroundAction):
    MODULE = "gpufleet.lifecycle.kernel_packages"
