# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a driver is new enough for the workloads of a node."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import workloads
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import compatibility
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.compatibility import BRANCHES

# as images of NVIDIA have it
IMAGE = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
    "brand=nvidia,driver>=470,driver<471 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536"
)


def test_branches_are_in_order():
    assert list(BRANCHES) == sorted(BRANCHES, key=lambda item: (item[0], compatibility.parse_numbers(item[1])))


@pytest.mark.parametrize(
    "version,cuda,exact",
    [
        ("535.261.03", "12.2", True),
        ("550.54.14", "12.4", True),
        ("545.23.06", "12.3", True),
        ("552.1.1", "12.4", True),
        ("580.95.05", "13.0", True),
        ("590.44.01", "13.1", True),
        ("600.1.1", "13.1", False),
        ("440.33.01", None, False),
    ],
)
def test_the_cuda_version_of_a_driver(version, cuda, exact):
    assert compatibility.find_cuda(version) == (cuda, exact)


@pytest.mark.parametrize(
    "condition,version,brands,expected",
    [
        ("cuda>=12.4", "550.54.14", None, True),
        ("cuda>=12.4", "535.261.03", None, False),
        ("cuda>=13.0", "580.95.05", None, True),
        ("cuda<12.4", "535.261.03", None, True),
        ("cuda=12.2", "535.261.03", None, True),
        ("cuda!=12.2", "535.261.03", None, False),
        ("cuda>=13.1", "600.1.1", None, True),
        ("cuda>=14.0", "600.1.1", None, None),
        ("cuda>=11.0", "440.33.01", None, None),
        ("driver>=535", "535.54.03", None, True),
        ("driver>=535.86", "535.54.03", None, False),
        ("driver<536", "535.54.03", None, True),
        ("driver<535.54", "535.54.03", None, False),
        ("driver>535", "535.54.03", None, True),
        ("driver<=535", "535.54.03", None, False),
        ("driver=535.54.03", "535.54.03", None, True),
        ("driver!=535.54.03", "535.54.03", None, False),
        ("brand=tesla", "535.1.1", None, None),
        ("brand=tesla", "535.1.1", ["Tesla"], True),
        ("brand=tesla", "535.1.1", ["nvidia"], False),
        ("brand!=tesla", "535.1.1", ["nvidia"], True),
        ("brand>tesla", "535.1.1", ["nvidia"], None),
        ("arch>=8.0", "535.1.1", None, None),
        ("nonsense", "535.1.1", None, None),
        ("cuda>=twelve", "535.1.1", None, None),
        ("", "535.1.1", None, None),
    ],
)
def test_one_condition(condition, version, brands, expected):
    assert compatibility.meets_condition(condition, version, brands) is expected


@pytest.mark.parametrize(
    "requirement,version,brands,expected",
    [
        (IMAGE, "550.54.14", None, True),
        (IMAGE, "580.95.05", None, True),
        (IMAGE, "535.261.03", ["tesla"], True),
        (IMAGE, "535.261.03", ["quadro"], False),
        (IMAGE, "535.261.03", None, None),
        (IMAGE, "525.60.13", None, False),
        (IMAGE, "525.60.13", ["tesla"], False),
        (IMAGE, "470.57.02", ["unknown"], True),
        ("", "535.1.1", None, True),
        ("cuda>=12.0,driver>=540", "535.1.1", None, False),
        ("cuda>=12.0 driver>=540", "535.1.1", None, True),
        ("brand=tesla,driver>=540", "535.1.1", None, False),
        ("brand=tesla driver>=530", "535.1.1", None, True),
        ("huh?", "535.1.1", None, None),
    ],
)
def test_requirements_of_containers(requirement, version, brands, expected):
    """A condition that cannot be told never makes a requirement true or false by itself."""
    assert compatibility.meets_requirement(requirement, version, brands) is expected


@pytest.mark.parametrize(
    "wanted,floor,ident",
    [
        ("550.54.15-1", {"driver": "550.54"}, None),
        ("3:535.261.03-1.el9", {"driver": "550"}, "below_floor"),
        ("535.54.03", {"driver": "535.54.03"}, None),
        ("535.54.03", {"driver": "535.86"}, "below_floor"),
        ("535.54.03", {"driver": "new"}, "floor_unknown"),
        ("550.1.1", {"cuda": "12.4"}, None),
        ("535.1.1", {"cuda": "12.4"}, "below_floor"),
        ("600.1.1", {"cuda": "13.1"}, None),
        ("600.1.1", {"cuda": "13.9"}, "floor_unknown"),
        ("440.1.1", {"cuda": "11.0"}, "floor_unknown"),
        ("535.1.1", {"cuda": "x"}, "floor_unknown"),
        ("535.1.1", {"require": [IMAGE], "brands": ["nvidia"]}, None),
        ("535.1.1", {"require": [IMAGE]}, "floor_unknown"),
        ("525.60.13", {"require": [IMAGE]}, "below_floor"),
        ("535.1.1", {"require": ["cuda>=12.0", "cuda>=12.4"]}, "below_floor"),
        ("535.1.1", {}, None),
        ("535.1.1", {"driver": None, "cuda": None, "require": None, "brands": None}, None),
        ("no version", {"driver": "550"}, None),
    ],
)
def test_floors(wanted, floor, ident):
    refusals = compatibility.decide_floors(wanted, [dict(floor, workload="partition train")])
    assert [item["id"] for item in refusals] == ([ident] if ident else [])
    for item in refusals:
        assert (
            "partition train" in item["message"]
            and "partition train" in item["next_step"]
            and item["found"]
            and item["expected"]
        )


def test_every_floor_is_told():
    found = compatibility.decide_floors(
        "535.1.1",
        [
            {"workload": "a", "driver": "550", "cuda": "12.4"},
            {"workload": "b", "driver": "530"},
            {"workload": "c", "driver": "580"},
        ],
    )
    assert [(item["expected"], item["message"].split(" is too old for ")[1][0]) for item in found] == [
        ("driver 550 or newer", "a"),
        ("CUDA 12.4 or newer", "a"),
        ("driver 580 or newer", "c"),
    ]


# the containers that run


def process(root, pid, comm, group, **variables):
    place = root / "proc" / str(pid)
    place.mkdir(parents=True)
    (place / "environ").write_text("".join("%s=%s\0" % item for item in variables.items()) + "junk\0", encoding="utf-8")
    (place / "comm").write_text(comm + "\n", encoding="utf-8")
    (place / "cgroup").write_text("0::%s\n" % group, encoding="utf-8")


def test_containers_are_found_once_each(tmp_path):
    one, two = "/system.slice/docker-aa.scope", "/kubepods.slice/kubepods-pod7.slice/cri-containerd-bb.scope"
    process(tmp_path, 20, "python3", one, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_REQUIRE_CUDA=IMAGE)
    process(tmp_path, 21, "worker", one, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_REQUIRE_CUDA=IMAGE)
    process(
        tmp_path,
        9,
        "trtllm",
        two,
        NVIDIA_VISIBLE_DEVICES="GPU-1",
        NVIDIA_REQUIRE_CUDA="cuda>=12.8",
        NVIDIA_REQUIRE_DRIVER="driver>=570",
    )
    assert workloads.read_workloads(str(tmp_path)) == [
        {
            "workload": "the container of trtllm (pid 9, cri-containerd-bb.scope)",
            "require": ["cuda>=12.8", "driver>=570"],
        },
        {"workload": "the container of python3 (pid 20, docker-aa.scope)", "require": [IMAGE]},
    ]


@pytest.mark.parametrize(
    "variables",
    [
        {"NVIDIA_REQUIRE_CUDA": IMAGE},
        {"NVIDIA_REQUIRE_CUDA": IMAGE, "NVIDIA_VISIBLE_DEVICES": "void"},
        {"NVIDIA_REQUIRE_CUDA": IMAGE, "NVIDIA_VISIBLE_DEVICES": "none"},
        {"NVIDIA_REQUIRE_CUDA": " ", "NVIDIA_VISIBLE_DEVICES": "all"},
        {"NVIDIA_REQUIRE_CUDA": IMAGE, "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DISABLE_REQUIRE": "true"},
        {"PATH": "/bin"},
        {},
    ],
)
def test_what_requires_nothing(tmp_path, variables):
    process(tmp_path, 20, "python3", "/system.slice/docker-aa.scope", **variables)
    assert workloads.read_workloads(str(tmp_path)) == []


HEX = "ab" * 32


@pytest.mark.parametrize(
    "group, is_container",
    [
        ("/system.slice/docker-%s.scope" % HEX, True),
        ("/docker/%s" % HEX, True),
        ("/docker/%s/sub" % HEX, True),
        ("/kubepods/burstable/pod7/%s" % HEX, True),
        ("/system.slice/containerd.service/kubepods-burstable-pod7.slice:cri-containerd:%s" % HEX, True),
        ("/kubepods.slice/kubepods-pod7.slice/crio-%s.scope" % HEX, True),
        ("/machine.slice/libpod-%s.scope/container" % HEX, True),
        ("/system.slice/train.service", False),
        ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", False),
        ("/user.slice/user-1000.slice/session-3.scope", False),
        ("/user.slice/user-1000.slice/user@1000.service/docker-%s.scope" % HEX, False),
        ("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-%s.scope" % HEX, False),
        ("/system.slice/x.service/docker-%s.scope" % HEX, False),
        ("/", False),
    ],
)
def test_environments_count_in_containers_of_the_system_alone(tmp_path, group, is_container):
    process(tmp_path, 20, "python3", group, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_REQUIRE_CUDA=IMAGE)
    assert [item["require"] for item in workloads.read_workloads(str(tmp_path))] == [[IMAGE]] * is_container


def test_a_group_that_a_user_made_is_no_container(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a directory away")
    group = "/machine.slice/libpod-%s.scope" % HEX
    process(tmp_path, 20, "python3", group, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_REQUIRE_CUDA=IMAGE)
    parent = tmp_path / "sys/fs/cgroup/machine.slice"
    parent.mkdir(parents=True)
    assert len(workloads.read_workloads(str(tmp_path))) == 1
    os.chown(parent, 65534, 65534)
    assert workloads.read_workloads(str(tmp_path)) == []


@pytest.mark.parametrize("inner", [False, True])
def test_the_first_process_of_a_container_tells_what_it_requires(tmp_path, inner):
    """What the runtime gave it, and not what somebody in the container has exported since."""
    group = "/system.slice/docker-%s.scope" % HEX
    first, other = (30, 20) if inner else (20, 30)
    process(tmp_path, first, "python3", group, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_REQUIRE_CUDA=IMAGE)
    process(tmp_path, other, "sh", group, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_REQUIRE_DRIVER="driver>=999")
    if inner:
        (tmp_path / "proc/30/status").write_text("NSpid:\t30\t1\n")
        (tmp_path / "proc/20/status").write_text("NSpid:\t20\t7\t1\n")
    assert [item["require"] for item in workloads.read_workloads(str(tmp_path))] == [[IMAGE]]


def test_a_machine_whose_processes_cannot_be_listed(tmp_path):
    assert workloads.read_workloads(str(tmp_path)) is None
