# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base of the action plugins of all modules that read NVML: they send the controller's binding to the node."""

from __future__ import annotations

import base64
import typing as t
import zlib

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase


class NvmlActionBase(NodeActionBase):
    """Run a module with the digest of the binding, and again with the file if the node does not have it.

    The file travels in the arguments of the module: so nothing has to be readable for both the login user and an
    unprivileged become user, and pipelining may be on or off.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False
    # Options that only the action gives the module.
    INTERNAL: t.Tuple[str, ...] = ("binding",)

    def run(self, tmp: t.Any = None, task_vars: t.Any = None) -> t.Dict[str, t.Any]:
        result = super().run(tmp, task_vars)
        given = sorted(set(self.INTERNAL) & set(self._task.args))
        if given:
            raise AnsibleActionFail(
                "%s: set by the action plugin, not by a playbook; remove it from the task" % (", ".join(given),)
            )
        return result

    def execute_nvml(self, module_name: str, module_args: t.Mapping[str, t.Any], task_vars: t.Any) -> t.Dict:
        """Return the module's result, with the warnings of both calls."""
        args, problem = dict(module_args), ""
        try:
            found = _binding.find()
        except (_binding.BindingError, OSError) as exc:
            # The module takes the node's own binding.
            found, problem = None, str(exc)
        else:
            args["binding"] = {"digest": found.digest, "version": found.version}
        result = self.run_module(module_name, args, task_vars)
        if found and result.get("needs_binding") and not result.get("failed"):
            warnings = list(result.get("warnings") or [])
            source = base64.b64encode(zlib.compress(found.source, 9)).decode("ascii")
            args["binding"] = dict(args["binding"], source=source)
            result = self.run_module(module_name, args, task_vars)
            if warnings:
                result["warnings"] = warnings + list(result.get("warnings") or [])
        # gpu_info answers the snapshot itself, gpu_health has it among the facts of the node.
        snapshot = (result.get("facts") or result).get("snapshot")
        if problem and isinstance(snapshot, dict) and snapshot.get("status") == "no_binding":
            snapshot["message"] += " (%s)" % (problem,)
            if result.get("failed"):
                result["msg"] = "%s (%s)" % (result.get("msg"), problem)
        return result
