# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reload or reboot: every reason, what each policy makes of it, and what is stopped and unloaded in which order."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import reload
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import loaded
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders, units
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import Recorded, write

OLD, NEW, RUNNING, NEXT = "535.216.03", "535.261.03", "6.1.0-50-amd64", "6.1.0-56-amd64"
PERSISTENCED, DCGM = "nvidia-persistenced.service", "nvidia-dcgm.service"
COMPUTES = ("/dev/nvidia-uvm", "/dev/nvidia0")
POD = "0a1b2c3d-1111-2222-3333-444455556666"


def service(active="active", *names):
    return {"load": "loaded", "active": active, "names": list(names)}


def holder(pid=812, unit=PERSISTENCED, pod=None, job=None, comm="nvidia-persiste", devices=("/dev/nvidia0",)):
    return {"pid": pid, "user": "nvpd", "comm": comm, "unit": unit, "pod": pod, "job": job, "devices": list(devices)}


def module(refcnt=0, *users):
    return {"refcnt": refcnt, "holders": list(users)}


def good():
    """A node with a new driver on its disk, and nothing in the way."""
    return {
        "kernel": {
            "running": RUNNING,
            "installed": [RUNNING],
            "next_boot": RUNNING,
            "next_boot_source": "grub.cfg default",
        },
        "loaded": {"state": "loaded", "version": OLD, "flavour": "proprietary", "disagree": False, "nouveau": False},
        "module": {
            "path": "/lib/modules/x/nvidia.ko",
            "version": NEW,
            "vermagic": RUNNING + " SMP",
            "license": "NVIDIA",
            "signer": None,
            "error": None,
        },
        "references": {
            "nvidia": module(3, "nvidia_modeset", "nvidia_uvm"),
            "nvidia_uvm": module(0),
            "nvidia_modeset": module(1, "nvidia_drm"),
            "nvidia_drm": module(0),
        },
        "holders": [holder()],
        "services": {DCGM: service("inactive", DCGM), PERSISTENCED: service("active", PERSISTENCED)},
        "hung": [],
        "nvswitches": [],
        "nvlink_managers": {"found": [], "unread": []},
        "gsp_firmware": [NEW, OLD],
        "gsp_disabled": False,
        "secure_boot": {"state": "disabled", "keys": None},
        "framebuffers": "0 EFI VGA\n",
    }


def options(**changed):
    return dict(
        {"policy": "auto", "services": [DCGM, PERSISTENCED], "version": None, "force": False, "nvswitch": False},
        **changed,
    )


def changed(path, value):
    facts = good()
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return facts


def test_a_reload_and_its_order():
    plan = reload.decide_reload(good(), options())
    assert (plan["action"], plan["reasons"], plan["version"]) == ("reload", [], NEW)
    assert plan["stop"] == [PERSISTENCED], "only what runs"
    assert plan["unload"] == ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
    assert "535.216.03 is loaded, and 535.261.03 is on the disk" in plan["why"]


@pytest.mark.parametrize(
    ("path", "value", "ident", "words", "helps"),
    [
        (("kernel", "next_boot"), NEXT, "kernel_pending", "boots next", True),
        (("loaded", "nouveau"), True, "nouveau", "nouveau is loaded", True),
        (
            ("hung",),
            [{"pid": 9, "process": 9, "comm": "nv_queue", "state": "D", "seconds": 5, "where": "kernel thread"}],
            "hung_task",
            "nv_queue (pid 9)",
            True,
        ),
        (("hung",), None, "hung_unknown", "/proc", True),
        (("nvswitches",), [{"address": "0000:07:00.0"}] * 4, "fabric", "4 NVSwitches", True),
        (("nvswitches",), None, "fabric_unknown", "PCI bus", True),
        (
            ("nvlink_managers",),
            {"found": [{"address": "0000:05:00.0"}] * 2, "unread": []},
            "fabric",
            "2 adapters",
            True,
        ),
        (("nvlink_managers",), {"found": [], "unread": ["0000:05:00.0"]}, "fabric_unknown", "0000:05:00.0", True),
        (("nvlink_managers",), None, "fabric_unknown", "PCI bus", True),
        (("framebuffers",), "0 nvidia-drmdrmfb\n", "console", "0 nvidia-drmdrmfb", True),
        (("services",), None, "services_unknown", PERSISTENCED, True),
        (("holders",), None, "holders_unknown", "/proc", False),
        (
            ("holders",),
            [holder(), holder(4711, "user@1000.service", comm="python3")],
            "foreign_holder",
            "python3 (pid 4711, user nvpd, unit user@1000.service) has /dev/nvidia0 open",
            True,
        ),
        (
            ("holders",),
            [holder(4711, None, comm="python3")],
            "foreign_holder",
            "python3 (pid 4711, user nvpd) has",
            True,
        ),
        (("holders",), [holder(5, "cri-containerd-abc.scope", pod=POD)], "at_work", "pod " + POD, False),
        (("holders",), [holder(5, "slurmstepd.scope", job="77")], "at_work", "Slurm job 77", False),
        (
            ("holders",),
            [holder(5, "user@1000.service", comm="python3", devices=COMPUTES)],
            "at_work",
            "/dev/nvidia-uvm, /dev/nvidia0 open and is none of the services to stop, and a reboot would end its work",
            False,
        ),
        (("references",), None, "modules_unknown", "/sys/module", True),
        (("references", "nvidia_uvm"), {"refcnt": None, "holders": []}, "refcnt_unknown", "nvidia_uvm", True),
        (("references", "nvidia_uvm"), {"refcnt": 0, "holders": None}, "refcnt_unknown", "nvidia_uvm", True),
        (
            ("references",),
            {"nvidia": module(1, "nvidia_vgpu_vfio"), "nvidia_vgpu_vfio": module(0)},
            "foreign_module",
            "nvidia_vgpu_vfio uses nvidia",
            True,
        ),
        (
            ("references",),
            {"nvidia": module(1, "nvidia_uvm"), "nvidia_uvm": module(1, "nvidia")},
            "module_circle",
            "use each other",
            True,
        ),
        (("module",), None, "no_module", "there is no NVIDIA module", False),
        (("module", "version"), None, "no_module", RUNNING, False),
        (("module", "vermagic"), NEXT + " SMP", "vermagic", "is made for %s SMP" % NEXT, False),
        (("gsp_firmware",), [OLD], "gsp_firmware", "only that of " + OLD, False),
        (("secure_boot",), {"state": "enabled", "keys": []}, "unsigned", "is not signed", False),
    ],
)
def test_every_reason_against_a_reload(path, value, ident, words, helps):
    facts = changed(path, value)
    auto, strict = reload.decide_reload(facts, options()), reload.decide_reload(facts, options(policy="reload"))
    assert [item["id"] for item in auto["reasons"]] == [ident]
    assert words in auto["reasons"][0]["message"] and auto["reasons"][0]["next_step"]
    assert (auto["action"], strict["action"]) == ("reboot" if helps else "refuse", "refuse")
    assert auto["stop"] == [] == auto["unload"], "nothing is stopped for what will not be done"
    assert auto["reasons"][0]["message"] in reload.make_sentence(
        auto["reasons"]
    ) and "Next step: " in reload.make_sentence(auto["reasons"])


@pytest.mark.parametrize("policy", ["auto", "reload", "reboot"])
@pytest.mark.parametrize(
    ("one", "hung", "works"),
    [
        (holder(5, "user@1000.service", devices=COMPUTES), [], True),
        (holder(5, "cri-containerd-abc.scope", pod=POD), [], True),
        (holder(5, PERSISTENCED, pod=POD), [], True),
        (holder(5, "slurmstepd.scope", job="77"), [], True),
        (holder(5, None, devices=("/dev/nvidia-uvm-tools",)), [], True),
        (holder(5, DCGM, devices=COMPUTES), [], False),
        (holder(5, "user@1000.service"), [], False),
        # What hangs in the driver, here by another of its threads, is ended by nothing but a reboot.
        (
            holder(5, "user@1000.service", devices=COMPUTES),
            [{"pid": 7, "process": 5, "comm": "python3", "where": "stack [nvidia]"}],
            False,
        ),
        # A thread that waits for a slow file system is no end of its process.
        (
            holder(5, "user@1000.service", devices=COMPUTES),
            [{"pid": 7, "process": 5, "comm": "loader", "where": "open /dev/nvidia0"}],
            True,
        ),
        (
            holder(5, "user@1000.service", devices=COMPUTES),
            [{"pid": 5, "process": 6, "comm": "python3", "where": "stack [nvidia]"}],
            True,
        ),
    ],
)
def test_no_reboot_ends_somebodys_work(policy, one, hung, works):
    facts = changed(("holders",), [holder(), one])
    facts["hung"] = hung
    facts["services"][DCGM] = service("active", DCGM)
    plan = reload.decide_reload(facts, options(policy=policy))
    assert ("at_work" in [item["id"] for item in plan["reasons"]]) == works
    if works:
        assert plan["action"] == "refuse"
    elif policy == "reboot":
        assert plan["action"] == "reboot" and [item["id"] for item in plan["reasons"]] == ["policy"]


def test_nobody_is_rebooted_who_cannot_be_looked_at():
    plan = reload.decide_reload(changed(("holders",), None), options(policy="reboot"))
    assert plan["action"] == "refuse" and [item["id"] for item in plan["reasons"]] == ["policy", "holders_unknown"]
    plan = reload.decide_reload(changed(("services",), None), options(policy="reboot"))
    assert plan["action"] == "reboot", "a service that holds a GPU says by its control group which it is"


def test_a_reference_that_nobody_explains_counts_when_no_process_holds_a_device():
    """While processes do, the count of opened files is not known."""
    facts = changed(("references", "nvidia_uvm"), module(2))
    assert reload.decide_reload(facts, options())["action"] == "reload"
    facts["holders"] = []
    plan = reload.decide_reload(facts, options())
    assert plan["action"] == "reboot" and {item["id"] for item in plan["reasons"]} == {"unexplained_reference"}
    assert (
        "nvidia has 1 references" in plan["reasons"][0]["message"]
        and "nvidia_uvm has 2 references" in plan["reasons"][1]["message"]
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nvswitches",), []),
        (("gsp_firmware",), []),
        (("framebuffers",), None),
        (("kernel", "next_boot"), None),
        (("secure_boot",), {"state": "unknown", "keys": None}),
        (("loaded", "nouveau"), None),
        (("holders",), []),
    ],
)
def test_what_is_no_reason(path, value):
    facts = changed(path, value)
    facts["references"]["nvidia"]["refcnt"] = 2
    assert reload.decide_reload(facts, options())["action"] == "reload"


def test_a_signed_module_under_secure_boot_firmware_switched_off_and_switches_that_are_allowed():
    facts = changed(("secure_boot",), {"state": "enabled", "keys": ["DKMS module signing key"]})
    facts["module"]["signer"] = "DKMS module signing key"
    facts.update(
        gsp_firmware=[OLD],
        gsp_disabled=True,
        nvswitches=[{}],
        nvlink_managers={"found": [{}], "unread": ["0000:05:00.0"]},
    )
    assert reload.decide_reload(facts, options(nvswitch=True))["action"] == "reload"


@pytest.mark.parametrize("state,action", [({"keys": ["other"]}, "refuse"), ({"keys": None}, "reload")])
def test_a_module_of_a_key_that_is_not_enrolled_is_not_unloaded_for(state, action):
    facts = changed(("secure_boot",), dict(state, state="enabled"))
    facts["module"]["signer"] = "DKMS module signing key"
    found = reload.decide_reload(facts, options())
    assert (found["action"] == "reload") is (action == "reload"), found


def test_nothing_is_due():
    facts = changed(("loaded", "version"), NEW)
    for policy in ("auto", "reload", "reboot"):
        plan = reload.decide_reload(facts, options(policy=policy))
        assert (plan["action"], plan["why"], plan["reasons"]) == ("none", "", [])
    assert reload.decide_reload(facts, options(force=True))["action"] == "reload"
    assert reload.decide_reload(facts, options(version=NEW))["action"] == "none"


def test_another_flavour_of_the_same_version_is_due():
    facts = changed(("loaded", "version"), NEW)
    facts["module"]["license"] = "Dual MIT/GPL"
    plan = reload.decide_reload(facts, options())
    assert plan["action"] == "reload" and "the proprietary driver" in plan["why"]


@pytest.mark.parametrize(("state", "words"), [("not_loaded", "no driver is loaded"), ("unknown", "cannot be told")])
def test_no_driver_is_loaded(state, words):
    facts = good()
    facts["loaded"].update(state=state, version=None, flavour=None)
    assert words in reload.is_needed(facts)


def test_another_kernel_boots_next_while_the_driver_is_right():
    facts = changed(("loaded", "version"), NEW)
    facts["kernel"]["next_boot"] = NEXT
    assert [
        reload.decide_reload(facts, options(policy=policy))["action"] for policy in ("auto", "reboot", "reload")
    ] == ["reboot", "reboot", "refuse"]


def test_a_module_that_is_missing_for_a_kernel_that_goes_is_no_reason_against_the_reboot():
    facts = changed(("module",), None)
    facts["kernel"]["next_boot"] = NEXT
    plan = reload.decide_reload(facts, options())
    assert plan["action"] == "reboot" and [item["id"] for item in plan["reasons"]] == ["kernel_pending"]


@pytest.mark.parametrize("policy", ["auto", "reload", "reboot"])
def test_the_wrong_version_on_the_disk_is_refused_whatever_the_policy(policy):
    plan = reload.decide_reload(good(), options(policy=policy, version="550.90.07"))
    assert plan["action"] == "refuse" and "550.90.07 is wanted, and 535.261.03 is on the disk" in reload.make_sentence(
        plan["reasons"]
    )
    facts = changed(("loaded", "version"), NEW)
    assert reload.decide_reload(facts, options(policy=policy, version="550.90.07"))["action"] == "refuse", (
        "also when what is loaded is what is on the disk"
    )


def test_the_policy_to_reboot_looks_for_work_alone():
    facts = changed(("references",), None)
    facts.update(hung=None, nvswitches=None, holders=[holder(), holder(4711, "user@1000.service", comm="Xorg")])
    plan = reload.decide_reload(facts, options(policy="reboot"))
    assert plan["action"] == "reboot" and [item["id"] for item in plan["reasons"]] == ["policy"]


def test_an_alias_of_a_service_is_the_service_and_is_stopped_once():
    facts = good()
    facts["services"] = {
        "persistenced.service": service("active", PERSISTENCED, "persistenced.service"),
        PERSISTENCED: service("active", PERSISTENCED, "persistenced.service"),
    }
    plan = reload.decide_reload(facts, options(services=["persistenced.service", PERSISTENCED]))
    assert plan["action"] == "reload" and plan["stop"] == ["persistenced.service"]


def test_a_service_that_runs_is_stopped_in_the_order_of_its_name_in_the_list():
    facts = good()
    facts["services"][DCGM] = service("activating", DCGM)
    assert reload.decide_reload(facts, options())["stop"] == [DCGM, PERSISTENCED]
    assert reload.decide_reload(facts, options(services=[PERSISTENCED, DCGM]))["stop"] == [PERSISTENCED, DCGM]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, []),
        (
            {
                "nvidia": module(4, "nvidia_peermem", "gdrdrv", "nvidia_fs", "nvidia_uvm"),
                "nvidia_peermem": module(0),
                "gdrdrv": module(0),
                "nvidia_fs": module(0),
                "nvidia_uvm": module(1, "nvidia_fs"),
            },
            ["nvidia_fs", "gdrdrv", "nvidia_peermem", "nvidia_uvm", "nvidia"],
        ),
        ({"a": module(1, "b"), "b": module(1, "a")}, None),
    ],
)
def test_users_go_before_what_they_use(table, expected):
    assert loaded.order_unloading(table) == expected


@pytest.mark.pythons
def test_references_are_read_from_sys_module(tmp_path):
    base = "/sys/module/"
    assert loaded.read_references(str(tmp_path)) is None
    rows = (
        ("nvidia", "2", ["nvidia_uvm", "strange"]),
        ("nvidia_uvm", "0", []),
        ("strange", "1", ["far"]),
        ("far", "0", []),
        ("ext4", "1", []),
    )
    for name, count, users in rows:
        write(tmp_path, base + name + "/initstate", "live\n")
        write(tmp_path, base + name + "/refcnt", count + "\n")
        (tmp_path / "sys/module" / name / "holders").mkdir()
        for user in users:
            write(tmp_path, base + "%s/holders/%s" % (name, user))
    write(tmp_path, base + "gdrdrv/parameters/x")  # built in, or only parameters: never loaded
    write(tmp_path, base + "nvidia_fs/initstate", "live\n")
    table = loaded.read_references(str(tmp_path))
    assert table == {
        "nvidia": module(2, "nvidia_uvm", "strange"),
        "nvidia_uvm": module(0),
        "strange": module(1, "far"),
        "far": module(0),
        "nvidia_fs": {"refcnt": None, "holders": None},
    }
    assert loaded.find_foreign(table) == {"far": ["strange"], "strange": ["nvidia"]} and loaded.find_unknown(table) == [
        "nvidia_fs"
    ]


@pytest.mark.pythons
@pytest.mark.parametrize(
    ("paths", "unit", "pod", "job"),
    [
        (["/system.slice/nvidia-persistenced.service"], PERSISTENCED, None, None),
        (["/kubepods/burstable/pod%s/0123456789ab" % POD], None, POD, None),
        (
            [
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%s.slice/cri-containerd-0123.scope"
                % POD.replace("-", "_")
            ],
            "cri-containerd-0123.scope",
            POD,
            None,
        ),
        (
            ["/kubepods.slice/kubepods-pod%s.slice/crio-0123.scope" % POD.replace("-", "_")],
            "crio-0123.scope",
            POD,
            None,
        ),
        (["/slurm/uid_1000/job_4242/step_0"], None, None, "4242"),
        (["/system.slice/slurmstepd.scope/job_17/step_batch/user/task_0"], "slurmstepd.scope", None, "17"),
        (["/", "/user.slice/user-0.slice/session-1.scope"], "session-1.scope", None, None),
        (["/work/job_5"], None, None, None),
        (["/"], None, None, None),
        ([], None, None, None),
    ],
)
def test_whom_a_process_works_for(paths, unit, pod, job):
    assert holders.owner(paths) == {"unit": unit, "pod": pod, "job": job}


@pytest.mark.pythons
def test_units_by_name():
    said = "Id=a.service\nNames=a.service b.service\nLoadState=loaded\nActiveState=active\n\n"
    said += "Id=c.service\nNames=c.service\nLoadState=not-found\nActiveState=inactive\n"
    found = units.show(Recorded({"systemctl show": said}), ["b.service", "c.service"])
    assert (found["b.service"]["active"], found["b.service"]["names"][0], found["c.service"]["load"]) == (
        "active",
        "a.service",
        "not-found",
    )
    assert units.show(Recorded({"systemctl show": said}), ["d.service"]) is None, (
        "an answer about something else is none"
    )
    assert units.show(Recorded({"systemctl show": (1, "", "no bus")}), ["b.service"]) is None
    assert units.show(Recorded({}), []) == {}


def test_the_facts_are_not_changed():
    facts = good()
    before = copy.deepcopy(facts)
    reload.decide_reload(facts, options())
    assert facts == before
