# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the files of a directory on the controller to the host that the task is delegated to, and compares what was
written there.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.modules.artifact_store import ARGUMENT_SPEC


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        node = str((task_vars or {}).get("inventory_hostname") or "localhost")
        if args["files"] is not None:
            raise AnsibleActionFail("files: set by the action plugin, not for playbooks")
        try:
            files = _artifacts.read(args["src"])
        except OSError as exc:
            raise AnsibleActionFail(
                "%s: %s on the controller cannot be read: %s" % (node, args["src"], exc.strerror or exc)
            ) from exc
        if not files:
            raise AnsibleActionFail("%s: there is no file in %s on the controller" % (node, args["src"]))
        host = str(self._task.delegate_to or node)
        # The path as it was given: its ~ is the home over there.
        packed = dict((name, _artifacts.pack(data)) for name, data in files.items())
        answer = self.send(host, dict(args, path=str(self._task.args["path"]), files=packed), task_vars)
        result.update(
            changed=bool(answer.get("changed")), path=answer.get("path") or "", files=answer.get("files") or []
        )
        problem = answer.get("msg") or "it gave no answer" if answer.get("failed") else None
        if not problem and result["path"] and result["files"] != _artifacts.listed(files):
            problem = "%s holds other files than were sent. Look at the disk of that host" % (result["path"],)
        if not problem:
            return result
        result.update(
            changed=False,
            path="",
            msg="%s: %s was not kept on the artifact host %s: %s" % (node, args["src"], host, problem),
        )
        if args["required"]:
            result["failed"] = True
        else:
            result["warnings"] = [result["msg"]]
        return result

    def send(self, host, args, task_vars):
        """Return the module's result.

        A host that cannot be reached is reported as a result as well: the node of this task is not the one that is
        lost.
        """
        try:
            return self._execute_module(
                module_name="gpufleet.lifecycle.artifact_store", module_args=args, task_vars=task_vars
            )
        except AnsibleConnectionFailure as exc:
            return {
                "failed": True,
                "msg": "it cannot be reached (%s). Check its connection variables, and run again" % (exc,),
            }
