# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the files of a directory on the controller to the host that the task is delegated to, and compares what was
written there.
"""

from __future__ import annotations

import os
import re

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.modules.artifact_store import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase


class ActionModule(NodeActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        node = str((task_vars or {}).get("inventory_hostname") or "localhost")
        if args["files"] is not None:
            raise AnsibleActionFail("files: set by the action plugin, not for playbooks")
        host = str(self._task.delegate_to or node)
        files, problem = self.read(args)
        if files:
            # The path as it was given: its ~ is the home over there.
            packed = dict((name, _artifacts.pack(data)) for name, data in files.items())
            answer = self.send(host, dict(args, path=str(self._task.args["path"]), files=packed), task_vars)
            problem = self.judge(answer, files, args["path"], result)
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

    @staticmethod
    def read(args):
        """({name: bytes} of what is to be sent, empty if it cannot be; why not)"""
        try:
            files = _artifacts.read(args["src"], args["names"])
        except OSError as exc:
            return {}, "it cannot be read on the controller: %s" % (exc.strerror or exc,)
        return files, "" if files else "there is no file in it on the controller"

    @staticmethod
    def judge(answer, files, wanted, result):
        """Put the module's ANSWER into RESULT; return why the files are not in WANTED there, empty if they are."""
        if answer.get("failed"):
            return redaction.redact(answer.get("msg") or "it gave no answer", limit=1000)
        path = answer.get("path") or ""
        name = re.escape(os.path.basename(os.path.normpath(wanted)))
        if path and not (isinstance(path, str) and re.fullmatch(r"/(?:[^/\0-\37]+/)*%s(?:-[0-9]+)?" % name, path)):
            return "it answered the path %s; expected %s" % (_host_answers.shorten_value(path), wanted)
        result.update(
            changed=bool(answer.get("changed")),
            path=path,
            newer=bool(answer.get("newer")),
            files=answer.get("files") or [],
        )
        if path and not result["newer"] and result["files"] != _artifacts.describe_files(files):
            return "%s holds other files than were sent. Look at the disk of that host" % (path,)
        return ""

    def send(self, host, args, task_vars):
        """Return the module's result.

        A host that cannot be reached is reported as a result as well: the node of this task is not the one that is
        lost.
        """
        try:
            return self.run_module("gpufleet.lifecycle.artifact_store", args, task_vars)
        except AnsibleConnectionFailure as exc:
            return {
                "failed": True,
                "msg": "it cannot be reached (%s). Check its connection variables, and run again"
                % (redaction.describe(exc),),
            }
