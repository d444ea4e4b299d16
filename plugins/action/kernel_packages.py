# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module kernel_packages, for which no worker has to wait: with the callback many_nodes it runs on the node by itself."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.job import LongAction


class ActionModule(LongAction):
    MODULE = "gpufleet.lifecycle.kernel_packages"
