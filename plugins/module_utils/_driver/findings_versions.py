# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about the driver's packages and versions: whether all parts agree, and what an interrupted run left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .._node import dpkg, gpu_operator, versions
from ._finding import FAIL, KERNEL_SIDE, PASS, UNKNOWN, finding

REPAIR = {
    "dpkg": "Run dpkg --configure -a, then apt-get -f install if it asks for it.",
    "rpm": "See dnf check, then remove the older version of each with rpm -e, which refuses what others depend on.",
}


def dpkg_interrupted(facts, target, expect_loaded) -> Iterator:
    state = facts["dpkg"]
    manager = state.get("manager", "dpkg")
    if state["interrupted"] or state["journal"]:
        names = ["%s (%s)" % (item["package"], item["state"]) for item in state["interrupted"]]
        yield finding(
            "dpkg_interrupted",
            "node",
            FAIL,
            names or "%d journal entries" % state["journal"],
            [],
            "%s was interrupted: %s." % (manager, ", ".join(names) or "its journal is not empty"),
            REPAIR[manager],
        )
    elif not state["available"]:
        yield finding(
            "dpkg_interrupted",
            "node",
            UNKNOWN,
            None,
            [],
            "%s cannot be asked: %s." % (manager, state["error"]),
            "Run %s on the node." % ("dpkg-query -W" if manager == "dpkg" else "rpm -qa"),
        )
    else:
        yield finding("dpkg_interrupted", "node", PASS, [], [])


def runfile_remains(facts, target, expect_loaded) -> Iterator:
    paths = facts["runfile"]
    if paths:
        yield finding(
            "runfile_remains",
            "node",
            FAIL,
            paths,
            [],
            "The driver was once installed with NVIDIA's .run installer: %s." % ", ".join(paths),
            "Run nvidia-uninstall and remove the log, or the packages and the .run files overwrite each other: "
            "docs/migration.md.",
        )
    else:
        yield finding("runfile_remains", "node", PASS, [], [])


def driver_owner(facts, target, expect_loaded) -> Iterator:
    owner, signs = facts["operator"]["owner"], facts["operator"]["signs"]
    if owner is None:
        yield finding(
            "driver_owner",
            "node",
            UNKNOWN,
            signs,
            "the node itself",
            "Whether a GPU Operator brings the driver cannot be read: %s." % ", ".join(signs),
            "Look at /run/nvidia on the node as root.",
        )
    elif owner:
        message = (
            "A GPU Operator brings this node's driver in a container (%s): packages of the node would fight it."
            % "; ".join(signs)
        )
        yield finding("driver_owner", "node", FAIL, signs, "the node itself", message, gpu_operator.NEXT_STEP)
    else:
        yield finding("driver_owner", "node", PASS, signs, "the node itself")


def driver_packages(facts) -> dict[str, str]:
    """Version of every installed package that must be of the driver's version."""
    packages = facts["dpkg"]["packages"]
    return dict(
        (name, versions.upstream(item["version"]))
        for name, item in packages.items()
        if dpkg.is_driver_package(name, item)
    )


def target_version(facts, wanted_version=None) -> str | None:
    """The driver version the node is meant to have: the wanted one's, or the one that what is installed speaks for.

    None of nothing.
    """
    if wanted_version:
        return versions.upstream(wanted_version)
    packages = driver_packages(facts)
    kernel_side = [version for name, version in packages.items() if KERNEL_SIDE.search(name)]
    on_disk = [item["version"] for item in facts["modules"].values() if item and item["version"]]
    built = [entry["version"] for entry in facts["dkms"]["entries"]]
    for group in (
        kernel_side,
        list(packages.values()),
        on_disk,
        built,
        [facts["library"]["version"]],
        [facts["loaded"]["version"]],
    ):
        known = sorted(value for value in group if value)
        if known:
            return Counter(known).most_common(1)[0][0]
    return None


def package_version(facts) -> str | None:
    """The version of the packages that bring the kernel module, revision and all; None when there is none or they
    differ.
    """
    found = set(
        item["version"]
        for name, item in facts["dpkg"]["packages"].items()
        if KERNEL_SIDE.search(name) and dpkg.is_driver_package(name, item)
    )
    return found.pop() if len(found) == 1 else None


def package_revision(facts, target, wanted_version) -> Iterator:
    """Return whether the packages are the very ones that were asked for: two revisions of a driver version may differ
    in their patches.
    """
    if not versions.names_package(wanted_version) or not facts["dpkg"]["available"]:
        return
    packages = facts["dpkg"]["packages"]
    sources = set(
        item["source"]
        for name, item in packages.items()
        if KERNEL_SIDE.search(name) and dpkg.is_driver_package(name, item)
    )
    seen = dict(
        (name, item["version"])
        for name, item in packages.items()
        if item["source"] in sources and dpkg.is_driver_package(name, item)
    )
    odd = sorted(name for name, version in seen.items() if version != wanted_version)
    if odd or not seen:
        parts = (
            ", ".join("%s is %s" % (name, seen[name]) for name in odd)
            or "no package with a kernel module of the driver is installed"
        )
        yield finding(
            "package_revision",
            "node",
            FAIL,
            seen,
            wanted_version,
            "Not every package of the driver is %s: %s." % (wanted_version, parts),
            "Install the set of exactly that package version, or ask for the driver version %s alone." % target,
        )
    else:
        yield finding("package_revision", "node", PASS, seen, wanted_version)


def polygon(facts, expect_loaded) -> dict[str, str]:
    """Every version the node shows, by where it was seen."""
    seen = {}
    if expect_loaded and facts["loaded"]["state"] == "loaded":
        seen["loaded module"] = facts["loaded"]["version"]
    if facts["library"]["version"]:
        seen["library libnvidia-ml"] = facts["library"]["version"]
    for kernel, item in facts["modules"].items():
        if item and item["version"]:
            seen["module for kernel %s" % kernel] = item["version"]
    for name, version in driver_packages(facts).items():
        seen["package %s" % name] = version
    return seen


def versions_agree(facts, target, expect_loaded, wanted_version=None) -> Iterator:
    seen = polygon(facts, expect_loaded)
    if target is None:
        yield finding(
            "versions_agree",
            "node",
            FAIL,
            {},
            "an installed driver",
            "No NVIDIA driver is installed: no package, no kernel module, no library.",
            "Install the driver.",
        )
        return
    common = (
        versions.upstream(wanted_version or "") or Counter(sorted(seen.values())).most_common(1)[0][0]
        if seen
        else target
    )
    odd = sorted(name for name, version in seen.items() if version != common)
    if odd:
        parts = ", ".join("%s is %s" % (name, seen[name]) for name in odd)
        yield finding(
            "versions_agree",
            "node",
            FAIL,
            seen,
            common,
            "Not every part of the driver is %s: %s." % (common, parts),
            "Install one coherent set of the wanted version, then load it or reboot.",
        )
    elif not facts["library"]["version"] and not facts["library"]["candidates"]:
        yield finding(
            "versions_agree",
            "node",
            FAIL,
            seen,
            common,
            "The library libnvidia-ml is not installed.",
            "Install the driver's libraries of version %s." % common,
        )
    elif not facts["library"]["version"]:
        yield finding(
            "versions_agree",
            "node",
            UNKNOWN,
            dict(seen, candidates=facts["library"]["candidates"]),
            common,
            "Several versions of libnvidia-ml are on disk and no link says which one is used.",
            "Remove the one that no package owns (dpkg -S PATH).",
        )
    elif not facts["dpkg"]["available"]:
        yield finding(
            "versions_agree",
            "node",
            UNKNOWN,
            seen,
            common,
            "The installed packages cannot be read: %s." % facts["dpkg"]["error"],
            "Run rpm -qa on the node." if facts["dpkg"].get("manager") == "rpm" else "Run dpkg-query -W on the node.",
        )
    elif expect_loaded and facts["loaded"]["state"] == "unknown":
        yield finding(
            "versions_agree",
            "node",
            UNKNOWN,
            seen,
            common,
            "Which driver is loaded cannot be read.",
            "Look at /proc/driver/nvidia/version on the node.",
        )
    else:
        yield finding("versions_agree", "node", PASS, seen, common)
