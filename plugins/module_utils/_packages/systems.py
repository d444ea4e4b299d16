# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deciding which table of driver packages holds for an operating system, a source of packages and a driver branch."""

from __future__ import annotations

from .._node.versions import upstream
from ._sets import NO_SOURCE, SYSTEMS
from .package_refusal import refusal

BRANCH = r"[0-9]{3}"


def system_of(os_release):
    """``{source: table}`` of an operating system, or None when it is not supported."""
    ident, version = os_release.get("ID", ""), os_release.get("VERSION_ID", "")
    return SYSTEMS.get((ident, version)) or SYSTEMS.get((ident, version.split(".", 1)[0]))


def family_of(os_release):
    """Return the package manager of an operating system, apt or dnf, also of one that is not supported; None where it
    does not say.
    """
    names = set([os_release.get("ID", "")] + os_release.get("ID_LIKE", "").split())
    if names & {"rhel", "fedora", "centos", "rocky", "almalinux"}:
        return "dnf"
    return "apt" if names & {"debian", "ubuntu"} else None


def table_for(os_release, origin=None):
    """The data of an operating system with a source of packages, by default its first one; None when there is none."""
    tables = system_of(os_release)
    if not tables:
        return None
    return tables.get(origin) if origin else next(iter(tables.values()))


def supported_text():
    return ", ".join("%s %s" % key for key in sorted(SYSTEMS))


def decide_system(os_release, origin=None):
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
            refusal(
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
        refusal(
            "unknown_source",
            [],
            "%s, %s" % (found, origin),
            " or ".join(tables),
            "Source %s cannot be used on %s: %s." % (origin, found, why),
            "use source %s" % " or ".join(tables),
        )
    ]


def instantiate(table, branch=BRANCH):
    """The table for a driver branch: eras applied and ``{branch}`` filled in, by default with an expression for any
    branch.
    """
    result = dict(table)
    for first, changes in table.get("eras", ()):
        if branch != BRANCH and branch.isdigit() and int(branch) >= first:
            result.update(changes)
    result.pop("eras", None)
    return fill(result, "{branch}", branch)


def fill(value, mark, text):
    if isinstance(value, str):
        return value.replace(mark, text)
    if isinstance(value, dict):
        return dict((key, fill(item, mark, text)) for key, item in value.items())
    if isinstance(value, tuple):
        return tuple(fill(item, mark, text) for item in value)
    return value


def branch_of(wanted):
    return upstream(wanted).split(".", 1)[0]


def variants(table):
    """The table as it is for every era, with an expression where a branch would be."""
    plain = instantiate(dict(table, eras=()))
    return [plain] + [instantiate(dict(table, eras=(), **changes)) for first, changes in table.get("eras", ())]
