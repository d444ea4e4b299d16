# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the packages that a node holds, and report since when, and the updates that the holds keep out.

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
