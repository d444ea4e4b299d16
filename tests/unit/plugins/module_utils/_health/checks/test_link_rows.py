# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of the rows about links: PCIe, NVLink, peer-to-peer access, the NVLink fabric."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import compare
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import fabric
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import cases, readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.cases import (
    ABSENT,
    FAIL,
    GONE,
    NO_BASELINE,
    NOTICE,
    PASS,
    SKIP,
    UNKNOWN,
    absences,
    same_load,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed

JOB = {"clocks_event_reasons": 0, "compute_processes": [{"pid": 1, "used_bytes": 1}]}
DOWN = [True] * 17 + [False]
MINE, OTHER = "0000:1b:00.0", readings.uuid(0)
MY_GPU = "GPU-00000001 at " + MINE
OK = {"read": 0, "write": 0, "nvlink": 0, "atomics": 0}


def links(change=None, **counters_of_3):
    """18 healthy links; link 3 with CHANGE and these error counters."""
    found = [readings.nvlink(number) for number in range(18)]
    for link in found:
        link["errors"].update((name, 0) for name in counters_of_3 if name not in link["errors"])
    found[3].update(change or {})
    found[3]["errors"].update(counters_of_3)
    return found


def uncounted(name, numbers=range(18)):
    found = links()
    for number in numbers:
        found[number]["errors"][name] = None
    return found


def nvlinks(*change, **counters_of_3):
    return {"nvlinks": links(*change, **counters_of_3)}


def without_counter(*counter):
    return {"nvlinks": uncounted(*counter)}


def joined(**change):
    return dict(readings.FABRIC, **change)


def bus(aer, **more):
    """A section "system" whose GPU 1 has these PCIe errors."""
    section = readings.system()
    section["pci"][MINE]["aer"] = aer
    section.update(more)
    return section


def with_errors(aer, **options):
    return dict(reading={"system": bus(aer)}, **options)


def errors(correctable=0, nonfatal=0, fatal=0):
    return {"correctable": correctable, "nonfatal": nonfatal, "fatal": fatal}


def early(aer, uptime=3000.0):
    """A baseline of the same boot, 600 s earlier."""
    return {"boot_id": "x", "system": bus(aer, uptime_s=uptime)}


CASES = cases.table(
    {
        "gpu.pcie_generation": [
            ({}, {}, PASS),
            ({"pcie_gen_current": 1}, {}, PASS, "none", "idle"),
            (
                dict(JOB, pcie_gen_current=4),
                {},
                FAIL,
                "hold",
                "generation 4; expected 5 as in the baseline, and the GPU is working",
            ),
            (dict(JOB, pcie_gen_current=4), {}, PASS, dict(policy_change={"pcie_generation_loss_max": 1})),
            (dict(JOB, pcie_gen_current=4), {"pcie_gen_current": 1}, PASS),
            ({"pcie_gen_current": 4, "clocks_event_reasons": GONE}, {}, UNKNOWN, "hold", "whether the GPU is idle"),
            (dict(JOB, pcie_gen_current=4), NO_BASELINE, SKIP),
            ({}, {"pcie_gen_current": GONE}, UNKNOWN, "hold"),
            *absences("pcie_gen_current"),
        ],
        "gpu.pcie_generation_max": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            ({"pcie_gen_max": 4}, {}, FAIL, "hold", "can reach generation 4 (pcie_gen_max); expected 5"),
            ({"pcie_gen_device_max": 4}, {}, FAIL, "hold", "pcie_gen_device_max"),
            ({"pcie_gen_max": 4}, {"pcie_gen_max": 4}, NOTICE, "none", "riser"),
            ({"pcie_gen_max": 4}, NO_BASELINE, NOTICE),
            ({"pcie_gen_device_max": ABSENT}, {"pcie_gen_device_max": ABSENT}, PASS),
            ({"pcie_gen_device_max": ABSENT}, {}, FAIL, "hold"),
            ({}, {"pcie_gen_device_max": GONE}, UNKNOWN, "hold"),
            *absences("pcie_gen_max"),
        ],
        "gpu.pcie_width": [
            ({}, {}, PASS),
            (
                {"pcie_width_current": 8},
                {},
                FAIL,
                "hold",
                "8 lanes (pcie_width_current); expected 16 as in the baseline",
            ),
            ({"pcie_width_current": 8}, {}, NOTICE, dict(policy_change={"pcie_width_loss_max": 8})),
            ({"pcie_width_max": 8}, {}, FAIL, "hold", "pcie_width_max"),
            ({"pcie_width_current": 8}, {"pcie_width_current": 8}, NOTICE, "none", "expected 16, which it can have"),
            ({"pcie_width_current": 8}, NO_BASELINE, FAIL, "hold", "as other GPUs of its model here"),
            ({"pcie_width_current": 8}, NO_BASELINE, NOTICE, dict(peers={"pcie_width_current": 8})),
            ({"pcie_width_current": 8}, NO_BASELINE, NOTICE, dict(peers={"name": "NVIDIA L4"})),
            ({}, {"pcie_width_max": GONE}, UNKNOWN, "hold"),
            *absences("pcie_width_current"),
            *absences("pcie_width_max"),
        ],
        "gpu.pcie_replay": [
            ({"pcie_replay_count": 100}, NO_BASELINE, PASS),
            ({"pcie_replay_count": 101}, NO_BASELINE, NOTICE, "none", "101 since the driver was loaded; up to 100"),
            ({"pcie_replay_count": 500}, {"pcie_replay_count": 420}, PASS, same_load()),
            ({"pcie_replay_count": 501}, {"pcie_replay_count": 420}, NOTICE, "none", "8.1 a minute", same_load()),
            ({"pcie_replay_count": 500}, {"pcie_replay_count": 500}, PASS, same_load(None)),
            ({"pcie_replay_count": 500}, {"pcie_replay_count": 420}, UNKNOWN, "hold", same_load(None)),
            (
                {"pcie_replay_count": 500},
                {"pcie_replay_count": 600},
                NOTICE,
                "none",
                "since the driver was loaded",
                same_load(),
            ),
            ({"pcie_replay_count": 500}, {"pcie_replay_count": 420}, NOTICE, "none", "since the driver was loaded"),
            *absences("pcie_replay_count"),
        ],
        "gpu.pcie_aer": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS, with_errors(errors(correctable=1000))),
            ({}, NO_BASELINE, NOTICE, "none", "1001 since the node booted", with_errors(errors(correctable=1001))),
            ({}, NO_BASELINE, NOTICE, "none", "Uncorrectable", with_errors(errors(nonfatal=1))),
            ({}, {}, NOTICE, "none", "Uncorrectable", with_errors(errors(fatal=1))),
            ({}, {}, PASS, with_errors(errors(fatal=1), baseline=early(errors(fatal=1)))),
            ({}, {}, NOTICE, "none", "9.0 a minute", with_errors(errors(correctable=90), baseline=early(errors()))),
            (
                {},
                {},
                UNKNOWN,
                "hold",
                dict(reading={"system": bus(errors(correctable=90))}, baseline={"boot_id": "x", "system": None}),
            ),
            ({}, {}, SKIP, dict(reading={"system": dict(bus({}), pci={MINE: {"aer": {}, "upstream": None}})})),
            ({}, {}, UNKNOWN, "hold", "as root", dict(reading={"system": bus(None)})),
            ({}, {}, UNKNOWN, "hold", dict(reading={"system": bus({"correctable": 0})})),
            ({}, {}, UNKNOWN, "hold", dict(reading={"system": dict(readings.system(), pci={})})),
            ({}, {}, UNKNOWN, "hold", dict(reading={"system": None})),
        ],
        "gpu.nvlink": [
            ({}, {}, PASS),
            (
                {"nvlink_active": DOWN},
                {},
                FAIL,
                "reset_gpu",
                "NVLink 17 of %s is down: 17 are active; expected 18" % MY_GPU,
            ),
            (
                {"nvlink_active": [True] * 16},
                {},
                FAIL,
                "reset_gpu",
                "NVLinks 16, 17 of %s are down: 16 are active" % MY_GPU,
            ),
            ({"nvlink_active": [False] + [True] * 17}, {"nvlink_active": DOWN}, FAIL, "reset_gpu", "NVLink 0 of"),
            ({"nvlink_active": DOWN}, {"nvlink_active": DOWN}, PASS),
            ({"nvlink_active": [True] * 19}, {}, PASS),
            (
                {"nvlink_active": DOWN},
                NO_BASELINE,
                FAIL,
                "reset_gpu",
                "17 active NVLinks; expected 18 as other GPUs of its model here (NVLink 17 is down).",
            ),
            (
                {"nvlink_active": DOWN},
                NO_BASELINE,
                NOTICE,
                "none",
                "17 active NVLinks; expected 18, if all are connected",
                dict(peers={"nvlink_active": DOWN}),
            ),
            ({"nvlink_active": [False] * 12}, NO_BASELINE, NOTICE, dict(peers={"name": "NVIDIA L4"})),
            ({"nvlink_active": [False] * 12}, NO_BASELINE, FAIL, "reset_gpu", dict(peers={"name": failed(4)})),
            ({}, NO_BASELINE, PASS),
            ({}, {"nvlink_active": 18}, UNKNOWN, "hold"),
            *absences("nvlink_active", "reset_gpu"),
        ],
        "gpu.nvlink_remote": [
            ({}, {}, PASS),
            (nvlinks({"version": 3}), {}, FAIL, "hold", "link 3: version 3, expected 4"),
            (nvlinks({"version": None}), {}, FAIL, "hold"),
            ({"nvlinks": links()[:-1]}, {}, FAIL, "hold", "link 17: not there"),
            (nvlinks({"version": 5}), {}, PASS),
            (nvlinks({"remote_pci": "00000000:99:00.0"}), {}, NOTICE, "none", "hardware was moved"),
            ({}, nvlinks({"version": None, "remote_pci": None}), PASS),
            ({}, NO_BASELINE, SKIP),
            ({}, {"nvlinks": GONE}, UNKNOWN, "hold"),
            *absences("nvlinks"),
        ],
        "gpu.nvlink_recovery": [
            ({}, {}, PASS),
            (nvlinks(recovery=1), NO_BASELINE, FAIL, "reset_gpu", "link 3: 1"),
            (nvlinks(recovery=1), nvlinks(recovery=1), FAIL, "reset_gpu", "since the driver was loaded"),
            (nvlinks(recovery=1), nvlinks(recovery=1), PASS, same_load()),
            (nvlinks(recovery=2), nvlinks(recovery=1), FAIL, "reset_gpu", "since the baseline", same_load()),
            (nvlinks(recovery=1), nvlinks(recovery=5), FAIL, "reset_gpu", same_load()),
            (nvlinks(recovery=1), {}, PASS, dict(policy_change={"nvlink_recoveries_max": 1})),
            (nvlinks(recovery_failed=0), NO_BASELINE, PASS),
            (
                nvlinks(recovery_failed=1),
                NO_BASELINE,
                FAIL,
                "reset_gpu",
                "failed to recover since the driver was loaded",
            ),
            (nvlinks(recovery_failed=1), nvlinks(recovery_failed=1), PASS, same_load()),
            (nvlinks(recovery_failed=2), nvlinks(recovery_failed=1), FAIL, "reset_gpu", "since", same_load()),
            (nvlinks(recovery_failed=1), {}, PASS, dict(policy_change={"nvlink_failed_recoveries_max": 1})),
            (nvlinks(recovery=1, recovery_failed=2), NO_BASELINE, FAIL, "reset_gpu", "and failed to recover"),
            ({}, nvlinks(recovery_failed=0), UNKNOWN, "hold", "recovery_failed"),
            (without_counter("recovery", [4]), NO_BASELINE, UNKNOWN, "hold", "for link 4"),
            (without_counter("recovery"), NO_BASELINE, UNKNOWN, "hold"),
            (without_counter("recovery"), NO_BASELINE, SKIP, dict(peers=without_counter("recovery"))),
            (without_counter("recovery"), {}, UNKNOWN, "hold", dict(peers=without_counter("recovery"))),
            (nvlinks(recovery=-1), NO_BASELINE, UNKNOWN, "hold", "for link 3"),
            (nvlinks({"active": False, "errors": {}}), NO_BASELINE, PASS),
            *absences("nvlinks"),
        ],
        "gpu.nvlink_errors": [
            ({}, {}, PASS),
            (nvlinks(crc_flit=10000, replay=10), NO_BASELINE, PASS),
            (nvlinks(crc_flit=10001), NO_BASELINE, NOTICE, "none", "CRC errors (crc_flit)"),
            (nvlinks(crc_data=10001), {}, NOTICE, "none", "crc_data"),
            (nvlinks(replay=11), NO_BASELINE, NOTICE, "none", "replays"),
            (nvlinks(effective=10000, symbol=10**9), NO_BASELINE, PASS),
            (nvlinks(effective=10001), NO_BASELINE, NOTICE, "none", "errors after correction (effective)"),
            (nvlinks(symbol=10**9 + 1), NO_BASELINE, NOTICE, "none", "symbol errors"),
            (nvlinks(symbol=3 * 10**8), nvlinks(symbol=0), NOTICE, "none", "a minute", same_load()),
            (nvlinks(crc_flit=-1), NO_BASELINE, UNKNOWN, "hold", "for link 3"),
            ({}, nvlinks(effective=0), UNKNOWN, "hold", "effective"),
            (nvlinks(replay=11), nvlinks(replay=11), PASS, same_load()),
            (nvlinks(replay=12), nvlinks(replay=11), NOTICE, "none", "0.1 a minute", same_load()),
            (nvlinks(crc_flit=59999), {}, PASS, same_load()),
            (nvlinks(crc_flit=60001), {}, NOTICE, "none", "6000.1 a minute", same_load()),
            (nvlinks(replay=12), without_counter("replay"), UNKNOWN, "hold", "no number", same_load()),
            (without_counter("crc_flit", [0]), NO_BASELINE, UNKNOWN, "hold", "crc_flit"),
            *absences("nvlinks"),
        ],
        "gpu.p2p": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            (
                {"p2p": {OTHER: dict(OK, nvlink=3)}},
                {},
                FAIL,
                "hold",
                "nvlink to GPU-00000000: not supported by the topology, expected ok",
            ),
            ({"p2p": {}}, {}, FAIL, "hold", "not told"),
            ({"p2p": {OTHER: dict(OK, nvlink=3)}}, {"p2p": {OTHER: dict(OK, nvlink=3)}}, PASS),
            ({"p2p": {}}, {"p2p": {"GPU-that-is-gone": OK}}, PASS),
            ({"p2p": {OTHER: dict(OK, atomics=5)}}, NO_BASELINE, PASS),
            ({"p2p": {OTHER: dict(OK, atomics=6)}}, NO_BASELINE, UNKNOWN, "hold"),
            ({"p2p": {OTHER: dict(OK, atomics=None)}}, NO_BASELINE, UNKNOWN, "hold"),
            ({"p2p": {OTHER: dict(OK, read=4)}}, NO_BASELINE, NOTICE, "none", "options of the kernel module"),
            ({"p2p": {OTHER: dict(OK, read=99)}}, NO_BASELINE, UNKNOWN, "hold"),
            ({}, {"p2p": GONE}, UNKNOWN, "hold"),
            *absences("p2p"),
        ],
        "gpu.fabric": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            ({"fabric": joined(state=0)}, NO_BASELINE, SKIP),
            ({"fabric": joined(state=0)}, {}, FAIL, "restart_service", "not supported; expected completed"),
            ({"fabric": joined(state=2)}, {}, UNKNOWN, "hold", "Read again for up to 300 s"),
            ({"fabric": joined(state=1)}, {}, FAIL, "restart_service", "not started"),
            ({"fabric": joined(state=1)}, {}, UNKNOWN, "hold", "Read again", dict(reading={"uptime_s": 60.0})),
            ({"fabric": joined(state=1)}, {}, FAIL, "restart_service", dict(reading={"uptime_s": None})),
            ({"fabric": joined(state=7)}, {}, UNKNOWN, "hold"),
            ({"fabric": {}}, {}, UNKNOWN, "hold"),
            ({"fabric": joined(status=999)}, {}, FAIL, "restart_service", "NVML status 999"),
            ({"fabric": joined(status=None)}, {}, UNKNOWN, "hold"),
            ({"fabric": joined(health_mask=0b0001_10_10_10_10, health_summary=1)}, NO_BASELINE, PASS),
            ({"fabric": joined(health_mask=0)}, NO_BASELINE, PASS),
            ({"fabric": joined(health_mask=0b0001_10_10_10_01)}, {}, FAIL, "hold", "degraded bandwidth (1)"),
            (
                {"fabric": joined(health_mask=0b0100_10_01_10_10)},
                {},
                FAIL,
                "hold",
                "route unhealthy (1), incorrect configuration (4)",
            ),
            ({"fabric": joined(health_summary=3)}, {}, FAIL, "hold", "limited capacity"),
            *absences("fabric", "restart_service"),
        ],
        "gpu.fabric_clique": [
            ({}, {}, PASS),
            ({"fabric": joined(clique_id=1)}, {}, FAIL, "hold", "clique 1; expected cluster"),
            ({"fabric": joined(cluster_uuid="1" * 32)}, {}, FAIL, "hold"),
            ({"fabric": joined(state=2)}, {}, UNKNOWN, "restart_service", "See gpu.fabric"),
            ({"fabric": joined(clique_id=None)}, {}, UNKNOWN, "restart_service"),
            ({}, {"fabric": joined(state=0)}, SKIP),
            ({}, NO_BASELINE, SKIP),
            ({}, {"fabric": GONE}, UNKNOWN, "hold"),
            *absences("fabric", "restart_service"),
        ],
    }
)


@pytest.mark.parametrize("one", CASES, ids=cases.name)
def test_the_truth_table(one):
    cases.holds(one)


def test_a_condition_of_the_fabric_is_found_wherever_it_is_in_the_mask():
    for name, shift, width, healthy in fabric.CONDITIONS:
        for found in range(width + 1):
            verdict = (PASS,) if found in healthy else (FAIL, "hold", name)
            now = {"fabric": joined(health_mask=found << shift)}
            cases.holds(*cases.table({"gpu.fabric": [(now, NO_BASELINE, *verdict)]}))


def test_a_link_that_is_damaged_in_the_reading_is_nothing_to_go_by():
    for rubbish in ([None], ["x"], [{"link": True}], [{}], [{"link": 0, "active": True, "errors": "x"}]):
        assert cases.ask("gpu.nvlink_recovery", {"nvlinks": rubbish}, {})["status"] != PASS
        assert cases.ask("gpu.nvlink_remote", {"nvlinks": rubbish}, {})["status"] == FAIL


def test_a_link_without_its_number_still_counts():
    found = links(crc_flit=10**9)
    for link in found:
        del link["link"]
    for ident in ("gpu.nvlink_errors", "gpu.nvlink_recovery"):
        for baseline in ({}, NO_BASELINE):
            check = cases.ask(ident, {"nvlinks": found[:1] + links()[1:]}, baseline)
            assert (
                check["status"] == UNKNOWN and "%s of %s have one" % (len(found) - 1, len(found)) in check["message"]
            ), check


@pytest.mark.parametrize(
    "boots, drivers, expected",
    [
        (("x", "x"), ("1", "1"), True),
        (("x", "b"), ("1", "1"), False),
        (("x", "x"), ("1", "2"), False),
        (("x", None), ("1", "1"), None),
        (("", "x"), ("1", "1"), None),
        (("x", "x"), ("1", None), None),
        (("x", "b"), ("1", None), None),
    ],
)
def test_counters_go_on_only_within_one_load_of_the_driver(boots, drivers, expected):
    class Context:
        reading = {"boot_id": boots[0]}
        snapshot = {"system": {"driver_version": readings.value(drivers[0])}}
        baseline = {"boot_id": boots[1], "snapshot": {"system": {"driver_version": readings.value(drivers[1])}}}

    assert compare.is_same_load(Context) is expected
    Context.baseline = None
    assert compare.is_same_load(Context) is False
