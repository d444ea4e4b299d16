# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deciding which driver packages belong together: a wanted version to the exact set for a system.

Nothing here reads or changes a machine. The index is ``{name: [record, ...]}`` and the installed packages are
``{name: {"version", "source", "hold", "ok", ...}}``, both as read by ``_packages.apt`` or ``_packages.dnf``.
"""

from __future__ import annotations

import re

from .._node.versions import KEYS, upstream
from .closure import Closure
from .driver_family import family, matches, prebuilt, source_of
from .package_refusal import refusal
from .systems import branch_of, instantiate, variants


def available(table, index, flavour=None):
    """Versions of the kernel module that can be downloaded, of every branch, newest first."""
    found = set()
    for era in variants(table):
        for name in [flavour] if flavour else sorted(era["flavours"]):
            if name not in era["flavours"]:
                continue
            root = re.compile("^%s$" % era["flavours"][name]["root"])
            for package, records in index.items():
                if root.match(package):
                    found.update(
                        record["version"] for record in records if record["downloadable"] and family(era, record)
                    )
    return sorted(found, key=KEYS[table["package_manager"]], reverse=True)


def empty(table, wanted, flavour, known):
    data = table["flavours"].get(flavour, {})
    return {
        "resolvable": False,
        "wanted": wanted,
        "flavour": flavour,
        "origin": table["origin"],
        "version": None,
        "upstream": None,
        "packages": {},
        "dkms_name": data.get("dkms_name"),
        "dkms_version": None,
        "sources": {},
        "available": known,
        "obsolete": [],
        "stream": None,
        "rolling_stream": data.get("rolling_stream"),
        "refusals": [],
    }


def resolve(table, index, installed, wanted, flavour="proprietary", extra=(), kernels=(), components=()):
    """The exact set of packages for a driver version on this system.

    ``flavour`` is proprietary, open or either with ``-prebuilt``; ``kernels`` are those that prebuilt modules are
    wanted for, ``components`` the parts that this node needs beside the driver itself. Packages of the driver that are
    installed already belong to the set, however they were installed; those of another branch or flavour are
    ``obsolete`` where their names differ.
    """
    general, table = table, instantiate(table, branch_of(wanted))
    if flavour not in table["flavours"]:
        result = empty(table, wanted, flavour, [])
        result["refusals"].append(impossible(table, flavour))
        return result
    data = table["flavours"][flavour]
    result = empty(table, wanted, flavour, available(general, index, flavour))
    module = table.get("module")
    result["stream"] = "%s:%s" % (module, data["stream"]) if module else None
    current = installed.get(data["root"], {}).get("version")
    usable = [
        rec["version"]
        for rec in index.get(data["root"], [])
        if matches(wanted, rec["version"]) and family(table, rec) and (rec["downloadable"] or rec["version"] == current)
    ]
    key = KEYS[table["package_manager"]]
    candidates = sorted(set(usable), key=lambda version: (version == current, key(version)), reverse=True)
    chosen, refused = named_components(table, index, components)
    result["refusals"] += refused
    if not candidates:
        result["refusals"].append(unknown_version(general, table, index, wanted, flavour, result["available"]))
    if result["refusals"]:
        return result
    attempts = [
        Closure(table, index, installed, version, flavour, kernels).run(list(extra) + chosen, general)
        for version in candidates
    ]
    best = next((attempt for attempt in attempts if not attempt.missing), attempts[0])
    result.update(
        version=best.version,
        upstream=upstream(best.version),
        dkms_version=upstream(best.version) if data["dkms_name"] else None,
    )
    result["obsolete"] = best.obsolete
    if best.missing:
        result["refusals"] += best.refusals()
        return result
    plain = dict((name, version) for name, version in best.packages.items() if not prebuilt(table, name))
    sources = dict((source_of(name, version, installed, index), version) for name, version in plain.items())
    result.update(resolvable=True, packages=best.packages, sources=sources)
    return result


def named_components(table, index, components):
    """``(names, refusals)`` of the parts that were asked for."""
    names, refused = [], []
    for component in components:
        choices = table["components"].get(component)
        if not choices:
            why = table["no_component"].get(component, "it is not known")
            refused.append(
                refusal(
                    "no_component",
                    [],
                    component,
                    ", ".join(sorted(table["components"])) or "none",
                    "Component %s cannot be had from %s: %s." % (component, table["name"], why),
                    "leave the component out, or use another source of packages",
                )
            )
            continue
        names.append(next((name for name in choices if name in index), choices[0]))
    return names, refused


def impossible(table, flavour):
    known = ", ".join(sorted(table["flavours"]))
    why = table["impossible"].get(flavour, "it is not known here")
    return refusal(
        "impossible_flavour",
        [],
        flavour,
        known,
        "Flavour %s cannot be had from %s: %s." % (flavour, table["name"], why),
        "use one of: %s" % known,
    )


def no_stream(resolved, module, name, known):
    return refusal(
        "no_stream",
        [],
        ", ".join(sorted(known)),
        name,
        "Driver %s of flavour %s has no module stream: %s has %s and not %s."
        % (resolved["version"], resolved["flavour"], module, ", ".join(sorted(known)), name),
        "use a flavour or a driver branch that has a stream, or a mirror with it",
    )


def unknown_version(general, table, index, wanted, flavour, known):
    others = [
        name
        for name in sorted(table["flavours"])
        if name != flavour and any(matches(wanted, version) for version in available(general, index, name))
    ]
    root = table["flavours"][flavour]["root"]
    if known:
        found = "available: %s" % ", ".join(known)
        step = (
            "ask for one of the available versions, or add the repository that has %s and update the package index"
            % wanted
        )
    else:
        found = "the package index has no version of %s" % root
        step = (
            "configure the driver's repository (role gpufleet.lifecycle.nvidia_repository) and update the package index"
        )
    if others:
        found += "; with flavour %s it is available" % ", ".join(others)
    message = "Driver version %s (flavour %s) is not available on this node: %s." % (wanted, flavour, found)
    return refusal("unknown_version", [root], found, wanted, message, step)
