# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of NVIDIA's device plugin that lets several pods share a GPU.

Pure: what is wanted in, a ConfigMap out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import find_node_name_problem
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.gpus import GPU, MIG

STRATEGIES = {"none": None, "time_slicing": "timeSlicing", "mps": "mps"}
MIG_STRATEGIES = ("none", "single", "mixed")
MPS_CLIENTS = 48  # what one GPU serves, from Volta on
_NAME = re.compile(r"[-._a-zA-Z0-9]{1,253}")
FIELDS = {"strategy", "mig_strategy", "rename", "fail_requests_greater_than_one", "resources"}


def find_problems(name: str, wanted: Any) -> Iterator[str]:
    """Return the problems of one configuration."""
    if not _NAME.fullmatch(name):
        yield "its name is none of letters, digits, '-', '_' and '.'"
    if not isinstance(wanted, dict):
        yield "it is no mapping"
        return
    strategy, mig = wanted.get("strategy", "none"), wanted.get("mig_strategy", "none")
    unknown = sorted(set(map(str, wanted)) - FIELDS)
    if unknown:
        yield "it has the unknown keys %s, expected some of %s" % (", ".join(unknown), ", ".join(sorted(FIELDS)))
    if strategy not in STRATEGIES:
        yield "strategy is %r, expected one of %s" % (strategy, ", ".join(sorted(STRATEGIES)))
    if mig not in MIG_STRATEGIES:
        yield "mig_strategy is %r, expected one of %s" % (mig, ", ".join(MIG_STRATEGIES))
    for key in ("rename", "fail_requests_greater_than_one"):
        if not isinstance(wanted.get(key, False), bool):
            yield "%s is %r, expected true or false" % (key, wanted[key])
    resources = wanted.get("resources", [])
    if not isinstance(resources, list) or any(not isinstance(each, dict) for each in resources):
        yield "resources is no list of mappings"
        return
    if strategy == "none" and resources:
        yield "it has resources to share and the strategy none"
    if strategy != "none" and not resources:
        yield "it shares nothing: resources is empty"
    if strategy == "mps" and wanted.get("fail_requests_greater_than_one") is False:
        yield "with MPS a request for more than one always fails: leave fail_requests_greater_than_one out"
    yield from _find_resource_problems(strategy, mig, resources)


def _find_resource_problems(strategy: str, mig: str, resources: Any) -> Iterator[str]:
    seen = set()
    for each in resources:
        resource, replicas = str(each.get("name", "")), each.get("replicas")
        unknown = sorted(set(map(str, each)) - {"name", "replicas"})
        if unknown:
            yield "the resource %s has the unknown keys %s, expected name and replicas" % (resource, ", ".join(unknown))
        if resource not in (GPU, MIG + (names.find_profile(resource) or "?")):
            yield (
                "%r is no resource of the device plugin, expected nvidia.com/gpu or one like nvidia.com/mig-1g.10gb"
                % (resource,)
            )
        elif resource in seen:
            yield "%s is there twice" % (resource,)
        elif strategy == "mps" and (resource != GPU or mig != "none"):
            yield "MPS shares whole GPUs only: %s with mig_strategy %s" % (resource, mig)
        elif resource != GPU and mig != "mixed":
            yield "%s is only offered with the mig_strategy mixed, not %s" % (resource, mig)
        seen.add(resource)
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 2:
            yield "%s has the replicas %r, expected a whole number from 2" % (resource, replicas)
        elif strategy == "mps" and replicas > MPS_CLIENTS:
            yield "%s has %d replicas, and MPS serves %d clients on a GPU" % (resource, replicas, MPS_CLIENTS)


def make_config(wanted: Any) -> dict[str, Any]:
    """One configuration as the device plugin reads it.

    Ansible's texts and numbers are types of its own, which YAML does not know.
    """
    found = {"version": "v1", "flags": {"migStrategy": str(wanted.get("mig_strategy", "none"))}}
    key = STRATEGIES[wanted.get("strategy", "none")]
    if key:
        sharing = {"renameByDefault": wanted.get("rename", True)}
        if key == "timeSlicing":
            # More replicas of a GPU give a pod no more of it: better refused than believed.
            sharing["failRequestsGreaterThanOne"] = wanted.get("fail_requests_greater_than_one", True)
        sharing["resources"] = [
            {"name": str(each["name"]), "replicas": int(each["replicas"])} for each in wanted["resources"]
        ]
        found["sharing"] = {key: sharing}
    return found


def make_config_map(
    configs: Any, name: str = "gpufleet-device-plugin", namespace: str = "nvidia-device-plugin"
) -> dict[str, Any]:
    """The ConfigMap with all configurations, or a KubeError with everything that is wrong with them."""
    if not isinstance(configs, dict) or not configs:
        raise KubeError(
            "The device plugin's configurations are %s, expected a mapping of a name to each."
            % ("empty" if not configs else "no mapping",)
        )
    wrong = [
        "%s: %s" % (key, problem)
        for key in sorted(configs, key=str)
        for problem in find_problems(str(key), configs[key])
    ]
    for what, value in (("name", name), ("namespace", namespace)):
        if find_node_name_problem(value):
            wrong.append("the %s %r of the ConfigMap is no DNS name" % (what, value))
    if wrong:
        raise KubeError("The device plugin's configuration is refused: %s." % ("; ".join(wrong),))
    data = dict(
        (str(key), yaml.safe_dump(make_config(configs[key]), sort_keys=False)) for key in sorted(configs, key=str)
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "gpufleet"}},
        "data": data,
    }
