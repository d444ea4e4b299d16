# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deciding which packages are the driver's, of which version, and of which flavour.

The installed packages are ``{name: {"version", "source", "hold", "ok", ...}}``, as read by ``_packages.apt`` or
``_packages.dnf``.
"""

from __future__ import annotations

import re

from .._node.versions import is_driver_version, upstream
from .driver_tables import (
    APART_NAME_PATTERN,
    DRIVER_NAME_PATTERN,
    DRIVER_SOURCE_PATTERN,
    DRIVER_VERSION_PATTERN,
    PREBUILT_PATTERN,
)
from .systems import list_variants

# Packages that hold the source of the kernel module: the one that registers it with DKMS, or on Ubuntu one of its own.
SOURCE_PATTERN = r"dkms|kernel-source"


def is_driver_package(name, version, source=None, table=None) -> bool:
    """Return whether a package carries the version of an NVIDIA driver of any family; a table knows its system's
    better.
    """
    plain = name.split(":", 1)[0]
    if re.match(PREBUILT_PATTERN, plain):
        return True
    if (
        table
        and re.search(table["name_pattern"], plain)
        and any(is_member(era, plain, source, version) for era in list_variants(table))
    ):
        return True
    if source and source != plain and re.match(DRIVER_SOURCE_PATTERN, source):
        return True
    if re.match(APART_NAME_PATTERN, plain) or (source and source != plain and not source.endswith(".src.rpm")):
        return False
    return bool(re.match(DRIVER_NAME_PATTERN, plain) and re.match(DRIVER_VERSION_PATTERN, upstream(version)))


def is_member(table, name, source, version) -> bool:
    """Return whether a package is one of the driver's: by where it was built from, or by its name and version."""
    name = name.split(":", 1)[0]
    if source is not None and any(re.match("^%s$" % pattern, source) for pattern in table["sources"]):
        return True
    if not any(re.match(pattern, name) for pattern in table["members"]) or any(
        re.match(pattern, name) for pattern in table["apart"]
    ):
        return False
    return is_driver_version(upstream(version)) or is_prebuilt(table, name)


def is_family_record(table, record) -> bool:
    return is_member(table, record["name"], record["source"], record["version"])


def is_prebuilt(table, name) -> bool:
    return bool(table.get("prebuilt_pattern") and re.match(table["prebuilt_pattern"], name))


def driver_of(table, record) -> str | None:
    """The driver version that a package belongs to; None when it does not say (a prebuilt module without a bound)."""
    bound = table.get("prebuilt_bound")
    if not is_prebuilt(table, record["name"]) or not bound:
        return upstream(record["version"])
    for group in record["relations"]:
        for name, operator, version in group:
            if re.match("^%s$" % bound, name) and operator in ("=", ">="):
                return upstream(version)
    return None


def installed_driver(table, installed) -> list[str]:
    """Return the names of the driver's packages that are installed, of any branch, by hand or as dependencies."""
    eras = list_variants(table)
    return sorted(
        name
        for name, have in installed.items()
        if have["installed"]
        and any(is_member(era, name, have["source"], have["version"]) or is_prebuilt(era, name) for era in eras)
    )


def driver_versions(table, installed) -> dict[str, str]:
    return dict((name, installed[name]["version"]) for name in installed_driver(table, installed))


def matches_version(wanted, version) -> bool:
    return version == wanted or upstream(version) == wanted


def source_of(name, version, installed, index) -> str | None:
    for record in index.get(name, []):
        if record["version"] == version:
            return record["source"]
    have = installed.get(name)
    return have["source"] if have and have["version"] == version else None


def other_flavours(table, flavour) -> set[str]:
    mine = set(table["flavours"][flavour]["packages"])
    return set(name for key, data in table["flavours"].items() if key != flavour for name in data["packages"]) - mine


def is_other_flavour(table, flavour, name) -> bool:
    """Return whether a package is the kernel module of another flavour, of the same branch or of another."""
    if any(
        re.match("^%s$" % pattern, name) for era in list_variants(table) for pattern in other_flavours(era, flavour)
    ):
        return not any(
            re.match("^%s$" % pattern, name)
            for era in list_variants(table)
            for pattern in era["flavours"][flavour]["packages"]
        )
    return False
