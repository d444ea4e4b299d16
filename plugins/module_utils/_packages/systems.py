# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which table of driver packages holds for an operating system, a source of packages and a driver branch, which
packages are the driver's by it, and whether a node has what a driver needs beside its packages. Pure.

The installed packages are ``{name: {"version", "source", "hold", "ok", ...}}``, as read by ``_packages.apt`` or
``_packages.dnf``.
"""

from __future__ import annotations

import re

from .._kernel.kernels import headers_package
from .._node.gpu_operator import NEXT_STEP
from .._node.versions import is_driver_version, upstream
from .driver_tables import (
    APART_NAME_PATTERN,
    DRIVER_NAME_PATTERN,
    DRIVER_SOURCE_PATTERN,
    DRIVER_VERSION_PATTERN,
    NO_SOURCE,
    PREBUILT_PATTERN,
    SYSTEMS,
)
from .package_state import make_refusal

BRANCH = r"[0-9]{3}"


def system_of(os_release) -> dict[str, dict] | None:
    """``{source: table}`` of an operating system, or None when it is not supported."""
    ident, version = os_release.get("ID", ""), os_release.get("VERSION_ID", "")
    return SYSTEMS.get((ident, version)) or SYSTEMS.get((ident, version.split(".", 1)[0]))


def family_of(os_release) -> str | None:
    """Return the package manager of an operating system, apt or dnf, also of one that is not supported; None where it
    does not say.
    """
    names = set([os_release.get("ID", "")] + os_release.get("ID_LIKE", "").split())
    if names & {"rhel", "fedora", "centos", "rocky", "almalinux"}:
        return "dnf"
    return "apt" if names & {"debian", "ubuntu"} else None


def table_for(os_release, origin=None) -> dict | None:
    """The data of an operating system with a source of packages, by default its first one; None when there is none."""
    tables = system_of(os_release)
    if not tables:
        return None
    return tables.get(origin) if origin else next(iter(tables.values()))


def supported_text() -> str:
    return ", ".join("%s %s" % key for key in sorted(SYSTEMS))


def decide_system(os_release, origin=None) -> tuple[dict | None, list]:
    """``(table, refusals)``: the table, or why there is none."""
    table = table_for(os_release, origin)
    if table:
        return table, []
    found = (
        os_release.get("PRETTY_NAME")
        or " ".join(os_release.get(key, "") for key in ("ID", "VERSION_ID")).strip()
        or "unknown"
    )
    tables = system_of(os_release)
    if tables is None:
        return None, [
            make_refusal(
                "unsupported_os",
                [],
                found,
                supported_text(),
                "Operating system %s is not supported by this version of the collection." % found,
                "use one of: %s" % supported_text(),
            )
        ]
    ident, version = os_release.get("ID", ""), os_release.get("VERSION_ID", "").split(".", 1)[0]
    why = NO_SOURCE.get((ident, version, origin), "there is no such source of packages")
    return None, [
        make_refusal(
            "unknown_source",
            [],
            "%s, %s" % (found, origin),
            " or ".join(tables),
            "Source %s cannot be used on %s: %s." % (origin, found, why),
            "use source %s" % " or ".join(tables),
        )
    ]


def instantiate_table(table, branch=BRANCH) -> dict:
    """The table for a driver branch: eras applied and ``{branch}`` filled in, by default with an expression for any
    branch.
    """
    result = dict(table)
    for first, changes in table.get("eras", ()):
        if branch != BRANCH and branch.isdigit() and int(branch) >= first:
            result.update(changes)
    result.pop("eras", None)
    return fill_mark(result, "{branch}", branch)


def fill_mark(value, mark, text):
    if isinstance(value, str):
        return value.replace(mark, text)
    if isinstance(value, dict):
        return dict((key, fill_mark(item, mark, text)) for key, item in value.items())
    if isinstance(value, tuple):
        return tuple(fill_mark(item, mark, text) for item in value)
    return value


def branch_of(wanted) -> str:
    return upstream(wanted).split(".", 1)[0]


def list_variants(table) -> list[dict]:
    """The table as it is for every era, with an expression where a branch would be."""
    plain = instantiate_table(dict(table, eras=()))
    return [plain] + [instantiate_table(dict(table, eras=(), **changes)) for first, changes in table.get("eras", ())]


def decide_needs(wanted: list[str], gpus: list[dict] | None, headers: dict[str, bool]) -> list[dict]:
    """Refusals of a node without what is WANTED (``gpu``, ``headers``).

    ``gpus`` are those on the bus, None when it cannot be read; ``headers`` tells by kernel that can boot whether they
    are there.
    """
    refusals = []
    if "gpu" in wanted and not gpus:
        found = "the PCI bus cannot be read" if gpus is None else "none on the PCI bus"
        refusals.append(
            make_refusal(
                "no_gpu",
                [],
                found,
                "an NVIDIA GPU",
                "No NVIDIA GPU was found: %s." % found,
                "look at the hardware, or leave gpu out of what is required",
            )
        )
    if "headers" in wanted and not headers:
        refusals.append(
            make_refusal(
                "no_kernel",
                [],
                "no kernel",
                "a kernel that can boot",
                "No kernel that can boot was found in /boot and /lib/modules.",
                "install one",
            )
        )
    missing = [kernel for kernel in headers if not headers[kernel]] if "headers" in wanted else []
    if missing:
        packages = [headers_package(kernel) for kernel in missing]
        refusals.append(
            make_refusal(
                "no_headers",
                packages,
                "no headers for %s" % ", ".join(missing),
                "headers for every kernel that can boot",
                "The headers are missing for kernel %s, so that no module can be built for it." % ", ".join(missing),
                "install %s, or remove the kernel" % " ".join(packages),
            )
        )
    return refusals


def decide_owner(found) -> list[dict]:
    """Refusals of a node whose driver a GPU Operator brings, ``found`` as ``gpu_operator.read_operator`` answers."""
    if found["owner"] is False:
        return []
    signs = "; ".join(found["signs"])
    if found["owner"] is None:
        return [
            make_refusal(
                "operator_unknown",
                [],
                signs,
                "/run/nvidia can be read",
                "Whether a GPU Operator brings the driver cannot be read: %s." % signs,
                "look at /run/nvidia on the node as root",
            )
        ]
    step = NEXT_STEP[0].lower() + NEXT_STEP[1:].rstrip(".")
    return [
        make_refusal(
            "operator_owned",
            [],
            signs,
            "a driver that is the node's own",
            "A GPU Operator brings this node's driver in a container (%s): packages of the node would fight it."
            % signs,
            step,
        )
    ]


# --- which packages are the driver's

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
