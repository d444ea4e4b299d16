# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every phase of a driver upgrade, and every way in which one can end, is a scenario of the simulator that the gate
judges rightly.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import node_faults as node
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import test_matrix as matrix
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.gpu_faults import BOTH, LOST, NO_GPU
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.scenario import red, scenario

# The phases that a simulated node has to show, what nvmlInit answers in each, and the scenarios of the simulator that
# do.
PHASES = {
    "the old driver, steady": (0, ("steady",)),
    "userspace upgraded, module not": (18, ("userspace-upgraded",)),
    "module unloaded": (9, ("module-unloaded",)),
    "package half installed": (12, ("half-installed",)),
    "module for another kernel, or not signed": (9, ("wrong-kernel", "module-unsigned")),
    "reloaded, settings lost": (0, ("settings-lost",)),
    "a GPU is missing, or has no handle": (0, ("gpu-missing", "gpu-without-handle")),
    "fabric converging": (0, ("fabric-converging",)),
    "regression": (0, ("regression",)),
    "a call hangs": (None, ("hang", "hang-unkillable")),
}
# What is broken without being a phase: fault, and the check that must fail.
FAULTS = {
    "a lost GPU": ("gpu-lost", "gpu.handle"),
    "a remap that waits": ("remap-pending", "gpu.remap_pending"),
    "a remap that failed": ("remap-failed", "gpu.remap_failure"),
    "an NVLink that is down": ("nvlink-down", "gpu.nvlink"),
    "a PCIe link that trained down": ("pcie-downtrain", "gpu.pcie_width"),
    "a power brake": ("power-brake", "gpu.power_brake"),
}
UPGRADED = "581.95.05"
NOT_LOADED = dict(node.UNLOADED)


def phase(name, fails=(), unknown=(), also=(), **more):
    return scenario(name, ("scenario " + name,) + tuple(also), fails, unknown, **more)


SCENARIOS = (
    # The job that still works holds the GPU; NVML, which does not start, cannot say so.
    phase(
        "userspace-upgraded",
        dict(
            NO_GPU,
            **{
                "nvml.answers": "LIB_RM_VERSION_MISMATCH (18)",
                "nvml.library_match": UPGRADED,
                "driver.library": UPGRADED,
                "driver.libcuda": UPGRADED,
                "driver.versions_agree": UPGRADED,
            },
        ),
        dict(node.COUNTED, **{"driver.nvml": "not known"}),
    ),
    phase("module-unloaded", NOT_LOADED, node.SILENT),
    phase(
        "half-installed",
        dict(NOT_LOADED, **{"nvml.answers": "LIBRARY_NOT_FOUND (12)", "driver.reboot_safe": "dpkg was interrupted"}),
        dict(node.SILENT, **{"driver.library": "not known"}),
    ),
    phase(
        "wrong-kernel",
        dict(
            NOT_LOADED,
            **{
                "driver.on_disk": "7.2.1-61-amd75",
                "driver.next_boot": "7.2.1-61-amd75",
                "driver.reboot_safe": "7.2.1-61-amd75",
                "driver.dkms": red("as 'added'", w.simnode.RELEASE),
            },
        ),
        node.SILENT,
        also=(lambda world: setattr(world, "dkms", "added"),),
    ),
    phase(
        "module-unsigned",
        dict(NOT_LOADED, **{"driver.reboot_safe": "not signed"}),
        node.SILENT,
        also=(node.secure_boot,),
    ),
    phase(
        "settings-lost", {"gpu.persistence": red("is 0", *BOTH), "gpu.mig_pending": red("is 0 and becomes 1", *BOTH)}
    ),
    phase("gpu-missing", {"gpu.count": "counts 1 GPUs", "gpu.present": "missing"}),
    phase("gpu-without-handle", dict(LOST, **{"gpu.init_failed": red("RmInitAdapter failed", "pci1")})),
    phase(
        "fabric-converging", {}, {"gpu.fabric": red("in progress", *BOTH), "gpu.fabric_clique": red("not known", *BOTH)}
    ),
    phase("regression", {"gpu.memory_total": "42759880704", "gpu.nvlink": "17 are active", "gpu.gsp_version": "1.2.3"}),
    phase(
        "hang", dict(NO_GPU, **{"nvml.answers": "did not answer within 1 s"}), node.SILENT, also=(node.short_deadline,)
    ),
)
# Judged in tests of their own.
OTHERS = ("steady", "hang-unkillable")


def simulators():
    return w.gpusim().scenarios.SCENARIOS


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_a_phase_is_judged_for_what_it_is(one, sick, healthy):
    matrix.assert_exactly(one, matrix.one_verdict(one, sick, healthy)[1], healthy(one.model))


def test_the_steady_phase_passes(sick, healthy):
    health = matrix.one_verdict(phase("steady"), sick, healthy)[1]
    assert (health["verdict"], [check["id"] for check in health["checks"] if check["notice"]]) == ("pass", [])


def test_the_list_of_phases_is_whole():
    named = [name for _code, names in PHASES.values() for name in names]
    assert sorted(named) == sorted(simulators())
    assert sorted(one.name for one in SCENARIOS) == sorted(set(named) - set(OTHERS))
    for code, names in PHASES.values():
        assert {simulators()[name][0] for name in names} == {"-" if code is None else str(code)}


def test_what_is_broken_without_being_a_phase_has_a_scenario():
    found = {one.make[0]: one for one in matrix.SCENARIOS}
    for fault, ident in FAULTS.values():
        assert ident in found["inject %s --gpu 1" % fault].fails


def test_a_fabric_that_converges_is_unknown_until_it_has(sick, healthy):
    """The gate reads again; the verdict turns by itself, and only when all GPUs are there."""
    well = healthy()
    world = sick(phase("fabric-converging"))
    verdicts = []
    for _look in range(6):
        verdicts.append(w.judge(world.reading(well.reading["kernel_log"]["position"]), well.baseline)["verdict"])
        if verdicts[-1] == "pass":
            break
    assert verdicts[0] == "unknown" and verdicts[-1] == "pass" and set(verdicts) == {"unknown", "pass"}


def test_a_fabric_that_never_completes_stays_unknown(sick, healthy):
    well = healthy()
    world = sick(scenario("stuck", "inject fabric-stuck --gpu all"))
    assert [w.judge(world.reading(), well.baseline)["verdict"] for _look in range(2)] == ["unknown", "unknown"]


def test_a_call_that_nothing_ends_is_remembered(sick, healthy):
    well = healthy()
    if w.gpusim().scenarios.freezer.hierarchy() is None:
        # Such a call cannot be made here; the simulator says so, and pretends nothing.
        with pytest.raises(AssertionError, match="no freezer of cgroup version 1"):
            sick(phase("hang-unkillable"))
        return
    world = sick(phase("hang-unkillable"))
    world.deadline_s = 600
    first = phase("first", dict(NO_GPU, **{"nvml.answers": "cannot be ended and is still stuck"}), node.SILENT)
    again = phase("again", dict(NO_GPU, **{"nvml.answers": "previous NVML call still stuck"}), node.SILENT)
    for one in (first, again):
        with world.cut_off_in_a_hang():
            health = w.judge(world.reading(well.reading["kernel_log"]["position"]), well.baseline)
        matrix.assert_exactly(one, health, well)
    world.sim("clear")
    assert w.judge(world.reading(), well.baseline)["verdict"] == "pass"
