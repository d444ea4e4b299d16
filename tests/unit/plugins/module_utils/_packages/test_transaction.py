# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one decider of simulated transactions, by each package manager's words and on what apt printed, and the disk that
they need.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, systems, transaction
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import (
    SET,
    fixture,
    index,
    installed,
)

pytestmark = pytest.mark.pythons

NOBLE = systems.table_for({"ID": "ubuntu", "VERSION_ID": "24.04"})
ROCKY = systems.table_for({"ID": "rocky", "VERSION_ID": "9.6"})
DEB, RPM, OLD_RPM = "580.178.04-0ubuntu0.24.04.1", "3:580.95.05-1.el9", "3:575.57.08-1.el9"
SETS = {
    "apt": (NOBLE, {"libnvidia-compute-580-server": DEB, "nvidia-utils-580-server": DEB}),
    "dnf": (ROCKY, {"libnvidia-ml": RPM, "nvidia-modprobe": RPM}),
}


def item(name, version, before=None):
    return dict({"name": name, "version": version}, **({"from": before} if before else {}))


def decide(manager, removable=(), have=(), **kinds):
    table, wanted = SETS[manager]
    simulated = dict(transaction.make_empty(), install=[item(*pair) for pair in wanted.items()])
    for kind, items in kinds.items():
        simulated[kind] = simulated[kind] + items
    return transaction.decide_transaction(simulated, wanted, dict(have), {}, removable, table)


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_the_set_and_what_it_needs(manager):
    assert (
        decide(
            manager,
            install=[
                item("dkms", "3.0-1"),
                item("gcc", "12-1"),
                item("kernel-headers", "5.14-1"),
                item("elfutils-libelf-devel", "1-1"),
            ],
        )
        == []
    )


@pytest.mark.parametrize(
    "manager,name,change",
    [
        ("apt", "linux-image-6.8.0-150-generic", True),
        ("apt", "linux-headers-6.8.0-150-generic", True),
        ("apt", "linux-generic", True),
        ("apt", "linux-modules-extra-6.8.0-150-generic", True),
        ("apt", "linux-image-generic-hwe-24.04", True),
        ("apt", "linux-signed-image-x", True),
        ("apt", "linux-modules-nvidia-fs-6.8.0-1015-nvidia", True),
        ("apt", "linux-modules-nvidia-fs-nvidia-hwe-24.04", True),
        ("apt", "linux-libc-dev", False),
        ("apt", "linux-firmware", False),
        ("apt", "linux-base", False),
        ("dnf", "kernel", True),
        ("dnf", "kernel-core", True),
        ("dnf", "kernel-modules-core", True),
        ("dnf", "kernel-devel-matched", True),
        ("dnf", "kernel-devel", True),
        ("dnf", "kernel-rt-core", True),
        ("dnf", "kernel-64k-modules-extra", True),
        ("dnf", "kernel-uek-core", True),
        ("dnf", "kernel-automotive-modules-core", True),
        ("dnf", "kernel-uki-virt-addons", True),
        ("dnf", "kernel-modules-extra", True),
        ("dnf", "kernel-headers", False),
        ("dnf", "kernel-tools", False),
        ("dnf", "kernel-srpm-macros", False),
        ("dnf", "kernelshark", False),
    ],
)
@pytest.mark.parametrize("kind", ["install", "upgrade", "downgrade", "reinstall", "remove"])
def test_kernel_packages(manager, name, change, kind):
    refusals = decide(manager, removable=[name], **{kind: [item(name, "1-1")]})
    assert [(entry["id"], entry["packages"]) for entry in refusals] == ([("kernel_change", [name])] if change else [])


@pytest.mark.parametrize(
    "manager,name,version,mixed",
    [
        ("apt", "nvidia-dkms-595-server", "595.91.07-0ubuntu0.24.04.1", True),
        ("apt", "libnvidia-decode-580-server", "580.173.02-0ubuntu0.24.04.1", True),
        ("apt", "linux-modules-nvidia-570-generic", "6.8.0-149.149", True),
        ("apt", "linux-objects-nvidia-570-server-6.8.0-149-generic", "6.8.0-149.149+1", True),
        ("apt", "nvidia-fabricmanager-570", "570.211.01-0ubuntu0.24.04.1", True),
        ("apt", "nvidia-driver-570", "570.211.01-0ubuntu0.24.04.1", True),
        ("apt", "nvidia-firmware-580-server-580.173.02", "580.173.02-0ubuntu0.24.04.1", False),
        ("apt", "nvidia-container-toolkit", "1.17.8-1", False),
        ("apt", "nvidia-prime", "0.8.17.1", False),
        ("apt", "nvidia-settings", "510.47.03-0ubuntu4", False),
        ("dnf", "nvidia-persistenced", OLD_RPM, True),
        ("dnf", "nvidia-fabricmanager", "575.57.08-1", True),
        ("dnf", "kmod-nvidia-open-dkms", OLD_RPM, True),
        ("dnf", "kmod-nvidia-575.57.08-5.14.0-503.22.1", "3:575.57.08-3.el9_5", True),
        ("dnf", "nvidia-settings", OLD_RPM, True),
        ("dnf", "nvidia-container-toolkit", "1.17.8-1", False),
        ("dnf", "libnvidia-container1", "1.17.8-1", False),
        ("dnf", "nvidia-gds", "12.9.1-1", False),
    ],
)
def test_another_driver_beside_the_set(manager, name, version, mixed):
    brought = decide(manager, install=[item(name, version)])
    there = decide(manager, have=[(name, dict(stubs.installed([stubs.package(name, version)])[name]))])
    for refusals in (brought, there):
        assert [(entry["id"], entry["packages"]) for entry in refusals] == ([("mixed_set", [name])] if mixed else [])


@pytest.mark.parametrize(
    "name", ["linux-modules-nvidia-fs-6.8.0-1015-nvidia", "linux-modules-nvidia-fs-nvidia-hwe-24.04"]
)
def test_storage_modules_of_a_kernel_are_no_other_driver(name):
    assert decide("apt", have=stubs.installed([stubs.package(name, "6.8.0-1015.16")]).items()) == []


@pytest.mark.parametrize("manager,words", [("apt", "apt-get -s install"), ("dnf", "dnf --assumeno install")])
def test_removals(manager, words):
    (refusal,) = decide(manager, remove=[item("slurm", "1-1")])
    assert (refusal["id"], refusal["packages"]) == ("removal", ["slurm"]) and words in refusal["next_step"]
    assert decide(manager, removable=["slurm"], remove=[item("slurm", "1-1")]) == []


@pytest.mark.parametrize(
    "manager,name,version,held",
    [
        ("apt", "slurmd", "23.11.4-1", True),
        ("dnf", "slurm", "23.11.4-1", True),
        ("apt", "nvidia-utils-580-server", "580.173.02-0ubuntu0.24.04.1", False),
        ("dnf", "libnvidia-ml", OLD_RPM, False),
    ],
)
def test_holds_of_others(manager, name, version, held):
    have = stubs.installed([stubs.package(name, version)], hold=True)
    wanted = SETS[manager][1]
    change = [] if name in wanted else [item(name, "99-1", version)]
    refusals = decide(manager, have=have.items(), upgrade=change)
    assert [(entry["id"], entry["packages"]) for entry in refusals] == ([("held", [name])] if held else [])
    assert decide(manager, removable=[name], have=have.items(), upgrade=change) == []


@pytest.mark.parametrize("manager,words", [("apt", "apt-cache policy"), ("dnf", "dnf repoquery")])
def test_a_transaction_that_does_not_reach_the_set(manager, words):
    table, wanted = SETS[manager]
    (refusal,) = transaction.decide_transaction(transaction.make_empty(), wanted, {}, {}, [], table)
    assert refusal["id"] == "not_exact" and refusal["packages"] == sorted(wanted) and words in refusal["next_step"]


def test_streams_count_as_a_change_and_are_told():
    simulated = dict(transaction.make_empty(), streams={"nvidia-driver": (None, "580-open")})
    assert not transaction.is_empty(simulated) and transaction.is_empty(transaction.make_empty())
    assert transaction.action_sentences(simulated) == ["switch module nvidia-driver from stream none to 580-open"]


@pytest.mark.parametrize(
    "manager,path,words",
    [("apt", "/var/cache/apt/archives", "apt-get clean"), ("dnf", "/var/cache/dnf", "dnf clean packages")],
)
def test_downloads_have_a_place_of_their_own(manager, path, words):
    needs = transaction.disk_needs(10, None, 1, 0, False, manager)
    assert needs[path] == 10
    (refusal,) = transaction.decide_disk(needs, {path: {"device": 1, "free": 5}}, 0, manager)
    assert refusal["id"] == "disk" and words in refusal["next_step"]


@pytest.mark.parametrize(
    "boot, root, same, refused",
    [
        (100, 600, False, False),
        (40, 600, False, True),
        (100, 500, False, True),
        (600, 600, True, False),
        (200, 200, True, True),
    ],
)
def test_boot_has_a_limit_of_its_own_unless_it_shares_a_file_system(boot, root, same, refused):
    systems = {"/boot": {"device": 2 if not same else 1, "free": boot}, "/usr": {"device": 1, "free": root}}
    found = transaction.decide_disk({"/boot": 20, "/usr": 50}, systems, 512, min_free_boot_bytes=32)
    assert [item["id"] for item in found] == (["disk"] if refused else [])


@pytest.mark.parametrize(
    "var, root, device, limit, refused",
    [
        (200, 600, 2, 100, False),
        (200, 600, 2, 300, True),
        (200, 600, 2, None, True),  # the general one
        (600, 600, 2, None, False),
        (200, 500, 2, 100, True),
        (700, 700, 1, 100, False),
        (200, 200, 1, 100, True),  # it shares a file system
    ],
)
def test_var_has_a_limit_of_its_own_unless_it_shares_a_file_system(var, root, device, limit, refused):
    needs = {"/var/cache/apt/archives": 20, "/var/lib/dkms": 30, "/usr": 50}
    held = {"device": device, "free": var}
    systems = {"/var/cache/apt/archives": held, "/var/lib/dkms": held, "/usr": {"device": 1, "free": root}}
    found = transaction.decide_disk(needs, systems, 512, min_free_boot_bytes=0, min_free_var_bytes=limit)
    assert [item["id"] for item in found] == (["disk"] if refused else [])


def test_a_file_system_mounted_read_only_is_refused():
    systems = {
        "/boot": {"device": 2, "free": 10**9, "read_only": True},
        "/usr": {"device": 1, "free": 10**9, "read_only": False},
    }
    assert [item["id"] for item in transaction.decide_disk({"/boot": 20, "/usr": 50}, systems, 0)] == ["disk_read_only"]
    assert [item["id"] for item in transaction.decide_disk({"/boot": 0, "/usr": 50}, systems, 0)] == [
        "disk_read_only"
    ], "written, if it need not grow"
    assert transaction.decide_disk({"/boot": None, "/usr": 50}, systems, 0) == [], (
        "what is not written may be read-only"
    )


@pytest.mark.parametrize(
    "files, boot_files, need, refused",
    [
        (transaction.FILES, transaction.BOOT_FILES, 50, []),
        (transaction.FILES - 1, 100, 50, ["/usr"]),
        (10**6, transaction.BOOT_FILES - 1, 50, ["/boot"]),
        (0, 0, 50, ["/boot", "/usr"]),
        (None, None, 50, []),
        (0, 100, 0, []),
    ],
)
def test_a_file_system_without_inodes_is_refused(files, boot_files, need, refused):
    systems = {
        "/boot": {"device": 2, "free": 10**9, "files": boot_files},
        "/usr": {"device": 1, "free": 10**9, "files": files},
    }
    found = transaction.decide_disk({"/boot": 20, "/usr": need, "/lib/modules": None}, systems, 0)
    assert [item["id"] for item in found] == ["disk_files"] * len(refused)
    assert all("file system of %s has room for" % path in item["message"] for item, path in zip(found, refused))


def test_a_file_system_that_is_short_of_both_says_both():
    found = transaction.decide_disk({"/usr": 50}, {"/usr": {"device": 1, "free": 0, "files": 0}}, 0)
    assert [item["id"] for item in found] == ["disk", "disk_files"]


# what apt printed

NEW, OLD, NEWEST = "535.261.03-1", "535.216.03-2~bpo12+1", "535.309.01-0+deb12u1"


def wanted_set(version):
    return dict((name, version) for name in SET)


def decide_recorded(name, wanted, have=None):
    """The decision on what apt's simulation printed."""
    return transaction.decide_transaction(
        apt.parse_simulation(fixture(name)), wanted, have or installed(None), index(), ()
    )


@pytest.mark.parametrize(
    "name,version,have,refused",
    [
        ("simulate_empty_node.txt", OLD, None, {}),
        ("simulate_upgrade.txt", NEWEST, NEW, {}),
        ("simulate_downgrade.txt", OLD, NEW, {}),
        ("simulate_kernel_change.txt", OLD, NEW, {"kernel_change": "linux-headers-amd64"}),
        (
            "simulate_removal_outside.txt",
            OLD,
            NEW,
            {"kernel_change": "linux-image-amd64", "removal": "initramfs-tools"},
        ),
        ("simulate_downgrade.txt", NEWEST, NEW, {"not_exact": "nvidia-smi"}),
    ],
)
def test_recorded_transactions(name, version, have, refused):
    refusals = decide_recorded(name, wanted_set(version), installed(have))
    assert [item["id"] for item in refusals] == list(refused)
    for item in refusals:
        assert refused[item["id"]] in item["packages"]


def test_the_obvious_packages_alone_leave_a_mixed_set():
    """As apt really answers: a newer legacy check, and alternatives of other driver families."""
    asked = dict(
        (name, OLD) for name in SET if name not in ("firmware-nvidia-gsp", "libnvidia-cfg1", "nvidia-legacy-check")
    )
    refusals = decide_recorded("simulate_mixed_set.txt", asked)
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
    refusals = decide_recorded(
        "simulate_transitional_synthetic.txt", {"nvidia-headless-570-server": "570.211.01-0ubuntu0.24.04.1"}
    )
    assert [item["id"] for item in refusals] == ["mixed_set"]
    assert len(refusals[0]["packages"]) == 7 and "nvidia-headless-570-server" not in refusals[0]["packages"]
    assert "nvidia-dkms-580-server 580.178.04" in refusals[0]["message"]


def test_a_set_package_that_would_be_removed_is_not_reached():
    simulated = dict(transaction.make_empty(), remove=[{"name": "nvidia-smi", "version": NEW}])
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
    for item in decide_recorded(name, wanted_set(OLD)):
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
