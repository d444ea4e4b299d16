# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the audit reads of rpm, and what it finds."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import facts, findings_versions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import Recorded, recorded, write

pytestmark = pytest.mark.pythons

TWICE = "libnvidia-ml|3|%s|1.el9|x86_64|nvidia-driver-1-1.src.rpm|0\n"
DPKG, RPM = (
    {"dpkg-query": recorded("dpkg-query.txt")},
    {"rpm": (pathlib.Path(__file__).parent / "fixtures" / "dnf" / "rpm-qa.txt").read_text(encoding="utf-8")},
)


def judged(state):
    return list(findings_versions.dpkg_interrupted({"dpkg": state}, None, True))[0]


def test_the_packages_of_a_node():
    runner = Recorded(RPM)
    found = facts.read_rpm("/", runner)
    assert (found["available"], found["interrupted"], found["journal"], runner.calls[0][:2]) == (
        True,
        [],
        0,
        ["rpm", "-qa"],
    )
    assert "other" not in found["packages"] and "kernel-core" not in found["packages"]
    versions = findings_versions.driver_packages({"dpkg": found})
    assert (
        versions["nvidia-modprobe"]
        == versions["nvidia-persistenced"]
        == versions["kmod-nvidia-open-dkms"]
        == "575.57.08"
    )
    assert judged(found)["status"] == "pass"


def test_below_another_root():
    runner = Recorded(RPM)
    facts.read_rpm("/mnt", runner)
    assert runner.calls[0][:3] == ["rpm", "--root", "/mnt"]


def test_tools_that_are_released_apart():
    rows = "".join(
        "%s|0|%s|1|x86_64|x-1-1.src.rpm|0\n" % item
        for item in (
            ("nvidia-container-toolkit", "1.17.8"),
            ("libnvidia-container1", "1.17.8"),
            ("nvidia-fabricmanager", "575.57.08"),
            ("libnvidia-nscq", "575.57.08"),
        )
    )
    found = findings_versions.driver_packages({"dpkg": facts.read_rpm("/", Recorded({"rpm": rows}))})
    assert found == {"nvidia-fabricmanager": "575.57.08", "libnvidia-nscq": "575.57.08"}


def test_an_interrupted_rpm():
    item = judged(facts.read_rpm("/", Recorded({"rpm": TWICE % "575.57.08" + TWICE % "580.95.05"})))
    assert (
        item["status"] == "fail"
        and "rpm was interrupted: libnvidia-ml (installed twice" in item["message"]
        and "nodeps" not in item["next_step"]
    )


def test_two_architectures_are_no_interrupted_rpm():
    found = facts.read_rpm(
        "/", Recorded({"rpm": TWICE % "580.95.05" + (TWICE % "575.57.08").replace("x86_64", "i686")})
    )
    assert judged(found)["status"] == "pass"
    versions = findings_versions.driver_packages({"dpkg": found})
    assert versions == {"libnvidia-ml": "580.95.05", "libnvidia-ml:i686": "575.57.08"}


@pytest.mark.parametrize(
    "answer",
    [
        (1, "", "error: rpmdb open failed"),
        (0, TWICE % "580.95.05", "error: rpmdbNextIterator: skipping h#     412 (rpmdb open failed)"),
    ],
)
def test_an_rpm_that_does_not_answer_or_leaves_packages_out(answer):
    found = facts.read_rpm("/", Recorded({"rpm": answer}))
    item = judged(found)
    assert (
        found["available"] is False
        and item["status"] == "unknown"
        and "rpmdb open failed" in item["message"]
        and "rpm -qa" in item["next_step"]
    )
    assert facts.read_rpm("/", Recorded({})) is None
    warned = (0, TWICE % "580.95.05", "warning: Found bdb_ro Packages database while attempting sqlite backend")
    assert facts.read_rpm("/", Recorded({"rpm": warned}))["available"] is True


@pytest.mark.parametrize(
    "release,answers,manager,available",
    [
        ("ID=rocky\nVERSION_ID=9.6\n", dict(DPKG, **RPM), "rpm", True),
        ("ID=debian\nVERSION_ID=12\n", dict(DPKG, **RPM), None, True),
        ("ID=debian\nVERSION_ID=12\n", RPM, None, False),
        ("ID=rocky\nVERSION_ID=9.6\n", DPKG, None, True),
        ("ID=almalinux\nVERSION_ID=9.6\n", RPM, "rpm", True),
        ("", {}, None, False),
        ("", DPKG, None, True),
        ("ID=almalinux\nID_LIKE='rhel centos fedora'\n", dict(RPM, **{"dpkg-query": ""}), "rpm", True),
        ("ID=ol\nID_LIKE=fedora\n", dict(DPKG, **RPM), "rpm", True),
        ("", dict(RPM, **{"dpkg-query": ""}), "rpm", True),
        ("ID=debian\n", {"dpkg-query": ""}, None, False),
        ("ID=rocky\n", {"rpm": ""}, "rpm", False),
    ],
)
def test_the_system_decides_who_is_asked(tmp_path, release, answers, manager, available):
    write(tmp_path, "/etc/os-release", release)
    found = facts.read_packages(str(tmp_path), Recorded(answers))
    assert (found.get("manager"), found["available"]) == (manager, available)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-kernel-dkms",
        "nvidia-kernel-open-dkms",
        "nvidia-open-kernel-dkms",
        "nvidia-dkms-580-server-open",
        "nvidia-dkms-open",
        "kmod-nvidia-latest-dkms",
        "kmod-nvidia-580.95.05-5.14.0-503.22.1",
        "nvidia-kernel-source-580-server",
    ],
)
def test_the_kernel_modules_package_speaks_for_the_node(name):
    state = {
        "packages": {
            name: {"version": "580.95.05-1", "driver": True},
            "a": {"version": "575.57.08-1", "driver": True},
            "b": {"version": "575.57.08-1", "driver": True},
        }
    }
    nothing = {"modules": {}, "dkms": {"entries": []}, "library": {"version": None}, "loaded": {"version": None}}
    assert findings_versions.target_version(dict(nothing, dpkg=state)) == "580.95.05"
