# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the rocky9-like system: names, splits, versions and dependencies as data. Pure.

Names, epochs and dependencies of the driver are those of NVIDIA's CUDA repository for RHEL 9, by its documentation and
its packaging sources. A driver's kernel modules are the few lines of tests/lab/stubs.py, so that a DKMS build takes
seconds; kernels, their headers and DKMS are Debian's, renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import stubs

SYSTEM = "rocky9-like"
ARCH = "x86_64"
# The kernel that a machine starts with, and the one that an update brings.
KERNELS = ("5.14.0-503.40.1.el9_5", "5.14.0-570.12.1.el9_6")
# A good release of each of two branches, and one whose module does not compile.
DRIVERS = ("570.195.03", "580.95.05")
BROKEN_DRIVER = "580.105.08"
PARTS = ("", "-modeset", "-drm", "-uvm")
LIB = "/usr/lib64/"

OS_RELEASE = """\
NAME="Rocky Linux"
VERSION="9.5 (gpufleet lab: Debian's userland, not Rocky Linux)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.5"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Rocky Linux 9.5 (gpufleet lab: rocky9-like)"
VARIANT="gpufleet lab"
VARIANT_ID="rocky9-like"
"""
RELEASE = "Rocky Linux release 9.5 (gpufleet lab: rocky9-like)\n"


@dataclass(frozen=True)
class Package:
    """One rpm. TEXTS are its small files; FILES maps paths to paths below the root that the lab takes contents from."""

    name: str
    version: str
    release: str = "1.el9"
    epoch: int = 0
    arch: str = ARCH
    requires: Sequence[str] = ()
    recommends: Sequence[str] = ()
    provides: Sequence[str] = ()
    conflicts: Sequence[str] = ()
    obsoletes: Sequence[str] = ()
    texts: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    programs: Sequence[str] = ()  # of the texts, those that can be run
    config: Sequence[str] = ()  # of the texts, those that an administrator may have changed
    scripts: dict[str, str] = field(default_factory=dict)

    @property
    def evr(self) -> str:
        """Epoch, version and release, as dnf's module metadata has them."""
        return f"{self.epoch}:{self.version}-{self.release}"

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.evr}.{self.arch}"


def spec(package: Package, content: str) -> str:
    """The text of a package's spec file. CONTENT is a directory with its files at their places."""
    lines = [f"Name: {package.name}", f"Version: {package.version}", f"Release: {package.release}"]
    lines += [f"Epoch: {package.epoch}"] if package.epoch else []
    lines += ["BuildArch: noarch"] if package.arch == "noarch" else []
    lines += [f"Summary: {package.name} of the gpufleet lab", "License: GPL-3.0-or-later", "AutoReqProv: no"]
    for tag, values in (
        ("Requires", package.requires),
        ("Recommends", package.recommends),
        ("Provides", package.provides),
        ("Conflicts", package.conflicts),
        ("Obsoletes", package.obsoletes),
    ):
        lines += [f"{tag}: {value}" for value in values]
    lines += ["%description", f"Made by the gpufleet lab for {SYSTEM} machines. Not a package of its namesake.", ""]
    if list_paths(package):
        lines += ["%install", f"cp -a {content}/. %{{buildroot}}/", ""]
    for section, text in package.scripts.items():
        lines += [f"%{section}", text.rstrip(), ""]
    lines += ["%files", "%defattr(-,root,root)"]
    for path in list_paths(package):
        lines.append(f"%config(noreplace) {path}" if path in package.config else path)
    return "\n".join(lines) + "\n"


def list_paths(package: Package) -> list[str]:
    return sorted({**package.texts, **package.links, **package.files})


def identify(name: str, version: str, release: str = "1.el9", **more) -> Package:
    """A package without files: the rpm database knows it, and Debian's userland has what it is for."""
    return Package(name, version, release, **more)


# --- the distribution ------------------------------------------------------------------------------------------------

RELEASE_PACKAGE = Package(
    "rocky-release",
    "9.5",
    "1.2.el9",
    arch="noarch",
    provides=("system-release = 9.5-1.2.el9", "system-release(releasever) = 9", "redhat-release = 9.5-1.2.el9"),
    texts={
        "/usr/lib/os-release": OS_RELEASE,
        "/etc/rocky-release": RELEASE,
        "/etc/redhat-release": RELEASE,
        "/etc/system-release": RELEASE,
        "/etc/yum/protected.d/systemd.conf": "systemd\n",
    },
    links={"/etc/os-release": "../usr/lib/os-release"},
)

# What the base system is to have, in versions of release 9.5, and what packages of the lab ask for.
USERLAND = (
    identify("bash", "5.1.8", "9.el9", provides=("/bin/sh", "/usr/bin/sh", "/bin/bash")),
    identify("coreutils", "8.32", "36.el9"),
    identify("glibc", "2.34", "125.el9_5.1", provides=("ldconfig",)),
    identify("systemd", "252", "46.el9_5.2.rocky.0.1"),
    identify("systemd-udev", "252", "46.el9_5.2.rocky.0.1"),
    identify("kmod", "28", "10.el9"),
    identify("dracut", "057", "70.git20240819.el9"),
    identify("python3", "3.9.21", "1.el9_5", provides=("/usr/bin/python3",)),
    identify("rpm", "4.16.1.3", "34.el9.0.1"),
    identify("dnf", "4.14.0", "17.el9", arch="noarch"),
    identify("python3-dnf", "4.14.0", "17.el9", arch="noarch"),
    identify("dnf-plugins-core", "4.3.0", "16.el9", arch="noarch"),
    identify("openssh-server", "8.7p1", "43.el9"),
    identify("sudo", "1.9.5p2", "10.el9_3"),
    identify("pciutils", "3.7.0", "5.el9"),
    identify("gcc", "11.5.0", "5.el9_5"),
    identify("make", "4.3", "8.el9"),
    identify("elfutils-libelf", "0.191", "4.el9"),
    identify("kernel-headers", *KERNELS[0].split("-", 1)),
)
# What an update of everything brings beside a kernel and a driver.
UPDATES = (identify("openssh-server", "8.7p1", "45.el9"), identify("kernel-headers", *KERNELS[1].split("-", 1)))

GRUBBY = """\
#!/bin/sh
# Stand-in of the gpufleet lab for grubby: the default entry among /boot/loader/entries, and no more.
set -eu
entries=/boot/loader/entries
environment=/boot/grub2/grubenv
case "$1" in
--default-kernel)
    entry=$(sed -n 's/^saved_entry=//p' $environment)
    sed -n 's,^linux /,/boot/,p' "$entries/$entry.conf"
    ;;
--set-default=*|--set-default)
    kernel=${1#--set-default=}
    [ "$1" != --set-default ] || kernel=$2
    file=$(grep -lxF "linux /${kernel#/boot/}" $entries/*.conf) || {
        echo "The param $kernel is incorrect" >&2; exit 1; }
    file=${file##*/}
    printf '# GRUB Environment Block\\nsaved_entry=%s\\n' "${file%.conf}" > $environment
    ;;
*)
    echo "grubby of the gpufleet lab does not know $1" >&2
    exit 2
    ;;
esac
"""
# What grub2-common does of it: the image in /boot, and the entry, which becomes the default (UPDATEDEFAULT=yes).
INSTALL_ENTRY = """\
#!/bin/sh
# The kernel's image and its boot loader entry. A stand-in of the gpufleet lab: nothing boots from them.
set -eu
entries=/boot/loader/entries
# An image has none before its first boot, when the first kernel is installed.
identity=$(cat /etc/machine-id 2>/dev/null || true)
identity=${identity:-ffffffffffffffffffffffffffffffff}
case "$1" in
add)
    mkdir -p $entries /boot/grub2
    cp "$4" "/boot/vmlinuz-$2"
    printf 'title Rocky Linux (%s) 9.5\\nversion %s\\nlinux /vmlinuz-%s\\ninitrd /initramfs-%s.img\\n' \\
        "$2" "$2" "$2" "$2" > "$entries/$identity-$2.conf"
    . /etc/sysconfig/kernel
    if [ "$UPDATEDEFAULT" = yes ] || [ ! -e /boot/grub2/grubenv ]; then
        grubby "--set-default=/boot/vmlinuz-$2"
    fi
    ;;
remove)
    rm -f "/boot/vmlinuz-$2" "/boot/initramfs-$2.img" $entries/*-"$2.conf"
    newest=$(ls -v /boot/vmlinuz-* 2>/dev/null | tail -n 1)
    [ -z "$newest" ] || grubby --default-kernel >/dev/null 2>&1 || grubby "--set-default=$newest"
    ;;
esac
"""
INSTALL_INITRAMFS = """\
#!/bin/sh
set -eu
[ "$1" != add ] || exec dracut --force --quiet --kver "$2" "/boot/initramfs-$2.img"
"""
BOOT = (
    Package("grubby", "8.40", "63.el9", texts={"/usr/sbin/grubby": GRUBBY}, programs=("/usr/sbin/grubby",)),
    Package(
        "grub2-common",
        "2.06",
        "94.el9_5.0.1",
        epoch=1,
        arch="noarch",
        requires=("grubby",),
        texts={
            "/usr/lib/kernel/install.d/20-grub.install": INSTALL_ENTRY,
            "/usr/lib/kernel/install.d/52-dracut.install": INSTALL_INITRAMFS,
            "/boot/grub2/grub.cfg": "# made by the gpufleet lab: the menu is in /boot/loader/entries\nblscfg\n",
            "/etc/sysconfig/kernel": "UPDATEDEFAULT=yes\nDEFAULTKERNEL=kernel-core\n",
        },
        programs=("/usr/lib/kernel/install.d/20-grub.install", "/usr/lib/kernel/install.d/52-dracut.install"),
        config=("/etc/sysconfig/kernel",),
    ),
)

PLUGINS = "usr/lib/python3/dist-packages/dnf-plugins/"
AUTOMATIC_UNIT = """\
[Unit]
Description=dnf automatic
ConditionPathExists=!/run/ostree-booted
After=network-online.target

[Service]
Type=oneshot
ExecStart=/usr/bin/dnf-automatic /etc/dnf/automatic.conf --timer
"""
AUTOMATIC_TIMER = """\
[Unit]
Description=dnf-automatic timer

[Timer]
OnCalendar=*-*-* 6:00
RandomizedDelaySec=60m
Persistent=true

[Install]
WantedBy=timers.target
"""
AUTOMATIC = """\
#!/usr/bin/python3
import sys

from dnf.automatic.main import main

sys.exit(main(sys.argv[1:]))
"""
DNF_PARTS = (
    Package(
        "python3-dnf-plugin-versionlock",
        "4.3.0",
        "16.el9",
        arch="noarch",
        requires=("dnf",),
        texts={
            "/etc/dnf/plugins/versionlock.conf": (
                "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
            ),
            "/etc/dnf/plugins/versionlock.list": "",
        },
        config=("/etc/dnf/plugins/versionlock.conf", "/etc/dnf/plugins/versionlock.list"),
        files={f"/{PLUGINS}versionlock.py": f"{PLUGINS}versionlock.py"},
    ),
    Package(
        "dnf-automatic",
        "4.14.0",
        "17.el9",
        arch="noarch",
        requires=("python3-dnf",),
        texts={
            "/usr/bin/dnf-automatic": AUTOMATIC,
            "/usr/lib/systemd/system/dnf-automatic.service": AUTOMATIC_UNIT,
            "/usr/lib/systemd/system/dnf-automatic.timer": AUTOMATIC_TIMER,
            "/etc/dnf/automatic.conf": (
                "[commands]\nupgrade_type = default\ndownload_updates = yes\napply_updates = yes\n"
                "random_sleep = 0\nnetwork_online_timeout = 1\n[emitters]\nemit_via = stdio\n[email]\n[base]\n"
            ),
        },
        programs=("/usr/bin/dnf-automatic",),
        config=("/etc/dnf/automatic.conf",),
    ),
)


def list_kernel(kernel: str, content: dict[str, dict[str, str]]) -> list[Package]:
    """The packages of a kernel. CONTENT: the files of `core`, `modules` and `devel`, by place (see Package.files)."""
    version, release = kernel.split("-", 1)
    name = f"{kernel}.{ARCH}"
    base = f"/lib/modules/{name}"

    def need(*parts: str) -> tuple[str, ...]:
        return tuple(f"kernel-{part}-uname-r = {name}" for part in parts)

    def make(part: str, kind: str, **more) -> Package:
        provides = (f"installonlypkg({kind})", f"kernel-{part}-uname-r = {name}", *more.pop("provides", ()))
        return Package(f"kernel-{part}", version, release, provides=provides, **more)

    gone = f"rm -f {base}/modules.* && find {base} -depth -type d -empty -delete"
    depmod = {
        "post": f"depmod -a {name} || :\n",
        "postun": f"if [ -e {base}/vmlinuz ]; then depmod -a {name}; else {gone}; fi || :\n",
    }
    return [
        Package("kernel", version, release, requires=need("core", "modules", "modules-core")),
        make(
            "core",
            "kernel",
            provides=(f"kernel-uname-r = {name}", f"kernel-{ARCH} = {kernel}", "kernel-drm-nouveau = 16"),
            requires=("systemd", "dracut", "grub2-common", *need("modules-core")),
            files=content["core"],
            links={f"{base}/build": f"/usr/src/kernels/{name}", f"{base}/source": "build"},
            scripts={
                "posttrans": f"kernel-install add {name} {base}/vmlinuz\n",
                "preun": f"kernel-install remove {name} {base}/vmlinuz || exit $?\n",
                "postun": f"{gone} || :\n",
            },
        ),
        make("modules-core", "kernel-module", requires=need("core"), files=content["modules-core"], scripts=depmod),
        make("modules", "kernel-module", requires=need("modules-core"), files=content["modules"], scripts=depmod),
        make("devel", "kernel", requires=("gcc", "make"), files=content["devel"]),
    ]


# --- EPEL ------------------------------------------------------------------------------------------------------------

DKMS_INSTALL = """\
#!/bin/sh
# Build and remove the modules of DKMS with their kernels.
case "$1" in
add) [ ! -e "/lib/modules/$2/build/include" ] || dkms autoinstall --kernelver "$2" || : ;;
remove) for line in $(dkms status -k "$2" | sed -n 's/^\\([^,]*\\),.*/\\1/p'); do
    dkms uninstall "$line" -k "$2" || :
    dkms unbuild "$line" -k "$2" || :
done ;;
esac
"""


def make_dkms(version: str, files: dict[str, str]) -> Package:
    """DKMS: Debian's program, with the place of its hook in a package of EPEL."""
    hook = "/usr/lib/kernel/install.d/40-dkms.install"
    return Package(
        "dkms",
        version,
        "1.el9",
        arch="noarch",
        requires=("gcc", "make", "kmod", "coreutils", "kernel-devel", "elfutils-libelf"),
        files=files,
        texts={hook: DKMS_INSTALL},
        programs=(hook,),
    )


# --- NVIDIA's CUDA repository ----------------------------------------------------------------------------------------

NOTE = "gpufleet test stub of %s, not NVIDIA's file\n"
LIBRARY_SCRIPT = "ldconfig || :\n[ ! -x /usr/local/sbin/gpusim ] || gpusim library --quiet || :\n"
PERSISTENCED_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
Restart=always
ExecStart=/usr/bin/nvidia-persistenced --verbose
ExecStopPost=/bin/rm -rf /run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
DKMS_POST = """\
dkms add -m {name} -v {version} -q || :
# Rebuild and make available for the currently running kernel:
dkms build -m {name} -v {version} -q || :
dkms install -m {name} -v {version} -q --force || :
"""
DKMS_PREUN = "dkms remove -m {name} -v {version} -q --all || :\n"
DKMS_MODULE = """\
BUILT_MODULE_NAME[{number}]="nvidia{part}"
DEST_MODULE_NAME[{number}]="nvidia{part}"
DEST_MODULE_LOCATION[{number}]="/extra"
"""


def make_dkms_source(name: str, version: str, broken: bool) -> dict[str, str]:
    source = f"/usr/src/{name}-{version}/"
    text = stubs.MODULE.format(version=version, broken='#error "this release does not compile"' if broken else "")
    if name == "nvidia-open":
        text = text.replace('MODULE_LICENSE("NVIDIA")', 'MODULE_LICENSE("Dual MIT/GPL")')
    modules = "".join(DKMS_MODULE.format(number=number, part=part) for number, part in enumerate(PARTS))
    return {
        **{f"{source}nvidia{part}.c": text for part in PARTS},
        f"{source}Makefile": stubs.MAKEFILE.format(objects=" ".join(f"nvidia{part}.o" for part in PARTS), slow=":"),
        f"{source}dkms.conf": stubs.DKMS_CONF.format(name=name, version=version, modules=modules),
    }


def list_driver(version: str, broken: bool = False) -> list[Package]:
    """The packages of one driver: those with epoch 3, and the fabric manager's family without an epoch."""
    branch = int(version.split(".", 1)[0])
    note = NOTE % version

    def same(*names: str) -> tuple[str, ...]:
        return tuple(f"{name} = 3:{version}" for name in names)

    def make(name: str, **more) -> Package:
        return Package(name, version, epoch=3, **more)

    def make_library(name: str, *libraries: str, **more) -> Package:
        texts = {f"{LIB}{library}.so.{version}": note for library in libraries}
        links = {f"{LIB}{library}.so.1": f"{library}.so.{version}" for library in libraries}
        scripts = {"post": LIBRARY_SCRIPT, "postun": LIBRARY_SCRIPT}
        return make(name, texts=texts, links=links, scripts=scripts, **more)

    def make_kernel_module(name: str, dkms_name: str, rival: str) -> Package:
        return make(
            name,
            requires=("dkms", *same("nvidia-kmod-common")),
            provides=same("nvidia-kmod"),
            conflicts=(rival,),
            texts=make_dkms_source(dkms_name, version, broken),
            scripts={
                "post": DKMS_POST.format(name=dkms_name, version=version),
                "preun": DKMS_PREUN.format(name=dkms_name, version=version),
            },
        )

    def make_apart(name: str, **more) -> Package:
        return Package(name, version, "1", **more)

    firmware = f"/lib/firmware/nvidia/{version}/gsp_%s.bin"
    # Renamed with branch 580.
    fabric, nscq = (
        ("nvidia-fabricmanager", "libnvidia-nscq")
        if branch >= 580
        else ("nvidia-fabric-manager", f"libnvidia-nscq-{branch}")
    )
    imex = "nvidia-imex" if branch >= 580 else f"nvidia-imex-{branch}"
    return [
        make_kernel_module("kmod-nvidia-latest-dkms", "nvidia", "kmod-nvidia-open-dkms"),
        make_kernel_module("kmod-nvidia-open-dkms", "nvidia-open", "kmod-nvidia-latest-dkms"),
        make(
            "nvidia-kmod-common",
            arch="noarch",
            requires=(*same("nvidia-kmod"), "nvidia-modprobe"),
            provides=same("nvidia-kmod-common"),
            texts={
                firmware % "ga10x": note,
                firmware % "tu10x": note,
                "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
                "/usr/lib/dracut/dracut.conf.d/99-nvidia.conf": (
                    'omit_drivers+=" nvidia nvidia-drm nvidia-modeset nvidia-uvm "\n'
                ),
            },
        ),
        make("nvidia-modprobe"),
        make(
            "nvidia-persistenced",
            requires=same("libnvidia-cfg"),
            texts={"/usr/lib/systemd/system/nvidia-persistenced.service": PERSISTENCED_UNIT},
        ),
        make_library("libnvidia-ml", "libnvidia-ml"),
        make_library("libnvidia-cfg", "libnvidia-cfg"),
        make_library("libnvidia-gpucomp", "libnvidia-gpucomp"),
        make_library(
            "nvidia-driver-cuda-libs",
            "libcuda",
            "libnvidia-ptxjitcompiler",
            "libnvidia-nvvm",
            requires=same("libnvidia-ml", "libnvidia-cfg", "libnvidia-gpucomp"),
        ),
        make(
            "nvidia-driver-cuda",
            requires=same("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"),
            texts={"/usr/bin/nvidia-smi": f"#!/bin/sh\necho '{note.strip()}' >&2\nexit 9\n"},
            programs=("/usr/bin/nvidia-smi",),
        ),
        make_library("nvidia-driver-libs", "libnvidia-glcore", requires=same("libnvidia-ml", "libnvidia-gpucomp")),
        make("nvidia-driver", requires=same("nvidia-driver-libs", "nvidia-kmod-common")),
        make("nvidia-settings", requires=same("libnvidia-ml")),
        make("nvidia-xconfig"),
        make(
            "nvidia-open", arch="noarch", requires=same("kmod-nvidia-open-dkms", "nvidia-driver", "nvidia-driver-cuda")
        ),
        make(
            "cuda-drivers",
            arch="noarch",
            requires=same("kmod-nvidia-latest-dkms", "nvidia-driver", "nvidia-driver-cuda"),
        ),
        make_apart(fabric),
        make_apart(nscq, texts={f"{LIB}libnvidia-nscq.so.{version}": note}),
        make_apart(imex),
    ]


def list_streams(drivers: Sequence[str]) -> dict[str, list[Package]]:
    """The streams of module nvidia-driver, with their packages. Those without a branch have every driver."""
    streams: dict[str, list[Package]] = {}
    for version in drivers:
        branch = version.split(".", 1)[0]
        found = [package for package in list_driver(version) if package.epoch]
        proprietary = [item for item in found if item.name not in ("kmod-nvidia-open-dkms", "nvidia-open")]
        opened = [item for item in found if item.name not in ("kmod-nvidia-latest-dkms", "cuda-drivers")]
        streams.setdefault(f"{branch}-dkms", []).extend(proprietary)
        streams.setdefault(f"{branch}-open", []).extend(opened)
        streams.setdefault("latest-dkms", []).extend(proprietary)
        streams.setdefault("open-dkms", []).extend(opened)
    return streams


STREAM = """---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{stream}"
  version: 20261101000000
  context: 00000000
  arch: x86_64
  summary: Nvidia driver for {stream} branch (gpufleet lab)
  description: >-
    Stub packages of the gpufleet lab under the names of NVIDIA's
  license:
    module: [MIT]
  profiles:
    default:
      rpms: [{profile}]
  artifacts:
    rpms:
{rpms}
...
"""
DEFAULTS = """---
document: modulemd-defaults
version: 1
data:
  module: nvidia-driver
  stream: "latest-dkms"
  profiles:
    latest-dkms: [default]
...
"""


def write_modules(streams: dict[str, list[Package]]) -> str:
    """The metadata of the streams, with the default that NVIDIA's repository has."""
    documents = []
    for stream, items in streams.items():
        profile = sorted({item.name for item in items if item.name in ("cuda-drivers", "nvidia-open")})
        rpms = "\n".join(f"    - {nevra}" for nevra in sorted(item.nevra for item in items))
        documents.append(STREAM.format(stream=stream, profile=", ".join(profile), rpms=rpms))
    return "".join([*documents, DEFAULTS])
