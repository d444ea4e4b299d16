# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine whose userland is Debian's and whose identity and package world are Ubuntu 24.04's.

Its repository is made with the image: signed by a key that is made for it, with the names, splits, versions and pockets
of ``ubuntu_archive.py``. What the packages hold is Debian's: the driver's libraries and tools under the version in the
package's name, and the kernel that the image has, without most of its modules, under Ubuntu's releases. The driver's
kernel modules are the lab's stub (``stubs.py``), which DKMS builds in seconds; the prebuilt ones are signed by a key
that is made for them.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from . import repository, stubs, ubuntu_archive
from .common import run, run_logged, say, write_whole

PLACE = Path("srv/ubuntu")
KEYRING = Path("usr/share/keyrings/ubuntu-archive-keyring.gpg")
COMPONENTS = ("main", "restricted", "universe", "multiverse")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MODULES = ("", "-modeset", "-drm", "-uvm", "-peermem")
# Debian's packages that the driver's files are taken from.
DEBIAN = ("libnvidia-ml1", "libcuda1", "libnvidia-cfg1", "nvidia-smi", "nvidia-persistenced")
# Debian's packages that a server of Ubuntu has and the lab's base system has not.
SERVER_PACKAGES = ("grub-common",)
# Of a kernel's own modules a machine without hardware of its own needs none; nouveau is there to be kept away.
KERNEL_MODULES = ("kernel/crypto", "kernel/drivers/gpu/drm/nouveau", "kernel/drivers/video", "kernel/fs/overlayfs")

IDENTITY = {
    "usr/lib/os-release": """\
PRETTY_NAME="Ubuntu 24.04.3 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION="24.04.3 LTS (Noble Numbat)"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
HOME_URL="https://www.ubuntu.com/"
SUPPORT_URL="https://help.ubuntu.com/"
BUG_REPORT_URL="https://bugs.launchpad.net/ubuntu/"
UBUNTU_CODENAME=noble
LOGO=ubuntu-logo
""",
    "etc/lsb-release": """\
DISTRIB_ID=Ubuntu
DISTRIB_RELEASE=24.04
DISTRIB_CODENAME=noble
DISTRIB_DESCRIPTION="Ubuntu 24.04.3 LTS"
""",
    "etc/debian_version": "trixie/sid\n",
    "etc/issue": "Ubuntu 24.04.3 LTS \\n \\l\n",
    "etc/dpkg/origins/ubuntu": "Vendor: Ubuntu\nVendor-URL: https://www.ubuntu.com/\nParent: Debian\n",
    "etc/apt/sources.list.d/ubuntu.sources": f"""\
Types: deb
URIs: file:/{PLACE}
Suites: noble noble-updates noble-security
Components: {" ".join(COMPONENTS)}
Signed-By: /{KEYRING}
""",
    "etc/apt/apt.conf.d/50unattended-upgrades": """\
Unattended-Upgrade::Allowed-Origins {
	"${distro_id}:${distro_codename}";
	"${distro_id}:${distro_codename}-security";
	"${distro_id}ESMApps:${distro_codename}-apps-security";
	"${distro_id}ESM:${distro_codename}-infra-security";
};
Unattended-Upgrade::Package-Blacklist {
};
Unattended-Upgrade::DevRelease "auto";
""",
}

# As in nvidia-compute-utils: started by udev, without persistence mode, and nothing to enable.
PERSISTENCED_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
ADD_USER = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent passwd nvidia-persistenced >/dev/null || useradd --system --user-group --no-create-home \\
    --home-dir /nonexistent --shell /usr/sbin/nologin nvidia-persistenced
"""
BLACKLIST = """\
blacklist nouveau
blacklist lbm-nouveau
blacklist nova_core
blacklist nova_drm
alias nouveau off
alias lbm-nouveau off
"""
UDEV_RULES = """\
# gpufleet lab: the simulator makes the devices and starts no daemon by itself.
"""
IMAGE_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
depmod {kernel}
change=upgrade
[ ! -f /lib/modules/{kernel}/.fresh-install ] || change=install
linux-update-symlinks $change {kernel} /boot/vmlinuz-{kernel}
rm -f /lib/modules/{kernel}/.fresh-install
DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={kernel} --arg=/boot/vmlinuz-{kernel} \\
    /etc/kernel/postinst.d
"""
IMAGE_PREINST = """\
#!/bin/sh
set -e
[ "$1" != install ] || {{ mkdir -p /lib/modules/{kernel} && touch /lib/modules/{kernel}/.fresh-install; }}
"""
IMAGE_POSTRM = """\
#!/bin/sh
set -e
[ "$1" = remove ] || [ "$1" = purge ] || exit 0
[ "$1" != remove ] || linux-update-symlinks remove {kernel} /boot/vmlinuz-{kernel}
[ ! -d /etc/kernel/postrm.d ] || DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={kernel} \\
    --arg=/boot/vmlinuz-{kernel} /etc/kernel/postrm.d
[ "$1" != purge ] || rm -rf /lib/modules/{kernel}
"""
IMAGE_PRERM = """\
#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
[ ! -d /etc/kernel/prerm.d ] || DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={kernel} \\
    --arg=/boot/vmlinuz-{kernel} /etc/kernel/prerm.d
"""
HEADERS_POSTINST = """\
#!/bin/sh
set -e
[ "$1" != configure ] || [ ! -d /etc/kernel/header_postinst.d ] || DEB_MAINT_PARAMS="$*" run-parts --report \\
    --exit-on-error --arg={kernel} /etc/kernel/header_postinst.d
"""
# Joins what the archive keeps apart: the modules and their signatures.
PREBUILT_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
for object in {place}/bits/*.o; do
    name=$(basename "$object" .o)
    cat "$object" "{place}/bits/$name.sig" > "{place}/$name.ko"
done
[ ! -e /lib/modules/{kernel}/modules.order ] || depmod {kernel}
"""
PREBUILT_PRERM = """\
#!/bin/sh
set -e
rm -f {place}/*.ko
[ "$1" != remove ] || [ ! -e /lib/modules/{kernel}/modules.order ] || depmod {kernel}
"""


@dataclass
class Contents:
    """What a package holds: files by path (text, or the file that is copied), links, and maintainer scripts."""

    files: dict[str, str | Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)


def library(debian: Path, name: str, version: str) -> Contents:
    """A library of Debian's driver under another version, with the link that its soname is."""
    [found] = [path for path in debian.rglob(f"{name}.so.*") if path.is_file() and not path.is_symlink()]
    file = f"{name}.so.{version}"
    return Contents({f"{LIBRARIES}/{file}": found}, {f"{LIBRARIES}/{name}.so.1": file})


def module_source(version: str, flavour: str) -> dict[str, str]:
    """The files of a directory in which the driver's modules are built."""
    text = stubs.MODULE.format(version=version, broken="")
    if flavour:
        text = text.replace('MODULE_LICENSE("NVIDIA")', 'MODULE_LICENSE("Dual MIT/GPL")')
    objects = " ".join(f"nvidia{part}.o" for part in MODULES)
    return {
        **{f"nvidia{part}.c": text for part in MODULES},
        "Makefile": stubs.MAKEFILE.format(objects=objects, slow="true"),
    }


def dkms_name(flavour: str) -> str:
    """The name of the modules' package in DKMS, by flavour ('' or '-open')."""
    return "nvidia" if flavour else "nvidia-srv"


def dkms_source(version: str, flavour: str) -> dict[str, str]:
    """What nvidia-kernel-source has in /usr/src."""
    modules = "".join(
        stubs.DKMS_MODULE.format(number=number, name="nvidia", part=part) for number, part in enumerate(MODULES)
    )
    conf = stubs.DKMS_CONF.format(name=dkms_name(flavour), version=version, modules=modules)
    place = f"usr/src/{dkms_name(flavour)}-{version}"
    return {f"{place}/{name}": text for name, text in {**module_source(version, flavour), "dkms.conf": conf}.items()}


def prebuilt_place(mark: str, flavour: str, kernel: str) -> str:
    """Where prebuilt modules lie: /lib/modules/6.8.0-31-generic/kernel/nvidia-570srv-open."""
    return f"lib/modules/{kernel}/kernel/nvidia-{mark.replace('-server', 'srv')}{flavour}"


def driver_contents(item: dict, debian: Path, bits: Path) -> Contents:
    """Return what a package of the driver holds: files of DEBIAN, and modules that were built into BITS.

    Packages that are there for their name and their dependencies alone are empty.
    """
    name, version = item["name"], item["version"].split("-", 1)[0]
    if item.get("section") == "oldlibs":
        return Contents()
    if name.startswith("linux-signatures-nvidia-"):
        return signatures(name[len("linux-signatures-nvidia-") :], bits)
    match = re.fullmatch(r"(.+?)-([0-9]{3}-server)(-open)?(?:-(.+))?", name)
    kind, mark, flavour, rest = match.groups("") if match else (name, "", "", "")
    if kind == "linux-objects-nvidia":
        return Contents(dict(prebuilt_parts(mark, flavour, rest, bits, "o")))
    if kind == "linux-modules-nvidia" and rest != "generic":
        words = {"place": "/" + prebuilt_place(mark, flavour, rest), "kernel": rest}
        return Contents(
            scripts={"postinst": PREBUILT_POSTINST.format(**words), "prerm": PREBUILT_PRERM.format(**words)}
        )
    if kind == "nvidia-kernel-source":
        return Contents(dict(dkms_source(version, flavour)))
    if kind == "nvidia-dkms":
        words = {"name": dkms_name(flavour), "version": version, "seconds": 0}
        return Contents(scripts={"postinst": stubs.POSTINST.format(**words), "prerm": stubs.PRERM.format(**words)})
    return user_contents(kind, version, debian)


def user_contents(kind: str, version: str, debian: Path) -> Contents:
    """Return what a package of the driver's userland holds, by its name without the branch."""
    if kind == "libnvidia-compute":
        ml, cuda = library(debian, "libnvidia-ml", version), library(debian, "libcuda", version)
        return Contents(ml.files | cuda.files, ml.links | cuda.links)
    if kind == "libnvidia-cfg1":
        return library(debian, "libnvidia-cfg", version)
    note = f"gpufleet lab: stands in for the firmware of {version}\n"
    files: dict[str, dict[str, str | Path]] = {
        "nvidia-utils": {"usr/bin/nvidia-smi": debian / "usr/lib/nvidia/current/nvidia-smi"},
        "nvidia-compute-utils": {
            "usr/bin/nvidia-persistenced": debian / "usr/bin/nvidia-persistenced",
            "lib/systemd/system/nvidia-persistenced.service": PERSISTENCED_UNIT,
        },
        "nvidia-firmware": {f"lib/firmware/nvidia/{version}/gsp_{chip}.bin": note for chip in ("ga10x", "tu10x")},
        "nvidia-kernel-common": {
            "lib/modprobe.d/nvidia-graphics-drivers.conf": BLACKLIST,
            "lib/udev/rules.d/71-nvidia.rules": UDEV_RULES,
        },
    }
    return Contents(files.get(kind, {}), scripts={"postinst": ADD_USER} if kind == "nvidia-compute-utils" else {})


def signatures(kernel: str, bits: Path) -> Contents:
    """Return the signatures of all prebuilt modules of a kernel, of whichever branch."""
    files: dict[str, str | Path] = {}
    for driver in ubuntu_archive.PREBUILT[kernel]:
        for flavour in ubuntu_archive.FLAVOURS:
            files |= prebuilt_parts(f"{driver.split('.')[0]}-server", flavour, kernel, bits, "sig")
    return Contents(files)


def prebuilt_parts(mark: str, flavour: str, kernel: str, bits: Path, kind: str) -> dict[str, Path]:
    """The modules without their signatures (KIND o), or the signatures (sig)."""
    place = prebuilt_place(mark, flavour, kernel)
    return {
        f"{place}/bits/nvidia{part}.{kind}": bits / kernel / f"{mark}{flavour}" / f"nvidia{part}.{kind}"
        for part in MODULES
    }


# --- kernels ---------------------------------------------------------------------------------------------------------


def rewrite(text: str, debian: str, kernel: str) -> str:
    """A file of Debian's kernel headers under the names of another release."""
    abi = kernel.rsplit("-", 1)[0]
    common = debian.rsplit("-", 1)[0] + "-common"
    return text.replace(f"linux-headers-{common}", f"linux-headers-{abi}").replace(debian, kernel)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a directory with all that links lead to outside of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    run("cp", "--archive", "--no-target-directory", source, target)


def lay_kernel(root: Path, debian: str, kernel: str, trees: Path) -> dict[str, dict[str, str]]:
    """Lay the trees of a kernel's packages out of the Debian kernel that ROOT has; return their scripts by package."""
    abi, words = kernel.rsplit("-", 1)[0], {"kernel": kernel}
    image, modules, common, headers = (
        trees / name
        for name in (
            f"linux-image-{kernel}",
            f"linux-modules-{kernel}",
            f"linux-headers-{abi}",
            f"linux-headers-{kernel}",
        )
    )
    copy(root / f"boot/vmlinuz-{debian}", image / f"boot/vmlinuz-{kernel}")
    for name in ("config", "System.map"):
        copy(root / f"boot/{name}-{debian}", modules / f"boot/{name}-{kernel}")
    old, new = root / f"lib/modules/{debian}", modules / f"lib/modules/{kernel}"
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order", *KERNEL_MODULES):
        copy(old / name, new / name)
    sources, kbuild = root / "usr/src", next((root / "usr/lib").glob("linux-kbuild-*"))
    common_name = debian.rsplit("-", 1)[0] + "-common"
    for tree, source, name in ((common, common_name, abi), (headers, debian, kernel)):
        target = tree / f"usr/src/linux-headers-{name}"
        copy(sources / f"linux-headers-{source}", target)
        for part in ("scripts", "tools"):
            (target / part).unlink()
            copy(kbuild / part, target / part)
    for path in headers.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20:
            content = path.read_bytes()
            if debian.rsplit("-", 1)[0].encode() in content and b"\0" not in content:
                path.write_text(rewrite(content.decode(), debian, kernel), encoding="utf-8")
    (headers / f"lib/modules/{kernel}").mkdir(parents=True)
    (headers / f"lib/modules/{kernel}/build").symlink_to(f"/usr/src/linux-headers-{kernel}")
    scripts = {"preinst": IMAGE_PREINST, "postinst": IMAGE_POSTINST, "prerm": IMAGE_PRERM, "postrm": IMAGE_POSTRM}
    return {
        image.name: {name: text.format(**words) for name, text in scripts.items()},
        headers.name: {"postinst": HEADERS_POSTINST.format(**words)},
    }


def build_modules(root: Path, kernel: str, bits: Path, log: Path) -> None:
    """Build and sign a kernel's prebuilt modules in the chroot ROOT, which has its headers."""
    inside = "/" + str(bits.relative_to(root))
    headers = f"/usr/src/linux-headers-{kernel}"
    key = f"{inside}/key.pem"
    if not (bits / "key.pem").exists():
        subject = "/CN=gpufleet lab, stands in for Canonical Ltd. Kernel Module Signing"
        request = ["req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "36500", "-subj", subject]
        run_logged("a key", log, "chroot", root, "openssl", *request, "-keyout", key, "-out", f"{inside}/cert.pem")
    for driver in ubuntu_archive.PREBUILT[kernel]:
        for flavour in ubuntu_archive.FLAVOURS:
            place = bits / kernel / f"{driver.split('.')[0]}-server{flavour}"
            for name, text in module_source(driver, flavour).items():
                write_whole(place / "src" / name, text)
            source = f"{inside}/{place.relative_to(bits)}/src"
            build = ["make", "-C", source, f"KERNEL_SOURCE={headers}", "all"]
            run_logged(f"modules of {driver} for {kernel}", log, "chroot", root, *build)
            for part in MODULES:
                module = place / f"src/nvidia{part}.ko"
                unsigned = module.read_bytes()
                signing = [f"{headers}/scripts/sign-file", "sha512", key, f"{inside}/cert.pem"]
                run("chroot", root, *signing, f"{source}/{module.name}")
                (place / f"nvidia{part}.o").write_bytes(unsigned)
                (place / f"nvidia{part}.sig").write_bytes(module.read_bytes()[len(unsigned) :])
            shutil.rmtree(place / "src")


# --- packages and indexes --------------------------------------------------------------------------------------------


def control(item: dict, installed_kib: int) -> str:
    """The control file of a package."""
    fields = {
        "Package": item["name"],
        "Source": item["source"] if item["source"] != item["name"] else "",
        "Version": item["version"],
        "Architecture": "amd64",
        "Section": ubuntu_archive.section(item),
        "Priority": "optional",
        "Maintainer": "gpufleet contributors <gpufleet@example.invalid>",
        "Installed-Size": str(installed_kib),
        "Depends": item["depends"],
        "Provides": item["provides"],
        "Conflicts": item["conflicts"],
        "Replaces": item["replaces"],
        "Description": "gpufleet lab: not Ubuntu's package, but one under its name",
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def build(item: dict, contents: Contents, tree: Path, pool: Path) -> Path:
    """Build one package; TREE may hold files of it already. Return its file."""
    tree.mkdir(parents=True, exist_ok=True)
    tree.chmod(0o755)
    for path, content in contents.files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, target)
            target.chmod(content.stat().st_mode & 0o777)
        else:
            target.write_text(content, encoding="utf-8")
    for path, leads_to in contents.links.items():
        (tree / path).symlink_to(leads_to)
    size = sum(path.lstat().st_size for path in tree.rglob("*"))
    write_whole(tree / "DEBIAN/control", control(item, size >> 10))
    for name, text in contents.scripts.items():
        write_whole(tree / "DEBIAN" / name, text, 0o755)
    deb = pool / f"{item['name']}_{item['version']}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, deb)
    return deb


def write_indexes(place: Path, entries: dict[tuple[str, str], str], keyring: Path) -> None:
    """Write the indexes of all pockets and sign them. ENTRIES: stanzas by a package's name and version."""
    releases = []
    for pocket, items in ubuntu_archive.pockets().items():
        dist = place / "dists" / pocket
        for component in COMPONENTS:
            found = [entries[item["name"], item["version"]] for item in items if component_of(item) == component]
            write_whole(dist / component / "binary-amd64/Packages", "\n".join(found))
        releases.append(repository.write_release(dist, release_fields(pocket)))
    repository.sign(releases, keyring, valid="never", binary=True)


def component_of(item: dict) -> str:
    component, slash, _rest = ubuntu_archive.section(item).partition("/")
    return component if slash else "main"


def release_fields(pocket: str) -> dict[str, str]:
    fields = {"Origin": "Ubuntu", "Label": "Ubuntu", "Suite": pocket, "Version": "24.04", "Codename": "noble"}
    return {**fields, "Components": " ".join(COMPONENTS)}


def make_repository(root: Path, log: Path) -> None:
    """Make the repository in ROOT, which is mounted in a mount namespace of its own."""
    work = root / "var/tmp/ubuntu"
    work.mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", work)  # gone with the mount namespace; none of its files is kept
    debian, bits, trees, pool = (work / name for name in ("debian", "bits", "trees", "pool"))
    for path in (debian, bits, trees, pool):
        path.mkdir(parents=True)
    for name in DEBIAN:
        newest = sorted((root / "var/cache/apt/archives").glob(f"{name}_535.*.deb"))[-1]
        run("dpkg-deb", "--extract", newest, debian)
    running = next((root / "lib/modules").iterdir()).name
    entries = {}
    kernels = (ubuntu_archive.RELEASE_KERNEL, ubuntu_archive.UPDATED_KERNEL)
    scripts: dict[str, dict[str, str]] = {}
    for kernel in kernels:
        scripts |= lay_kernel(root, running, kernel, trees)
        for item in ubuntu_archive.ubuntu_kernel(kernel):
            deb = build(item, Contents(scripts=scripts.get(item["name"], {})), trees / item["name"], pool)
            entries[item["name"], item["version"]] = stubs.index_entry(deb)
            if item["name"].startswith("linux-headers-"):
                name = f"usr/src/{item['name']}"
                (root / name).mkdir()
                run("mount", "--bind", trees / item["name"] / name, root / name)
        build_modules(root, kernel, bits, log)
    for item in (item for items in ubuntu_archive.pockets().values() for item in items):
        key = item["name"], item["version"]
        if key not in entries:
            deb = build(item, driver_contents(item, debian, bits), trees / item["name"] / item["version"], pool)
            entries[key] = stubs.index_entry(deb)
    place = root / PLACE
    place.mkdir(parents=True)
    copy(pool, place / "pool")
    write_indexes(
        place,
        {key: text.replace("\nFilename: ./", "\nFilename: pool/") for key, text in entries.items()},
        root / KEYRING,
    )
    for path in (*(root / "usr/src").glob("linux-headers-6.8.0-*"), work):
        run("umount", path)
        path.rmdir()
    say(f"{len(entries)} packages under Ubuntu's names lie in /{PLACE} of the image")


# --- the machine -----------------------------------------------------------------------------------------------------


def build_system(root: Path, log: Path) -> None:
    """Turn a Debian root with the driver's packages beside it into a bare machine of the other identity."""
    apt = ["chroot", root, "apt-get", "-q", "-y", "-o", "APT::Install-Recommends=false"]
    run_logged("package lists", log, *apt, "update")
    run_logged("what Ubuntu's server has besides", log, *apt, "install", *SERVER_PACKAGES)
    make_repository(root, log)
    for directory in ("etc/apt/sources.list.d", "var/lib/apt/lists", "var/cache/apt/archives"):
        shutil.rmtree(root / directory)
        (root / directory).mkdir()
    for directory in ("var/lib/apt/lists", "var/cache/apt/archives"):
        (root / directory / "partial").mkdir()
    for path, text in IDENTITY.items():
        write_whole(root / path, text)
    (root / "etc/dpkg/origins/default").unlink()
    (root / "etc/dpkg/origins/default").symlink_to("ubuntu")
    run_logged("package lists", log, *apt, "update")
    version = ubuntu_archive.kernel_version(ubuntu_archive.RELEASE_KERNEL)
    metas = [f"{item['name']}={version}" for item in ubuntu_archive.ubuntu_kernel_metas(ubuntu_archive.RELEASE_KERNEL)]
    run("chroot", root, "apt-mark", "manual", "gcc-12")  # which the kernel's headers build with
    other = f"{ubuntu_archive.OTHER}={ubuntu_archive.OTHER_OLD}"
    run_logged("the kernel", log, *apt, "install", *metas, other)
    installed = run("dpkg-query", "--root", root, "-W", "-f", "${Package}\n").stdout.split()
    foreign = [name for name in installed if re.match(r"linux-(image|headers|kbuild)-.*(6\.[0-9]+|amd64)", name)]
    foreign = [name for name in foreign if not name.endswith("generic") and not re.search(r"-6\.8\.0-", name)]
    run_logged("leaving the other kernel", log, *apt, "purge", *foreign)
    for path in ("pkgcache.bin", "srcpkgcache.bin"):
        (root / "var/cache/apt" / path).unlink(missing_ok=True)


def sources() -> list[Path]:
    """The files that the machine's layer is made of."""
    here = Path(__file__).resolve().parent
    return [here / name for name in ("ubuntu.py", "ubuntu_archive.py", "stubs.py", "repository.py")]
