# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers evidence with the module gpu_evidence and keeps it here, where the node's end does not reach it."""

from __future__ import annotations

import datetime

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _evidence_options as options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _evidence
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase


class ActionModule(NvmlActionBase):
    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        dummy, args = self.validate_argument_spec(argument_spec=options.ARGUMENT_SPEC)
        node = str(task_vars.get("inventory_hostname") or "localhost")
        if not args["artifact_dir"]:
            raise AnsibleActionFail(
                "%s: artifact_dir is not set; expected the directory on the controller to keep the evidence in"
                % (node,)
            )
        about = {"node": node, "rollout_id": args["rollout_id"], "attempt": args["attempt"], "moment": args["moment"]}
        try:
            _evidence.check(**about)
        except _evidence.EvidenceError as exc:
            raise AnsibleActionFail(str(exc)) from exc

        answer = self.execute_nvml(
            "gpufleet.lifecycle.gpu_evidence", dict((name, args[name]) for name in options.GATHER_SPEC), task_vars
        )
        result["changed"] = False
        if answer.get("warnings"):
            result["warnings"] = list(answer["warnings"])
        if answer.get("failed") or not isinstance(answer.get("facts"), dict):
            reason = answer.get("msg") or "it answered no reading"
            return self.without(result, args, "%s: no evidence could be gathered: %s" % (node, reason), answer)
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            files, result["manifest"] = _evidence.bundle(answer, time=now, **about)
        except _evidence.EvidenceError as exc:
            return self.without(result, args, str(exc))
        if self._task.check_mode:
            return dict(result, bundle="", msg="%s: check mode, no bundle was written" % (node,))
        try:
            result["bundle"] = _evidence.write(args["artifact_dir"], files, result["manifest"])
        except _evidence.EvidenceError as exc:
            return self.without(result, args, str(exc))
        lacking = result["manifest"]["missing"]
        result["msg"] = "%s: evidence kept in %s%s" % (
            node,
            result["bundle"],
            "; missing: " + ", ".join(sorted(set(entry["part"] for entry in lacking))) if lacking else "",
        )
        return result

    @staticmethod
    def without(result, args, message, answer=None) -> dict:
        """The result when there is no bundle."""
        result.update(bundle="", msg=message)
        if args["required"]:
            result["failed"] = True
            for key in ("exception", "module_stderr", "module_stdout", "rc"):
                if answer and key in answer:
                    result[key] = answer[key]
        else:
            result["warnings"] = result.get("warnings", []) + [message]
        return result
