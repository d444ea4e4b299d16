# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decider of transactions on what apt's simulation printed, and the disk that they need."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, transaction
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import (
    SET,
    fixture,
    index,
    installed,
)

pytestmark = pytest.mark.pythons

NEW, OLD, NEWEST = "535.261.03-1", "535.216.03-2~bpo12+1", "535.309.01-0+deb12u1"


def wanted_set(version):
    return dict((name, version) for name in SET)


def decide(name, wanted, have=None, removable=()):
    return transaction.decide_transaction(
        apt.parse_simulation(fixture(name)), wanted, have or installed(None), index(), removable
    )


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
    assert len(refusals[0]["packages"]) == 7 and "nvidia-headless-570-server" not in refusals[0]["packages"]
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
    refusals = transaction.decide_transaction(simulated, wanted_set(NEW), installed(NEW), index())
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
    assert transaction.find_differences(have, wanted_set(NEW)) == {}
    have["nvidia-smi"]["version"] = OLD
    have["libcuda1"].update(ok=False, status="iF")
    have["libnvidia-ml1"]["installed"] = False
    del have["libnvidia-cfg1"]
    assert transaction.find_differences(have, wanted_set(NEW)) == {
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
