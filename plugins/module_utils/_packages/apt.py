# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""apt and dpkg: reading what they know, and running them. No decision is made here."""

from __future__ import annotations

import glob
import os
import re

from .._dkms.tree_archives import sha256_of
from .._node.dpkg import key_of, native_architecture
from .._node.files import write_atomically
from .._node.versions import compare
from . import apt_mirrors
from .manager import NO_NAMES, Manager, ManagerError

# dpkg's own defaults, and ours: a change never waits for an answer at a terminal.
COMMON_OPTIONS = (
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "Dpkg::Use-Pty=0",
)
INSTALL_OPTIONS = ("--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
DPKG_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

QUERY_FORMAT = "${db:Status-Abbrev}|${Package}|${Architecture}|${Version}|${source:Package}|${Installed-Size}\\n"

SHIM = """#!/bin/sh
# gpufleet.lifecycle: while driver packages are installed, modules are registered with DKMS and not built; the step that
# follows imports or builds them for every kernel, and says so when it cannot.
case "$1" in
    build|install|autoinstall) echo "dkms $1: left to the step that follows"; exit 0 ;;
esac
exec /usr/sbin/dkms "$@"
"""


# --- parsers --------------------------------------------------------------------------------------------------------


def parse_show(text) -> dict[str, list]:
    """``apt-cache show`` -> ``{name: [record, ...]}``; a record that has a file name can be downloaded."""
    index = {}
    for stanza in re.split(r"\n\s*\n", text):
        fields = parse_stanza(stanza)
        if "Package" not in fields or "Version" not in fields:
            continue
        name = fields["Package"]
        source = fields.get("Source", name).split(" ", 1)[0]
        relations = parse_relations(fields.get("Pre-Depends", "")) + parse_relations(fields.get("Depends", ""))
        record = {
            "name": name,
            "version": fields["Version"],
            "source": source,
            "architecture": fields.get("Architecture", ""),
            "relations": relations,
            "depends": [[item[0] for item in group] for group in relations],
            "provides": [group[0] for group in parse_depends(fields.get("Provides", ""))],
            "size": int(fields.get("Size") or 0),
            "installed_kib": int(fields.get("Installed-Size") or 0),
            "downloadable": bool(fields.get("Filename")),
            "sha256": fields.get("SHA256"),
        }
        same = [old for old in index.get(name, []) if old["version"] == record["version"]]
        if same:
            same[0]["downloadable"] = same[0]["downloadable"] or record["downloadable"]
            same[0]["sha256"] = same[0]["sha256"] or record["sha256"]
            continue
        index.setdefault(name, []).append(record)
    return index


def parse_stanza(stanza) -> dict[str, str]:
    fields, key = {}, None
    for line in stanza.splitlines():
        if line[:1] in (" ", "\t"):
            if key:
                fields[key] += "\n" + line.strip()
            continue
        name, sep, value = line.partition(":")
        if sep:
            key = name
            fields[key] = value.strip()
    return fields


def parse_relations(text) -> list[list]:
    """``a (= 1) | b, c`` -> ``[[("a", "=", "1"), ("b", None, None)], [("c", None, None)]]``."""
    groups = []
    for part in text.replace("\n", " ").split(","):
        found = [
            re.match(r"([^\s(\[:]+)(?::\w+)?\s*(?:\(\s*([<>=]+)\s*([^)\s]+)\s*\))?", item.strip())
            for item in part.split("|")
        ]
        found = [match.groups() for match in found if match]
        if found:
            groups.append(found)
    return groups


def parse_depends(text) -> list[list]:
    """``a (= 1) | b, c`` -> ``[["a", "b"], ["c"]]``."""
    return [[item[0] for item in group] for group in parse_relations(text)]


def parse_query(text) -> dict[str, dict]:
    """Output of dpkg-query in :data:`QUERY_FORMAT` -> ``{name: {...}}``; a foreign architecture's name carries it."""
    rows = []
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 6 and parts[0].strip():
            rows.append(parts)
    native = native_architecture(row[2] for row in rows)
    installed = {}
    for status, name, arch, version, source, size in rows:
        state = status[1:2]
        installed[key_of(name, arch, native)] = {
            "version": version,
            "source": source,
            "status": status.strip(),
            "hold": status[:1] == "h",
            "size_kib": int(size or 0),
            "installed": state in "iFHUWt",
            "ok": state in "iWt" and status[2:3].strip() == "",
        }
    return installed


def parse_simulation(text) -> dict[str, list]:
    """``apt-get -s`` -> the transaction as data."""
    transaction = {"install": [], "upgrade": [], "downgrade": [], "reinstall": [], "remove": []}
    for line in text.splitlines():
        match = re.match(r"^Inst (\S+) (?:\[([^\]]*)\] )?\((\S+) ", line)
        if match:
            name, old, new = match.groups()
            if old is None:
                transaction["install"].append({"name": name, "version": new})
            elif old == new:
                transaction["reinstall"].append({"name": name, "version": new, "from": old})
            else:
                kind = "upgrade" if compare(new, old) > 0 else "downgrade"
                transaction[kind].append({"name": name, "version": new, "from": old})
            continue
        match = re.match(r"^(?:Remv|Purg) (\S+)(?: \[([^\]]*)\])?", line)
        if match and match.group(1) not in [item["name"] for item in transaction["remove"]]:
            transaction["remove"].append({"name": match.group(1), "version": match.group(2) or ""})
    for items in transaction.values():
        items.sort(key=lambda item: item["name"])
    return transaction


def parse_uris(text) -> dict[str, int]:
    """``apt-get --print-uris`` -> ``{archive: bytes}`` of what is not on the machine yet."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"^'(?!file:|/)[^']+' (\S+) ([0-9]+)", line)
        if match:
            found[match.group(1)] = int(match.group(2))
    return found


def parse_policy(text) -> dict[str, dict]:
    """``apt-cache policy`` -> ``{name: {version: [archive, ...]}}``; the archive is the suite and component, such as
    bookworm/non-free.
    """
    found, name, version = {}, None, None
    for line in text.splitlines():
        if re.match(r"^\S+:$", line):
            name, version = line[:-1], None
            continue
        match = re.match(r"^ (?:\*\*\*|   ) (\S+) -?[0-9]+$", line)
        if match and name:
            version = match.group(1)
            found.setdefault(name, {})[version] = []
            continue
        match = re.match(r"^ +-?[0-9]+ \S+ (\S+) \S+ Packages$", line)
        if match and version:
            found[name][version].append(match.group(1))
    return found


def parse_unmet(text) -> list[str]:
    """Return the dependencies that apt cannot satisfy: ``["nvidia-smi : Depends: libnvidia-ml1 (= 1) but 2 is to be
    installed"]``.
    """
    found, owner = [], ""
    for line in text.splitlines():
        match = re.match(r"^ (?:(\S+) : | +)((?:Pre)?-?(?:Depends|Conflicts|Breaks): .*)$", line)
        if match:
            owner = match.group(1) or owner
            found.append("%s : %s" % (owner, match.group(2).strip()))
    return found


# --- the machine ----------------------------------------------------------------------------------------------------


class AptError(ManagerError):
    """A command of apt or dpkg failed."""

    @staticmethod
    def find_unmet(out, err) -> list[str]:
        return parse_unmet(out)


class Apt(Manager):
    """apt and dpkg of one machine."""

    name = "apt"
    unattended_file = "/etc/apt/apt.conf.d/53gpufleet-nvidia-driver"
    error = AptError

    def __init__(self, runner, root="/", lock_timeout_s=300, timeout_s=3600) -> None:
        super().__init__(runner, root, lock_timeout_s, timeout_s)
        self.there = {}  # what is installed, as read last

    @property
    def lock_options(self) -> tuple[str, str]:
        return ("-o", "DPkg::Lock::Timeout=%d" % self.lock_timeout_s)

    # reading

    def list_installed(self) -> dict[str, dict]:
        self.there = parse_query(self.run("dpkg-query", ["dpkg-query", "-W", "-f", QUERY_FORMAT], ok=(0, 1)))
        return self.there

    def index(self, name_pattern, also=()) -> dict[str, list]:
        names = [] if name_pattern == NO_NAMES else self.run("apt-cache pkgnames", ["apt-cache", "pkgnames"]).split()
        wanted = sorted(set(name for name in names if re.search(name_pattern, name)) | set(also))
        if name_pattern != NO_NAMES:
            self.kept = self.store.index()
        stored = [
            "%s\nFilename: %s\nSize: %d\n" % (item["control"].strip(), item["shown"], item["size"])
            for (name, dummy), item in sorted(self.kept.items())
            if re.search(name_pattern, name) or name in also
        ]
        # 100: some names are virtual and have no record, which is no error here
        shown = self.run("apt-cache show", ["apt-cache", "show", "--"] + wanted, ok=(0, 100)) if wanted else ""
        return parse_show("\n\n".join([shown] + stored))

    def security(self, names) -> dict[str, list]:
        """``{name: [versions]}`` that the security archives have."""
        table = parse_policy(self.run("apt-cache policy", ["apt-cache", "policy", "--"] + sorted(names)))
        return dict(
            (
                name,
                [
                    version
                    for version, archives in versions.items()
                    if any(re.search(r"-security(/|$)", item) for item in archives)
                ],
            )
            for name, versions in table.items()
        )

    def find_interrupted(self, installed) -> tuple[list, list]:
        """Return what an interrupted dpkg left: ``(journal entries, packages that are not configured)``."""
        journal = [
            name
            for name in glob.glob(self.path("/var/lib/dpkg/updates/*"))
            if re.match(r"^[0-9]+$", os.path.basename(name))
        ]
        broken = sorted(name for name, have in installed.items() if have["installed"] and not have["ok"])
        return sorted(os.path.basename(name) for name in journal), broken

    def arguments(self, wanted, obsolete=(), stream=None) -> list[str]:
        """Words for apt-get. What is kept here is taken from here: that needs no mirror, and no network."""
        return sorted(self.word(name, version) for name, version in wanted.items()) + [
            "%s-" % name for name in obsolete
        ]

    def word(self, name, version) -> str:
        kept = self.kept.get((name, version))
        if kept and self.there.get(name, {}).get("version") != version:
            return kept["path"]
        return "%s=%s" % (name, version)

    @staticmethod
    def fix_options(broken) -> list[str]:
        return ["--fix-broken"] if broken else []

    def download_options(self, broken) -> list[str]:
        return ["--reinstall"] + self.fix_options(broken)

    def simulate(self, arguments, action="install", options=()) -> dict[str, list]:
        command = ["apt-get", "-s", "-q"] + list(INSTALL_OPTIONS) + list(options) + [action] + list(arguments)
        return parse_simulation(self.run("the simulated transaction", command))

    def to_download(self, arguments, options=()) -> dict[str, int]:
        return parse_uris(self.uris(arguments, options))

    def silent_mirrors(self, arguments, options=()) -> list[dict]:
        return apt_mirrors.find_silent(self.runner, self.uris(arguments, options))

    def lacking(self, arguments, options) -> list[str]:
        """Return the words of a download without those that the node's store has: they need no mirror."""
        kept = set("%s=%s" % item for item in self.kept) if "--reinstall" in options else ()
        return [item for item in arguments if item not in kept]

    def uris(self, arguments, options) -> str:
        arguments = self.lacking(arguments, options)
        command = ["apt-get", "-q", "-y", "--print-uris"] + list(INSTALL_OPTIONS) + list(options)
        return self.run("apt-get --print-uris", command + ["install"] + list(arguments))

    # the node's own store

    def describe(self, path) -> tuple[str, str, str]:
        rc, out, dummy = self.runner(["dpkg-deb", "-f", path], 60)
        fields = parse_stanza(out) if rc == 0 else {}
        return fields.get("Package", ""), fields.get("Version", ""), out

    def find_cached(self, wanted, index) -> dict:
        """As Manager.find_cached; an archive that the index knows has its digest."""
        found = {}
        for name, version in wanted.items():
            plain = name.split(":", 1)[0]
            digests = [
                record["sha256"] for record in index.get(name, []) if record["version"] == version and record["sha256"]
            ]
            for path in sorted(
                glob.glob(
                    glob.escape(self.path("/var/cache/apt/archives", "%s_%s_" % (plain, version.replace(":", "%3a"))))
                    + "*.deb"
                )
            ):
                if not digests or sha256_of(path) in digests:
                    found[(name, version)] = path
        return found

    def fetch(self, missing, index) -> dict:
        wrong = {}
        for name, version in sorted(missing.items()):
            with apt_mirrors.fetch_archive(self.runner, "%s=%s" % (name, version), self.timeout_s) as (path, why):
                if path:
                    wrong.update(self.store.add({(name, version): path}))
                else:
                    wrong[(name, version)] = (
                        "it is not in apt's cache, and no mirror that this node knows has it (%s)" % why
                    )
        return wrong

    # acting

    def configure(self, names=()):
        """Finish what an interrupted dpkg left; return the error, if any.

        Of ``names``, those that dpkg calls in need of a reinstallation are unpacked again first, from the node's own
        archives: nothing else helps them, and apt refuses every other step before it (dpkg(1), reinst-required).
        """
        installed, kept = self.list_installed(), self.store.index()
        due = dict((name, installed[name]["version"]) for name in names if installed[name]["status"].endswith("R"))
        archives = dict((name, path) for (name, dummy), path in self.find_cached(due, {}).items())
        archives.update((name, kept[item]["path"]) for name, item in zip(due, due.items()) if item in kept)
        if archives:
            self.runner(
                ["dpkg", "--force-confdef", "--force-confold", "--unpack"] + sorted(archives.values()), self.timeout_s
            )
        rc, out, err = self.runner(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], self.timeout_s)
        return None if rc == 0 else AptError("dpkg --configure -a", rc, out, err)

    def change(self, arguments, action="install", options=()) -> str:
        command = (
            ["apt-get", "-q", "-y"]
            + list(self.lock_options)
            + list(COMMON_OPTIONS)
            + list(INSTALL_OPTIONS)
            + list(options)
        )
        return self.run("apt-get %s" % action, command + [action] + list(arguments), timeout=self.timeout_s)

    def download(self, arguments, options=()) -> str:
        return self.change(self.lacking(arguments, options), options=list(options) + ["--download-only"])

    def mark(self, action, names) -> None:
        if names:
            self.run("apt-mark %s" % action, ["apt-mark", action] + sorted(names))

    def deferred_dkms_options(self, directory="/var/lib/gpufleet/dkms-deferred") -> tuple[str, str]:
        """apt options under which package scripts register with DKMS and do not build. Nothing is left to undo."""
        place = self.path(directory)
        os.makedirs(place, mode=0o755, exist_ok=True)
        write_atomically(os.path.join(place, "dkms"), SHIM, 0o755)
        return ("-o", "DPkg::Path=%s:%s" % (directory, DPKG_PATH))
