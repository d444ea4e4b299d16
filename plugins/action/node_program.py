# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds gpufleet-node on the controller, and copies it and its digest to the node."""

from __future__ import annotations

import os
import shlex
import tempfile

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.modules.node_program import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _binding, _node_program
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result


class ActionModule(ActionBase):
    TRANSFERS_FILES = True
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        node = str((task_vars or {}).get("inventory_hostname") or "localhost")
        try:
            program = _node_program.build()
        except (_binding.BindingError, OSError) as exc:
            raise AnsibleActionFail("%s: gpufleet-node cannot be built: %s" % (node, exc)) from exc
        result.update(changed=False)
        for dest, content, mode in (
            (args["dest"], program.data, "0755"),
            (args["dest"] + ".sha256", ("%s  %s\n" % (program.sha256, args["dest"])).encode("utf-8"), "0644"),
        ):
            copied = _answers.accept("node_program", self.copy(content, dest, mode, task_vars))
            copied["changed"] = bool(copied.get("changed")) or result["changed"]
            result.update(copied)
            if result.get("failed"):
                break
        result.update(sha256=program.sha256, binding_version=program.binding_version, dest=args["dest"])
        # A file of which nothing can be shown.
        result.pop("diff", None)
        return clean_result(result)

    def copy(self, content, dest, mode, task_vars) -> dict:
        """The result of writing CONTENT to DEST of the node."""
        descriptor, path = tempfile.mkstemp(dir=constants.DEFAULT_LOCAL_TMP, prefix="gpufleet-node-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            task = self._task.copy()
            task.args = {"src": path, "dest": dest, "owner": "root", "group": "root", "mode": mode, "follow": False}
            guard = claim.guard(claim.of_environment(self._task.environment))
            if guard:  # asked on the node before the file takes its place
                task.args["validate"] = "/bin/sh -c %s gpufleet-node %%s" % shlex.quote(
                    guard.replace("%", "%%") + "true"
                )
            action = self._shared_loader_obj.action_loader.get(
                "ansible.legacy.copy",
                task=task,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            return action.run(task_vars=task_vars)
        finally:
            os.unlink(path)
