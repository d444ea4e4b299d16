# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository and the identity of the lab's machines that are like Ubuntu 24.04."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugins.module_utils._packages import apt, systems
from tests.lab import config, image, ubuntu
from tests.lab import ubuntu_archive as archive
from tests.lab.config import Lab

SUITE = "ubuntu24-like"
# What the machines have of Debian that the packages depend on.
BASE = {"dkms", "kmod", "linux-base"}
POCKETS = archive.pockets()


def by_name(*pockets):
    return {item["name"]: item for pocket in pockets for item in POCKETS[pocket]}


@pytest.mark.parametrize("pocket", sorted(POCKETS))
def test_dependencies_of_a_pocket_are_in_it_or_in_the_release(pocket):
    offered = by_name("noble", pocket)
    provided = {name for item in offered.values() for (name, _o, _v), *_r in apt.parse_relations(item["provides"])}
    for item in POCKETS[pocket]:
        for group in apt.parse_relations(item["depends"]):
            assert {name for name, _operator, _version in group} & {*offered, *provided, *BASE}, (item["name"], group)


def test_every_package_of_the_collections_table_is_there():
    table = systems.table_for({"ID": "ubuntu", "VERSION_ID": "24.04"})
    for branch, kernel in (("570", archive.RELEASE_KERNEL), ("580", archive.UPDATED_KERNEL)):
        found = systems.instantiate_table(table, branch)
        names = {*found["roots"], *(name for part in found["components"].values() for name in part)}
        for flavour in found["flavours"].values():
            per_kernel = flavour.get("per_kernel", "").replace("{kernel}", kernel)
            names |= {flavour["root"], *flavour["packages"], *([per_kernel] if per_kernel else [])}
        assert names <= {*by_name("noble", "noble-updates")}


def test_security_has_the_newer_kernel_and_the_newer_driver():
    release, security = by_name("noble"), by_name("noble-security")
    for name in ("linux-generic", "libnvidia-compute-570-server", "nvidia-dkms-570-server"):
        assert apt.compare(release[name]["version"], security[name]["version"]) < 0
    assert not {*security} - {*by_name("noble-updates")}


def test_a_branch_that_has_ended_leads_to_the_one_after_it():
    item = by_name("noble-updates")["nvidia-headless-590-server"]
    assert (archive.section(item), item["depends"]) == ("restricted/oldlibs", "nvidia-headless-595-server")
    assert ubuntu.driver_contents(item, Path("/nowhere"), Path("/nowhere")) == ubuntu.Contents()


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("linux-image-generic", "main"),
        ("nvidia-dkms-570-server", "restricted"),
        ("linux-modules-nvidia-570-server-open-generic", "restricted"),
        ("nvidia-fabricmanager-570", "multiverse"),
    ],
)
def test_component(name, component):
    assert ubuntu.component_of(by_name("noble")[name]) == component


@pytest.mark.parametrize(
    ("flavour", "dkms", "license"), [("", "nvidia-srv", "NVIDIA"), ("-open", "nvidia", "Dual MIT/GPL")]
)
def test_dkms_source_has_the_name_and_the_license_of_its_flavour(flavour, dkms, license):
    files = ubuntu.dkms_source("570.172.08", flavour)
    conf = files[f"usr/src/{dkms}-570.172.08/dkms.conf"]
    assert f'PACKAGE_NAME="{dkms}"' in conf and 'BUILT_MODULE_NAME[0]="nvidia"' in conf
    assert f'MODULE_LICENSE("{license}")' in files[f"usr/src/{dkms}-570.172.08/nvidia-uvm.c"]
    table = systems.instantiate_table(systems.table_for({"ID": "ubuntu", "VERSION_ID": "24.04"}), "570")
    assert table["flavours"]["open" if flavour else "proprietary"]["dkms_name"] == dkms


def test_prebuilt_modules_and_their_signatures_are_of_one_place(tmp_path):
    items = by_name("noble")
    kernel, place = archive.RELEASE_KERNEL, f"lib/modules/{archive.RELEASE_KERNEL}/kernel/nvidia-570srv-open"
    objects = ubuntu.driver_contents(items[f"linux-objects-nvidia-570-server-open-{kernel}"], tmp_path, tmp_path)
    signatures = ubuntu.driver_contents(items[f"linux-signatures-nvidia-{kernel}"], tmp_path, tmp_path)
    assert {path.removesuffix(".o") for path in objects.files} == {
        path.removesuffix(".sig") for path in signatures.files if path.startswith(place + "/")
    }
    assert f"{place}/bits/nvidia-uvm.o" in objects.files
    modules = ubuntu.driver_contents(items[f"linux-modules-nvidia-570-server-open-{kernel}"], tmp_path, tmp_path)
    assert f"/{place}/$name.ko" in modules.scripts["postinst"]
    meta = ubuntu.driver_contents(items["linux-modules-nvidia-570-server-open-generic"], tmp_path, tmp_path)
    assert meta == ubuntu.Contents()


def test_a_library_has_the_version_of_its_package(tmp_path):
    (tmp_path / "current").mkdir()
    (tmp_path / "current/libnvidia-ml.so.535.261.03").write_bytes(b"x")
    (tmp_path / "current/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.535.261.03")
    found = ubuntu.library(tmp_path, "libnvidia-ml", "570.172.08")
    assert found.files == {
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.172.08": tmp_path / "current/libnvidia-ml.so.535.261.03"
    }
    assert found.links == {"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "libnvidia-ml.so.570.172.08"}


def test_kernel_headers_name_the_other_release():
    text = "include /usr/src/linux-headers-6.1.0-57-common/Makefile\noverride KERNELRELEASE = 6.1.0-57-amd64\n"
    assert ubuntu.rewrite(text, "6.1.0-57-amd64", "6.8.0-31-generic") == (
        "include /usr/src/linux-headers-6.8.0-31/Makefile\noverride KERNELRELEASE = 6.8.0-31-generic\n"
    )


def test_control_has_no_empty_field():
    item = by_name("noble")["nvidia-dkms-570-server"]
    text = ubuntu.control(item, 12)
    assert "Source: nvidia-graphics-drivers-570-server\n" in text and "Conflicts: nvidia-dkms-kernel\n" in text
    assert all(re.fullmatch(r"[A-Z][A-Za-z-]*: \S.*", line) for line in text.splitlines())


def test_unattended_upgrades_take_the_security_pocket():
    fields = ubuntu.release_fields("noble-security")
    origins = re.findall(r'"(\S+)";', ubuntu.IDENTITY["etc/apt/apt.conf.d/50unattended-upgrades"])
    given = {"${distro_id}": "Ubuntu", "${distro_codename}": "noble"}
    named = [
        given["${distro_id}"] + origin.replace("${distro_id}", "").replace("${distro_codename}", "noble")
        for origin in origins
    ]
    assert f"{fields['Origin']}:{fields['Suite']}" in named
    release = dict(line.split("=", 1) for line in ubuntu.IDENTITY["etc/lsb-release"].splitlines())
    assert release["DISTRIB_ID"] == fields["Origin"]


def test_layers_are_those_of_the_userland_with_the_system_above(tmp_path):
    userland = config.LIKE[SUITE]
    assert image.base_layer(SUITE).name == image.base_layer(userland).name
    assert image.packages_layer(SUITE).name == image.packages_layer(userland).name
    assert [layer.kind for layer in image.layers.stack(image.node_layer(SUITE))] == [
        "sim",
        "system",
        "packages",
        "base",
    ]
    assert image.node_layer(SUITE).name != image.node_layer(userland).name
    assert image.by_kind("system", SUITE).build is image.build_system
    lab = Lab(checkout=tmp_path, cache=tmp_path, number=0)
    assert {layer.name for layer in image.layers.stack(image.node_layer(SUITE))} <= image.in_use(lab)


def test_a_machine_with_its_own_repository_is_given_no_mirror_of_the_host(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(image, "use_host_network_settings", lambda root, suite: given.append(suite))
    for suite in config.SUITES:
        image.use_own_mirrors(tmp_path, suite)
    assert given == ["bookworm", "trixie"]
