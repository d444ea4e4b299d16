# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deciding about sets and transactions."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, packages, transaction
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages._sets_debian import DEBIAN
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import (
    SET,
    fixture,
    index,
    installed,
)

pytestmark = pytest.mark.pythons

NEW, OLD, NEWEST = "535.261.03-1", "535.216.03-2~bpo12+1", "535.309.01-0+deb12u1"


def resolve(wanted, have=None, flavour="proprietary", extra=(), known=None):
    return packages.resolve(
        DEBIAN, index() if known is None else known, have or installed(None), wanted, flavour, extra
    )


def wanted_set(version):
    return dict((name, version) for name in SET)


def decide(name, wanted, have=None, removable=()):
    return transaction.decide(apt.parse_simulation(fixture(name)), wanted, have or installed(None), index(), removable)


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


@pytest.mark.parametrize(
    "name,version,source,expected",
    [
        ("nvidia-smi", NEW, "nvidia-graphics-drivers", True),
        ("firmware-nvidia-tesla-535-gsp", "535.216.03-3~deb12u1", "nvidia-graphics-drivers-tesla-535", True),
        ("nvidia-open-kernel-dkms", NEW, "nvidia-open-gpu-kernel-modules", True),
        ("nvidia-modprobe", NEWEST, "nvidia-modprobe", False),
        ("nvidia-persistenced", "535.171.04-1", None, False),
        ("nvidia-settings", "535.247.01-1", None, False),
        ("nvidia-container-toolkit", "1.17.8-1", None, False),
        ("nvidia-cuda-dev", "11.8.89~11.8.0-5", "nvidia-cuda-toolkit", False),
        ("nvidia-kernel-common", "20220217+3~deb12u1", "nvidia-support", False),
        ("libnvidia-egl-gbm1", "1.1.0-2", "nvidia-egl-gbm", False),
        ("nvidia-dkms-580-server", "580.178.04-0ubuntu0.24.04.1", None, True),
        ("libnvidia-compute-580-server", "580.178.04-0ubuntu0.24.04.1", None, True),
        ("libcuda1:i386", OLD, None, True),
        ("libc6", "2.36-9", "glibc", False),
    ],
)
def test_what_carries_the_driver_version(name, version, source, expected):
    assert packages.is_driver_package(name, version, source) is expected


# the transaction


@pytest.mark.parametrize(
    "name,version,have",
    [
        ("simulate_empty_node.txt", OLD, None),
        ("simulate_upgrade.txt", NEWEST, NEW),
        ("simulate_downgrade.txt", OLD, NEW),
    ],
)
def test_good_transactions_pass(name, version, have):
    assert decide(name, wanted_set(version), installed(have)) == []


def test_the_obvious_packages_alone_leave_a_mixed_set():
    """As apt really answers: a newer legacy check, and alternatives of other driver families."""
    asked = dict(
        (name, OLD) for name in SET if name not in ("firmware-nvidia-gsp", "libnvidia-cfg1", "nvidia-legacy-check")
    )
    refusals = decide("simulate_mixed_set.txt", asked)
    assert [item["id"] for item in refusals] == ["mixed_set"]
    assert refusals[0]["packages"] == [
        "firmware-nvidia-tesla-535-gsp",
        "libnvidia-tesla-470-cfg1",
        "nvidia-legacy-check",
        "nvidia-tesla-470-alternative",
    ]
    assert "nvidia-legacy-check %s" % NEWEST in refusals[0]["found"] and refusals[0]["expected"] == "535.216.03"


def test_the_transitional_package():
    """Synthetic, after Ubuntu: the branch in the name and the package's own version are right, what it brings is
    not.
    """
    refusals = decide(
        "simulate_transitional_synthetic.txt", {"nvidia-headless-570-server": "570.211.01-0ubuntu0.24.04.1"}
    )
    assert [item["id"] for item in refusals] == ["mixed_set"]
    assert len(refusals[0]["packages"]) == 8 and "nvidia-headless-570-server" not in refusals[0]["packages"]
    assert "nvidia-dkms-580-server 580.178.04" in refusals[0]["message"]


def test_another_driver_that_stays_installed_is_a_mixed_set_too():
    have = installed(NEW)
    have["libcuda1:i386"] = dict(have["libcuda1"])
    assert [item["packages"] for item in decide("simulate_downgrade.txt", wanted_set(OLD), have)] == [["libcuda1:i386"]]


def test_kernel_change():
    refusals = decide("simulate_kernel_change.txt", wanted_set(OLD), installed(NEW))
    assert [item["id"] for item in refusals] == ["kernel_change"]
    assert "linux-image-6.1.0-50-amd64" in refusals[0]["packages"] and "linux-headers-amd64" in refusals[0]["packages"]


def test_removal_outside_the_driver():
    refusals = decide("simulate_removal_outside.txt", wanted_set(OLD), installed(NEW))
    assert [item["id"] for item in refusals] == ["kernel_change", "removal"]
    assert "initramfs-tools" in refusals[1]["packages"]


def test_removals_that_were_allowed():
    names = ["initramfs-tools", "linux-image-amd64", "linux-image-6.1.0-56-amd64"]
    assert [item["id"] for item in decide("simulate_removal_outside.txt", wanted_set(OLD), installed(NEW), names)] == [
        "kernel_change"
    ]


def test_a_transaction_that_does_not_reach_the_set():
    refusals = decide("simulate_downgrade.txt", wanted_set(NEWEST), installed(NEW))
    assert [item["id"] for item in refusals] == ["not_exact"]
    assert "nvidia-smi %s (not %s)" % (OLD, NEWEST) in refusals[0]["found"]


def test_a_set_package_that_would_be_removed_is_not_reached():
    simulated = {
        "install": [],
        "upgrade": [],
        "downgrade": [],
        "reinstall": [],
        "remove": [{"name": "nvidia-smi", "version": NEW}],
    }
    refusals = transaction.decide(simulated, wanted_set(NEW), installed(NEW), index())
    assert [item["id"] for item in refusals] == ["not_exact"] and "nvidia-smi absent" in refusals[0]["found"]


@pytest.mark.parametrize(
    "name",
    [
        "simulate_mixed_set.txt",
        "simulate_kernel_change.txt",
        "simulate_removal_outside.txt",
        "simulate_transitional_synthetic.txt",
    ],
)
def test_every_refusal_says_what_was_found_expected_and_next(name):
    for item in decide(name, wanted_set(OLD)):
        assert item["found"] and item["expected"] and item["next_step"] and item["packages"]
        assert all(package in item["message"] for package in item["packages"])


def test_differences():
    have = installed(NEW)
    assert transaction.differences(have, wanted_set(NEW)) == {}
    have["nvidia-smi"]["version"] = OLD
    have["libcuda1"].update(ok=False, status="iF")
    have["libnvidia-ml1"]["installed"] = False
    del have["libnvidia-cfg1"]
    assert transaction.differences(have, wanted_set(NEW)) == {
        "nvidia-smi": OLD,
        "libcuda1": "%s (iF)" % NEW,
        "libnvidia-ml1": "absent",
        "libnvidia-cfg1": "absent",
    }


# disk

GIB = 1024**3


@pytest.mark.parametrize(
    "free,min_free,refused",
    [
        ({"/usr": 10, "/boot": 10, "/var/lib/dkms": 10}, 1, []),
        ({"/usr": 3, "/boot": 10, "/var/lib/dkms": 10}, 1, []),
        ({"/usr": 2.9, "/boot": 10, "/var/lib/dkms": 10}, 1, ["/usr"]),
        ({"/usr": 10, "/boot": 0.5, "/var/lib/dkms": 0}, 1, ["/boot", "/var/lib/dkms"]),
        ({"/usr": 10, "/boot": 1, "/var/lib/dkms": 2}, 0, []),
    ],
)
def test_disk(free, min_free, refused):
    needs = {"/usr": 2 * GIB, "/boot": GIB, "/var/lib/dkms": 2 * GIB, "/var/cache/apt/archives": None}
    systems = dict(
        (path, {"device": number, "free": int(value * GIB)}) for number, (path, value) in enumerate(free.items())
    )
    found = transaction.decide_disk(needs, systems, min_free * GIB)
    assert [item["id"] for item in found] == ["disk"] * len(refused)
    for item, path in zip(found, refused):
        assert path in item["message"] and "MiB free" in item["found"] and "MiB for the change" in item["expected"]


def test_paths_on_one_file_system_add_up():
    needs = {"/usr": 2 * GIB, "/boot": GIB}
    systems = {"/usr": {"device": 1, "free": int(2.5 * GIB)}, "/boot": {"device": 1, "free": int(2.5 * GIB)}}
    assert "/boot, /usr" in transaction.decide_disk(needs, systems, 0)[0]["message"]


def test_unreadable_file_system_is_refused():
    assert [item["id"] for item in transaction.decide_disk({"/boot": 1}, {}, 0)] == ["disk_unknown"]


def test_disk_needs_count_a_build_for_every_kernel():
    one, three = (transaction.disk_needs(1, 2, kernels, 10) for kernels in (1, 3))
    assert three["/var/lib/dkms"] == 3 * one["/var/lib/dkms"] > 0
    assert transaction.disk_needs(1, -5, 3, 10, with_build=False) == {
        "/var/cache/apt/archives": 1,
        "/usr": 0,
        "/var/lib/dkms": None,
        "/lib/modules": None,
        "/boot": None,
    }
    assert set(transaction.disk_needs(0, None, 3, 10, with_build=False).values()) == {None}


# systems


@pytest.mark.parametrize(
    "os_release,supported",
    [
        ({"ID": "debian", "VERSION_ID": "12"}, True),
        ({"ID": "debian", "VERSION_ID": "13"}, True),
        ({"ID": "debian", "VERSION_ID": "11"}, False),
        ({"ID": "rocky", "VERSION_ID": "9.4"}, True),
        ({"ID": "rocky", "VERSION_ID": "8.10"}, False),
        ({}, False),
    ],
)
def test_supported_systems(os_release, supported):
    assert (packages.table_for(os_release) is not None) is supported
