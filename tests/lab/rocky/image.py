# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of rocky9-like machines: the base system of bookworm, without apt and dpkg, with an rpm database."""

from __future__ import annotations

import shutil
from pathlib import Path

from .. import image, layers
from ..common import LabError, run, run_logged
from ..config import SUITE
from . import packages, repository

REVISION = "1"
TOOLS = ("dnf", "dnf-plugins-core", "rpm", "python3-rpm", "dracut-core", "python3-libdnf")
# What answers for Debian's package world, and what belongs to packages of the repositories. Patterns below the root.
HIDDEN = (
    "usr/bin/apt*",
    "usr/bin/dpkg*",
    "usr/sbin/dpkg*",
    "usr/bin/unattended-upgrade*",
    "usr/bin/update-alternatives",
    "usr/lib/apt",
    "usr/lib/dpkg",
    "usr/share/dpkg",
    "usr/lib/python3/dist-packages/apt*",
    "usr/lib/python3/dist-packages/python_apt*",
    "usr/share/unattended-upgrades",
    "usr/lib/systemd/system/apt*",
    "usr/lib/systemd/system/dpkg*",
    "usr/lib/systemd/system/unattended-upgrades.service",
    "etc/systemd/system/*.wants/apt*",
    "etc/systemd/system/*.wants/dpkg*",
    "etc/systemd/system/*.wants/unattended-upgrades.service",
    "etc/apt",
    "etc/dpkg",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/cache/apt",
    "etc/debian_version",
    "etc/os-release",
    "usr/lib/os-release",
    # the initramfs is dracut's, and kernels come by kernel-install
    "usr/sbin/*initramfs",
    "usr/bin/*initramfs",
    "etc/initramfs-tools",
    "usr/share/initramfs-tools",
    "etc/kernel/*",
    "usr/lib/kernel/install.d/*-dracut*.install",
    "usr/lib/kernel/install.d/*-initrd.install",
    "boot/*",
    "lib/modules/*",
    "usr/src/linux-headers-*-amd64",
    # these come as rpms
    *repository.DKMS_FILES,
    "usr/share/apport/package-hooks/dkms_packages.py",
    f"{packages.PLUGINS}versionlock.py",
    f"{packages.PLUGINS}__pycache__/versionlock*",
    "etc/dnf/plugins/versionlock.*",
    "etc/dnf/automatic.conf",
    # a plugin that a new system does not have
    f"{packages.PLUGINS}local.py",
    "etc/dnf/plugins/local.conf",
)
DNF_CONF = """\
[main]
gpgcheck=1
installonly_limit=3
clean_requirements_on_remove=True
best=True
skip_if_unavailable=False
"""
SOURCES = f"""\
[baseos]
name=Rocky Linux $releasever - BaseOS (gpufleet lab)
baseurl=file:///{repository.PLACE}/baseos
gpgcheck=1
enabled=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-lab-baseos
"""
RPM_MACROS = "%_dbpath /var/lib/rpm\n%dist .el9\n%rhel 9\n"
# Small and quick: it is made at every change, as on a real one, and never booted from.
DRACUT_SETTINGS = """\
hostonly="yes"
hostonly_cmdline="no"
dracutmodules+=" base kernel-modules "
compress="zstd -1"
early_microcode="no"
do_strip="no"
"""
INSTALLED = tuple(
    f"{package.name}-{package.version}-{package.release}"
    for package in (packages.RELEASE_PACKAGE, *packages.USERLAND, *packages.BOOT)
    if package.name != "kernel-headers"
)
# With what modules are built with, as the other images of the lab have it.
KERNEL_PARTS = ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-headers", "kernel-devel")


def build_tools(root: Path, log: Path) -> None:
    """Install dnf and rpm as Debian packages them."""
    image.use_host_names(root)
    image.use_host_network_settings(root, SUITE)
    apt = ["chroot", root, "apt-get", "-q", "-y", "-o", "APT::Install-Recommends=false"]
    run_logged("package lists", log, *apt, "-o", "Acquire::Languages=none", "update")
    run_logged("dnf and rpm", log, *apt, "install", *TOOLS)
    run_logged("archives", log, *apt, "clean")


def hide_debian(root: Path) -> None:
    """Take away what answers for apt, dpkg and Debian's kernel, and what the repositories bring."""
    for pattern in HIDDEN:
        for path in sorted(root.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def write_settings(root: Path) -> None:
    image.put(root, "etc/dnf/dnf.conf", DNF_CONF)
    image.put(root, "etc/yum.repos.d/rocky.repo", SOURCES)
    image.put(root, "etc/rpm/macros", RPM_MACROS)
    image.put(root, "etc/dracut.conf.d/lab.conf", DRACUT_SETTINGS)
    image.put(root, "etc/kernel/install.conf", "layout=other\n")
    image.put(root, "usr/lib/os-release", packages.OS_RELEASE)  # dnf asks for the platform before the package is there
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    key = repository.KEY_FILE["baseos"]
    target = root / "etc/pki/rpm-gpg" / key
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / repository.PLACE / "baseos" / key, target)
    (root / "usr/bin/yum").symlink_to("dnf")


def rename_initramfs(root: Path) -> None:
    """Let Debian's dracut name its images as that of RHEL does, and as dracut itself does without Debian's patch."""
    program = root / "usr/bin/dracut"
    text = program.read_text(encoding="utf-8")
    debian, upstream = "boot/initrd.img-${kernel}", "boot/initramfs-${kernel}.img"
    if debian not in text:
        raise LabError(f"{program} has no {debian}: it is of another version than this was written for")
    program.write_text(text.replace(debian, upstream), encoding="utf-8")


def build_repositories(root: Path, log: Path) -> None:
    repository.build_all(root, root / repository.PLACE)


def build_system(root: Path, log: Path) -> None:
    """Turn the system into the one that the repositories are for."""
    hide_debian(root)
    rename_initramfs(root)
    write_settings(root)
    in_root = ["chroot", root]
    run_logged("the rpm database", log, *in_root, "rpmdb", "--initdb")
    run_logged("the key", log, *in_root, "rpm", "--import", f"/etc/pki/rpm-gpg/{repository.KEY_FILE['baseos']}")
    kernel = [f"{name}-{packages.KERNELS[0]}" for name in KERNEL_PARTS]
    dnf = [*in_root, "dnf", "-y", "--releasever=9", "install"]
    run_logged("packages of the system", log, *dnf, *INSTALLED)
    run_logged("the kernel", log, *dnf, *kernel)
    run_logged("dnf's cache", log, *in_root, "dnf", "clean", "all")
    if not (root / f"boot/vmlinuz-{packages.KERNELS[0]}.{packages.ARCH}").exists():
        raise LabError(f"the kernel is not in /boot: see {log}")
    for name in ("machine-id", "resolv.conf", "hosts"):
        (root / "etc" / name).unlink(missing_ok=True)
    image.put(root, "etc/machine-id", "")
    run(*in_root, "systemctl", "set-default", "multi-user.target")


def tools_layer() -> layers.Layer:
    inputs = {"revision": REVISION, "tools": " ".join(TOOLS)}
    title = f"dnf and rpm in the {packages.SYSTEM} image"
    return layers.Layer("dnf", title, inputs, build_tools, (image.base_layer(SUITE),))


def repositories_layer() -> layers.Layer:
    here = Path(__file__).parent
    sources = [here / "packages.py", here / "repository.py", here.parent / "stubs.py"]
    below = tools_layer()
    return layers.Layer(
        "rpms",
        f"the repositories of {packages.SYSTEM}",
        {"revision": REVISION, "sources": layers.digest_files(sources, here.parent)},
        build_repositories,
        (below, *below.parents),
    )


def system_layer() -> layers.Layer:
    here = Path(__file__).parent
    below = repositories_layer()
    return layers.Layer(
        "rocky",
        f"the {packages.SYSTEM} image's system",
        {"revision": REVISION, "sources": layers.digest_files([here / "image.py"], here)},
        build_system,
        (below, *below.parents),
    )
