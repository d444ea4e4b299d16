# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs are reset and what stands in the way: every reason, and the case in which it is missing."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._reset import gpus as gpu_facts
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._reset import plan
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._reset.resetnode import (
    GPU,
    MIG,
    facts,
    gpu,
    holder,
    link,
    module,
    rc,
)

pytestmark = pytest.mark.pythons

ALL = ("all",)
POD = "0a1b2c3d-1111-2222-3333-444455556666"


def decide(found, gpus=ALL, **options):
    return plan.decide(found, dict({"gpus": list(gpus), "when_needed": False, "destroy_mig": False}, **options))


def ids(answer):
    return [item["id"] for item in answer["reasons"]]


# ---- what needs a reset ----


@pytest.mark.parametrize(
    "different, needs, unread",
    [
        ({}, [], []),
        ({"mig_mode_pending": 1}, ["mig_mode"], []),
        ({"ecc_mode_pending": 0}, ["ecc_mode"], []),
        ({"mig_mode_pending": 1, "ecc_mode_pending": 0}, ["mig_mode", "ecc_mode"], []),
        ({"recovery_action": 1}, ["recovery_action"], []),
        ({"recovery_action": 4}, ["recovery_action"], []),
        ({"recovery_action": 2}, [], []),
        ({"recovery_action": rc(3)}, [], []),
        ({"recovery_action": rc(2)}, [], []),  # a field that the driver does not know
        ({"recovery_action": rc(999)}, [], ["recovery_action"]),
        (
            {"remapped_rows": {"correctable": 0, "uncorrectable": 1, "pending": True, "failure": False}},
            ["remapped_rows"],
            [],
        ),
        ({"remapped_rows": rc(3)}, [], []),  # under MIG NVML hides them
        ({"remapped_rows": rc(999)}, [], ["remapped_rows"]),
        ({"retired_pages_pending": 1}, ["retired_pages"], []),
        ({"retired_pages_pending": rc(17)}, [], ["retired_pages_pending"]),
        ({"repair_status": {"channel_pending": True, "tpc_pending": True}}, ["channel_repair", "tpc_repair"], []),
        ({"repair_status": rc(4)}, [], ["repair_status"]),
        ({"mig_mode_current": rc(3), "mig_mode_pending": rc(3)}, [], []),  # a board without MIG
        ({"ecc_mode_current": rc(999)}, [], ["ecc_mode_current"]),
        ({"mig_mode_pending": rc(10)}, [], ["mig_mode_pending"]),
        ({"ecc_mode_current": rc(16), "ecc_mode_pending": rc(16)}, ["reset_required"], []),
        ({"uuid": rc(16)}, ["reset_required"], []),
        ({"handle": rc(16)}, ["reset_required"], []),
    ],
)
def test_what_a_gpu_needs(different, needs, unread):
    assert (gpu_facts.list_needs(gpu(**different)), gpu_facts.list_unread_keys(gpu(**different))) == (needs, unread)


def test_a_value_that_was_never_read_is_unread():
    found = gpu()
    del found["ecc_mode_pending"]
    assert gpu_facts.list_unread_keys(found) == ["ecc_mode_pending"]
    assert ids(decide(facts(found), when_needed=True)) == ["need_unknown"]


# ---- which GPUs ----


@pytest.mark.parametrize(
    "needed, options, action, targets",
    [
        ((), {"when_needed": False}, "reset", [0, 1]),
        ((), {"when_needed": True}, "none", []),
        ((1,), {"when_needed": True}, "reset", [1]),
        ((0, 1), {"when_needed": True}, "reset", [0, 1]),
        ((1,), {"when_needed": True, "gpus": ["0"]}, "none", []),
        ((1,), {"when_needed": False, "gpus": ["0"]}, "reset", [0]),
        ((), {"gpus": [GPU % 1]}, "reset", [1]),
        ((), {"gpus": ["0000:11:00.0"]}, "reset", [1]),
    ],
)
def test_the_gpus_that_are_reset(needed, options, action, targets):
    answer = decide(facts(*[gpu(index, ecc_mode_pending=0 if index in needed else 1) for index in (0, 1)]), **options)
    assert (answer["action"], answer["targets"], answer["reasons"], answer["added"]) == (action, targets, [], [])


@pytest.mark.parametrize("wanted", [[], ["7"], ["all", "0"], ["GPU-1"]])
def test_names_that_are_no_gpus(wanted):
    with pytest.raises(plan.WishError):
        decide(facts(), wanted)


def test_a_gpu_that_does_not_tell_what_it_needs_is_refused_only_where_that_is_asked():
    found = facts(gpu(0, recovery_action=rc(999)), gpu(1))
    assert (ids(decide(found, when_needed=True)), decide(found)["action"]) == (["need_unknown"], "reset")
    due = facts(gpu(0, recovery_action=rc(999), ecc_mode_pending=0), gpu(1))
    assert ids(decide(due, when_needed=True)) == [], "it is due anyway"


@pytest.mark.parametrize("when_needed", [True, False])
@pytest.mark.parametrize(
    "action, refused",
    [(0, False), (1, False), (2, True), (3, True), (4, False), (5, True), (6, True), (7, True), (8, True)],
)
def test_what_a_reset_does_not_recover(action, refused, when_needed):
    answer = decide(facts(gpu(0, recovery_action=action), gpu(1)), when_needed=when_needed)
    assert (ids(answer) == ["beyond_reset"]) is refused and (answer["action"] == "refuse") is refused
    assert not refused or answer["reasons"][0]["gpu"] == GPU % 0


@pytest.mark.parametrize(
    "code, refused", [(15, ["gpu_lost", "mig_unknown"]), (999, ["gpu_lost", "mig_unknown"]), (16, [])]
)
def test_a_gpu_that_nvml_does_not_open(code, refused):
    """One that only waits for a reset gets it; with the whole node, since its links cannot be read."""
    found = facts(gpu(0), gpu(1, **dict((key, rc(code)) for key in gpu() if key != "index")))
    assert ids(decide(found)) == refused and ids(decide(found, ["1"])) == ["nvlink_unknown"] + refused
    assert decide(found, ["0"])["targets"] == [0]


# ---- NVLink ----

SWITCH = link(remote="00000000:05:00.0", kind="switch")


@pytest.mark.parametrize(
    "architecture, links, manager, targets",
    [
        (9, None, False, [0]),
        (9, [link()], False, [0]),
        (7, [link()], False, [0]),
        (5, [link()], False, [0, 1]),
        (5, [link()], True, [0, 1]),
        (9, [SWITCH], True, [0]),
        (7, [SWITCH], True, [0]),
        (9, [SWITCH], False, [0, 1]),
        (9, [SWITCH], None, [0, 1]),
        (5, [SWITCH], True, [0, 1]),
        (rc(999), [link()], True, [0, 1]),
        (9, rc(999), True, [0]),
        (9, rc(999), False, None),
        (9, [link(remote=None)], False, [0]),
        (5, [link(remote=None)], True, None),
        (5, rc(999), True, None),
        (5, [link(remote=None, active=False)], True, [0]),
    ],
)
def test_gpus_that_nvlink_joins(architecture, links, manager, targets):
    """The rules of nvidia-smi(1). GPU 0 is wanted; its first link leads to GPU 1, and both are on the switches."""
    first = gpu(0, architecture=architecture, nvlinks=rc(3) if links is None else links)
    other = gpu(1, architecture=architecture, nvlinks=[SWITCH] if links == [SWITCH] else rc(3))
    answer = decide(facts(first, other, gpu(2, nvlinks=rc(3)), fabric_manager=manager), ["0"])
    assert (answer["targets"] if targets else ids(answer)) == (targets or ["nvlink_unknown"])
    assert not targets or answer["added"] == targets[1:]


def test_links_that_cannot_be_read_do_not_matter_where_all_gpus_are_reset():
    found = facts(gpu(0, nvlinks=rc(999)), gpu(1, architecture=5), fabric_manager=True)
    assert (decide(found)["targets"], ids(decide(found, ["1"]))) == ([0, 1], ["nvlink_unknown"])


def test_a_chain_of_links_is_one_group():
    chain = [
        gpu(
            index,
            architecture=5,
            nvlinks=[link(remote="00000000:%02x:00.0" % (16 + index + 1))] if index < 3 else rc(3),
        )
        for index in range(5)
    ]
    assert decide(facts(*chain), ["3"])["targets"] == [0, 1, 2, 3]


def test_what_comes_in_by_nvlink_is_looked_at_too():
    found = facts(
        gpu(0, architecture=5, nvlinks=[link()]),
        gpu(1, architecture=5, recovery_action=2, mig_instances=[MIG]),
        holders=[holder(devices=["/dev/nvidia1"])],
    )
    answer = decide(found, ["0"])
    assert sorted(ids(answer)) == ["beyond_reset", "holder", "mig_instances"]
    assert {item["gpu"] for item in answer["reasons"]} == {GPU % 1}


# ---- MIG ----


@pytest.mark.parametrize(
    "found, allowed, refused",
    [
        ([], False, []),
        ([MIG], False, ["mig_instances"]),
        ([MIG], True, []),
        (rc(999), False, ["mig_unknown"]),
        (rc(999), True, []),
        (rc(3), False, []),
        (rc(16), False, []),
    ],
)
def test_mig_instances(found, allowed, refused):
    answer = decide(facts(gpu(0, mig_instances=found), gpu(1)), destroy_mig=allowed)
    assert ids(answer) == refused
    assert answer["instances"] == ({GPU % 0: [MIG]} if found == [MIG] else {})
    assert "mig_instances" not in refused or "MIG-1" in answer["reasons"][0]["message"]


# ---- processes ----


def manager(*devices):
    return holder(comm="nv-fabricmanage", unit="nvidia-fabricmanager.service", devices=list(devices))


@pytest.mark.parametrize(
    "item, gpus, refused",
    [
        (holder(), ALL, "holder"),
        (holder(), ["0"], "holder"),
        (holder(), ["1"], None),  # at work on another GPU
        (holder(devices=["/dev/nvidia0", "/dev/nvidia1"]), ["1"], "holder"),
        (holder(devices=["/dev/nvidiactl", "/dev/nvidia-uvm"]), ["1"], "holder"),  # of which GPU cannot be told
        (holder(devices=["/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia0"]), ["1"], None),
        (holder(devices=["/dev/nvidia-caps/nvidia-cap3"]), ["1"], "holder"),
        (holder(comm="nvidia-persiste", unit="nvidia-persistenced.service"), ALL, None),
        (manager("/dev/nvidiactl", "/dev/nvidia-nvswitch0"), ALL, None),
        # A name is any process's to take.
        (holder(comm="nvidia-persiste"), ALL, "holder"),
        (holder(comm="nvidia-persiste", unit="nvidia-persistenced.service", pod=POD), ALL, "holder"),
        (holder(comm="nv-fabricmanage", unit="user@1000.service"), ALL, "holder"),
        (holder(comm="nv-hostengine", unit="nvidia-dcgm.service"), ALL, "dcgm_holder"),
        (holder(comm="dcgm-exporter", pod=POD), ALL, "dcgm_holder"),
        (holder(comm="nv-hostengine"), ["1"], None),
        (holder(pod=POD), ALL, "holder"),
        (holder(job="77"), ALL, "holder"),
        (holder(comm=None, unit=None), ALL, "holder"),
    ],
)
def test_processes(item, gpus, refused):
    answer = decide(
        facts(holders=[item], references={"nvidia": module(9, "nvidia_uvm"), "nvidia_uvm": module(3)}), gpus
    )
    assert ids(answer) == ([refused] if refused else [])
    if refused:
        said = answer["reasons"][0]
        assert "pid 812" in said["message"] and said["next_step"]
        assert all(item[key] in said["message"] for key in ("unit", "pod", "job", "comm") if item[key])


def test_every_process_is_named():
    assert len(ids(decide(facts(holders=[holder(1), holder(2), holder(3, comm="nv-hostengine")])))) == 3


def test_processes_that_cannot_be_listed():
    assert ids(decide(facts(holders=None))) == ["holders_unknown"]


def test_a_gpu_whose_device_file_is_not_known_may_be_any():
    found = facts(gpu(0, minor_number=rc(999)), gpu(1), holders=[holder(devices=["/dev/nvidia1"])])
    assert ids(decide(found, ["0"])) == ["holder"]


def test_a_fabric_manager_does_not_take_part_in_resets_before_ampere():
    assert ids(decide(facts(gpu(0, architecture=5), gpu(1), holders=[manager("/dev/nvidiactl")]))) == ["holder"]


# ---- kernel modules, tasks, the command ----


def hung(where):
    return {"pid": 7, "process": 7, "comm": "python3", "state": "D", "seconds": 5.0, "where": where}


@pytest.mark.parametrize(
    "different, refused",
    [
        ({"drm_modeset": "N"}, []),
        ({"drm_modeset": "Y"}, ["drm_holds"]),
        ({"drm_modeset": "unknown"}, ["drm_holds"]),
        ({"drm_modeset": None}, []),
        ({"references": None}, ["modules_unknown"]),
        ({"references": {"nvidia": module(1, "gsched"), "gsched": module()}}, ["foreign_module"]),
        ({"references": {"nvidia": module(3, "nvidia_uvm"), "nvidia_uvm": module()}}, ["unexplained_reference"]),
        (
            {
                "references": {"nvidia": module(3, "nvidia_uvm"), "nvidia_uvm": module()},
                "holders": [holder(comm="nvidia-persiste", unit="nvidia-persistenced.service")],
            },
            [],
        ),
        ({"references": {"nvidia": {"refcnt": None, "holders": []}}}, ["refcnt_unknown"]),
        ({"references": {"nvidia": module(1, "nvidia_peermem"), "nvidia_peermem": module()}}, []),
        ({"command": False}, ["no_command"]),
        ({"hung": None}, ["hung_unknown"]),
        ({"hung": [hung("stack [nvidia]")]}, ["hung_task"]),
        ({"hung": [hung("open /dev/nvidia0")]}, []),
    ],
)
def test_what_else_stands_in_the_way(different, refused):
    answer = decide(facts(**different))
    assert ids(answer) == refused and answer["action"] == ("refuse" if refused else "reset")


def test_persistence_mode_without_the_daemon_is_a_reference_that_goes_before_the_reset():
    found = facts(gpu(0, persistence_mode=1), gpu(1), references={"nvidia": module(2)})
    assert ids(decide(found)) == [] and decide(found)["persistence"] == [0]
    assert ids(decide(found, ["1"])) == ["unexplained_reference"]


def test_nothing_is_asked_of_a_node_on_which_nothing_is_due():
    answer = decide(facts(holders=[holder()], drm_modeset="Y", command=False), when_needed=True)
    assert (answer["action"], answer["reasons"]) == ("none", [])


def test_the_sentence_names_each_step_once():
    text = plan.make_sentence([plan.make_reason("a", "first", "stop it"), plan.make_reason("b", "second", "stop it")])
    assert text.count("stop it") == 1 and "first; second" in text
