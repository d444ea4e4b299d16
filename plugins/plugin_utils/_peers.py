# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find how many GPUs most nodes with GPUs of a model have, and which nodes have fewer. Pure.

A node that has lost a GPU looks complete if its board exists with any number of GPUs and its number was not specified.
Its peers show the loss: if most of them have 8, one with 7 is examined before it is changed.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model as gpu_model
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import with_peers

# So many nodes with the same number, and this share of all, make it the number that a node should have.
FEWEST = 3
SHARE = 2 / 3


class Usual(t.NamedTuple):
    """The number of GPUs of a model that most nodes with them have."""

    gpus: int
    nodes: int  # that have as many
    of: int  # nodes with GPUs of the model


def usual(counts: t.Mapping[str, t.Mapping[str, int]]) -> t.Dict[str, Usual]:
    """By model the number that most nodes have; without a model of which too few nodes agree.

    COUNTS: {node: {model: number of GPUs}} of all nodes that could be read.
    """
    found = {}
    for model, numbers in _by_model(counts).items():
        common, alike = collections.Counter(numbers.values()).most_common(1)[0]
        if alike >= FEWEST and alike >= SHARE * len(numbers):
            found[model] = Usual(common, alike, len(numbers))
    return found


def expectation(counts: t.Mapping[str, t.Mapping[str, int]]) -> t.Dict[str, t.Dict[str, int]]:
    """Return the counts of a node's peers as option expect.peers of gpu_health."""
    return {"gpus": {model: most.gpus for model, most in usual(counts).items()}}


def own(counts: t.Mapping[str, t.Mapping[str, int]]) -> t.Dict[str, t.Any]:
    """Return for each node its own counts, where those of other nodes say nothing of it.

    A node that goes back may have lost a GPU by the change, and must not lose another one, nor others the same.
    """
    return {"gpus": {}, "nodes": {name: {"gpus": dict(models)} for name, models in sorted(counts.items())}}


def of_node(peers: t.Mapping[str, t.Any], node: str) -> t.Mapping[str, t.Any]:
    """Return what holds for a node of expectation() or own(), as option expect.peers of gpu_health."""
    return (peers.get("nodes") or {}).get(node) or {"gpus": peers.get("gpus") or {}}


def fewer(counts: t.Mapping[str, t.Mapping[str, int]], told: t.Container[str] = ()) -> t.Dict[str, str]:
    """By node what it lacks, in a sentence without its name.

    COUNTS as for usual(). TOLD: nodes whose number of GPUs was said (gpu_health_expect): that decides, and their peers
    do not.
    """
    most, found = usual(counts), {}
    for model, numbers in _by_model(counts).items():
        for name in sorted(numbers) if model in most else []:
            if numbers[name] < most[model].gpus and name not in told:
                found.setdefault(name, []).append(
                    "has %d of the GPUs %s, and %d of %d nodes with them have %d"
                    % (numbers[name], model, most[model].nodes, most[model].of, most[model].gpus)
                )
    return {
        name: (
            "%s. Look for GPUs that left the bus (lspci -d 10de:, NVRM lines in the kernel log); if the node is built "
            "so, say so in gpu_health_expect (hardware: gpus)" % "; ".join(lacks)
        )
        for name, lacks in found.items()
    }


def _by_model(counts: t.Mapping[str, t.Mapping[str, int]]) -> t.Dict[str, t.Dict[str, int]]:
    by_model: t.Dict[str, t.Dict[str, int]] = {}
    for name, models in counts.items():
        for model, number in models.items():
            by_model.setdefault(model, {})[name] = number
    return dict(sorted(by_model.items()))


def of_results(results: t.Mapping[str, t.Any]) -> t.Dict[str, t.Dict[str, int]]:
    """{node: {model: number of GPUs}} of results of gpu_health; without nodes that were not read, or one of whose GPUs
    has no name.
    """
    found = {}
    for name, result in results.items():
        models = [
            gpu_model.reading(gpu, "name").value
            for gpu in gpu_model.gpus(gpu_model.item(result, "baseline", "snapshot"))
        ]
        if models and all(isinstance(each, str) and each for each in models):
            found[name] = dict(collections.Counter(models))
    return found


def health_of(result: t.Any, peers: t.Any) -> t.Any:
    """The verdict in RESULT of gpu_health, once it is known what its PEERS have; None where there is none."""
    reading = gpu_model.item(result, "baseline")
    return with_peers(gpu_model.item(result, "health"), reading, peers)


def is_told(expect: t.Any) -> bool:
    """Tell if the value of gpu_health_expect has the number of a node's GPUs."""
    hardware = expect.get("hardware") if isinstance(expect, dict) else None
    return isinstance(hardware, dict) and hardware.get("gpus") is not None
