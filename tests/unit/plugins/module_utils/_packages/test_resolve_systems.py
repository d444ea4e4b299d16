# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The set of a driver on every supported system, from every source, of every flavour."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import driver_set, systems
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import SYSTEMS
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import fake_apt
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs

RELEASES = {
    "debian12": {"ID": "debian", "VERSION_ID": "12"},
    "debian13": {"ID": "debian", "VERSION_ID": "13"},
    "jammy": {"ID": "ubuntu", "VERSION_ID": "22.04"},
    "noble": {"ID": "ubuntu", "VERSION_ID": "24.04"},
    "rhel9": {"ID": "rhel", "VERSION_ID": "9.6"},
    "rocky9": {"ID": "rocky", "VERSION_ID": "9.6"},
    "rhel10": {"ID": "rhel", "VERSION_ID": "10.1"},
    "rocky10": {"ID": "rocky", "VERSION_ID": "10.1"},
}
NOBLE_VERSION = "580.178.04-0ubuntu0.24.04.1"
# Of a kernel's prebuilt modules: the packages' names without the kernel.
PARTS = ["modules-nvidia-580-server-open", "objects-nvidia-580-server-open", "signatures-nvidia"]
UBUNTU_USERLAND = {
    "libnvidia-cfg1-580-server",
    "libnvidia-compute-580-server",
    "nvidia-utils-580-server",
    "nvidia-compute-utils-580-server",
    "nvidia-kernel-common-580-server",
    "nvidia-firmware-580-server-580.178.04",
}
CUDA_USERLAND = {
    "libnvidia-cfg1-580",
    "libnvidia-compute-580",
    "nvidia-utils-580",
    "nvidia-compute-utils-580",
    "nvidia-kernel-common-580",
    "nvidia-firmware-580-580.95.05",
    "nvidia-modprobe",
}
PLAIN_USERLAND = {
    "libnvidia-cfg1",
    "libnvidia-compute",
    "nvidia-utils",
    "nvidia-compute-utils",
    "nvidia-kernel-common",
    "nvidia-firmware",
    "nvidia-modprobe",
}
DEBIAN_USERLAND = {
    "nvidia-driver-cuda",
    "libcuda1",
    "libnvidia-ml1",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-kernel-support",
    "firmware-nvidia-gsp",
    "nvidia-modprobe",
}
EL_USERLAND = {
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "libnvidia-ml",
    "libnvidia-cfg",
    "nvidia-kmod-common",
    "nvidia-modprobe",
    "nvidia-persistenced",
}
EL9 = stubs.EL_BASE + stubs.redhat("580.95.05", prebuilt_for=[stubs.EL_KERNEL])
EL10 = stubs.EL_BASE + stubs.redhat("580.95.05", dist="el10")
CUDA = (
    stubs.BASE
    + stubs.cuda_ubuntu("580", "580.95.05")
    + stubs.cuda_ubuntu("575", "575.57.08")
    + stubs.cuda_ubuntu_plain("595.58.03")
)


def resolve(release, origin, archive, wanted, flavour, **options):
    table = systems.table_for(RELEASES[release], origin)
    return driver_set.resolve_set(table, stubs.index(archive), options.pop("have", {}), wanted, flavour, **options)


def test_every_system_is_tested():
    keys = set(key for key in SYSTEMS)
    assert keys == set(
        (item["ID"], item["VERSION_ID"] if item["ID"] == "ubuntu" else item["VERSION_ID"].split(".")[0])
        for item in RELEASES.values()
    )


@pytest.mark.parametrize(
    "release,origin,archive,wanted,flavour,expected,dkms_name,stream",
    [
        (
            "noble",
            None,
            stubs.NOBLE,
            "580.178.04",
            "open",
            UBUNTU_USERLAND | {"nvidia-dkms-580-server-open", "nvidia-kernel-source-580-server-open"},
            "nvidia",
            None,
        ),
        (
            "jammy",
            None,
            stubs.NOBLE,
            "580.178.04",
            "proprietary",
            UBUNTU_USERLAND | {"nvidia-dkms-580-server", "nvidia-kernel-source-580-server"},
            "nvidia-srv",
            None,
        ),
        (
            "noble",
            "cuda",
            CUDA,
            "580.95.05",
            "open",
            CUDA_USERLAND | {"nvidia-dkms-580-open", "nvidia-kernel-source-580-open"},
            "nvidia",
            None,
        ),
        (
            "jammy",
            "cuda",
            CUDA,
            "580.95.05",
            "proprietary",
            CUDA_USERLAND | {"nvidia-dkms-580", "nvidia-kernel-source-580"},
            "nvidia",
            None,
        ),
        (
            "noble",
            "cuda",
            CUDA,
            "595.58.03",
            "open",
            PLAIN_USERLAND | {"nvidia-dkms-open", "nvidia-kernel-source-open"},
            "nvidia",
            None,
        ),
        (
            "noble",
            "cuda",
            CUDA,
            "595.58.03",
            "proprietary",
            PLAIN_USERLAND | {"nvidia-dkms", "nvidia-kernel-source"},
            "nvidia",
            None,
        ),
        (
            "debian12",
            "cuda",
            stubs.cuda_debian("580.95.05"),
            "580.95.05",
            "open",
            DEBIAN_USERLAND | {"nvidia-kernel-open-dkms"},
            "nvidia",
            None,
        ),
        (
            "debian13",
            "cuda",
            stubs.cuda_debian("580.95.05"),
            "580.95.05",
            "proprietary",
            DEBIAN_USERLAND | {"nvidia-kernel-dkms"},
            "nvidia",
            None,
        ),
        (
            "rocky9",
            None,
            EL9,
            "580.95.05",
            "open",
            EL_USERLAND | {"kmod-nvidia-open-dkms"},
            "nvidia-open",
            "nvidia-driver:580-open",
        ),
        (
            "rhel9",
            "cuda",
            EL9,
            "580.95.05",
            "proprietary",
            EL_USERLAND | {"kmod-nvidia-latest-dkms"},
            "nvidia",
            "nvidia-driver:580-dkms",
        ),
        ("rhel10", None, EL10, "580.95.05", "open", EL_USERLAND | {"kmod-nvidia-open-dkms"}, "nvidia-open", None),
        ("rocky10", None, EL10, "580.95.05", "proprietary", EL_USERLAND | {"kmod-nvidia-latest-dkms"}, "nvidia", None),
    ],
)
def test_the_set(release, origin, archive, wanted, flavour, expected, dkms_name, stream):
    result = resolve(release, origin, archive, wanted, flavour)
    assert result["refusals"] == []
    assert set(result["packages"]) == expected
    assert set(upstream(version) for version in result["packages"].values()) == {wanted}
    assert (result["dkms_name"], result["stream"], result["upstream"], result["dkms_version"]) == (
        dkms_name,
        stream,
        wanted,
        wanted,
    )


def test_versions_are_whole_with_revision_and_epoch():
    assert set(resolve("noble", None, stubs.NOBLE, "580.178.04", "open")["packages"].values()) == {NOBLE_VERSION}
    found = resolve("rocky9", None, EL9, "580.95.05", "open", components=["fabricmanager", "nscq", "imex"])["packages"]
    assert found["nvidia-driver-cuda"] == "3:580.95.05-1.el9"
    assert [found[name] for name in ("nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex")] == ["580.95.05-1"] * 3
    assert resolve("rocky9", None, EL9, "3:580.95.05-1.el9", "open")["version"] == "3:580.95.05-1.el9"


@pytest.mark.parametrize(
    "release,archive,wanted,flavour,kernels,expected",
    [
        (
            "noble",
            stubs.NOBLE,
            "580.178.04",
            "open-prebuilt",
            [stubs.KERNEL],
            UBUNTU_USERLAND
            | {
                "linux-modules-nvidia-580-server-open-" + stubs.KERNEL,
                "linux-objects-nvidia-580-server-open-" + stubs.KERNEL,
                "linux-signatures-nvidia-" + stubs.KERNEL,
            },
        ),
        (
            "rocky9",
            EL9,
            "580.95.05",
            "proprietary-prebuilt",
            [stubs.EL_KERNEL],
            EL_USERLAND | {"kmod-nvidia-580.95.05-5.14.0-503.22.1"},
        ),
    ],
)
def test_prebuilt_modules(release, archive, wanted, flavour, kernels, expected):
    result = resolve(release, None, archive, wanted, flavour, kernels=kernels)
    assert result["refusals"] == [] and set(result["packages"]) == expected
    assert result["dkms_name"] is None and result["dkms_version"] is None


def test_prebuilt_modules_of_ubuntu_have_the_kernels_version():
    result = resolve("noble", None, stubs.NOBLE, "580.178.04", "open-prebuilt", kernels=[stubs.KERNEL])
    assert result["packages"]["linux-modules-nvidia-580-server-open-" + stubs.KERNEL] == "6.8.0-149.149+1"
    assert result["packages"]["nvidia-kernel-common-580-server"] == NOBLE_VERSION
    assert result["sources"] == {"nvidia-graphics-drivers-580-server": NOBLE_VERSION}


def test_the_prebuilt_module_of_the_right_driver_is_taken():
    archive = stubs.NOBLE + stubs.ubuntu_prebuilt("580", "580.181.01", stubs.KERNEL, "+2")
    result = resolve("noble", None, archive, "580.178.04", "open-prebuilt", kernels=[stubs.KERNEL])
    assert result["packages"]["linux-modules-nvidia-580-server-open-" + stubs.KERNEL] == "6.8.0-149.149+1"
    assert result["packages"]["linux-objects-nvidia-580-server-open-" + stubs.KERNEL] == "6.8.0-149.149+1"


@pytest.mark.parametrize(
    "release,archive,wanted,flavour,kernel,found",
    [
        (
            "noble",
            stubs.NOBLE,
            "580.178.04",
            "open-prebuilt",
            stubs.OLD_KERNEL,
            "there are modules for: " + stubs.KERNEL,
        ),
        (
            "noble",
            stubs.NOBLE,
            "580.178.04",
            "proprietary-prebuilt",
            stubs.KERNEL,
            "no prebuilt modules of this driver for any kernel",
        ),
        (
            "rhel9",
            EL9,
            "580.95.05",
            "proprietary-prebuilt",
            "5.14.0-570.1.1.el9_6.x86_64",
            "there are modules for: 5.14.0-503.22.1",
        ),
    ],
)
def test_a_kernel_without_a_prebuilt_module_is_named(release, archive, wanted, flavour, kernel, found):
    result = resolve(release, None, archive, wanted, flavour, kernels=[kernel])
    (refusal,) = result["refusals"]
    assert (
        not result["resolvable"]
        and refusal["id"] == "no_prebuilt_module"
        and found in refusal["message"]
        and "kernel_module dkms" in refusal["next_step"]
    )


@pytest.mark.parametrize(
    "release,origin,flavour,reason",
    [
        ("debian12", None, "open-prebuilt", "no prebuilt modules of the driver for Debian's kernels"),
        ("debian13", "cuda", "proprietary-prebuilt", "no prebuilt modules of the driver for Debian's kernels"),
        ("noble", "cuda", "open-prebuilt", "take Ubuntu's own packages"),
        ("rhel9", None, "open-prebuilt", "prebuilt modules of the proprietary flavour only"),
        ("rocky10", None, "proprietary-prebuilt", "no prebuilt modules for this release"),
        ("rocky10", None, "open-prebuilt", "no prebuilt modules for this release"),
    ],
)
def test_flavours_that_do_not_exist_are_refused_with_the_reason(release, origin, flavour, reason):
    (refusal,) = resolve(release, origin, [], "580.95.05", flavour)["refusals"]
    assert refusal["id"] == "impossible_flavour" and reason in refusal["message"] and "open" in refusal["next_step"]


@pytest.mark.parametrize(
    "release,origin,archive,wanted,names",
    [
        (
            "noble",
            None,
            stubs.NOBLE,
            "580.178.04",
            ["nvidia-fabricmanager-580", "libnvidia-nscq-580", "nvidia-imex-580", "nvidia-compute-utils-580-server"],
        ),
        (
            "noble",
            "cuda",
            CUDA,
            "580.95.05",
            ["nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "nvidia-compute-utils-580"],
        ),
        (
            "noble",
            "cuda",
            CUDA,
            "595.58.03",
            ["nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "nvidia-compute-utils"],
        ),
        (
            "debian12",
            "cuda",
            stubs.cuda_debian("580.95.05"),
            "580.95.05",
            ["nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "nvidia-persistenced"],
        ),
        (
            "rocky9",
            None,
            EL9,
            "580.95.05",
            ["nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "nvidia-persistenced"],
        ),
    ],
)
def test_components_are_of_the_same_version(release, origin, archive, wanted, names):
    components = ["fabricmanager", "nscq", "imex", "persistenced"]
    result = resolve(release, origin, archive, wanted, "open", components=components)
    assert result["refusals"] == []
    assert [upstream(result["packages"][name]) for name in names] == [wanted] * 4
    assert set(resolve(release, origin, archive, wanted, "open")["packages"]) < set(result["packages"])


@pytest.mark.parametrize("component", ["fabricmanager", "nscq", "imex", "persistenced"])
def test_components_that_debian_does_not_have(component):
    table = systems.table_for(RELEASES["debian12"])
    (refusal,) = driver_set.resolve_set(
        table, fake_apt.index(), {}, "535.261.03", "proprietary", components=[component]
    )["refusals"]
    assert refusal["id"] == "no_component" and component in refusal["message"]


def test_a_fabric_manager_of_another_version_is_partly_available():
    archive = [item for item in stubs.NOBLE if item["name"] != "nvidia-fabricmanager-580"] + [
        stubs.package("nvidia-fabricmanager-580", "580.173.02-0ubuntu0.24.04.1", source="fabric-manager-580")
    ]
    (refusal,) = resolve("noble", None, archive, "580.178.04", "open", components=["fabricmanager"])["refusals"]
    assert (refusal["id"], refusal["packages"]) == (
        "partly_available",
        ["nvidia-fabricmanager-580"],
    ) and "580.173.02" in refusal["found"]


def test_the_transitional_trap_is_refused_by_name():
    """The branch in the names is 570 and so is the packages' own version: what they bring is 580."""
    (refusal,) = resolve("noble", None, stubs.NOBLE, "570.211.01", "proprietary")["refusals"]
    assert refusal["id"] == "transitional"
    assert (
        "nvidia-dkms-570-server needs nvidia-dkms-580-server, which is there as %s" % NOBLE_VERSION
        in refusal["message"]
    )
    assert "nvidia-dkms-570-server" in refusal["packages"] and "nvidia-dkms-580-server" in refusal["packages"]


def test_the_transitional_trap_is_refused_by_name_on_a_node_that_runs_what_it_brings():
    """The way back from 580 to the branch that has ended."""
    have = stubs.installed(item for item in stubs.ubuntu_server("580", "580.178.04") if "-open" not in item["name"])
    (refusal,) = resolve("noble", None, stubs.NOBLE, "570.211.01", "proprietary", have=have)["refusals"]
    assert refusal["id"] == "transitional"
    assert {"nvidia-dkms-570-server", "nvidia-dkms-580-server"} <= set(refusal["packages"])


@pytest.mark.parametrize(
    "release,origin,archive,flavour,found",
    [
        ("noble", None, stubs.NOBLE, "open", ["595.91.07-0ubuntu0.24.04.1", NOBLE_VERSION]),
        ("noble", "cuda", CUDA, "open", ["595.58.03-1ubuntu1", "580.95.05-1ubuntu1", "575.57.08-1ubuntu1"]),
        ("rocky9", None, EL9 + stubs.redhat("580.105.08"), "proprietary", ["3:580.105.08-1.el9", "3:580.95.05-1.el9"]),
    ],
)
def test_unknown_versions_list_every_branch_that_can_be_had(release, origin, archive, flavour, found):
    result = resolve(release, origin, archive, "500.1.1", flavour)
    assert result["available"] == found
    (refusal,) = result["refusals"]
    assert refusal["id"] == "unknown_version" and ", ".join(found) in refusal["found"]


def test_another_branch_leaves_the_old_one_obsolete():
    have = stubs.installed(
        stubs.named(
            stubs.NOBLE,
            "nvidia-dkms-580-server-open",
            "nvidia-kernel-source-580-server-open",
            "libnvidia-compute-580-server",
            "nvidia-kernel-common-580-server",
            "nvidia-firmware-580-server-580.178.04",
            "nvidia-fabricmanager-580",
        )
    )
    result = resolve("noble", None, stubs.NOBLE, "595.91.07", "open", have=have)
    firmware = "nvidia-firmware-580-server-580.178.04"  # made to lie beside that of other versions
    assert result["resolvable"] and result["obsolete"] == sorted(set(have) - {firmware})
    assert not set(result["packages"]) & set(have)


def test_parts_that_the_node_has_are_not_lost_on_the_way_to_another_branch():
    have = stubs.installed(
        stubs.named(stubs.NOBLE, "nvidia-fabricmanager-580", "libnvidia-nscq-580", "libnvidia-decode-580-server")
    )
    result = resolve("noble", None, stubs.NOBLE, "595.91.07", "open", have=have)
    for name in ("nvidia-fabricmanager-595", "libnvidia-nscq-595", "libnvidia-decode-595-server"):
        assert upstream(result["packages"][name]) == "595.91.07"
    archive = [item for item in stubs.NOBLE if item["name"] != "nvidia-fabricmanager-595"]
    (refusal,) = resolve("noble", None, archive, "595.91.07", "open", have=have)["refusals"]
    assert (refusal["id"], refusal["packages"]) == ("partly_available", ["nvidia-fabricmanager-595"])


def test_names_lose_their_branch_on_the_way_from_580_to_595():
    have = stubs.installed(
        [
            item
            for item in stubs.cuda_ubuntu("580", "580.95.05")
            if item["name"]
            in (
                "libnvidia-compute-580",
                "nvidia-utils-580",
                "nvidia-fabricmanager",
                "nvidia-dkms-580",
                "nvidia-firmware-580-580.95.05",
            )
        ]
    )
    result = resolve("noble", "cuda", CUDA, "595.58.03", "open", have=have)
    assert result["refusals"] == [] and set(upstream(version) for version in result["packages"].values()) == {
        "595.58.03"
    }
    assert {"libnvidia-compute", "nvidia-utils", "nvidia-fabricmanager", "nvidia-dkms-open"} <= set(result["packages"])
    assert result["obsolete"] == ["libnvidia-compute-580", "nvidia-dkms-580", "nvidia-utils-580"]


@pytest.mark.parametrize(
    "before,after,obsolete",
    [
        ("open", "proprietary", ["nvidia-dkms-580-server-open", "nvidia-kernel-source-580-server-open"]),
        (
            "open-prebuilt",
            "open",
            [
                "linux-modules-nvidia-580-server-open-" + stubs.KERNEL,
                "linux-objects-nvidia-580-server-open-" + stubs.KERNEL,
                "linux-signatures-nvidia-" + stubs.KERNEL,
            ],
        ),
        ("open", "open-prebuilt", ["nvidia-dkms-580-server-open", "nvidia-kernel-source-580-server-open"]),
    ],
)
def test_another_flavour_leaves_the_old_module_obsolete(before, after, obsolete):
    first = resolve("noble", None, stubs.NOBLE, "580.178.04", before, kernels=[stubs.KERNEL])["packages"]
    have = stubs.installed([item for item in stubs.NOBLE if first.get(item["name"]) == item["version"]])
    result = resolve("noble", None, stubs.NOBLE, "580.178.04", after, have=have, kernels=[stubs.KERNEL])
    assert result["resolvable"] and result["obsolete"] == obsolete and not set(obsolete) & set(result["packages"])


def test_prebuilt_module_of_a_kernel_that_gets_none_makes_room_for_that_of_the_kernel_that_boots():
    """The archive has each kernel's modules of the driver of its day alone: driver and kernel change together."""
    archive = stubs.NOBLE + stubs.ubuntu_server("580", "580.65.06")
    archive += stubs.ubuntu_prebuilt("580", "580.65.06", stubs.OLD_KERNEL, "+1")
    both, kind = [stubs.OLD_KERNEL, stubs.KERNEL], "open-prebuilt"
    before = resolve("noble", None, archive, "580.65.06", kind, kernels=[stubs.OLD_KERNEL], bootable=both)
    have = stubs.installed([item for item in archive if before["packages"].get(item["name"]) == item["version"]])
    lost = ["linux-%s-%s" % (name, stubs.OLD_KERNEL) for name in PARTS]
    assert set(lost) <= set(have) and before["refusals"] == []
    after = resolve("noble", None, archive, "580.178.04", kind, kernels=[stubs.KERNEL], bootable=both, have=have)
    assert (after["refusals"], after["obsolete"]) == ([], lost)
    assert {"linux-%s-%s" % (name, stubs.KERNEL) for name in PARTS} <= set(after["packages"])
    # And back, with the kernel that ran.
    have = stubs.installed([item for item in archive if after["packages"].get(item["name"]) == item["version"]])
    back = resolve("noble", None, archive, "580.65.06", kind, kernels=[stubs.OLD_KERNEL], bootable=both, have=have)
    assert (back["refusals"], back["packages"]) == ([], before["packages"])


def test_kernel_without_a_module_of_the_driver_is_refused_with_the_drivers_that_have_one():
    archive = stubs.NOBLE + stubs.ubuntu_server("580", "580.65.06")
    archive += stubs.ubuntu_prebuilt("580", "580.65.06", stubs.OLD_KERNEL, "+1")
    (refusal,) = resolve(
        "noble", None, archive, "580.65.06", "open-prebuilt", kernels=[stubs.KERNEL], bootable=[stubs.OLD_KERNEL]
    )["refusals"]
    assert (refusal["id"], refusal["packages"]) == (
        "no_prebuilt_module",
        ["linux-modules-nvidia-580-server-open-" + stubs.KERNEL],
    )
    assert "580.178.04" in refusal["found"] and stubs.OLD_KERNEL in refusal["found"]
    assert "rollout_kernel" in refusal["next_step"]


def test_other_kernels_get_a_module_where_there_is_one():
    archive = stubs.NOBLE + stubs.ubuntu_prebuilt("580", "580.178.04", stubs.OLD_KERNEL, "+1")
    found = resolve(
        "noble", None, archive, "580.178.04", "open-prebuilt", kernels=[stubs.KERNEL], bootable=[stubs.OLD_KERNEL]
    )
    assert {"linux-%s-%s" % (name, stubs.OLD_KERNEL) for name in PARTS} <= set(found["packages"])


def test_what_is_installed_of_the_branch_moves_with_it():
    archive = stubs.NOBLE + stubs.ubuntu_server("580", "580.173.02")
    have = stubs.installed(
        [
            item
            for item in stubs.ubuntu_server("580", "580.173.02")
            if item["name"]
            in ("libnvidia-decode-580-server", "nvidia-fabricmanager-580", "nvidia-firmware-580-server-580.173.02")
        ]
    )
    result = resolve("noble", None, archive, "580.178.04", "open", have=have)
    assert (
        result["packages"]["libnvidia-decode-580-server"]
        == result["packages"]["nvidia-fabricmanager-580"]
        == NOBLE_VERSION
    )
    assert result["obsolete"] == [] and "nvidia-firmware-580-server-580.178.04" in result["packages"]


@pytest.mark.parametrize(
    "release,origin,source",
    [(name, None, next(iter(systems.system_of(item)))) for name, item in RELEASES.items()]
    + [("noble", "cuda", "cuda"), ("debian13", "cuda", "cuda"), ("noble", "distribution", "distribution")],
)
def test_sources_of_a_system(release, origin, source):
    table, refusals = systems.decide_system(RELEASES[release], origin)
    assert refusals == [] and table["origin"] == source
    assert table["package_manager"] == ("dnf" if release[:4] in ("rhel", "rock") else "apt")


@pytest.mark.parametrize(
    "os_release,origin,ident,words",
    [
        (RELEASES["rocky9"], "distribution", "unknown_source", "the distribution has no packages of the driver"),
        (RELEASES["rhel10"], "distribution", "unknown_source", "the distribution has no packages of the driver"),
        ({"ID": "sles", "VERSION_ID": "15.6"}, None, "unsupported_os", "sles 15.6"),
        ({"ID": "ubuntu", "VERSION_ID": "20.04"}, None, "unsupported_os", "ubuntu 20.04"),
        ({"ID": "debian", "VERSION_ID": "11"}, "cuda", "unsupported_os", "debian 11"),
    ],
)
def test_systems_and_sources_that_are_refused(os_release, origin, ident, words):
    table, refusals = systems.decide_system(os_release, origin)
    assert table is None and [item["id"] for item in refusals] == [ident] and words in refusals[0]["message"]


@pytest.mark.parametrize(
    "archive,release,origin",
    [
        (stubs.NOBLE, "noble", None),
        (CUDA, "noble", "cuda"),
        (stubs.cuda_debian("580.95.05"), "debian12", "cuda"),
        (EL9, "rocky9", None),
    ],
)
def test_the_index_is_read_for_every_package_of_the_driver(archive, release, origin):
    """The names that are looked for in the index, and the names that belong to the driver, are kept in two places."""
    table = systems.table_for(RELEASES[release], origin)
    eras = systems.list_variants(table)
    names = [
        item["name"]
        for item in archive
        if any(systems.is_member(era, item["name"], item["source"], item["version"]) for era in eras)
    ]
    assert names and [name for name in names if not re.search(table["name_pattern"], name)] == []


def test_members_are_found_by_the_name_pattern():
    for tables in SYSTEMS.values():
        for table in tables.values():
            for name in (
                "libnvsdm",
                "cuda-drivers",
                "libxnvctrl0",
                "libcuda1",
                "libnvidia-ml",
                "kmod-nvidia-open-dkms",
                "nvidia-imex",
            ):
                belongs = any(systems.is_member(era, name, None, "580.95.05-1") for era in systems.list_variants(table))
                assert not belongs or re.search(table["name_pattern"], name), (table["name"], name)
