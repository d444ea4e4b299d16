# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small local repositories of stub packages, and the real package managers on a root directory of their own.

A tool that is missing fails the test and says which package has it: ``make setup`` installs them.
"""

from __future__ import annotations

import atexit
import copy
import dataclasses
import functools
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import tempfile

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import package_act, package_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_act import Actor
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_state import Wish

TOOLS = {
    "rpmbuild": "rpm",
    "rpm": "rpm",
    "rpmsign": "rpm",
    "createrepo_c": "createrepo-c",
    "modifyrepo_c": "createrepo-c",
    "dnf": "dnf and dnf-plugins-core",
    "apt-ftparchive": "apt-utils",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "gpg": "gnupg",
    "gpgconf": "gnupg",
}
ENVIRONMENT = {
    "LC_ALL": "C",
    "LANG": "C",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
}


# rpm changes its root directory, which takes root, or a user namespace in which one is root.
ROOT_OF_ITS_OWN = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]


LIMIT_S = 1800


def tool(name):
    """The path of a program of this machine."""
    path = shutil.which(name, path=ENVIRONMENT["PATH"])
    assert path, "%s is not on this machine: install package %s (tests/tools/host-packages.txt)" % (
        name,
        TOOLS.get(name, name),
    )
    return path


def call(argv, ok=(0,), **options):
    tool(argv[0])
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        **options,
    )
    assert ok is None or done.returncode in ok, "%s\n%s%s" % (" ".join(argv), done.stdout, done.stderr)
    return done.returncode, done.stdout, done.stderr


# The module's options, for a change of driver packages.
OPTIONS = dict(
    flavour="open",
    kernel_module="dkms",
    kernel=None,
    source=None,
    components=[],
    floors=[],
    running_floors=False,
    state="present",
    extra_packages=[],
    hold=True,
    pin=True,
    pin_file="/etc/apt/preferences.d/driver.pref",
    dkms_build="postinst",
    allow_removal=[],
    min_free_mib=0,
    min_free_boot_mib=0,
    min_free_var_mib=None,
    require=[],
    keep=False,
    repair=False,
    exclude_unattended=None,
)


class Change:
    """A change over a package manager, in the steps of the module."""

    def __init__(self, manager, options):
        self.manager, self.wish, self.actor = manager, Wish.of(options), Actor(manager)

    def plan(self):
        return package_task.make_plan(self.manager, self.wish)

    def carry_out(self):
        """Plan, act, read back; answers the plan. What was foreseen is what was done."""
        plan = self.plan()
        assert plan.refusals == ()
        if plan.changes:
            self.actor.carry_out(plan)
        dummy, resolved = package_task.prove_plan(self.manager, plan)
        assert self.actor.done == package_act.foresee_actions(plan)
        return dataclasses.replace(plan, resolved=resolved)


class Root:
    """A root directory of a package manager, and the repository that it has."""

    number = 0

    def lay(self):
        """Make the root directory."""

    def fresh(self):
        """Another root directory with the same repository."""
        other = copy.copy(self)
        self.number += 1
        other.number = self.number
        other.lay()
        return other


# --- keys ------------------------------------------------------------------------------------------------------------


class Signer:
    """A key made for the test, which signs a repository; :meth:`close` ends what gpg left running."""

    def __init__(self, name, made=None, lasts="never"):
        self.home = tempfile.mkdtemp(prefix="gpufleet-gpg-")  # short: gpg has its socket in there
        self.name = name
        clock = ["--faked-system-time", made] if made else []
        self.gpg(*clock, "--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", lasts)
        dummy, out, dummy = self.gpg("--with-colons", "--list-keys")
        self.fingerprint = next(line.split(":")[9] for line in out.splitlines() if line.startswith("fpr:"))

    def gpg(self, *words):
        return call(["gpg", "--homedir", self.home, "--batch", "--yes", "--no-tty", "--quiet"] + list(words))

    def key(self, armored=True):
        path = os.path.join(self.home, "public")
        self.gpg("--output", path, *(["--armor"] if armored else []) + ["--export", self.fingerprint])
        with open(path, "rb") as handle:
            return handle.read()

    def secret_key(self):
        path = os.path.join(self.home, "secret")
        self.gpg("--output", path, "--passphrase", "", "--pinentry-mode", "loopback", "--export-secret-keys")
        with open(path, "rb") as handle:
            return handle.read()

    def sign_deb(self, repository):
        """A flat repository's index gets a release file, and that a signature."""
        dummy, release, dummy = call(["apt-ftparchive", "release", "."], cwd=str(repository))
        (repository / "Release").write_text(release, encoding="utf-8")
        self.gpg("--clearsign", "--output", str(repository / "InRelease"), str(repository / "Release"))

    def sign_rpms(self, directory):
        """The packages of a directory; before its index is made."""
        for path in sorted(pathlib.Path(directory).glob("*.rpm")):
            call(
                [
                    "rpmsign",
                    "--define",
                    "_gpg_name %s" % self.fingerprint,
                    "--define",
                    "_gpg_path %s" % self.home,
                    "--define",
                    "__gpg %s" % tool("gpg"),
                    "--addsign",
                    str(path),
                ]
            )

    def sign_rpm(self, repository):
        self.gpg(
            "--armor",
            "--detach-sign",
            "--output",
            str(repository / "repodata/repomd.xml.asc"),
            str(repository / "repodata/repomd.xml"),
        )

    def close(self):
        call(["gpgconf", "--homedir", self.home, "--kill", "all"], ok=None)
        shutil.rmtree(self.home, ignore_errors=True)


def read_fingerprints(data):
    """The fingerprints of the primary keys of a file, as gpg shows them."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-gpg-") as home:
        path = os.path.join(home, "shown")
        with open(path, "wb") as handle:
            handle.write(data)
        dummy, out, dummy = call(["gpg", "--homedir", home, "--batch", "--show-keys", "--with-colons", path])
    lines = [line.split(":") for line in out.splitlines()]
    return [lines[number + 1][9] for number, line in enumerate(lines) if line[0] == "pub"]


# --- rpm -------------------------------------------------------------------------------------------------------------


def evr(version):
    epoch, colon, rest = version.rpartition(":")
    return (epoch or "0", rest.rsplit("-", 1)[0], rest.rsplit("-", 1)[1])


def spec(packages):
    """One spec with all packages of a list, each with an epoch, version and release of its own."""
    lines = ["Name: stub", "Version: 1", "Release: 1", "Summary: stub", "License: none", "%description", "stub"]
    for item in packages:
        epoch, version, release = evr(item["version"])
        lines += ["%%package -n %s" % item["name"], "Summary: stub", "Version: %s" % version, "Release: %s" % release]
        lines += ["Epoch: %s" % epoch] if epoch != "0" else []
        for tag, key in (
            ("Requires", "depends"),
            ("Provides", "provides"),
            ("Conflicts", "conflicts"),
            ("Obsoletes", "replaces"),
        ):
            lines += [
                "%s: %s" % (tag, part.strip().replace("(", "").replace(")", ""))
                for part in item[key].split(",")
                if part.strip()
            ]
        lines += ["%%description -n %s" % item["name"], "stub", "%%files -n %s" % item["name"]]
    return "\n".join(lines) + "\n"


def build_rpms(packages, directory):
    """Packages of one name and several versions need a spec each."""
    rounds = []
    for item in packages:
        place = next((batch for batch in rounds if item["name"] not in [have["name"] for have in batch]), None)
        if place is None:
            place = []
            rounds.append(place)
        place.append(item)
    os.makedirs(str(directory), exist_ok=True)
    for number, batch in enumerate(rounds):
        work = directory.parent / ("build-%s-%d" % (directory.name, number))
        work.mkdir()
        (work / "stub.spec").write_text(spec(batch), encoding="utf-8")
        call(
            [
                "rpmbuild",
                "-bb",
                "--quiet",
                "--target",
                "x86_64",
                "--define",
                "_topdir %s" % work,
                "--define",
                "_rpmdir %s" % directory,
                "--define",
                "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
                "--define",
                "_build_id_links none",
                "--define",
                "debug_package %{nil}",
                "--define",
                "_dbpath %s/db" % work,
                str(work / "stub.spec"),
            ]
        )


MODULE = """---
document: modulemd
version: 2
data:
  name: %(name)s
  stream: "%(stream)s"
  version: %(version)d
  context: %(context)s
  arch: x86_64
  summary: stub
  description: stub
  license:
    module: [none]
  profiles:
    default:
      rpms: [%(profile)s]
  artifacts:
    rpms:
%(rpms)s
...
"""


def module_document(name, stream, packages, profile, version=1):
    """The description of a module stream and the packages that belong to it."""
    rpms = "\n".join("    - %s-%s:%s-%s.x86_64" % ((item["name"],) + evr(item["version"])) for item in packages)
    return MODULE % {
        "name": name,
        "stream": stream,
        "version": version,
        "context": "00000001",
        "profile": profile,
        "rpms": rpms,
    }


ADVISORY = """<?xml version="1.0" encoding="UTF-8"?>
<updates><update from="stub" status="final" type="security" \
version="1"><id>STUB-2026:1</id><title>stub</title><severity>Important</severity>
<issued date="2026-01-01 00:00:00"/><updated date="2026-01-01 \
00:00:00"/><description>stub</description><pkglist><collection short="s"><name>s</name>
%s</collection></pkglist></update></updates>
"""


def advisory(packages):
    """A security advisory about packages."""
    lines = [
        '<package name="%s" epoch="%s" version="%s" release="%s" arch="x86_64" '
        'src="stub.src.rpm"><filename>%s.rpm</filename></package>'
        % ((item["name"],) + evr(item["version"]) + (item["name"],))
        for item in packages
    ]
    return ADVISORY % "\n".join(lines)


class DnfServer:
    """The process that runs the machine's dnf for the tests (dnf_server.py)."""

    def __init__(self):
        with open(tool("dnf"), encoding="utf-8") as stream:
            python = stream.readline()[2:].split()
        self.process = subprocess.Popen(
            ROOT_OF_ITS_OWN + python + [str(pathlib.Path(__file__).with_name("dnf_server.py"))],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )

    def close(self):
        self.process.kill()
        self.process.communicate()

    def run(self, arguments):
        """(exit status, output, errors) of one command."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as out, tempfile.NamedTemporaryFile(
            "r", encoding="utf-8"
        ) as err:
            request = {"arguments": arguments, "stdout": out.name, "stderr": err.name}
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
                self.close()
                raise subprocess.TimeoutExpired(["dnf"] + arguments, LIMIT_S, out.read(), err.read())
            return int(self.process.stdout.readline()), out.read(), err.read()


@functools.lru_cache(maxsize=None)
def dnf_server():
    """Started once, by the first test that needs it."""
    server = DnfServer()
    atexit.register(server.close)
    return server


class DnfRoot(Root):
    """A root directory for dnf, with one repository; it is a runner for :class:`_packages.dnf.Dnf` too."""

    def __init__(self, base, packages, modules=None, updateinfo=None, signer=None, key=None):
        """``signer`` signs the packages; ``key``, bytes, is the key that the machine trusts, None if it checks none."""
        self.base, self.repository, self.key = base, base / "repository", key
        build_rpms(packages, self.repository)
        if signer:
            signer.sign_rpms(self.repository)
        call(["createrepo_c", "--quiet", str(self.repository)])
        if modules:
            (base / "modules.yaml").write_text("".join(modules), encoding="utf-8")
            call(["modifyrepo_c", "--mdtype=modules", str(base / "modules.yaml"), str(self.repository / "repodata")])
        if updateinfo:
            (base / "updateinfo.xml").write_text(updateinfo, encoding="utf-8")
            call(
                ["modifyrepo_c", "--mdtype=updateinfo", str(base / "updateinfo.xml"), str(self.repository / "repodata")]
            )
        self.lay()

    def move(self, baseurl):
        """The same repository at another address."""
        path = self.root / "etc/yum.repos.d/stub.repo"
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"baseurl=.*", "baseurl=" + baseurl, text), encoding="utf-8")

    def lay(self):
        self.root, self.log, self.broken = self.base / ("root%d" % self.number), [], None
        for name in (
            "etc/yum.repos.d",
            "etc/dnf/plugins",
            "etc/dnf/modules.d",
            "var/lib/dnf",
            "var/cache/dnf",
            "var/log",
        ):
            (self.root / name).mkdir(parents=True)
        (self.root / "etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.6"\n', encoding="utf-8")
        (self.root / "etc/dnf/dnf.conf").write_text(
            "[main]\ngpgcheck=0\nplugins=1\nkeepcache=1\nmodule_platform_id=platform:el9\n", encoding="utf-8"
        )
        self.locks = self.root / "etc/dnf/plugins/versionlock.list"
        self.locks.write_text("", encoding="utf-8")
        (self.root / "etc/dnf/plugins/versionlock.conf").write_text(
            "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n", encoding="utf-8"
        )
        (self.root / "pluginconf").mkdir()
        (self.root / "pluginconf/versionlock.conf").write_text(
            "[main]\nenabled=1\nlocklist=%s\n" % self.locks, encoding="utf-8"
        )
        repository = "[cuda-rhel9-x86_64]\nname=cuda-rhel9-x86_64\nbaseurl=file://%s\nenabled=1\ngpgcheck=%d\n" % (
            self.repository,
            self.key is not None,
        )
        if self.key is not None:
            (self.root / "trusted.asc").write_bytes(self.key)
            repository += "gpgkey=file://%s\n" % (self.root / "trusted.asc")
        (self.root / "etc/yum.repos.d/stub.repo").write_text(repository, encoding="utf-8")

    def __call__(self, argv, timeout=300):
        """Run dnf and rpm on the root; everything else is not there."""
        argv = list(argv)
        self.log.append(argv)
        if argv[0] in ("rpm", "rpmkeys"):
            return call(ROOT_OF_ITS_OWN + [argv[0], "--root", str(self.root)] + argv[1:], ok=None)
        assert argv[0] == "dnf", argv
        if self.broken and "-y" in argv and "module" not in argv:
            return self.with_a_broken_package(argv)
        return dnf_server().run(self.options() + argv[1:])

    def with_a_broken_package(self, argv):
        """A package whose archive is damaged since the index was made."""
        archive = self.repository / self.broken
        content = archive.read_bytes()
        archive.write_bytes(content[: len(content) // 2])
        try:
            return dnf_server().run(self.options() + argv[1:])
        finally:
            archive.write_bytes(content)

    def options(self):
        return [
            "--installroot=%s" % self.root,
            "--config=%s/etc/dnf/dnf.conf" % self.root,
            "--releasever=9",
            "--forcearch=x86_64",
            "--setopt=reposdir=%s/etc/yum.repos.d" % self.root,
            "--setopt=varsdir=%s/etc/dnf/vars" % self.root,
            "--setopt=pluginconfpath=%s/pluginconf" % self.root,
            "--setopt=cachedir=%s/var/cache/dnf" % self.root,
            "--setopt=persistdir=%s/var/lib/dnf" % self.root,
            "--setopt=logdir=%s/var/log" % self.root,
            "--setopt=metadata_expire=-1",
        ]

    def install(self, *names):
        rc, out, err = self(["dnf", "-y", "-q", "install"] + list(names))
        assert rc == 0, out + err


# --- deb -------------------------------------------------------------------------------------------------------------


def control(item):
    fields = [
        ("Package", item["name"]),
        ("Version", item["version"]),
        ("Architecture", "amd64"),
        ("Maintainer", "stub <stub@localhost>"),
        ("Installed-Size", str(item["installed"])),
        ("Depends", item["depends"]),
        ("Provides", item["provides"]),
        ("Conflicts", item["conflicts"]),
        ("Source", item["source"] if item["source"] != item["name"] else ""),
        ("Description", "stub"),
    ]
    return "".join("%s: %s\n" % field for field in fields if field[1])


def build_debs(packages, directory):
    os.makedirs(str(directory), exist_ok=True)
    for number, item in enumerate(packages):
        work = directory.parent / ("deb-%s-%d" % (directory.name, number))
        (work / "DEBIAN").mkdir(parents=True)
        (work / "DEBIAN/control").write_text(control(item), encoding="utf-8")
        name = "%s_%s_amd64.deb" % (item["name"], item["version"].replace(":", "%3a"))
        call(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(work), str(directory / name)])


class AptRoot(Root):
    """A root directory for apt and dpkg, with one repository; it is a runner for :class:`_packages.apt.Apt` too."""

    def __init__(self, base, packages, os_release='ID=ubuntu\nVERSION_ID="24.04"\n'):
        self.base, self.repository, self.os_release = base, base / "repository", os_release
        build_debs(packages, self.repository)
        dummy, index, dummy = call(["apt-ftparchive", "packages", "."], cwd=str(self.repository))
        (self.repository / "Packages").write_text(index, encoding="utf-8")
        self.lay()

    def lay(self):
        self.root, self.log = self.base / ("root%d" % self.number), []
        for name in (
            "etc/apt/preferences.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/log/apt",
            "tmp",
        ):
            (self.root / name).mkdir(parents=True)
        for name in ("status", "available"):
            (self.root / "var/lib/dpkg" / name).write_text("", encoding="utf-8")
        (self.root / "etc/os-release").write_text(self.os_release, encoding="utf-8")
        (self.root / "etc/apt/sources.list").write_text(
            "deb [trusted=yes] copy:%s ./\n" % self.repository, encoding="utf-8"
        )
        rc, out, err = self(["apt-get", "update"])
        assert rc == 0, out + err

    def options(self):
        found = [
            "-o",
            "Dir=%s" % self.root,
            "-o",
            "Dir::State::status=%s/var/lib/dpkg/status" % self.root,
            "-o",
            "APT::Architecture=amd64",
            "-o",
            "APT::Architectures::=amd64",
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Dir::Etc::parts=none",
            "-o",
            "Dir::Etc::main=none",
            "-o",
            "Dir::Etc::sourceparts=none",
            "-o",
            "Dir::Bin::dpkg=/usr/bin/dpkg",
        ]
        for word in (
            "--root=%s" % self.root,
            "--force-not-root",
            "--force-script-chrootless",
            "--log=%s/var/log/dpkg.log" % self.root,
        ):
            found += ["-o", "DPkg::Options::=%s" % word]
        return found

    def __call__(self, argv, timeout=300):
        argv = list(argv)
        self.log.append(argv)
        if argv[0] in ("apt-get", "apt-cache", "apt-mark"):
            return call(argv[:1] + self.options() + argv[1:], ok=None)
        if argv[0] == "dpkg-query":
            return call(["dpkg-query", "--admindir=%s/var/lib/dpkg" % self.root] + argv[1:], ok=None)
        if argv[0] == "env":
            return call(argv[:3] + self.options() + argv[3:], ok=None)
        if argv[0] == "dpkg-deb":
            return call(argv, ok=None)
        assert argv[0] == "dpkg", argv
        return call(
            ["dpkg", "--root=%s" % self.root, "--force-not-root", "--force-script-chrootless"] + argv[1:], ok=None
        )

    def install(self, *names):
        rc, out, err = self(["apt-get", "-y", "install"] + list(names))
        assert rc == 0, out + err
