# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the GPUs of a node at work with the module gpu_smoke, once more where a rate is low, and judges the result
here.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _smoke_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, verdict
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import policy as policy_rules
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import (
    smoke,
    smoke_document,
    smoke_rates,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.registry import IDENTS
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result, clean_verdict

# From this verbosity on (-vv) a failed task shows everything as well.
VERBOSE = 2


def limits_of(policy):
    """Return the parameters for smoke_rates.unsettled: the thresholds by the name of a GPU's model."""
    rules = policy_rules.complete(policy, IDENTS)
    ctx = verdict.context({}, None, rules, None, None, "adhoc", {}, None)

    def limits(name) -> dict:
        gpu = {"name": {"value": name, "rc": 0}}

        def of(*keys) -> tuple:
            return tuple(policy_rules.find_limit(ctx, key, gpu) for key in keys)

        return {
            "baseline": of("smoke_tolerance_percent", "smoke_mad_factor", "smoke_noise_max_percent"),
            "peers": of("smoke_peers_tolerance_percent", "smoke_mad_factor", "smoke_peers_noise_max_percent"),
            "peers_min": of("smoke_peers_min")[0],
        }

    return limits


def measured_elsewhere(nccl) -> dict[str, dict]:
    """The caller's results of NCCL as tests of the document."""
    return dict(
        (key, {"unit": "GB/s", "samples": nccl[name], "parameters": {}, "error": None})
        for key, name in (("node", "node_gbps"), ("fleet", "fleet_gbps"))
        if nccl and nccl.get(name) is not None
    )


class ActionModule(NvmlActionBase):
    INTERNAL = ("binding", "tests")

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        dummy, args = self.validate_argument_spec(
            argument_spec=options.ARGUMENT_SPEC, mutually_exclusive=options.MUTUALLY_EXCLUSIVE
        )
        node = str(task_vars.get("inventory_hostname") or "localhost")
        baseline, policy = self.load_inputs(args, node)
        answer = self.measure(args, baseline, policy, task_vars)
        if answer.get("failed") or "facts" not in answer:
            result.update(answer)
            result["failed"] = True
            result.setdefault("msg", "%s: the node answered no test of its GPUs" % (node,))
            return result
        facts = answer.pop("facts")
        document = facts["smoke"]
        now = _judging.read_clock()
        reading = {"boot_id": document.get("boot_id"), "snapshot": facts["snapshot"]}
        health = _health.evaluate(
            reading,
            baseline=baseline,
            policy=policy,
            phase=args["phase"],
            node=node,
            now=now,
            smoke=dict(document, peers=args["peers"]),
            table=smoke.ROWS,
        )
        clean_verdict(health)
        tested = any(check["status"] != model.NOT_APPLICABLE for check in health["checks"])
        result.update(answer)
        result.update(
            changed=False,
            smoke=document,
            tested=tested,
            health=health,
            baseline=_health.baseline_of(reading, node, now, document),
        )
        result["msg"] = _health.summary(health)
        if not tested:
            # Nothing failed and nothing passed: whether that will do is what "require" says.
            result["msg"] = "%s: no GPU was tested at work: %s" % (
                node,
                next((check["message"] for check in health["checks"] if check["message"]), ""),
            )
        elif health["verdict"] in args["fail_on"]:
            result["failed"] = True
            if not args["full"] and Display().verbosity < VERBOSE:
                # Ansible prints the whole result of a failed task; what fails would drown in what passes.
                result["health"] = _health.compact(health)
        return clean_result(result)

    def measure(self, args, baseline, policy, task_vars) -> dict:
        """The module's answer, with low rates measured again as often as the task says."""
        request = dict((name, args[name]) for name in options.NODE_OPTIONS if args.get(name) is not None)
        answer = self.execute_nvml("gpufleet.lifecycle.gpu_smoke", request, task_vars)
        if answer.get("failed") or "facts" not in answer:
            return answer
        facts = answer["facts"]
        limits = limits_of(policy)
        for dummy in range(args["retries"]):
            again = smoke_rates.find_unsettled_tests(
                dict(facts["smoke"], peers=args["peers"]), model.item(baseline, "smoke"), limits
            )
            if not again:
                break
            # The diagnostic is not part of what was low.
            level = "t2" if args["level"] == "t3" else args["level"]
            more = dict(
                request,
                level=level,
                gpus=sorted(again),
                tests=sorted(set(name for names in again.values() for name in names)),
            )
            second = self.execute_nvml("gpufleet.lifecycle.gpu_smoke", more, task_vars)
            if second.get("failed") or "facts" not in second:
                answer["warnings"] = list(answer.get("warnings") or []) + [
                    "low rates could not be measured again: %s" % (second.get("msg"),)
                ]
                break
            facts["smoke"] = smoke_rates.merge_repeats(facts["smoke"], second["facts"]["smoke"])
        nccl = measured_elsewhere(args.get("nccl"))
        if nccl:
            facts["smoke"]["nccl"] = nccl
        return answer

    def load_inputs(self, args, node) -> tuple[dict | None, dict]:
        """Baseline and policy of the task. What cannot be used is told before the node is asked anything."""
        for name, least in (("retries", 0), ("timeout_s", 1), ("dcgm_timeout_s", 1)):
            if args.get(name) is not None and args[name] < least:
                raise AnsibleActionFail("%s: %s is %d, expected at least %d" % (node, name, args[name], least))
        for number, peer in enumerate(args["peers"]):
            if peer.get("schema") != smoke_document.SCHEMA:
                raise AnsibleActionFail(
                    "%s: peers[%d] has schema %r, expected %r; pass what gpu_smoke returns as smoke"
                    % (node, number, peer.get("schema"), smoke_document.SCHEMA)
                )
        own = dict(args.get("policy") or {})
        if args.get("tolerance_percent") is not None:
            own["smoke_tolerance_percent"] = args["tolerance_percent"]
        if args["require"]:
            own["smoke_required"] = 1
        baseline, now = args.get("baseline"), _judging.read_clock()
        try:
            if args.get("baseline_file"):
                baseline = _judging.baseline(self._loader.path_dwim(args["baseline_file"]), node, now)
            elif baseline is not None:
                _health.check_baseline(baseline, node, now)
            path = self._loader.path_dwim(args["policy_file"]) if args.get("policy_file") else None
            return baseline, _judging.policy(path, own, args["waivers"])
        except (_health.BaselineError, _judging.InputError) as exc:
            raise AnsibleActionFail("%s: %s" % (node, exc)) from exc
