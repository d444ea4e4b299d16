# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run package_hold on the node and check its answer."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import ModuleAction


class ActionModule(ModuleAction):
    MODULE = "gpufleet.lifecycle.package_hold"
