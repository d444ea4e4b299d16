# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the rpm repositories of the rocky9-like system: rpmbuild, rpmsign, createrepo_c and modifyrepo_c.

Each repository has a key that is made for it and not kept. Its public half and its fingerprint lie beside the packages.
"""

from __future__ import annotations

import contextlib
import lzma
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..common import LabError, run, write_whole
from . import packages
from .packages import Package

PLACE = Path("srv/gpufleet-rpm")  # in a machine
KEY_FILE = {"baseos": "RPM-GPG-KEY-lab-baseos", "epel": "RPM-GPG-KEY-EPEL-9", "cuda": "D42D0685.pub"}
FINGERPRINT = "fingerprint"
# Modules of Debian's kernel that the kernels' packages have, by the package that RHEL 9 has them in.
MODULES = {
    "modules-core": ("drivers/block/loop.ko", "drivers/gpu/drm/drm.ko", "drivers/gpu/drm/nouveau/nouveau.ko"),
    "modules": ("drivers/net/dummy.ko",),
}
MODULE_FILES = ("modules.builtin", "modules.builtin.modinfo", "modules.order")
DKMS_FILES = ("usr/sbin/dkms", "usr/lib/dkms", "etc/dkms", "etc/modprobe.d/dkms.conf")


def find_debian_kernel(root: Path) -> str:
    """The release of the one kernel that the base image has."""
    found = sorted(path.name for path in (root / "lib/modules").iterdir())
    if len(found) != 1:
        raise LabError(f"{root} has kernels {', '.join(found) or 'none'}: expected one")
    return found[0]


def rename_module(source: Path, target: Path, old: str, new: str) -> None:
    """Copy a kernel module as one of another release: its vermagic is in a section of its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        section, module = Path(work, "modinfo"), Path(work, source.name)
        run("objcopy", "--dump-section", f".modinfo={section}", source, module)
        section.write_bytes(section.read_bytes().replace(f"vermagic={old} ".encode(), f"vermagic={new} ".encode()))
        run("objcopy", "--update-section", f".modinfo={section}", module)
        target.write_bytes(lzma.compress(module.read_bytes(), check=lzma.CHECK_CRC32, preset=1))


def stage_kernel(root: Path, staging: Path, kernel: str) -> dict[str, dict[str, str]]:
    """Lay out Debian's kernel as one of RHEL's, below STAGING. Returns each package's files, for list_kernel()."""
    debian, name = find_debian_kernel(root), f"{kernel}.{packages.ARCH}"
    base = f"lib/modules/{name}"
    found: dict[str, dict[str, str]] = {part: {} for part in ("core", "modules-core", "modules", "devel")}

    def add(part: str, path: str) -> Path:
        found[part]["/" + path] = path
        (staging / path).parent.mkdir(parents=True, exist_ok=True)
        return staging / path

    for source, path in (
        (f"boot/vmlinuz-{debian}", "vmlinuz"),
        (f"boot/System.map-{debian}", "System.map"),
        (f"boot/config-{debian}", "config"),
        *((f"lib/modules/{debian}/{file}", file) for file in MODULE_FILES),
    ):
        shutil.copyfile(root / source, add("core", f"{base}/{path}"))
    for part, modules in MODULES.items():
        for module in modules:
            source = root / "lib/modules" / debian / "kernel" / module
            rename_module(source, add(part, f"{base}/kernel/{module}.xz"), debian, name)
    devel = add("devel", f"usr/src/kernels/{name}")
    shutil.copytree(root / f"usr/src/linux-headers-{debian}", devel, symlinks=True)
    for path in ("include/config/kernel.release", "include/generated/utsrelease.h"):
        (devel / path).write_text((devel / path).read_text().replace(debian, name))
    for path in ("scripts", "tools"):
        target = devel.joinpath(path).readlink()
        (devel / path).unlink()
        (devel / path).symlink_to("/usr" / Path(*[part for part in target.parts if part != ".."]))
    return found


def lay_content(package: Package, root: Path, content: Path) -> None:
    """Write a package's files below CONTENT, those of the image from ROOT."""
    for path, source in package.files.items():
        target = content / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / source).is_dir():
            shutil.copytree(root / source, target, symlinks=True)
        else:
            shutil.copy2(root / source, target)
    for path, text in package.texts.items():
        write_whole(content / path.lstrip("/"), text, 0o755 if path in package.programs else 0o644)
    for path, goal in package.links.items():
        target = content / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(goal)


def build_package(package: Package, root: Path, directory: Path) -> Path:
    """Build one rpm into DIRECTORY. Returns its path."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-rpm-") as work:
        content = Path(work, "content")
        content.mkdir()
        lay_content(package, root, content)
        source = Path(work, "lab.spec")
        source.write_text(packages.spec(package, str(content)), encoding="utf-8")
        macros = {
            "_topdir": work,
            "_rpmdir": directory,
            "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_dbpath": f"{work}/db",
            "_build_id_links": "none",
            "_binary_payload": "w1.gzdio",
            "debug_package": "%{nil}",
            "__os_install_post": "%{nil}",
        }
        words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        run("rpmbuild", "-bb", "--quiet", "--target", packages.ARCH, *words, source, timeout=600)
    return directory / f"{package.name}-{package.version}-{package.release}.{package.arch}.rpm"


@contextlib.contextmanager
def make_key(owner: str) -> Iterator[tuple[list[str], str]]:
    """A key for as long as it is needed: gpg's words for its home, and its fingerprint."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-key-") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback"]
        try:
            run(*gpg, "--passphrase", "", "--quick-generate-key", owner, "rsa2048", "sign", "never")
            listing = run(*gpg, "--with-colons", "--list-keys").stdout
            yield gpg, next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
        finally:
            run("gpgconf", "--homedir", home, "--kill", "all", check=False)


def sign_packages(rpms: list[Path], gpg: list[str], fingerprint: str) -> None:
    macros = {"_gpg_name": fingerprint, "_gpg_path": gpg[gpg.index("--homedir") + 1], "__gpg": shutil.which("gpg")}
    words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    run("rpmsign", *words, "--addsign", *rpms, timeout=600)


def build(name: str, found: list[Package], root: Path, directory: Path, modules: str = "") -> None:
    """Build, sign and index one repository in DIRECTORY; MODULES is the metadata of its module streams."""
    directory.mkdir(parents=True)
    rpms = [build_package(package, root, directory) for package in found]
    with make_key(f"gpufleet lab, repository {name} (made for this image)") as (gpg, fingerprint):
        sign_packages(rpms, gpg, fingerprint)
        run("createrepo_c", "--quiet", directory, timeout=600)
        if modules:
            with tempfile.TemporaryDirectory() as work:
                write_whole(Path(work, "modules.yaml"), modules)
                run("modifyrepo_c", "--mdtype=modules", Path(work, "modules.yaml"), directory / "repodata")
        index = directory / "repodata/repomd.xml"
        run(*gpg, "--armor", "--detach-sign", "--output", f"{index}.asc", index)
        write_whole(directory / KEY_FILE[name], run(*gpg, "--armor", "--export").stdout)
        write_whole(directory / FINGERPRINT, fingerprint + "\n")


def build_all(root: Path, directory: Path) -> None:
    """Build the repositories of the system out of what the base image in ROOT has."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-kernel-") as work:
        # Kernels first, whose files are staged; every other package takes them from the image.
        staging = Path(work)
        kernels = [
            package
            for kernel in packages.KERNELS
            for package in packages.list_kernel(kernel, stage_kernel(root, staging, kernel))
        ]
        for source in {source for package in kernels for source in package.files.values()}:
            if not (staging / source).exists():
                raise LabError(f"the kernels lack {source}")
        version = run("dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Version}", "dkms").stdout
        dkms = packages.make_dkms(version.split("-", 1)[0], {f"/{path}": path for path in DKMS_FILES})
        drivers = [
            package
            for driver in (*packages.DRIVERS, packages.BROKEN_DRIVER)
            for package in packages.list_driver(driver, broken=driver == packages.BROKEN_DRIVER)
        ]
        for path in (f"/{packages.PLUGINS}versionlock.py", *(f"/{path}" for path in DKMS_FILES)):
            shared = staging / path.lstrip("/")
            shared.parent.mkdir(parents=True, exist_ok=True)
            shared.symlink_to(root / path.lstrip("/"))
        base = [packages.RELEASE_PACKAGE, *packages.USERLAND, *packages.BOOT, *packages.DNF_PARTS]
        build("baseos", [*base, *packages.UPDATES, *kernels], staging, directory / "baseos")
        build("epel", [dkms], staging, directory / "epel")
        streams = packages.list_streams([*packages.DRIVERS, packages.BROKEN_DRIVER])
        build("cuda", drivers, staging, directory / "cuda", packages.write_modules(streams))
