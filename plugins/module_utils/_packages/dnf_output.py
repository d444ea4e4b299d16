# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse what dnf (version 4) and rpm print, and dnf's configuration: text in, data out.

Versions are ``[epoch:]version-release``; an epoch of 0 is left out, as dnf does.
"""

from __future__ import annotations

import configparser
import re

from .._node.dpkg import key_of, native_architecture
from .._node.versions import compare_rpm
from .dnf_locks import is_locked
from .driver_tables import EL_KERNEL
from .transaction import make_empty

QUERY_FORMAT = "%{NAME}|%{EPOCHNUM}|%{VERSION}|%{RELEASE}|%{ARCH}|%{SOURCERPM}|%{SIZE}|[%{PROVIDENAME} ]\\n"
INDEX_FORMAT = (
    "\\n=P=%{name}|%{epoch}|%{version}|%{release}|%{arch}|%{repoid}|%{downloadsize}|%{installsize}|"
    "%{sourcerpm}\\n=R=%{requires}\\n=V=%{provides}\\n"
)
ARCHITECTURES = r"(noarch|x86_64|i686|aarch64|ppc64le|s390x|src)"
KINDS = (
    (r"^Installing(?! group| module| Env)", "install"),
    (r"^Upgrading(?! Env| Gr)", "upgrade"),
    (r"^Reinstalling", "reinstall"),
    (r"^Downgrading", "downgrade"),
    (r"^Removing(?! Env| Gr)", "remove"),
)
UNITS = {"": 1, "k": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
# Versions of these lie side by side: whatever provides one of dnf's marks (dnf.conf(5), installonlypkgs), keys, and
# what belongs to one kernel by its name and does not say so.
INSTALL_ONLY_MARK = re.compile(r"(^|\s)(installonlypkg|multiversion)\(")
INSTALL_ONLY_NAME = re.compile(r"^(gpg-pubkey|kmod-nvidia-(open-)?[0-9].*|%s)$" % EL_KERNEL)


def join_version(epoch, version, release) -> str:
    return "%s%s-%s" % ("" if epoch in ("0", "(none)", "") else "%s:" % epoch, version, release)


def source_name(source_rpm) -> str:
    """nvidia-driver out of nvidia-driver-580.95.05-1.el9.src.rpm."""
    return re.sub(r"-[^-]+-[^-]+\.(no)?src\.rpm$", "", source_rpm)


def find_rpm_errors(err) -> list[str]:
    """Return the errors out of what rpm said.

    What it cannot read of its database it leaves out, and its status is 0.
    """
    return [line for line in err.splitlines() if line.startswith("error:")]


def parse_sections(text) -> dict[str, dict]:
    """Parse a file of dnf.conf(5) or of repositories: ``{section: {option: value}}``.

    Returns:
        Nothing of a file with a line that is none, or with a section twice: what dnf makes of it is not known.
    """
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return dict((name, dict(parser.items(name))) for name in parser.sections())


def parse_query(text, locks=()) -> dict[str, dict]:
    """Parse the output of rpm in :data:`QUERY_FORMAT`.

    Returns:
        ``{key_of: {...}}``; of several versions the newest, the others are in ``more``. Two versions of one name and
        architecture are the trace of an interrupted rpm, but for packages that are installed side by side.
    """
    installed = {}
    rows = [parts for parts in (line.split("|", 7) for line in text.splitlines()) if len(parts) >= 7]
    native = native_architecture(row[4] for row in rows)
    for name, epoch, version, release, arch, source, size, *provides in rows:
        full, key = join_version(epoch, version, release), key_of(name, arch, native)
        have = installed.get(key)
        if have and compare_rpm(have["version"], full) >= 0:
            have["more"].append(full)
            continue
        installed[key] = {
            "version": full,
            "source": source_name(source),
            "status": "installed",
            "hold": is_locked(locks, name, full, arch),
            "size_kib": int(size or 0) // 1024,
            "installed": True,
            "ok": bool(INSTALL_ONLY_NAME.match(name) or any(map(INSTALL_ONLY_MARK.search, provides))),
            "architecture": arch,
            "more": have["more"] + [have["version"]] if have else [],
        }
    for have in installed.values():
        if have["more"] and not have["ok"]:
            have["status"] = "installed twice: %s" % ", ".join([have["version"]] + have["more"])
        have["ok"] = have["status"] == "installed"
    return installed


def parse_capability(text) -> tuple[str, str | None, str | None]:
    """``nvidia-kmod = 3:580.95.05`` -> ``("nvidia-kmod", "=", "3:580.95.05")``; the architecture in brackets is left
    out.
    """
    words = text.split()
    name = re.sub(r"\((x86-64|aarch-64|[a-z0-9_]+-(32|64))\)$", "", words[0])
    return (name, words[1], words[2]) if len(words) == 3 else (name, None, None)


OFFER_FORMAT = "%{repoid} %{name}-%{evr} %{arch}\\n"


def parse_offers(text) -> dict[str, set]:
    """Output of dnf repoquery in :data:`OFFER_FORMAT` -> ``{package: {repository, ...}}``, with and without its
    architecture.
    """
    found = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 3:
            repository, package, architecture = parts
            for name in (package, "%s.%s" % (package, architecture)):
                found.setdefault(name, set()).add(repository)
    return found


def find_silent(wanted, offers, answers) -> list[dict]:
    """The repositories from which nothing comes of these packages, as Manager.silent_mirrors answers.

    Args:
        wanted: Packages, as dnf is asked for them.
        offers: ``{package: repositories}`` by the metadata on the node.
        answers: ``{repository: (packages that it has now, why it has no more)}``.
    """
    silent = {}
    for package in wanted:
        places = sorted(offers.get(package, ()))
        if places and not any(package in answers[place][0] for place in places):
            name, version, release = package.rsplit("-", 2)
            found = {"package": name, "version": "%s-%s" % (version, release), "why": answers[places[0]][1]}
            silent.setdefault(places[0], dict(found, mirror=places[0]))
    return [silent[place] for place in sorted(silent)]


def parse_index(text) -> dict[str, list]:
    """Output of dnf repoquery in :data:`INDEX_FORMAT` -> ``{name: [record, ...]}``."""
    index, record, kind = {}, None, None
    for line in text.splitlines():
        if line.startswith("=P="):
            parts = line[3:].split("|")
            record, kind = None, None
            if len(parts) != 9:
                continue
            name, epoch, version, release, arch, repository, size, installed, source = parts
            record = {
                "name": name,
                "version": join_version(epoch, version, release),
                "source": source_name(source),
                "architecture": arch,
                "relations": [],
                "depends": [],
                "provides": [],
                "size": int(size or 0),
                "installed_kib": int(installed or 0) // 1024,
                "downloadable": True,
                "repository": repository,
            }
            known = index.setdefault(name, [])
            if arch not in ("src", "i686") and record["version"] not in [item["version"] for item in known]:
                known.append(record)
            continue
        if line[:3] in ("=R=", "=V="):
            kind, line = line[1], line[3:]
        if record is None or not line.strip() or line.startswith(("(", "rpmlib(", "/")):
            continue
        capability = parse_capability(line)
        if kind == "R":
            record["relations"].append([capability])
            record["depends"].append([capability[0]])
        elif kind == "V" and capability[0] != record["name"] and capability[0] not in record["provides"]:
            record["provides"].append(capability[0])
    return dict((name, records) for name, records in index.items() if records)


def parse_transaction(text, installed=None) -> dict[str, list]:
    """The table that dnf prints before it asks -> the transaction as data.

    Long names push the rest to the next line.
    """
    transaction, installed = make_empty(), installed or {}
    native = native_architecture(have["architecture"] for have in installed.values())
    kind, pending = None, ""
    for line in text.splitlines():
        if re.match(r"^\S.*:$", line):
            kind, pending = next((name for pattern, name in KINDS if re.match(pattern, line)), None), ""
            continue
        if re.match(r"^Transaction Summary", line):
            break
        replaced = re.match(r"^\s+replacing\s+(\S+)\.%s\s+(\S+)" % ARCHITECTURES, line)
        if replaced:
            transaction["remove"].append({"name": key_of(*replaced.group(1, 2), native), "version": replaced.group(3)})
            continue
        if kind is None or not line.startswith(" "):
            kind = None if not line.strip() else kind
            continue
        pending += " " + line
        row = re.match(r"^\s*(\S+)\s+%s\s+(\S+)\s+(@?\S+)\s+[0-9.]+( [kMGT])?\s*$" % ARCHITECTURES, pending)
        if row:
            add_item(transaction, kind, key_of(*row.group(1, 2), native), row.group(3), installed)
            pending = ""
    for items in transaction.values():
        items.sort(key=lambda item: item["name"])
    return transaction


def add_item(transaction, kind, name, version, installed) -> None:
    item = {"name": name, "version": version}
    if kind not in ("install", "remove") and name in installed:
        item["from"] = installed[name]["version"]
    transaction[kind].append(item)


def parse_download_size(text) -> int:
    """Bytes that dnf says it would fetch; 0 when everything is on the machine."""
    found = re.search(r"^Total download size: ([0-9.]+)(?: ([kMGT]))?\s*$", text, re.M)
    return int(float(found.group(1)) * UNITS[found.group(2) or ""]) if found else 0


def parse_streams(text, module) -> list[str]:
    """Names of a module's streams out of dnf module list."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == module and words[1] not in found:
            found.append(words[1])
    return found


def parse_enabled(text, module) -> str | None:
    """The enabled stream out of /etc/dnf/modules.d/<module>.module; None when none is."""
    fields = parse_sections(text).get(module, {})
    return (fields.get("stream") or None) if fields.get("state") == "enabled" else None


def parse_advisories(text) -> dict[str, list]:
    """Output of dnf updateinfo list -> ``{name: [version, ...]}``."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"^\S+ +\S+ +(\S+)-([^-\s]+-[^-\s]+)\.%s$" % ARCHITECTURES, line.strip())
        if match:
            known = found.setdefault(match.group(1), [])
            version = re.sub(r"^0:", "", match.group(2))
            if version not in known:
                known.append(version)
    return found


def parse_unmet(text) -> list[str]:
    """Return the dependencies that dnf cannot satisfy."""
    found = []
    for line in text.splitlines():
        match = re.match(r"^\s*(?:Problem(?: \d+)?: |- )(.*)$", line)
        if match and match.group(1) not in found and match.group(1) != "conflicting requests":
            found.append(match.group(1))
        match = re.match(r"^Error: (Unable to find a match: .*)$", line)
        if match:
            found.append(match.group(1))
    return found
