# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""Deciding about driver packages: which set belongs together, and which transaction may be run.

Nothing here reads or changes a machine. The index is ``{name: [record, ...]}`` and the installed packages are
``{name: {"version", "source", "hold", "ok", ...}}``, both as read by ``_driver.apt``.
"""

from __future__ import annotations

import re

from ._sets import (
    APART_NAME_PATTERN,
    DKMS_BUILD_MIB,
    DKMS_MODULES_MIB,
    DRIVER_NAME_PATTERN,
    DRIVER_SOURCE_PATTERN,
    DRIVER_VERSION_PATTERN,
    KERNEL_NAME_PATTERN,
    SETS,
)
from .versions import Key, upstream

MIB = 1024 * 1024


# --- belonging -------------------------------------------------------------------------------------------------------

def is_driver_package(name, version, source=None):
    """Whether a package carries the version of an NVIDIA driver of any family."""
    plain = name.split(":", 1)[0]
    if source and source != plain and re.match(DRIVER_SOURCE_PATTERN, source):
        return True
    if re.match(APART_NAME_PATTERN, plain) or (source and source != plain):
        return False
    return bool(re.match(DRIVER_NAME_PATTERN, plain) and re.match(DRIVER_VERSION_PATTERN, upstream(version)))


# --- the set --------------------------------------------------------------------------------------------------------

def table_for(os_release):
    """The data of an operating system, or None when it is not supported."""
    return SETS.get((os_release.get("ID", ""), os_release.get("VERSION_ID", "")))


def supported_text():
    return ", ".join("%s %s" % key for key in sorted(SETS))


def refusal(ident, packages, found, expected, message, next_step):
    return {"id": ident, "packages": sorted(packages), "found": found, "expected": expected, "message": message, "next_step": next_step}


def family(table, record):
    return record["source"] in table["sources"]


def available(table, index, flavour=None):
    """Versions of the kernel module package that can be downloaded, newest first."""
    roots = [flavour] if flavour else sorted(table["flavours"])
    found = set()
    for name in roots:
        for record in index.get(table["flavours"][name]["root"], []):
            if record["downloadable"] and family(table, record):
                found.add(record["version"])
    return sorted(found, key=Key, reverse=True)


def installed_driver(table, installed):
    """Names of the driver's packages that are installed, whoever asked for them."""
    return sorted(name for name, have in installed.items() if have["installed"] and have["source"] in table["sources"])


def driver_versions(table, installed):
    return dict((name, installed[name]["version"]) for name in installed_driver(table, installed))


def matches(wanted, version):
    return version == wanted or upstream(version) == wanted


def other_flavours(table, flavour):
    return set(name for key, data in table["flavours"].items() if key != flavour for name in data["packages"])


def resolve(table, index, installed, wanted, flavour="proprietary", extra=()):
    """The exact set of packages for a driver version on this system.

    Answers ``{"resolvable", "version", "upstream", "packages", "sources", "dkms_name", "dkms_version", "available",
    "obsolete", "refusals"}``. Packages of the driver that are installed already belong to the set, whoever installed them.
    """
    data = table["flavours"][flavour]
    known = available(table, index, flavour)
    result = {
        "resolvable": False, "wanted": wanted, "flavour": flavour, "version": None, "upstream": None, "packages": {},
        "dkms_name": data["dkms_name"], "dkms_version": None, "sources": {}, "available": known, "obsolete": [], "refusals": [],
    }
    obsolete = other_flavours(table, flavour)
    result["obsolete"] = [name for name in installed_driver(table, installed) if name in obsolete]
    current = installed.get(data["root"], {}).get("version")
    usable = [rec["version"] for rec in index.get(data["root"], []) if matches(wanted, rec["version"]) and (rec["downloadable"] or rec["version"] == current)]
    candidates = sorted(set(usable), key=lambda version: (version == current, Key(version)), reverse=True)
    if not candidates:
        result["refusals"].append(unknown_version(table, index, wanted, flavour, known))
        return result
    roots = [data["root"]] + list(table["roots"]) + list(extra)
    roots += [name for name in installed_driver(table, installed) if name not in obsolete]
    attempts = [(version,) + closure(table, index, installed, anchor(index, data["root"], version), roots, obsolete) for version in candidates]
    complete = [item for item in attempts if not item[2]]
    version, packages, missing = (complete or attempts)[0]
    result.update(version=version, upstream=upstream(version), dkms_version=upstream(version))
    if missing:
        result["refusals"].append(partly_available(version, packages, missing))
        return result
    sources = dict((source_of(name, packages[name], installed, index), packages[name]) for name in packages)
    result.update(resolvable=True, packages=packages, sources=sources)
    return result


def anchor(index, root, version):
    """``(version, source package)`` that the rest of the set is chosen by."""
    return version, next(record["source"] for record in index[root] if record["version"] == version)


def closure(table, index, installed, target, roots, excluded):
    """``(packages, missing)``: what the roots need of the driver's own packages, each at exactly one version."""
    packages, missing = {}, {}
    providers = {}
    for name, records in index.items():
        record = pick(table, records, installed.get(name), target)
        if record and name not in excluded:
            for provided in record["provides"]:
                providers.setdefault(provided, name)
    queue = list(dict.fromkeys(roots))
    while queue:
        name = queue.pop(0)
        if name in packages or name in missing:
            continue
        record = pick(table, index.get(name, []), installed.get(name), target)
        if record is None:
            missing[name] = sorted((rec["version"] for rec in index.get(name, [])), key=Key, reverse=True)
            continue
        packages[name] = record["version"]
        for group in record["depends"]:
            chosen = choose(table, index, installed, target, group, providers, excluded)
            if chosen:
                queue.append(chosen)
    return packages, missing


def pick(table, records, have, target):
    """The driver's record at the target's version; a binary of another driver source counts when its upstream version agrees."""
    version, source = target
    fitting = [rec for rec in records if family(table, rec) and upstream(rec["version"]) == upstream(version)
               and (rec["downloadable"] or (have and have["version"] == rec["version"]))
               and (rec["version"] == version or rec["source"] != source)]
    return max(fitting, key=lambda rec: (rec["version"] == version, Key(rec["version"])), default=None)


def choose(table, index, installed, target, group, providers, excluded):
    """Which package of the driver answers a dependency; None when the dependency is none of the driver's business."""
    for name in group:
        if name not in excluded and pick(table, index.get(name, []), installed.get(name), target):
            return name
        if name in providers:
            return providers[name]
    families = [name for name in group if name not in excluded and any(family(table, rec) for rec in index.get(name, []))]
    return families[0] if families and len(families) == len(group) else None


def unknown_version(table, index, wanted, flavour, known):
    others = {}
    for name in table["flavours"]:
        if name != flavour and any(matches(wanted, version) for version in available(table, index, name)):
            others[name] = wanted
    root = table["flavours"][flavour]["root"]
    if known:
        found = "available: %s" % ", ".join(known)
        step = "ask for one of the available versions, or add the repository that has %s and update the package index" % wanted
    else:
        found = "the package index has no version of %s" % root
        step = "configure the driver's repository (role gpufleet.lifecycle.nvidia_repository) and update the package index"
    if others:
        found += "; with flavour %s it is available" % ", ".join(sorted(others))
    message = "Driver version %s (flavour %s) is not available on this node: %s." % (wanted, flavour, found)
    return refusal("unknown_version", [root], found, wanted, message, step)


def partly_available(version, packages, missing):
    found = "; ".join("%s: %s" % (name, "has %s" % ", ".join(versions) if versions else "not in the index") for name, versions in sorted(missing.items()))
    message = "Only a part of driver %s is available: %s cannot be had at that version (%s), %d other packages can." % (
        version, ", ".join(sorted(missing)), found, len(packages))
    return refusal("partly_available", missing, found, version, message,
                   "choose a version all of whose packages are published, or mirror the missing packages")


# --- the node -------------------------------------------------------------------------------------------------------

def decide_needs(wanted, gpus, headers):
    """Refusals of a node without what is WANTED. ``gpus``: those on the bus, None when it cannot be read; ``headers``: by kernel that can boot."""
    refusals = []
    if "gpu" in wanted and not gpus:
        found = "the PCI bus cannot be read" if gpus is None else "none on the PCI bus"
        refusals.append(refusal(
            "no_gpu", [], found, "an NVIDIA GPU", "No NVIDIA GPU was found: %s." % found,
            "look at the hardware, or leave gpu out of what is required"))
    if "headers" in wanted and not headers:
        refusals.append(refusal(
            "no_kernel", [], "no kernel", "a kernel that can boot", "No kernel that can boot was found in /boot and /lib/modules.", "install one"))
    missing = [kernel for kernel in headers if not headers[kernel]] if "headers" in wanted else []
    if missing:
        packages = ["linux-headers-%s" % kernel for kernel in missing]
        refusals.append(refusal(
            "no_headers", packages, "no headers for %s" % ", ".join(missing), "headers for every kernel that can boot",
            "The headers are missing for kernel %s, so that no module can be built for it." % ", ".join(missing),
            "install %s, or remove the kernel" % " ".join(packages)))
    return refusals


# --- the transaction ------------------------------------------------------------------------------------------------

def final_state(installed, transaction):
    """``{name: version}`` as it would be after the transaction."""
    state = dict((name, have["version"]) for name, have in installed.items() if have["installed"])
    for item in transaction["remove"]:
        state.pop(item["name"], None)
    for kind in ("install", "upgrade", "downgrade", "reinstall"):
        for item in transaction[kind]:
            state[item["name"]] = item["version"]
    return state


def is_empty(transaction):
    return not any(transaction[kind] for kind in ("install", "upgrade", "downgrade", "reinstall", "remove"))


def decide_transaction(transaction, wanted, installed, index, removable=()):
    """Refusals for a simulated transaction: ``[]`` when it may be run. ``wanted`` is ``{name: exact version}``."""
    refusals = []
    after = final_state(installed, transaction)
    changed = [item for kind in ("install", "upgrade", "downgrade", "reinstall") for item in transaction[kind]]
    kernel = sorted(set(item["name"] for item in changed + transaction["remove"] if re.match(KERNEL_NAME_PATTERN, item["name"])))
    if kernel:
        refusals.append(refusal(
            "kernel_change", kernel, ", ".join(kernel), "no kernel package changes",
            "The transaction would change kernel packages: %s. A driver change never changes the kernel." % ", ".join(kernel),
            "bring the kernel and its headers to the wanted version in a step of their own, hold them, and run again"))
    removed = sorted(item["name"] for item in transaction["remove"] if item["name"] not in removable and item["name"] not in wanted)
    if removed:
        refusals.append(refusal(
            "removal", removed, "would be removed: %s" % ", ".join(removed), "nothing outside the driver is removed",
            "The transaction would remove packages that are not the driver's: %s." % ", ".join(removed),
            "find what conflicts with the driver (apt-get -s install with the resolved set), or name the packages in allow_removal"))
    mixed = dict((name, version) for name, version in after.items()
                 if name not in wanted and is_driver_package(name, version, source_of(name, version, installed, index)))
    if mixed and wanted:
        listing = ", ".join("%s %s" % item for item in sorted(mixed.items()))
        versions = sorted(set(upstream(version) for version in wanted.values()))
        refusals.append(refusal(
            "mixed_set", mixed, listing, ", ".join(versions),
            "The transaction would leave driver packages that do not belong to the resolved set for %s: %s. "
            "A transitional package or an alternative dependency brings them." % (", ".join(versions), listing),
            "ask for the version these packages have, or remove the package that needs them"))
    off = dict((name, after.get(name)) for name, version in wanted.items() if after.get(name) != version)
    if off:
        listing = ", ".join("%s %s (not %s)" % (name, off[name] or "absent", wanted[name]) for name in sorted(off))
        refusals.append(refusal(
            "not_exact", off, listing, "exactly the resolved versions",
            "The transaction would not bring the resolved versions: %s." % listing,
            "look at apt-cache policy of these packages; a pin or a hold of another tool may be in the way"))
    return refusals


def source_of(name, version, installed, index):
    for record in index.get(name, []):
        if record["version"] == version:
            return record["source"]
    have = installed.get(name)
    return have["source"] if have and have["version"] == version else None


def differences(installed, wanted):
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

def disk_needs(download_bytes, installed_delta_bytes, kernels, initrd_bytes, with_build=True):
    """Bytes a change needs below each path, generously: ``{path: bytes}``."""
    builds = max(1, kernels) if with_build else 0
    return {
        "/var/cache/apt/archives": max(0, download_bytes),
        "/usr": max(0, installed_delta_bytes),
        "/var/lib/dkms": builds * DKMS_BUILD_MIB * MIB,
        "/lib/modules": builds * DKMS_MODULES_MIB * MIB,
        "/boot": 2 * initrd_bytes if with_build else 0,
    }


def decide_disk(needs, filesystems, min_free_bytes):
    """``needs`` is ``{path: bytes}``, ``filesystems`` ``{path: {"device", "mount", "free"}}``; paths on one file system add up."""
    refusals = []
    grouped = {}
    for path, need in needs.items():
        if need <= 0:
            continue
        system = filesystems.get(path)
        if system is None:
            refusals.append(refusal("disk_unknown", [], path, "free space can be read", "The free space of %s cannot be read." % path,
                                    "look at the file system of %s on the node" % path))
            continue
        group = grouped.setdefault(system["device"], {"need": 0, "paths": [], "free": system["free"]})
        group["need"] += need
        group["paths"].append(path)
    for group in grouped.values():
        if group["free"] - group["need"] < min_free_bytes:
            paths = ", ".join(sorted(group["paths"]))
            found = "%d MiB free" % (group["free"] // MIB)
            expected = "%d MiB for the change and %d MiB left over" % (-(-group["need"] // MIB), min_free_bytes // MIB)
            refusals.append(refusal(
                "disk", [], found, expected,
                "Not enough disk space on the file system of %s: %s, needed are %s." % (paths, found, expected),
                "free space there (old kernels, apt-get clean), then run again"))
    return refusals


# --- pin ------------------------------------------------------------------------------------------------------------

def render_pin(table, versions):
    """An apt preferences file that allows exactly one driver, and no other driver family.

    ``versions`` is ``{source package: version}``; a source of the driver that is not in it is not allowed at all.
    """
    own = " ".join("src:%s" % name for name in table["sources"])
    blocked = " ".join("src:%s" % name for name in table["blocked_sources"])
    lines = ["Explanation: written by gpufleet.lifecycle (driver_packages); changes are overwritten."]
    for source in table["sources"]:
        if source in versions:
            lines += [
                "Explanation: the driver's packages, by source package, are allowed at this version alone.",
                "Package: src:%s" % source, "Pin: version %s" % versions[source], "Pin-Priority: 1001", "",
            ]
    lines += [
        "Explanation: every other version, and every other driver family of the archive, is not.",
        "Package: %s %s" % (own, blocked), "Pin: version *", "Pin-Priority: -1", "",
    ]
    return "\n".join(lines)


def action_sentences(transaction):
    """The transaction in words, one sentence per kind."""
    sentences = []
    for kind, verb in (("install", "install"), ("upgrade", "upgrade"), ("downgrade", "downgrade"), ("reinstall", "install again"), ("remove", "remove")):
        items = transaction[kind]
        if items:
            sentences.append("%s %d packages: %s" % (verb, len(items), ", ".join(in_words(item) for item in items)))
    return sentences


def in_words(item):
    if item.get("from") and item["from"] != item["version"]:
        return "%s %s -> %s" % (item["name"], item["from"], item["version"])
    return ("%s %s" % (item["name"], item["version"])).strip()
