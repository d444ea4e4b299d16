# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No node whose hardware is missing, broken or unreadable passes: every fault of the simulator on each of its boards,
in every phase.

Which checks a fault turns red is the matter of test_matrix.py; this table says only where it may pass, and why.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.scenario import scenario

BOARDS = ("h100-sxm", "h200", "b200", "a100-sxm", "a100-80-sxm", "a30", "l4", "rtx-pro-6000", "v100-sxm")
# `make test` tries the faults on a board with NVSwitches, one without links, and one that counts retired pages.
QUICK = ("h100-sxm", "l4", "v100-sxm")
# What is judged without a baseline, the baseline itself among it, and what is compared with one.
FIRST, COMPARED = ("baseline", "adhoc"), ("post", "soak")
ALWAYS = FIRST + COMPARED

# Faults that take words, and those of which one kind alone is a fault of the hardware.
WORDS = {
    "gpu-swapped": ("0",),
    "error": ("nvmlDeviceGetTemperature", "15"),
    "hang": ("nvmlDeviceGetTemperature", "forever"),
    "missing-symbol": ("nvmlDeviceGetEccMode",),
    "xid": ("79",),
    "sxid": ("20034", "--fatal"),
    "library-version": ("590.48.01",),
    "packages-half-installed": ("libcuda1",),
    "bank-availability": ("none",),
}
OF_ONE_GPU = ("error", "hang")

# Without a baseline nothing says what there was: other boards in good health, and what somebody may have set so.
SEEN_BY_COMPARISON = {
    "gpu-replaced",
    "gpu-swapped",  # which of several healthy boards sits where
    "bar1-shrunk",
    "gsp-off",  # the firmware's and the driver's settings
    "clocks-capped",
    "compute-mode-changed",
    "power-limit-lost",
    "application-clocks-changed",
    "persistence-lost",
}
SEEN_IN_POST = {"stray-process"}  # at any other time a process may work there
# What is worth a look, and no reason to hold a node: each gives a notice, here or in the phases that are named.
NOTICED = {
    "inforom-changed": COMPARED,
    "vbios-changed": COMPARED,
    "pcie-errors": ALWAYS,
    "sw-power-cap": ALWAYS,
    "sw-thermal": ALWAYS,
}
# Beyond the matter of a verdict about a node's health, and why.
NO_FAULT_OF_NOW = {
    "ecc-correctable": "what ECC corrects is harmless up to very many, which test_matrix.py has",
    "pcie-generation": "an idle link saves power; under load test_matrix.py has it",
    "pcie-replay": "few replays are harmless",
    "violation": "time below the highest clocks is how limits of power and heat work",
    "ignored": "a setting that does not take is told by gpu_settings, which reads it back",
    "settings-forgotten": "acts when the next process ends NVML",
    "set": "any value; the faults have names",
    "module-load-fails": "acts at the next load",
    "module-unsigned": "acts at the next load",
    "nouveau": "acts at the next boot",
    "reset-outcome": "acts at the next reset",
    "reset-unsupported": "acts at the next reset",
}
# By name of the fault, boards on which it changes nothing that NVML tells, or something less.
WITHOUT_LINKS = {"a30", "l4", "rtx-pro-6000"}  # an A30 has links only where a bridge joins two
WITHOUT_FABRIC = {"a100-sxm", "a100-80-sxm", "v100-sxm"} | WITHOUT_LINKS
WITHOUT_MIG = {"l4", "v100-sxm"}
FOUR_OF_A_NODE = ("a100-sxm", "a100-80-sxm", "a30", "l4", "rtx-pro-6000", "v100-sxm")
BEFORE_AMPERE = {"v100-sxm"}
NOT_ON = {
    "fabric-unhealthy": WITHOUT_FABRIC,
    "nvlink-down": WITHOUT_LINKS,
    "nvlink-errors": WITHOUT_LINKS,
    "p2p-broken": WITHOUT_LINKS,
    "bank-availability": BEFORE_AMPERE,
    "channel-repair-pending": BEFORE_AMPERE,
    "gsp-off": BEFORE_AMPERE,
    "gsp-version": BEFORE_AMPERE,
    "remap-many": BEFORE_AMPERE,
    "remap-pending": BEFORE_AMPERE,
    "mig-on": WITHOUT_MIG,
    "mig-pending": WITHOUT_MIG,
    "mig-layout-lost": set(BOARDS),  # no node here is laid out; test_matrix.py has it
    "retired-pages": set(BOARDS) - BEFORE_AMPERE,
    "retired-pages-pending": set(BOARDS) - BEFORE_AMPERE,
    "sram-threshold": set(),
    "memory-hot": WITHOUT_LINKS,
    "sxid": WITHOUT_FABRIC | {"b200"},
}
# On these boards without a baseline: no table says which of them reach each other, or what was remapped before.
BY_COMPARISON_ON = {
    "p2p-broken": {"v100-sxm"},
    # a notice: up to the row that cannot be remapped the memory is as good as new
    "remap-many": set(BOARDS) - BEFORE_AMPERE,
    "sram-threshold": BEFORE_AMPERE,  # these boards count aggregate errors alone, which tell nothing of today
}


def faults():
    faults_of_gpus = w.gpusim().faults
    return sorted(
        name
        for name in set(faults_of_gpus.CATALOGUE) | set(faults_of_gpus.files.CATALOGUE)
        if not name.startswith("cuda-")
    )


def phases_that_fail(board, name):
    """In which phases the node must not pass."""
    if name in NO_FAULT_OF_NOW or name in NOTICED or board in NOT_ON.get(name, ()):
        return ()
    if name in SEEN_IN_POST:
        return ("post",)
    return COMPARED if name in SEEN_BY_COMPARISON or board in BY_COMPARISON_ON.get(name, ()) else ALWAYS


def injection(name):
    takes_gpu = name in OF_ONE_GPU or w.gpusim().faults.CATALOGUE.get(name, ((), False))[1]
    return " ".join(("inject", name) + WORDS.get(name, ()) + (("--gpu", "1") if takes_gpu else ()))


def judged(taken, baseline, gpus):
    """By phase.

    How many GPUs the node should have is said where nothing is compared; what is not said is in the test below.
    """
    return {
        phase: w.judge(taken, None, phase, expect={"hardware": {"gpus": gpus}})
        if phase in FIRST
        else w.judge(taken, baseline, phase)
        for phase in ALWAYS
    }


CASES = [
    (board, name)
    for board in BOARDS
    for name in faults()
    if name not in NO_FAULT_OF_NOW and board not in NOT_ON.get(name, ())
]


@pytest.mark.parametrize(
    "board, name", [pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.slow) for case in CASES]
)
def test_no_fault_passes(board, name, sick, healthy):
    well = healthy(board)
    world = sick(scenario(name, injection(name), model=board))
    world.deadline_s = 30 if name != "hang" else 2
    health = judged(world.reading(well.reading["kernel_log"]["position"]), well.baseline, world.gpus)
    wanted = phases_that_fail(board, name)
    assert [phase for phase in ALWAYS if health[phase]["verdict"] == "pass"] == [
        phase for phase in ALWAYS if phase not in wanted
    ]
    for phase in NOTICED.get(name, ()):
        assert health[phase]["notices"] > 0, phase


@pytest.mark.parametrize("board", BOARDS)
def test_a_gpu_that_is_not_there_at_the_first_look(board, tmp_path, templates_of_boards):
    """On a whole node of each board, without a baseline: by its table, else by what the user says or other nodes
    have.
    """
    world = w.World(
        tmp_path / "whole", w.simnode.built(), templates_of_boards, board, gpus=4 if board in FOUR_OF_A_NODE else 8
    ).build()
    try:
        whole = world.reading()
        world.sim(*"inject gpu-missing --gpu 1".split())
        lacking = world.reading()
    finally:
        world.close()
    name = whole["snapshot"]["gpus"][0]["name"]["value"]
    counts = next(row["counts"] for row in w.TABLES["boards"]["boards"] if row["name"].rstrip("*") in name)
    told = {
        "nothing": ({}, ("pass", "fail") if counts else ("unknown", "unknown")),
        "the user": ({"hardware": {"gpus": world.gpus}}, ("pass", "fail")),
        "other nodes": ({"peers": {"gpus": {name: world.gpus}}}, ("pass", "fail")),
        "nodes of another model": (
            {"peers": {"gpus": {"another": world.gpus}}},
            ("pass", "fail") if counts else ("unknown", "unknown"),
        ),
    }
    for phase in FIRST:
        for who, (expect, verdicts) in told.items():
            assert (
                tuple(w.judge(taken, None, phase, expect=expect)["verdict"] for taken in (whole, lacking)) == verdicts
            ), (phase, who)


@pytest.fixture(scope="module")
def templates_of_boards(tmp_path_factory):
    return tmp_path_factory.mktemp("templates")


def test_every_fault_and_every_board_is_in_the_table():
    assert sorted(BOARDS) == sorted(path.stem for path in (w.simnode.SIM / "profiles").glob("*.ini"))
    named = (
        SEEN_BY_COMPARISON
        | SEEN_IN_POST
        | set(NOTICED)
        | set(NO_FAULT_OF_NOW)
        | set(NOT_ON)
        | set(BY_COMPARISON_ON)
        | set(WORDS)
    )
    assert sorted(named - set(faults())) == []
    assert all(names <= set(BOARDS) for names in [*NOT_ON.values(), *BY_COMPARISON_ON.values()])
    assert sum(phases_that_fail(board, name) == ALWAYS for board, name in CASES) > 200
