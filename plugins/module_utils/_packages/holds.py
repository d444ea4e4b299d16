# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep packages at their versions: the files that keep package managers to one driver, the packages that a node holds,
since when, and the updates that the holds keep out.

Package managers do not record when a hold was set.
"""

from __future__ import annotations

import json
import re
import time

from .._node import files
from .._node.versions import KEYS
from . import kernel_set
from .driver_tables import APART_NAME_PATTERN, DRIVER_NAME_PATTERN, DRIVER_SOURCE_PATTERN
from .manager import NO_NAMES

RECORD = "/var/lib/gpufleet/holds.json"
DAY = 24 * 3600


def parse_record(text: str | None) -> dict[str, dict]:
    """The record ``{name: {"version", "since", "exact"}}``; what cannot be read is as if it were not there."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return dict(
        (name, item)
        for name, item in found.items()
        if isinstance(item, dict) and isinstance(item.get("since"), (int, float)) and "version" in item
    )


def render_record(record: dict[str, dict]) -> str:
    return json.dumps(record, indent=1, sort_keys=True) + "\n"


def update_record(
    record: dict[str, dict], held: dict[str, str], now: float, mine: list[str] | tuple[str, ...] = ()
) -> dict[str, dict]:
    """The record of what is held now: ``{name: version}``.

    The age counts from the version's hold on; ``mine`` were set just now.
    """
    new = {}
    for name, version in held.items():
        known = record.get(name)
        if known and known["version"] == version:
            new[name] = known
        else:
            new[name] = {"version": version, "since": int(now), "exact": name in mine}
    return new


def report_holds(
    record: dict[str, dict],
    held: dict[str, str],
    index: dict,
    security: dict[str, list[str]] | None,
    manager: str,
    now: float,
) -> list[dict]:
    """``[{"package", "version", "since", "since_exact", "age_days", "newer", "security"}]``, the oldest first.

    ``security`` is ``{name: [versions that fix a vulnerability]}``, or None when the package manager cannot tell.
    """
    key = KEYS[manager]
    rows = []
    for name, version in held.items():
        known = record.get(name)
        known = known if known and known["version"] == version else None
        newer = sorted(
            set(item["version"] for item in index.get(name, []) if key(version) < key(item["version"])),
            key=key,
            reverse=True,
        )
        rows.append(
            {
                "package": name,
                "version": version,
                "newer": newer,
                "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(known["since"])) if known else None,
                "since_exact": bool(known and known.get("exact")),
                "age_days": max(0, int((now - known["since"]) // DAY)) if known else None,
                "security": None
                if security is None
                else sorted(
                    (item for item in security.get(name, []) if key(version) < key(item)), key=key, reverse=True
                ),
            }
        )
    return sorted(rows, key=lambda row: (-(row["age_days"] or 0), row["package"]))


def find_due(installed: dict[str, dict], names, action: str) -> tuple[list[str], list[str]]:
    """``(packages whose hold changes, packages that are not installed)`` of those with NAMES. Pure."""
    there = set(name for name in names if installed.get(name, {}).get("installed"))
    return sorted(name for name in there if installed[name]["hold"] != (action == "hold")), sorted(set(names) - there)


def describe_marks(action: str, names, lock_package: str | None = None) -> list[str]:
    """The sentences of packages that are held, or no longer; the first hold installs ``lock_package``."""
    listing = ", ".join(sorted(names))
    if not listing:
        return []
    if action == "unhold":
        return ["lift the hold of %s" % listing]
    return (["install %s" % lock_package] if lock_package else []) + ["hold %s" % listing]


KERNEL_RECORD = "/var/lib/gpufleet/kernel-holds.json"
RECORDS = {"kernel": KERNEL_RECORD, "driver": RECORD, "other": None}


def group_of(name, source, patterns) -> str:
    """Return the kind of a package: kernel, driver or other. Pure. ``patterns`` are those of the kernel, which are
    tried first."""
    if kernel_set.is_kernel(name, patterns):
        return "kernel"
    if (
        re.search(DRIVER_SOURCE_PATTERN, source or "")
        or re.search(DRIVER_NAME_PATTERN, name)
        or re.search(APART_NAME_PATTERN, name)
    ):
        return "driver"
    return "other"


def read_holds(manager, now) -> dict[str, list]:
    """``{"kernel": rows, "driver": rows, "other": rows}``, as :func:`holds.report` makes them. Only reads."""
    patterns = list(kernel_set.PATTERNS[manager.name])
    installed = manager.list_installed()
    found = dict((group, {}) for group in RECORDS)
    for name, item in sorted(installed.items()):
        if item["installed"] and item["hold"]:
            found[group_of(name, item.get("source"), patterns)][name] = item["version"]
    names = sorted(name for held in found.values() for name in held)
    index, security = (manager.index(NO_NAMES, names), manager.security(names)) if names else ({}, {})
    texts = dict((group, files.read_text(manager.path(path)) if path else None) for group, path in RECORDS.items())
    return dict(
        (group, report_holds(parse_record(texts[group]), held, index, security, manager.name, now))
        for group, held in found.items()
    )


# --- apt preferences, and the exclusions of unattended upgrades

# Names of the driver's own packages, as unattended-upgrades reads them. Tools released apart from it keep getting their
# updates.
UNATTENDED_PATTERNS = (
    "^(lib|firmware-|xserver-xorg-video-)?nvidia-(?!persistenced|modprobe|settings|xconfig|container)",
    "^libcuda(1|debugger1)$",
    "^libnv(cuvid|optix)1$",
    "^linux-(modules|objects|signatures)-nvidia-[0-9]",
    "^cuda-drivers",
)

# Everything that carries the driver's version in NVIDIA's rpm repository.
AUTOMATIC_EXCLUDES = (
    "cuda-drivers*",
    "kmod-nvidia-*",
    "libnvidia-*",
    "libnvsdm",
    "nvidia-driver*",
    "nvidia-fabric*",
    "nvidia-imex*",
    "nvidia-kmod-common",
    "nvidia-libXNVCtrl*",
    "nvidia-modprobe",
    "nvidia-open*",
    "nvidia-persistenced",
    "nvidia-settings",
    "nvidia-xconfig",
    "xorg-x11-nvidia",
)


def by_name(table: dict, resolved: dict) -> dict[str, str]:
    """The packages that only their names tell apart: prebuilt modules, several versions of which are built from one
    source.
    """
    pattern = table.get("prebuilt_pattern")
    return dict(
        (name, version) for name, version in resolved["packages"].items() if pattern and re.match(pattern, name)
    )


def render_pin(table: dict, versions: dict[str, str], names: dict[str, str] | None = None) -> str:
    """An apt preferences file that allows exactly one driver, and no other driver family.

    ``versions`` is ``{source package: version}``; a source of the driver that is not in it is not allowed at all.
    ``names`` is ``{package: version}`` of those that are allowed by name. The first stanza that fits a package decides.
    """
    known = [name for name in table["sources"] if "{" not in name]
    sources = [name for name in known if name in versions] + sorted(name for name in versions if name not in known)
    lines = ["Explanation: written by gpufleet.lifecycle (driver_packages); changes are overwritten."]
    for source in sources:
        lines += [
            "Explanation: the driver's packages, by source package, are allowed at this version alone.",
            "Package: src:%s" % source,
            "Pin: version %s" % versions[source],
            "Pin-Priority: 1001",
            "",
        ]
    for name, version in sorted((names or {}).items()):
        lines += [
            "Explanation: the prebuilt module of one kernel, allowed at this version alone.",
            "Package: %s" % name,
            "Pin: version %s" % version,
            "Pin-Priority: 1001",
            "",
        ]
    blocked = ["src:%s" % name for name in known + [name for name in sources if name not in known]]
    blocked += ["src:%s" % name for name in table["blocked_sources"]] + list(table["blocked_names"])
    lines += [
        "Explanation: every other version, and every other driver family of the archive, is not.",
        "Package: %s" % " ".join(blocked),
        "Pin: version *",
        "Pin-Priority: -1",
        "",
    ]
    return "\n".join(lines)


def render_unattended(
    patterns: tuple[str, ...] = UNATTENDED_PATTERNS, module: str = "driver_packages", subject: str = "driver"
) -> str:
    """An apt configuration file under which unattended-upgrades leaves packages alone."""
    lines = [
        "// Written by gpufleet.lifecycle (%s); changes are overwritten. The %s changes only on purpose."
        % (module, subject),
        "Unattended-Upgrade::Package-Blacklist {",
    ]
    return "\n".join(lines + ['    "%s";' % pattern for pattern in patterns] + ["};", ""])


def render_automatic(text: str, exclude: bool = True, patterns: tuple[str, ...] = AUTOMATIC_EXCLUDES) -> str:
    """``automatic.conf`` of dnf-automatic with the driver excluded from its updates, or no longer; other exclusions
    stay.
    """
    lines, section, base, at = text.splitlines(), None, None, None
    for number, line in enumerate(lines):
        header = re.match(r"^\s*\[(.+)\]\s*$", line)
        if header:
            section = header.group(1)
            base = number if section == "base" else base
        elif section == "base" and re.match(r"^\s*exclude(pkgs)?\s*=", line):
            at = number
    words = [word for word in re.split(r"[,\s]+", lines[at].split("=", 1)[1]) if word] if at is not None else []
    # In their order, as kernel and driver are excluded in the same line by two tasks.
    wanted = [word for word in words if exclude or word not in patterns]
    wanted += [word for word in patterns if exclude and word not in words]
    new = "excludepkgs = %s" % ", ".join(wanted) if wanted else None
    if at is not None:
        lines[at : at + 1] = [new] if new else []
    elif new and base is not None:
        lines.insert(base + 1, new)
    elif new:
        lines += ["[base]", new]
    return "".join("%s\n" % line for line in lines)


def pin_content(manager: str, table: dict, resolved: dict) -> str | None:
    """The file that keeps a package manager to one driver. None for dnf, whose version locks do that."""
    return render_pin(table, resolved["sources"], by_name(table, resolved)) if manager == "apt" else None


def unattended_content(manager: str, text: str | None, exclude: bool) -> str | None:
    """The file that keeps unattended upgrades from the driver, out of the TEXT it has; None when it should not be
    there.

    With dnf these are the settings of dnf-automatic; where it is not installed there is nothing to write.
    """
    if manager == "apt":
        return render_unattended() if exclude else None
    return None if text is None else render_automatic(text, exclude)
