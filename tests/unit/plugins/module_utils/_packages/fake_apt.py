# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine for tests: it answers the commands of apt and dpkg from recorded data, and changes its own state."""

from __future__ import annotations

import pathlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import versions
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "apt"
SET = (
    "firmware-nvidia-gsp",
    "libcuda1",
    "libnvidia-cfg1",
    "libnvidia-ml1",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
    "nvidia-kernel-dkms",
    "nvidia-kernel-support",
    "nvidia-legacy-check",
    "nvidia-smi",
)


def fixture(name):
    return (FIXTURES / name).read_text(encoding="utf-8")


def index():
    return apt.parse_show(fixture("show_bookworm.txt"))


def installed(version=None):
    """The installed packages as recorded, with the driver at another version, or without the driver."""
    found = apt.parse_query(fixture("query_535.261.03.txt"))
    for name in SET:
        if version is None:
            del found[name]
        else:
            found[name]["version"] = version
    return found


class FakeMachine:
    """A runner. ``log`` has every command that changes something; ``fail`` maps an action to ``(rc, out, err)``."""

    def __init__(self, root, version=None, hold=False, lists=True):
        self.root = root
        self.packages = installed(version)
        for have in self.packages.values():
            have["hold"] = hold and have["source"] == "nvidia-graphics-drivers"
        self.show = fixture("show_bookworm.txt") if lists else ""
        self.cached, self.policy = set(), ""
        self.gone, self.fetched = "", []  # what apt says of a mirror that is gone, and what was fetched from it
        self.log = []
        self.fail = {}
        self.stubborn = set()
        (root / "etc/apt/preferences.d").mkdir(parents=True)
        (root / "etc/os-release").write_text(fixture("os-release_bookworm.txt"), encoding="utf-8")
        (root / "var/lib/dpkg/updates").mkdir(parents=True)
        (root / "lib/modules/6.1.0-56-amd64").mkdir(parents=True)
        (root / "boot").mkdir()
        (root / "boot/vmlinuz-6.1.0-56-amd64").write_bytes(b"")
        (root / "boot/config-6.1.0-56-amd64").write_text(
            'CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"\n', encoding="utf-8"
        )

    def __call__(self, argv, timeout=60):
        if argv[0] == "dpkg-query":
            rows = [
                "%s%s |%s|amd64|%s|%s|%d"
                % (
                    "h" if have["hold"] else "i",
                    have["status"][1],
                    name,
                    have["version"],
                    have["source"],
                    have["size_kib"],
                )
                for name, have in sorted(self.packages.items())
            ]
            return 0, "\n".join(rows) + "\n", ""
        if argv[:2] == ["apt-cache", "pkgnames"]:
            return (
                0,
                "\n".join(sorted(set(line[9:] for line in self.show.splitlines() if line.startswith("Package: ")))),
                "",
            )
        if argv[:2] == ["apt-cache", "show"]:
            return (
                0,
                "\n\n".join(stanza for stanza in self.show.split("\n\n") if stanza.split("\n")[0][9:] in argv[3:]),
                "",
            )
        if argv[:2] == ["apt-cache", "policy"]:
            return 0, self.policy, ""
        if argv[0] in ("apt-get", "env"):
            return self.apt_get(argv) if argv[0] == "apt-get" else self.fetch(argv)
        self.log.append(argv)
        if argv[0] in self.fail:
            return self.fail[argv[0]]
        if argv[0] == "apt-mark":
            for name in argv[2:]:
                self.packages[name]["hold"] = argv[1] == "hold"
        if argv[:1] == ["dpkg"]:
            for have in self.packages.values():
                have["status"] = "ii"
            for name in (self.root / "var/lib/dpkg/updates").iterdir():
                name.unlink()
        return 0, "", ""

    def apt_get(self, argv):
        action = "remove" if "remove" in argv else "install"
        names = argv[argv.index(action) + 1 :]
        if action == "remove":
            wanted = dict((name, None) for name in names)
        else:
            wanted = dict(tuple(name.split("=")) if "=" in name else (name[:-1], None) for name in names)
        if "--print-uris" in argv:
            lines = [
                "'http://mirror/%s' %s_%s_amd64.deb 1048576 " % (name, name, version)
                for name, version in wanted.items()
                if version
                and (name, version) not in self.cached
                and ("--reinstall" in argv or self.at(name) != version)
            ]
            return 0, "\n".join(lines), ""
        if "-s" in argv:
            return self.fail.get("simulate") or (0, "\n".join(self.simulated(wanted)), "")
        self.log.append(argv)
        if "--download-only" in argv:
            self.cached.update((name, version) for name, version in wanted.items() if version)
            return 0, "", ""
        for name, version in wanted.items():
            if version is None:
                del self.packages[name]
            elif name not in self.stubborn:
                old = self.packages.get(name, {"size_kib": 1, "source": "nvidia-graphics-drivers"})
                if old.get("version") != version:
                    self.packages[name] = dict(old, version=version, hold=False, status="ii")
                if "apt-get" in self.fail:
                    self.packages[name]["status"] = "iF"
                    break
        return self.fail.get("apt-get", (0, "", ""))

    def fetch(self, argv):
        self.fetched.append(argv[-1])
        if not self.gone:
            (pathlib.Path(argv[1].split("=", 1)[1]) / "one.deb").write_bytes(b"")
        return (100, "", "E: %s\nE: Some files failed to download\n" % self.gone) if self.gone else (0, "", "")

    def at(self, name):
        return self.packages.get(name, {}).get("version")

    def simulated(self, wanted):
        for name, version in wanted.items():
            have = self.at(name)
            if version is None:
                yield "Remv %s [%s]" % (name, have)
            elif have is None:
                yield "Inst %s (%s Debian:12.15/oldstable [amd64])" % (name, version)
            elif versions.compare(have, version):
                yield "Inst %s [%s] (%s Debian:12.15/oldstable [amd64])" % (name, have, version)

    def acted(self):
        """The changing commands in short."""
        return [
            "%s %s"
            % (
                argv[0],
                "download"
                if "--download-only" in argv
                else next(word for word in argv[1:] if word in ("install", "remove", "hold", "unhold", "--configure")),
            )
            for argv in self.log
        ]
