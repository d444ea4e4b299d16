# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rocky9-like system of the lab: its packages as data, and one repository by the real rpmbuild and dnf."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems
from tests.lab import config, image
from tests.lab.common import LabError
from tests.lab.rocky import image as rocky
from tests.lab.rocky import packages, repository

OLD, NEW = packages.DRIVERS
NO_FILES = {part: {} for part in ("core", "modules-core", "modules", "devel")}
KERNEL = packages.KERNELS[0]
EVERYTHING = [
    packages.RELEASE_PACKAGE,
    *packages.USERLAND,
    *packages.UPDATES,
    *packages.BOOT,
    *packages.DNF_PARTS,
    packages.make_dkms("3.0.10", {}),
    *(package for kernel in packages.KERNELS for package in packages.list_kernel(kernel, NO_FILES)),
    *(package for version in packages.DRIVERS for package in packages.list_driver(version)),
]


def by_name(found):
    return {package.name: package for package in found}


def test_identity_is_the_family_of_the_driver_table_and_names_the_lab():
    values = dict(line.split("=", 1) for line in packages.OS_RELEASE.splitlines())
    release = {key: value.strip('"') for key, value in values.items()}
    assert systems.family_of(release) == "dnf"
    assert systems.decide_system(release)[1] == []
    assert packages.SYSTEM in release["PRETTY_NAME"]


def test_every_requirement_is_provided_by_a_package_of_the_repositories():
    provided = {capability.split(" ", 1)[0] for package in EVERYTHING for capability in package.provides}
    provided |= {package.name for package in EVERYTHING}
    required = {need.split(" ", 1)[0] for package in EVERYTHING for need in package.requires}
    assert required - provided == set()
    assert required > {"dkms", "nvidia-kmod-common", "kernel-core-uname-r"}


@pytest.mark.parametrize("version", packages.DRIVERS)
def test_driver_has_every_root_and_component_of_the_table(version):
    table = systems.instantiate_table(systems.table_for({"ID": "rocky", "VERSION_ID": "9"}), version.split(".")[0])
    have = by_name(packages.list_driver(version))
    assert set(table["roots"]) <= set(have)
    for flavour in ("proprietary", "open"):
        assert table["flavours"][flavour]["root"] in have
    for names in table["components"].values():
        assert [name for name in names if name in have], names


def test_driver_carries_epoch_3_and_the_fabric_family_none():
    epochs = {package.name: package.epoch for package in packages.list_driver(NEW)}
    apart = {"nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex"}
    assert {name for name, epoch in epochs.items() if epoch == 0} == apart
    assert set(epochs.values()) == {0, 3}


def test_names_of_the_fabric_family_change_with_branch_580():
    assert {"nvidia-fabric-manager", "libnvidia-nscq-570", "nvidia-imex-570"} <= set(by_name(packages.list_driver(OLD)))
    assert {"nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex"} <= set(by_name(packages.list_driver(NEW)))


@pytest.mark.parametrize(
    ("package", "module", "license_tag"),
    [("kmod-nvidia-latest-dkms", "nvidia", "NVIDIA"), ("kmod-nvidia-open-dkms", "nvidia-open", "Dual MIT/GPL")],
)
def test_source_of_a_flavour_has_its_dkms_name_and_license(package, module, license_tag):
    found = by_name(packages.list_driver(NEW))[package]
    assert f"/usr/src/{module}-{NEW}/dkms.conf" in found.texts
    assert f'MODULE_LICENSE("{license_tag}")' in found.texts[f"/usr/src/{module}-{NEW}/nvidia.c"]
    assert f"dkms install -m {module} -v {NEW}" in found.scripts["post"]


def test_only_the_broken_release_does_not_compile():
    good = by_name(packages.list_driver(NEW))["kmod-nvidia-latest-dkms"]
    broken = by_name(packages.list_driver(packages.BROKEN_DRIVER, broken=True))["kmod-nvidia-latest-dkms"]
    assert not any("#error" in text for text in good.texts.values())
    assert any("#error" in text for text in broken.texts.values())


def test_kernels_are_installed_side_by_side_and_can_be_told_apart():
    found = by_name(packages.list_kernel(KERNEL, NO_FILES))
    assert set(found) == {"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-devel"}
    kinds = {
        name: re.findall(r"installonlypkg\(([^)]*)\)", " ".join(package.provides)) for name, package in found.items()
    }
    assert kinds == {
        "kernel": [],
        "kernel-core": ["kernel"],
        "kernel-modules": ["kernel-module"],
        "kernel-modules-core": ["kernel-module"],
        "kernel-devel": ["kernel"],
    }
    for part in ("core", "modules", "modules-core", "devel"):
        assert f"kernel-{part}-uname-r = {KERNEL}.x86_64" in found[f"kernel-{part}"].provides


def test_streams_hold_one_branch_and_one_flavour_and_those_without_a_branch_all():
    streams = packages.list_streams(packages.DRIVERS)
    assert set(streams) == {"570-dkms", "570-open", "580-dkms", "580-open", "latest-dkms", "open-dkms"}
    for name, items in streams.items():
        versions = {package.version for package in items}
        branch = name.split("-")[0]
        assert versions == ({OLD, NEW} if not branch.isdigit() else {v for v in (OLD, NEW) if v.startswith(branch)})
        rival = "kmod-nvidia-latest-dkms" if "open" in name else "kmod-nvidia-open-dkms"
        assert rival not in by_name(items)


def test_module_metadata_lists_each_streams_packages_with_epoch_and_architecture():
    streams = packages.list_streams(packages.DRIVERS)
    documents = list(yaml.safe_load_all(packages.write_modules(streams)))
    assert [document["document"] for document in documents] == ["modulemd"] * len(streams) + ["modulemd-defaults"]
    found = {
        document["data"].get("stream"): document["data"].get("artifacts", {}).get("rpms") for document in documents[:-1]
    }
    assert f"nvidia-kmod-common-3:{OLD}-1.el9.noarch" in found["570-dkms"]
    assert {stream: len(items) for stream, items in streams.items()} == {
        name: len(rpms) for name, rpms in found.items()
    }


def test_spec_has_all_relations_scripts_and_files_of_a_package():
    package = packages.Package(
        "thing",
        "1",
        epoch=3,
        requires=("a = 1",),
        conflicts=("b",),
        provides=("c",),
        texts={"/etc/thing": "x", "/etc/other": "y"},
        config=("/etc/thing",),
        links={"/usr/lib64/l": "m"},
        scripts={"post": "true\n"},
    )
    lines = packages.spec(package, "/content").splitlines()
    assert {"Epoch: 3", "Requires: a = 1", "Conflicts: b", "Provides: c", "%post", "/etc/other", "/usr/lib64/l"} <= set(
        lines
    )
    assert "%config(noreplace) /etc/thing" in lines
    assert "cp -a /content/. %{buildroot}/" in lines


def test_package_without_files_installs_none():
    assert "%install" not in packages.spec(packages.identify("bash", "5.1.8"), "/content").splitlines()


def test_nothing_that_answers_for_debian_is_left(tmp_path):
    kept = ("usr/bin/dnf", "usr/bin/rpm", "usr/lib/python3/dist-packages/dnf/__init__.py", "usr/src/linux-kbuild-6.1/x")
    gone = (
        "usr/bin/apt-get",
        "usr/bin/dpkg",
        "usr/bin/dpkg-query",
        "usr/lib/python3/dist-packages/apt_pkg.cpython-311.so",
        "usr/lib/python3/dist-packages/apt/__init__.py",
        "var/lib/dpkg/status",
        "etc/apt/sources.list",
        "etc/debian_version",
        "usr/sbin/dkms",
        "usr/sbin/update-initramfs",
        "lib/modules/6.1.0-57-amd64/modules.dep",
        "usr/lib/python3/dist-packages/dnf-plugins/versionlock.py",
    )
    for path in (*kept, *gone):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    rocky.hide_debian(tmp_path)
    assert [path for path in gone if (tmp_path / path).exists()] == []
    assert [path for path in kept if not (tmp_path / path).exists()] == []


def test_initramfs_is_named_as_on_rhel(tmp_path):
    (tmp_path / "usr/bin").mkdir(parents=True)
    dracut = tmp_path / "usr/bin/dracut"
    dracut.write_text('outfile="$dracutsysrootdir/boot/initrd.img-${kernel}"\n')
    rocky.rename_initramfs(tmp_path)
    assert dracut.read_text() == 'outfile="$dracutsysrootdir/boot/initramfs-${kernel}.img"\n'
    with pytest.raises(LabError):
        rocky.rename_initramfs(tmp_path)


def test_image_is_the_base_system_with_the_simulator_above():
    kinds = [layer.kind for layer in image.layers.stack(image.node_layer("rocky9-like"))]
    assert kinds == ["sim", "rocky", "rpms", "dnf", "base"]
    assert "rocky9-like" in config.SUITES
    assert "rocky9-like" not in config.DRIVER_VERSIONS


def test_repository_is_signed_and_dnf_reads_its_streams(tmp_path):
    """The real tools of this machine, on a part of one driver."""
    names = ("libnvidia-ml", "nvidia-modprobe", "kmod-nvidia-latest-dkms")
    found = [package for package in packages.list_driver(NEW) if package.name in names]
    directory = tmp_path / "cuda"
    repository.build("cuda", found, tmp_path, directory, packages.write_modules({"580-dkms": found}))
    key = directory / repository.KEY_FILE["cuda"]
    assert len((directory / repository.FINGERPRINT).read_text().strip()) == 40
    database = tmp_path / "db"
    subprocess.run(["rpmkeys", "--dbpath", database, "--import", key], check=True, capture_output=True)
    for rpm in directory.glob("*.rpm"):
        done = subprocess.run(
            ["rpmkeys", "--dbpath", database, "--checksig", "-v", rpm], capture_output=True, text=True
        )
        assert (done.returncode, "Signature" in done.stdout) == (0, True), done.stdout
    words = ["--repofrompath", f"cuda,file://{directory}", "--repo", "cuda", "--setopt", f"cachedir={tmp_path}/cache"]
    options = ["--installroot", tmp_path / "root", "--setopt", "cuda.gpgcheck=0", "--releasever", "9", "--setopt"]
    options += ["module_platform_id=platform:el9"]
    done = subprocess.run(["dnf", "-q", *words, *options, "module", "list"], capture_output=True, text=True)
    assert re.search(r"^nvidia-driver +580-dkms", done.stdout, re.M), done.stdout + done.stderr
