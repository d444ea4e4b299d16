# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deciding whether a simulated transaction may be run, the same for every package manager.

A transaction is ``{"install", "upgrade", "downgrade", "reinstall", "remove": [{"name", "version", ["from"]}]}`` and may
have ``"streams": {module: (old, new)}``. Nothing here reads or changes a machine.
"""

from __future__ import annotations

import re

from .._dkms.dkms import DKMS_BUILD_MIB
from .._node.dpkg import is_side_by_side
from .._node.versions import upstream
from .driver_tables import DKMS_MODULES_MIB, KERNEL_NAME_PATTERN
from .package_state import make_refusal
from .systems import is_driver_package, source_of

MIB = 1024 * 1024
CHANGES = ("install", "upgrade", "downgrade", "reinstall")
KINDS = CHANGES + ("remove",)

# What the package managers call their own ways to look deeper.
WORDS = {
    "apt": {
        "conflict": "apt-get -s install with the resolved set",
        "policy": "apt-cache policy",
        "clean": "apt-get clean",
        "cache": "/var/cache/apt/archives",
        "holds": "apt-mark showhold and apt-cache policy",
        "repair": "dpkg",
        "finish": "dpkg --configure -a",
        "by_hand": "run dpkg --configure -a, and install what it calls half-installed again",
        "hold": "apt-mark",
    },
    "dnf": {
        "conflict": "dnf --assumeno install with the resolved set",
        "policy": "dnf repoquery --showduplicates",
        "clean": "dnf clean packages",
        "cache": "/var/cache/dnf",
        "holds": "dnf versionlock list and dnf repoquery --showduplicates",
        "repair": "rpm",
        "finish": "rpm -e of the older version",
        "by_hand": "see dnf check, remove the older version of each with rpm -e, which refuses what others depend on",
        "hold": "the version lock list",
    },
}


def make_empty() -> dict:
    return dict((kind, []) for kind in KINDS)


def is_empty(transaction: dict) -> bool:
    return not any(transaction[kind] for kind in KINDS) and not transaction.get("streams")


def final_state(installed, transaction) -> dict[str, str]:
    """``{name: version}`` as it would be after the transaction; of what lies there twice, what is not removed stays."""
    state, removed = {}, set((item["name"], item["version"]) for item in transaction["remove"])
    for name, have in installed.items():
        left = [version for version in [have["version"]] + have.get("more", []) if (name, version) not in removed]
        if have["installed"] and left and (name, "") not in removed:
            state[name] = left[0]
    for kind in CHANGES:
        for item in transaction[kind]:
            state[item["name"]] = item["version"]
    return state


def decide_transaction(transaction, wanted, installed, index, removable=(), table=None) -> list[dict]:
    """Refusals for a simulated transaction: ``[]`` when it may be run. ``wanted`` is ``{name: exact version}``."""
    words = WORDS[table["package_manager"] if table else "apt"]
    after = final_state(installed, transaction)
    changed = [item for kind in CHANGES for item in transaction[kind]]
    refusals = refuse_kernel_change(changed + transaction["remove"])
    refusals += refuse_removal(transaction["remove"], wanted, removable, words)
    refusals += refuse_held(changed + transaction["remove"], wanted, installed, removable, table)
    refusals += refuse_mixed_set(after, wanted, installed, index, table)
    refusals += refuse_inexact(after, wanted, words)
    return refusals


def refuse_kernel_change(items) -> list[dict]:
    kernel = sorted(set(item["name"] for item in items if re.match(KERNEL_NAME_PATTERN, item["name"])))
    if not kernel:
        return []
    return [
        make_refusal(
            "kernel_change",
            kernel,
            ", ".join(kernel),
            "no kernel package changes",
            "The transaction would change kernel packages: %s. A driver change never changes the kernel."
            % ", ".join(kernel),
            "bring the kernel and its headers to the wanted version in a step of their own, hold them, and run again",
        )
    ]


def refuse_removal(items, wanted, removable, words) -> list[dict]:
    removed = sorted(item["name"] for item in items if item["name"] not in removable and item["name"] not in wanted)
    if not removed:
        return []
    return [
        make_refusal(
            "removal",
            removed,
            "would be removed: %s" % ", ".join(removed),
            "nothing outside the driver is removed",
            "The transaction would remove packages that are not the driver's: %s." % ", ".join(removed),
            "find what conflicts with the driver (%s), or name the packages in allow_removal" % words["conflict"],
        )
    ]


def refuse_held(items, wanted, installed, removable, table) -> list[dict]:
    """Refuse to change what is held for another reason; holds of the driver's own packages are this change's to lift
    and put back.
    """
    names = set(item["name"] for item in items if item["name"] not in wanted and item["name"] not in removable)
    found = sorted(
        name
        for name in names
        if installed.get(name, {}).get("hold")
        and not re.match(KERNEL_NAME_PATTERN, name)
        and not is_driver_package(name, installed[name]["version"], installed[name]["source"], table)
    )
    if not found:
        return []
    return [
        make_refusal(
            "held",
            found,
            "held: %s" % ", ".join(found),
            "no package that is held for another reason changes",
            "The transaction would change packages that are held and not the driver's: %s." % ", ".join(found),
            "lift the hold of %s if the change is meant, or choose a driver version that does without it"
            % ", ".join(found),
        )
    ]


def refuse_mixed_set(after, wanted, installed, index, table) -> list[dict]:
    mixed = dict(
        (name, version)
        for name, version in after.items()
        if name not in wanted
        and not is_side_by_side(name, version)
        and is_driver_package(name, version, source_of(name, version, installed, index), table)
    )
    if not mixed or not wanted:
        return []
    listing = ", ".join("%s %s" % item for item in sorted(mixed.items()))
    versions = sorted(set(upstream(version) for version in wanted.values()))
    return [
        make_refusal(
            "mixed_set",
            mixed,
            listing,
            ", ".join(versions),
            "The transaction would leave driver packages that do not belong to the resolved set for %s: %s. "
            "A transitional package or an alternative dependency brings them." % (", ".join(versions), listing),
            "ask for the version these packages have, or remove the package that needs them",
        )
    ]


def refuse_inexact(after, wanted, words) -> list[dict]:
    off = dict((name, after.get(name)) for name, version in wanted.items() if after.get(name) != version)
    if not off:
        return []
    listing = ", ".join("%s %s (not %s)" % (name, off[name] or "absent", wanted[name]) for name in sorted(off))
    return [
        make_refusal(
            "not_exact",
            off,
            listing,
            "exactly the resolved versions",
            "The transaction would not bring the resolved versions: %s." % listing,
            "look at %s of these packages; a pin or a hold of another tool may be in the way" % words["policy"],
        )
    ]


def find_differences(installed: dict[str, dict], wanted: dict[str, str]) -> dict[str, str]:
    """Packages that are not installed, configured and at their version: ``{name: what is there}``."""
    found = {}
    for name, version in wanted.items():
        have = installed.get(name)
        if not have or not have["installed"]:
            found[name] = "absent"
        elif have["version"] != version:
            found[name] = have["version"]
        elif not have["ok"]:
            found[name] = "%s (%s)" % (have["version"], have["status"])
    return found


# --- disk -----------------------------------------------------------------------------------------------------------

# Inodes: the source of NVIDIA's module and what is compiled of it are about 2,000 files, its packages some hundreds;
# /boot gets an initrd or two.
FILES, BOOT_FILES = 5000, 16


def disk_paths(manager: str = "apt") -> tuple[str, ...]:
    """The directories that a change writes below: the archives, the packages, the DKMS build, its modules, and the
    initrd.
    """
    return WORDS[manager]["cache"], "/usr", "/var/lib/dkms", "/lib/modules", "/boot"


def disk_needs(
    download_bytes: int,
    installed_delta_bytes: int | None,
    kernels: int,
    initrd_bytes: int,
    with_build: bool = True,
    manager: str = "apt",
) -> dict[str, int | None]:
    """Bytes a change needs below each path, generously: ``{path: bytes}``.

    A path that is written and need not grow is 0, one left alone is None.

    ``installed_delta_bytes`` is by how much the installed packages grow, None where none changes.
    """
    builds = max(1, kernels) if with_build else 0
    return dict(
        zip(
            disk_paths(manager),
            (
                download_bytes or None,
                None if installed_delta_bytes is None else max(0, installed_delta_bytes),
                builds * DKMS_BUILD_MIB * MIB or None,
                builds * DKMS_MODULES_MIB * MIB or None,
                2 * initrd_bytes if with_build else None,
            ),
        )
    )


def decide_disk(
    needs: dict[str, int | None],
    filesystems: dict,
    min_free_bytes: int,
    manager: str = "apt",
    min_free_boot_bytes: int | None = None,
    min_free_var_bytes: int | None = None,
) -> list[dict]:
    """``needs`` is as ``disk_needs`` answers, ``filesystems`` as ``Manager.filesystems``; paths on one file system add
    up.

    A file system that holds nothing but /boot keeps ``min_free_boot_bytes``, one that holds nothing but what is below
    /var ``min_free_var_bytes``; one that holds more obeys the larger limit. None: ``min_free_bytes``.
    """
    limits = {"/boot": min_free_boot_bytes, "/var": min_free_var_bytes}
    refusals = []
    grouped = {}
    for path, need in needs.items():
        if need is None:
            continue
        system = filesystems.get(path)
        if system is None:
            refusals.append(
                make_refusal(
                    "disk_unknown",
                    [],
                    path,
                    "free space can be read",
                    "The free space of %s cannot be read." % path,
                    "look at the file system of %s on the node" % path,
                )
            )
            continue
        if system.get("read_only"):
            refusals.append(
                make_refusal(
                    "disk_read_only",
                    [],
                    "%s is mounted read-only" % path,
                    "a file system that can be written",
                    "The file system of %s is mounted read-only, and the change writes there; nothing was changed."
                    % path,
                    "find out why (dmesg shows errors of the file system), mount it writable, then run again",
                )
            )
            continue
        group = grouped.setdefault(
            system["device"], {"need": 0, "paths": [], "free": system["free"], "files": system.get("files"), "limit": 0}
        )
        group["need"] += need
        limit = limits.get("/" + path.split("/")[1])
        group["limit"] = max(group["limit"], min_free_bytes if limit is None else limit)
        group["paths"].append(path)
    for group in grouped.values():
        refusals += _too_full(group, manager)
    return refusals


def _too_full(group, manager) -> list[dict]:
    """Refusals of one file system. One that only swaps files for others needs no room."""
    paths, clean, refusals = ", ".join(sorted(group["paths"])), WORDS[manager]["clean"], []
    if group["need"] > 0 and group["free"] - group["need"] < group["limit"]:
        found = "%d MiB free" % (group["free"] // MIB)
        expected = "%d MiB for the change and %d MiB left over" % (-(-group["need"] // MIB), group["limit"] // MIB)
        refusals.append(
            make_refusal(
                "disk",
                [],
                found,
                expected,
                "Not enough disk space on the file system of %s: %s, needed are %s." % (paths, found, expected),
                "free space there (old kernels, %s), then run again" % clean,
            )
        )
    least = FILES if group["paths"] != ["/boot"] else BOOT_FILES
    if group["need"] > 0 and group["files"] is not None and group["files"] < least:
        found, expected = "room for %d more files" % group["files"], "room for %d" % least
        refusals.append(
            make_refusal(
                "disk_files",
                [],
                found,
                expected,
                "The file system of %s has %s, needed is %s: it has no inodes left, whatever space it has."
                % (paths, found, expected),
                "look for many small files with du --inodes -x, remove them (%s), then run again" % clean,
            )
        )
    return refusals


# --- in words -------------------------------------------------------------------------------------------------------


def action_sentences(transaction: dict) -> list[str]:
    """The transaction in words, one sentence per kind."""
    sentences = [
        "switch module %s from stream %s to %s" % (name, old or "none", new)
        for name, (old, new) in sorted(transaction.get("streams", {}).items())
    ]
    for kind, verb in (
        ("install", "install"),
        ("upgrade", "upgrade"),
        ("downgrade", "downgrade"),
        ("reinstall", "install again"),
        ("remove", "remove"),
    ):
        items = transaction[kind]
        if items:
            sentences.append("%s %d packages: %s" % (verb, len(items), ", ".join(in_words(item) for item in items)))
    return sentences


def in_words(item: dict) -> str:
    if item.get("from") and item["from"] != item["version"]:
        return "%s %s -> %s" % (item["name"], item["from"], item["version"])
    return ("%s %s" % (item["name"], item["version"])).strip()
