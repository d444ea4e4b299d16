# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The exact set of packages for a driver version, on Debian."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import driver_set
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import DEBIAN
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import (
    SET,
    index,
    installed,
)

pytestmark = pytest.mark.pythons

NEW, OLD, NEWEST = "535.261.03-1", "535.216.03-2~bpo12+1", "535.309.01-0+deb12u1"


def resolve(wanted, have=None, flavour="proprietary", extra=(), known=None):
    return driver_set.resolve_set(
        DEBIAN, index() if known is None else known, have or installed(None), wanted, flavour, extra
    )


def wanted_set(version):
    return dict((name, version) for name in SET)


# the set


@pytest.mark.parametrize(
    "wanted,version", [("535.261.03", NEW), ("535.216.03", OLD), (OLD, OLD), ("535.309.01", NEWEST)]
)
def test_the_whole_set_at_one_version(wanted, version):
    result = resolve(wanted)
    assert result["packages"] == wanted_set(version)
    assert (result["resolvable"], result["upstream"], result["dkms_name"], result["dkms_version"]) == (
        True,
        version.split("-")[0],
        "nvidia-current",
        version.split("-")[0],
    )
    assert result["refusals"] == []


def test_packages_released_apart_are_not_in_the_set():
    found = resolve("535.261.03")["packages"]
    assert not {
        "nvidia-modprobe",
        "nvidia-persistenced",
        "nvidia-support",
        "nvidia-kernel-common",
        "nvidia-installer-cleanup",
    } & set(found)


def test_the_open_flavour():
    result = resolve("535.261.03", installed(NEW), "open")
    expected = wanted_set(NEW)
    for name in ("dkms", "support"):
        expected["nvidia-open-kernel-" + name] = expected.pop("nvidia-kernel-" + name)
    assert result["packages"] == expected
    assert result["dkms_name"] == "nvidia-current-open"
    assert result["obsolete"] == ["nvidia-kernel-dkms", "nvidia-kernel-support"]


def test_the_open_flavour_may_have_another_revision():
    known = index()
    for name in ("nvidia-open-kernel-dkms", "nvidia-open-kernel-support"):
        known[name][0]["version"] = "535.261.03-7"
    found = resolve("535.261.03", flavour="open", known=known)["packages"]
    assert (found["nvidia-open-kernel-dkms"], found["nvidia-smi"]) == ("535.261.03-7", NEW)
    assert resolve("535.261.03", flavour="open", known=known)["sources"] == {
        "nvidia-graphics-drivers": NEW,
        "nvidia-open-gpu-kernel-modules": "535.261.03-7",
    }


def test_unknown_version_lists_what_can_be_had():
    result = resolve("580.1")
    assert not result["resolvable"]
    refusal = result["refusals"][0]
    assert refusal["id"] == "unknown_version"
    assert refusal["found"] == "available: %s, %s, %s" % (NEWEST, NEW, OLD)
    assert NEW in refusal["message"] and refusal["next_step"]


def test_unknown_in_this_flavour_names_the_other():
    refusal = resolve("535.216.03", flavour="open")["refusals"][0]
    assert refusal["id"] == "unknown_version"
    assert "with flavour proprietary it is available" in refusal["message"]


def test_empty_index_points_to_the_repository():
    refusal = resolve("535.261.03", known={})["refusals"][0]
    assert "the package index has no version of nvidia-kernel-dkms" in refusal["message"]
    assert "nvidia_repository" in refusal["next_step"]


def test_a_version_of_which_only_a_part_exists_names_what_is_missing():
    known = index()
    known["nvidia-smi"] = [record for record in known["nvidia-smi"] if record["version"] != NEW]
    del known["libnvidia-cfg1"]
    result = resolve("535.261.03", known=known)
    assert not result["resolvable"] and result["packages"] == {}
    refusal = result["refusals"][0]
    assert (refusal["id"], refusal["packages"]) == ("partly_available", ["libnvidia-cfg1", "nvidia-smi"])
    assert (
        "libnvidia-cfg1: not in the index" in refusal["found"]
        and "nvidia-smi: has %s, %s" % (NEWEST, OLD) in refusal["found"]
    )


def test_a_missing_dependency_of_the_driver_is_found_too():
    known = index()
    known["nvidia-alternative"] = [record for record in known["nvidia-alternative"] if record["version"] != OLD]
    assert resolve("535.216.03", known=known)["refusals"][0]["packages"] == ["nvidia-alternative"]


def test_driver_packages_that_are_installed_belong_to_the_set():
    have = installed(OLD)
    have["libnvcuvid1"] = dict(have["nvidia-smi"])
    have["libnvidia-encode1"] = dict(have["nvidia-smi"], installed=False, status="rc")
    found = resolve("535.261.03", have)["packages"]
    assert found["libnvcuvid1"] == NEW
    assert "libnvidia-encode1" not in found


def test_an_installed_driver_package_without_the_wanted_version_stops_it():
    have = installed(OLD)
    have["libnvidia-old1"] = dict(have["nvidia-smi"])
    assert resolve("535.261.03", have)["refusals"][0]["packages"] == ["libnvidia-old1"]


def test_extra_packages():
    assert resolve("535.261.03", extra=["libnvcuvid1"])["packages"]["libnvcuvid1"] == NEW
    assert resolve("535.261.03", extra=["no-such-package"])["refusals"][0]["packages"] == ["no-such-package"]


def two_revisions():
    known = index()
    for name in SET:
        record = copy.deepcopy([item for item in known[name] if item["version"] == NEW][0])
        record["version"] = "535.261.03-2"
        known[name].insert(0, record)
    return known


def test_the_newest_revision_on_an_empty_node_and_the_installed_one_elsewhere():
    assert set(resolve("535.261.03", known=two_revisions())["packages"].values()) == {"535.261.03-2"}
    assert set(resolve("535.261.03", installed(NEW), known=two_revisions())["packages"].values()) == {NEW}


def test_an_incomplete_revision_gives_way_to_a_complete_one():
    known = two_revisions()
    known["libcuda1"] = [record for record in known["libcuda1"] if record["version"] != "535.261.03-2"]
    assert set(resolve("535.261.03", known=known)["packages"].values()) == {NEW}


def test_what_is_installed_stays_resolvable_when_the_archive_dropped_it():
    known = index()
    for name in SET:
        for record in known[name]:
            record["downloadable"] = record["version"] != NEW
    assert set(resolve("535.261.03", installed(NEW), known=known)["packages"].values()) == {NEW}
    assert resolve("535.261.03", known=known)["refusals"][0]["id"] == "unknown_version"
