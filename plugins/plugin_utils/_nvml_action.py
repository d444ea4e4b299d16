# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base of the action plugins of all modules that read NVML: they send the controller's binding to the node."""

from __future__ import annotations

import base64

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result

# Options of the module that only this action sets.
INTERNAL = ("binding_digest", "binding_archive")


class NvmlActionBase(NodeActionBase):
    """The node is asked with the digest alone; it has the archive cached, or the archive follows in a second call.

    The archive travels in the arguments of the module, not as a file of its own: so nothing has to be readable for both
    the login user and an unprivileged become user, and pipelining may be on or off.
    """

    TRANSFERS_FILES = False

    def refuse_internal_options(self):
        given = sorted(set(INTERNAL) & set(self._task.args))
        if given:
            raise AnsibleActionFail(
                "%s: set by the action plugin, not by a playbook; remove it from the task" % (", ".join(given),)
            )

    def execute_nvml(self, module_name, module_args, task_vars):
        """The module's result, with the warnings of both calls."""
        args = dict(module_args)
        archive = _binding.shipped()
        args["binding_digest"] = archive.digest
        result = self.run_module(module_name, args, task_vars)
        if result.get("needs_binding") and not result.get("failed"):
            warnings = list(result.get("warnings") or [])
            args["binding_archive"] = base64.b64encode(archive.data).decode("ascii")
            result = self.run_module(module_name, args, task_vars)
            if warnings:
                result["warnings"] = warnings + list(result.get("warnings") or [])
        problem = archive.problem
        # gpu_info answers the snapshot itself, gpu_health has it among the facts of the node.
        snapshot = (result.get("facts") or result).get("snapshot")
        if problem and isinstance(snapshot, dict) and snapshot.get("status") == "no_binding":
            snapshot["message"] += " (%s)" % (problem,)
            if result.get("failed"):
                result["msg"] = "%s (%s)" % (result.get("msg"), problem)
        return clean_result(result)
