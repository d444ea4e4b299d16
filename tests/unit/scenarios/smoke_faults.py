# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of GPUs at work: what gpu_smoke measures on the simulated CUDA library, what a caller says of NCCL, and
NVIDIA's diagnostic.
"""

from __future__ import annotations

import pathlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import dcgm
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.scenario import red, scenario

RECORDED = pathlib.Path(__file__).resolve().parents[1] / "plugins/module_utils/_smoke/fixtures"
RATES = ("smoke.matrix_product", "smoke.host_to_device", "smoke.device_to_host", "smoke.memory_bandwidth")
COMPARED = RATES + ("smoke.peers",)
PEERS = {"smoke_peers_min": 1}
CLOSE = dict(PEERS, smoke_peers_tolerance_percent=5)
BOTH = ("gpu0", "gpu1")
SHORT = {"level": "t1", "only": ["vector_add"]}
MEASURED = {"level": "t1", "only": ["matrix_product", "host_to_device", "device_to_host", "device_copy"]}
# What else belongs to the level was left out.
PART = {"smoke.compute": "not done"}
NOT_MEASURED = dict.fromkeys(RATES, "was not measured")


def all_of(idents, word, *entities):
    return dict.fromkeys(idents, red(word, *entities))


def diagnosis(rc, printed):
    """NVIDIA's diagnostic as gpu_smoke runs it at its longest level, with what dcgmi printed."""

    def make(document):
        return dict(
            document, level="t3", dcgm=dcgm.run_diagnostic(lambda argv, timeout: (rc, printed, ""), 2, 60, [0, 1])
        )

    return make


def nccl(**samples):
    """Another result of NCCL, or none, beside what the healthy node measured."""

    def change(document):
        tests = {key: dict(document["nccl"][key], samples=numbers) for key, numbers in samples.items() if numbers}
        return dict(document, nccl=tests)

    return change


def spread_peers(document):
    """Results of a rack of which no two GPUs are alike."""

    def scaled(entry, number):
        tests = {
            name: test
            if test["unit"] == "errors"
            else dict(test, samples=[value * (1 + number / 2) for value in test["samples"]])
            for name, test in entry["tests"].items()
        }
        return dict(entry, uuid="GPU-peer-%d" % number, tests=tests)

    return dict(document, peers=[dict(document, gpus=[scaled(document["gpus"][0], number) for number in range(5)])])


SCENARIOS = (
    scenario(
        "a GPU is 7 percent slower",
        "inject cuda-slow --gpu 1",
        all_of(COMPARED, "lower than", "gpu1"),
        PART,
        rules=CLOSE,
        work=MEASURED,
    ),
    scenario(
        "what a GPU does varies",
        "inject cuda-noisy --gpu 1 --value 60",
        {},
        dict(all_of(RATES, "varies too much", "gpu1"), **PART),
        work=MEASURED,
    ),
    scenario(
        "the peers differ among themselves", spread_peers, {}, all_of(["smoke.peers"], "peers", *BOTH), rules=PEERS
    ),
    scenario(
        "a GPU computes wrongly",
        "inject cuda-wrong-result --gpu 1 --value 1",
        {"smoke.compute": "vector_add"},
        NOT_MEASURED,
        work=SHORT,
    ),
    scenario(
        "a byte of memory is wrong",
        "inject cuda-corrupt-byte --gpu 1",
        {"smoke.compute": "memory_pattern"},
        NOT_MEASURED,
        work={"level": "t1", "only": ["memory_pattern"]},
    ),
    scenario(
        "a test is not whole",
        "inject gpu-hot --gpu 1 --value 50",
        {},
        dict(NOT_MEASURED, **{"smoke.compute": "repeated too few times, or not done"}),
        work=SHORT,
    ),
    scenario(
        "a GPU hangs at work",
        "inject cuda-hang --gpu 1",
        {"smoke.compute": "did not answer within"},
        dict(all_of(COMPARED, "was not tested", "gpu1"), **{"smoke.ran": "No GPU was tested"}),
        work=SHORT,
    ),
    scenario(
        "NCCL is slower",
        nccl(node=[200.0, 201.0, 199.0, 200.5, 200.1], fleet=[200.0, 201.0, 199.0, 200.5, 200.1]),
        {"smoke.nccl_node": "NCCL (node) is 4", "smoke.nccl_fleet": "NCCL (fleet) is 4"},
    ),
    scenario(
        "NCCL was not measured again",
        nccl(node=None, fleet=None),
        {},
        {"smoke.nccl_node": "NCCL (node)", "smoke.nccl_fleet": "NCCL (fleet)"},
    ),
    scenario(
        "nothing was tested, and it had to be",
        lambda document: None,
        {},
        dict(
            all_of(("smoke.compute",) + COMPARED, "not tested at work", *BOTH),
            **all_of(("smoke.ran", "smoke.dcgm"), "not tested at work", "node"),
        ),
        rules={"smoke_required": 1},
    ),
    scenario(
        "NVIDIA's diagnostic fails",
        diagnosis(1, (RECORDED / "dcgm4-fail.json").read_text()),
        {"smoke.dcgm": "diagnostic failed: memory"},
    ),
    scenario(
        "NVIDIA's diagnostic gives no result",
        diagnosis(1, "Error: unable to establish a connection"),
        {},
        {"smoke.dcgm": "unable to establish"},
    ),
)
