# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a node with the module gpu_health and judges the reading here, where the baseline is."""

from __future__ import annotations

import datetime
import json
import os

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase

POLICY_FILE = os.path.join(_binding.DATA_DIRECTORY, "health_policy.json")

ARGUMENT_SPEC = {
    "phase": {"type": "str", "choices": list(model.PHASES), "default": "adhoc"},
    "baseline": {"type": "dict"},
    "baseline_file": {"type": "path"},
    "expected_driver_version": {"type": "str"},
    "fail_on": {"type": "list", "elements": "str", "choices": ["fail", "unknown"], "default": ["fail", "unknown"]},
    "waivers": {
        "type": "list", "elements": "dict", "default": [],
        "options": {
            "check": {"type": "str", "required": True},
            "entity": {"type": "str"},
            "reason": {"type": "str", "required": True},
            "expires": {"type": "str", "required": True},
        },
    },
    "timeout_s": {"type": "int", "default": 60},
}


def load_baseline(path):
    """The baseline in the file PATH of the controller."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as exc:
        raise AnsibleActionFail("the baseline file %s on the controller cannot be read: %s; take a baseline first (phase: baseline)" % (
            path, exc.strerror)) from exc
    except ValueError as exc:
        raise AnsibleActionFail("the baseline file %s on the controller is not JSON: %s; take a new baseline (phase: baseline)" % (path, exc)) from exc


def load_policy(waivers):
    with open(POLICY_FILE, encoding="utf-8") as stream:
        policy = json.load(stream)
    policy["waivers"] = waivers
    return policy


class ActionModule(NvmlActionBase):
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        self.refuse_internal_options()
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, mutually_exclusive=[("baseline", "baseline_file")])
        node = str(task_vars.get("inventory_hostname") or "localhost")
        baseline = args.get("baseline")
        if args.get("baseline_file"):
            baseline = load_baseline(self._loader.path_dwim(args["baseline_file"]))
        policy = load_policy(args["waivers"])
        # What cannot be used is told before the node is asked anything.
        try:
            _health.check(baseline, policy, node)
        except (_health.BaselineError, _health.PolicyError) as exc:
            raise AnsibleActionFail("%s: %s" % (node, exc)) from exc

        answer = self.execute_nvml("gpufleet.lifecycle.gpu_health", {"timeout_s": args["timeout_s"]}, task_vars)
        if answer.get("failed") or "facts" not in answer:
            result.update(answer)
            result["failed"] = True
            result.setdefault("msg", "%s: the node answered no reading of its GPUs" % (node,))
            return result
        facts = answer.pop("facts")
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        health = _health.evaluate(
            facts["snapshot"], facts["audit"], baseline=baseline, policy=policy, expected_driver=args.get("expected_driver_version") or None,
            phase=args["phase"], node=node, boot_id=facts["boot_id"], now=now)
        result.update(answer)
        result.update(changed=False, health=health, baseline=_health.baseline_of(facts["snapshot"], facts["audit"], node, facts["boot_id"], now))
        result["msg"] = _health.summary(health)
        if health["verdict"] in args["fail_on"]:
            result["failed"] = True
        return result
