# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stub node that has another distribution's name, kernel and package manager.

The playbook runs in a mount namespace with an /etc, /var, /boot and kernel directory of its own. Real are the roles,
the modules that set up repositories and change packages, and this machine's apt, dpkg, dnf and rpm; the distribution is
what /etc/os-release says, from which Ansible makes its facts. Stubs are the packages, which have the names, versions
and dependencies of the real ones and nothing in them, and what would need a kernel module or a GPU.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import typing as t

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, conftest
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs

NAMESPACE = ("unshare", "--mount", "--propagation", "private") + (() if os.geteuid() == 0 else ("--map-root-user",))
PLACES = ("/boot", "/etc", "/run", "/usr/share/keyrings", "/var/cache", "/var/lib", "/var/log")
# A machine without kernels has no directory to put others in the place of.
OVERLAID = "/usr/lib"
# Real modules on a node that is none (stub/plugins/module_utils/systemnode.py).
INSTALLING = ("driver_packages", "kernel_packages")
DEBIAN_KERNEL = "6.1.0-37-amd64"


@dataclasses.dataclass(frozen=True)
class System:
    """A distribution, and a source of driver packages with two versions of the driver."""

    name: str
    os_release: str
    manager: str
    kernel: str
    old: str
    new: str
    source: str
    packages: t.Callable[[str], t.List[t.Dict[str, t.Any]]]  # those of a version of the driver
    base: t.List[t.Dict[str, t.Any]]  # what is installed
    release: str = ""  # of an archive with components; one without has none
    streams: bool = False
    key: str = "3bf863cc.pub"  # its name in NVIDIA's repository


def _kernel(version, kernel):
    return [stubs.package(name, version) for name in ("linux-image-" + kernel, "linux-headers-" + kernel)]


def _redhat(dist):
    return lambda version: stubs.redhat(version, dist=dist)


def _redhat_kernel(kernel):
    version = kernel.rpartition(".")[0]
    return [stubs.package(name, version) for name in ("kernel-core", "kernel-devel", "kernel-modules-core")]


UBUNTU = (
    "ID=ubuntu\nID_LIKE=debian\nNAME=\"Ubuntu\"\nVERSION=\"%(version)s LTS\"\nVERSION_ID=\"%(version)s\"\n"
    "VERSION_CODENAME=%(code)s\n"
)
REDHAT = 'ID="%(id)s"\nID_LIKE="rhel fedora"\nNAME="%(name)s"\nVERSION="%(version)s"\nVERSION_ID="%(version)s"\n'
EL10_KERNEL = "6.12.0-55.9.1.el10_0.x86_64"
SYSTEMS = [
    System(
        "Debian 12",
        'ID=debian\nNAME="Debian GNU/Linux"\nVERSION="12 (bookworm)"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
        "apt",
        DEBIAN_KERNEL,
        "575.57.08",
        "580.95.05",
        "cuda",
        stubs.cuda_debian,
        [stubs.package("dkms", "3.0.10-8+deb12u1")] + _kernel("6.1.140-1", DEBIAN_KERNEL),
    ),
    System(
        "Ubuntu 22.04",
        UBUNTU % {"version": "22.04", "code": "jammy"},
        "apt",
        "5.15.0-140-generic",
        "580.65.06",
        "580.95.05",
        "distribution",
        lambda version: stubs.ubuntu_server("580", version, "0ubuntu0.22.04.1"),
        [stubs.package("dkms", "2.8.7-2ubuntu2.2")] + _kernel("5.15.0-140.150", "5.15.0-140-generic"),
        release="jammy",
    ),
    System(
        "Ubuntu 24.04",
        UBUNTU % {"version": "24.04", "code": "noble"},
        "apt",
        stubs.KERNEL,
        "590.44.01",
        "590.48.01",
        "cuda",
        stubs.cuda_ubuntu_plain,
        [stubs.package("dkms", "3.0.11-1ubuntu13")] + _kernel("6.8.0-149.149", stubs.KERNEL),
    ),
    System(
        "Rocky 9",
        REDHAT % {"id": "rocky", "name": "Rocky Linux", "version": "9.6"},
        "dnf",
        stubs.EL_KERNEL,
        "575.57.08",
        "580.95.05",
        "cuda",
        _redhat("el9"),
        stubs.EL_BASE + _redhat_kernel(stubs.EL_KERNEL),
        streams=True,
        key="D42D0685.pub",
    ),
    System(
        "RedHat 10",
        REDHAT % {"id": "rhel", "name": "Red Hat Enterprise Linux", "version": "10.0"},
        "dnf",
        EL10_KERNEL,
        "580.65.06",
        "580.95.05",
        "cuda",
        _redhat("el10"),
        [stubs.package("dkms", "3.2.1-1.el10")] + _redhat_kernel(EL10_KERNEL),
        key="CDF6BA43.pub",
    ),
]


def mirror(system, directory, signer):
    """A mirror in files of the source that the system takes its driver from."""
    both = [item for version in (system.old, system.new) for item in system.packages(version)]
    once = list({(item["name"], item["version"]): item for item in both}.values())
    if system.manager == "dnf":
        repositories.build_rpms(once, directory)
        signer.sign_rpms(directory)
        repositories.call(["createrepo_c", "--quiet", str(directory)])
        if system.streams:
            text = "".join(
                repositories.module_document(
                    "nvidia-driver",
                    "%s-open" % version.partition(".")[0],
                    [item for item in system.packages(version) if "latest" not in item["name"]],
                    "nvidia-open",
                )
                for version in (system.old, system.new)
            )
            (directory.parent / "modules.yaml").write_text(text, encoding="utf-8")
            repositories.call(
                [
                    "modifyrepo_c",
                    "--mdtype=modules",
                    str(directory.parent / "modules.yaml"),
                    str(directory / "repodata"),
                ]
            )
        signer.sign_rpm(directory)
        (directory / system.key).write_bytes(signer.key())
        return
    part = "dists/%s/restricted/binary-amd64" % system.release if system.release else ""
    repositories.build_debs(once, directory / "pool" if part else directory)
    dummy, index, dummy = repositories.call(["apt-ftparchive", "packages", "pool" if part else "."], cwd=str(directory))
    (directory / part).mkdir(parents=True, exist_ok=True)
    (directory / part / "Packages").write_text(index, encoding="utf-8")
    if system.release:
        place = directory / "dists" / system.release
        words = {"Suite": system.release, "Codename": system.release, "Components": "restricted multiverse"}
        given = [
            word for key, value in words.items() for word in ("-o", "APT::FTPArchive::Release::%s=%s" % (key, value))
        ]
        dummy, release, dummy = repositories.call(["apt-ftparchive", *given, "release", "."], cwd=str(place))
        (place / "Release").write_text(release, encoding="utf-8")
    else:
        signer.sign_deb(directory)
        (directory / system.key).write_bytes(signer.key())


class SystemFleet(conftest.Fleet):
    """One node, "a1", of a system."""

    REAL = (
        "playbooks",
        "plugins/module_utils/_driver_packages_options.py",
        "plugins/modules/repository_key.py",
        "roles/nvidia_driver",
        "roles/nvidia_persistenced",
        "roles/nvidia_repository",
    )

    def __init__(self, directory, system, signer):
        self.system, self.machine, self.mirror = system, directory / "machine", directory / "mirror"
        (directory / "modules").mkdir()
        super().__init__(directory, directory / "modules")
        self._installing()
        mirror(system, self.mirror, signer)
        self._machine()
        binds = " && ".join('mount --bind "%s" %s' % (self.path(place), place) for place in PLACES)
        overlay = 'mount -t overlay overlay -o "lowerdir=%s,upperdir=%s,workdir=%s" %s' % (
            OVERLAID,
            self.path(OVERLAID),
            self.path("/work"),
            OVERLAID,
        )
        self.before = (*NAMESPACE, "sh", "-c", '%s && %s && exec "$@"' % (binds, overlay), "sh")
        self._base()
        self.environment = {"GPUFLEET_STUB_PYTHON": None, "GPUFLEET_OWN_MODULES": " ".join(INSTALLING)}
        self.add("a1", loaded="", disk="", running=[], enabled=[], kernels=[system.kernel])
        self.given = {
            "nvidia_repository_source": system.source,
            "nvidia_driver_source": system.source,
            "nvidia_repository_cuda_uri": "file:%s%s" % ("" if system.manager == "apt" else "//", self.mirror),
            "nvidia_repository_key_fingerprint": signer.fingerprint,
            "nvidia_repository_cuda_components": False,
            "nvidia_repository_require": [],
            "nvidia_repository_security": False,
            "nvidia_repository_updates": False,
            "nvidia_driver_flavour": "open",
            "nvidia_driver_require_gpu": False,
            "nvidia_driver_timeout": 0,
            "nvidia_driver_min_free_mib": 0,
            "nvidia_driver_min_free_boot_mib": 0,
        }

    def path(self, place):
        return self.machine / place.lstrip("/")

    def _installing(self):
        """The modules that install, with the node in the place of the machine."""
        line = "from ansible.module_utils.basic import AnsibleModule\n"
        own = "ansible_collections.gpufleet.lifecycle.plugins.module_utils.systemnode"
        for name in INSTALLING:
            text = (collection.ROOT / "plugins/modules" / (name + ".py")).read_text()
            assert text.count(line) == 1
            path = self.collection / "plugins/modules" / (name + ".py")
            path.unlink()
            path.write_text(text.replace(line, line.replace("ansible.module_utils.basic", own)))

    def _machine(self):
        """What is in the node's own directories."""
        for place in PLACES:
            if place != "/etc":
                self.path(place).mkdir(parents=True)
        shutil.copytree(
            "/etc",
            str(self.path("/etc")),
            symlinks=True,
            ignore=shutil.ignore_patterns("apt", "ssl", "dnf", "yum.repos.d", "*-release", "*_version"),
        )
        for name in (
            "etc/apt/apt.conf.d",
            "etc/apt/keyrings",
            "etc/apt/preferences.d",
            "etc/apt/sources.list.d",
            "etc/apt/trusted.gpg.d",
            "etc/dnf/plugins",
            "etc/modprobe.d",
            "etc/pki/rpm-gpg",
            "etc/yum.repos.d",
            "etc/rpm",
            "run/lock",
            "var/cache/apt/archives/partial",
            "var/cache/dnf",
            "var/lib/apt/lists/partial",
            "var/lib/dnf",
            "var/lib/dpkg/info",
            "var/lib/dpkg/triggers",
            "var/lib/dpkg/updates",
            "var/lib/rpm",
            "var/log/apt",
            "work",
        ):
            (self.machine / name).mkdir(parents=True, exist_ok=True)
        etc = self.path("/etc")
        (etc / "os-release").write_text(self.system.os_release)
        if self.system.manager == "dnf":
            found = dict(re.findall(r'^(\w+)="?(.*?)"?$', self.system.os_release, re.M))
            (etc / "redhat-release").write_text("%(NAME)s release %(VERSION_ID)s (Stub)\n" % found)
            major = found["VERSION_ID"].partition(".")[0]
            (etc / "dnf/dnf.conf").write_text(
                "[main]\ngpgcheck=1\nplugins=1\nmodule_platform_id=platform:el%s\n" % major
            )
            (etc / "rpm/macros").write_text("%_dbpath /var/lib/rpm\n")  # Debian's has another, below HOME
            (etc / "dnf/plugins/versionlock.list").write_text("")
            (etc / "dnf/plugins/versionlock.conf").write_text(
                "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
            )
        (etc / "apt/apt.conf.d/90test").write_text('APT::Sandbox::User "root";\nAcquire::Retries "0";\n')
        if self.system.release:
            (etc / "apt/sources.list").write_text(
                "deb [trusted=yes] file:%s %s restricted multiverse\n" % (self.mirror, self.system.release)
            )
        kernel = self.system.kernel
        (self.path(OVERLAID) / "modules" / kernel / "build/include").mkdir(parents=True)
        initramfs = "initramfs-%s.img" if self.system.manager == "dnf" else "initrd.img-%s"
        for name in ("vmlinuz-%s", initramfs):
            (self.path("/boot") / (name % kernel)).write_text("")
        for name in ("dracut", "update-initramfs"):
            (self.nodes / "bin" / name).write_text(
                '#!/bin/sh\necho "%s $*" >> "%s"\ntouch /boot/init*\n' % (name, self.directory / "initramfs")
            )
            (self.nodes / "bin" / name).chmod(0o755)

    def _base(self):
        """The packages that every node of the system has."""
        place = self.directory / "base"
        if self.system.manager == "dnf":
            repositories.build_rpms(self.system.base, place)
            self.inside("rpm", "-i", "--nodeps", *(str(path) for path in place.glob("*.rpm")))
            return
        status = self.path("/var/lib/dpkg/status")
        status.write_text(
            "\n".join(
                repositories.control(item).replace("\n", "\nStatus: install ok installed\n", 1)
                for item in self.system.base
            )
            + "\n"
        )
        self.path("/var/lib/dpkg/available").write_text("")

    def inside(self, *argv):
        """Run a command on the node; its output."""
        done = subprocess.run(
            [*self.before, *argv],
            capture_output=True,
            text=True,
            check=False,
            env=repositories.ENVIRONMENT,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def packages(self):
        """{package: version} of the driver's packages, without epoch and revision."""
        argv = (
            ["rpm", "-qa", "--qf", "%{NAME} %{VERSION} ii\n"]
            if self.system.manager == "dnf"
            else ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
        )
        lines = [line.split() for line in self.inside(*argv).splitlines()]
        return {
            name: version.partition("-")[0]
            for name, version, status in lines
            if re.search("nvidia|cuda", name) and status[1] == "i"
        }

    def driver(self):
        """The versions of the driver's packages."""
        return set(self.packages().values())

    def held(self):
        """The packages that are held."""
        if self.system.manager == "apt":
            return set(self.inside("apt-mark", "showhold").split())
        lines = (self.path("/etc") / "dnf/plugins/versionlock.list").read_text().splitlines()
        return {re.sub(r"-(\d+:)?\d[^-]*-[^-]*$", "", line) for line in lines if line[:1] not in ("", "#", "!")}

    def files(self):
        """What the node's /etc has in it."""
        etc = self.path("/etc")
        return {
            str(path.relative_to(etc)): path.read_bytes()
            for path in etc.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def play(self, playbook, *arguments, **extra):
        return self.run(playbook, *arguments, **dict(self.given, **extra))
