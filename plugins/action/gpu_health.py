# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a node with the module gpu_health and judges the reading here, where the baseline is."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result, clean_verdict

# From this verbosity on (-vv) a failed task shows everything as well.
VERBOSE = 2
# What is made here of the node's reading, and never taken from the node.
VERDICT = ("health", "baseline")


def position(baseline) -> dict | None:
    """Return the position in the kernel log at which the baseline was taken: {"boot_id", "seq", "monotonic_us"}; None
    if the baseline does not have it.
    """
    found = model.item(baseline, "kernel_log", "position")
    place = dict((key, model.item(found, key)) for key in ("seq", "monotonic_us"))
    place = dict((key, value) for key, value in place.items() if isinstance(value, int) and not isinstance(value, bool))
    boot_id = model.item(found, "boot_id")
    return dict(place, boot_id=boot_id) if isinstance(boot_id, str) and place else None


class ActionModule(NvmlActionBase):
    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        dummy, args = self.validate_argument_spec(
            argument_spec=options.ARGUMENT_SPEC, mutually_exclusive=options.MUTUALLY_EXCLUSIVE
        )
        node = str(task_vars.get("inventory_hostname") or "localhost")
        baseline, policy, tables = self.load_inputs(args, node)
        request = {"timeout_s": args["timeout_s"]}
        since = args.get("since") or position(baseline)
        if since:
            request["since"] = since

        answer = self.execute_nvml("gpufleet.lifecycle.gpu_health", request, task_vars)
        for key in VERDICT:
            answer.pop(key, None)
        if answer.get("failed") or not isinstance(answer.get("facts"), dict):
            result.update(answer)
            result["failed"] = True
            result.setdefault("msg", "%s: the node answered no reading of its GPUs" % (node,))
            return result
        facts = answer.pop("facts")
        now = _judging.read_clock()
        health = _health.evaluate(
            facts,
            baseline=baseline,
            policy=policy,
            tables=tables,
            expected_driver=args.get("expected_driver_version") or None,
            phase=args["phase"],
            node=node,
            now=now,
            expect=dict(args.get("expect") or {}, mig_free=args.get("mig_free_reading")),
            smoke=args.get("smoke"),
        )
        clean_verdict(health)
        if args["sequence"] is not None:
            health["sequence"] = args["sequence"]
        result.update(answer)
        result.update(changed=False, health=health, baseline=_health.baseline_of(facts, node, now, args.get("smoke")))
        result["msg"] = _health.summary(health)
        if health["verdict"] in args["fail_on"]:
            result["failed"] = True
            if not args["full"] and Display().verbosity < VERBOSE:
                # Ansible prints the whole result of a failed task; what fails would drown in what passes.
                result["health"] = _health.compact(health)
                del result["baseline"]
        return clean_result(result)

    def load_inputs(self, args, node) -> tuple[dict | None, dict, dict]:
        """Baseline and policy of the task, and the collection's tables.

        What cannot be used is told before the node is asked anything. In a rollout the ledger's numbers say which
        reading was first, and no controller's clock does.
        """
        now = _judging.read_clock() if args["sequence"] is None else ""
        try:
            baseline = args.get("baseline")
            if args.get("baseline_file"):
                baseline = _judging.baseline(self._loader.path_dwim(args["baseline_file"]), node, now)
            elif baseline is not None:
                _health.check_baseline(baseline, node, now)
            if args.get("mig_free_reading") is not None:
                _health.check_baseline(args["mig_free_reading"], node)
            path = self._loader.path_dwim(args["policy_file"]) if args.get("policy_file") else None
            return baseline, _judging.policy(path, args.get("policy"), args["waivers"]), _judging.tables()
        except (_health.BaselineError, _judging.InputError) as exc:
            raise AnsibleActionFail("%s: %s" % (node, exc)) from exc
