# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which driver packages belong together: a wanted version to the exact set for a system.

Nothing here reads or changes a machine. The index is ``{name: [record, ...]}`` and the installed packages are
``{name: {"version", "source", "hold", "ok", ...}}``, both as read by ``_packages.apt`` or ``_packages.dnf``.
"""

from __future__ import annotations

import re

from .._node.dpkg import is_side_by_side
from .._node.versions import KEYS, upstream
from .package_state import make_refusal
from .systems import (
    branch_of,
    driver_of,
    installed_driver,
    instantiate_table,
    is_driver_package,
    is_family_record,
    is_member,
    is_other_flavour,
    is_prebuilt,
    list_variants,
    matches_version,
    other_flavours,
    source_of,
)


class Closure:
    """The driver's own packages that a version needs, each at exactly one version."""

    def __init__(self, table, index, installed, version, flavour, kernels, bootable) -> None:
        self.table, self.index, self.installed = table, index, installed
        self.version, self.flavour = version, flavour
        self.data = table["flavours"][flavour]
        self.key = KEYS[table["package_manager"]]
        self.source = next(record["source"] for record in index[self.data["root"]] if record["version"] == version)
        self.packages, self.missing, self.needed_by, self.obsolete, self.providers = {}, {}, {}, [], {}
        self.unwanted = other_flavours(table, flavour)
        rest = [kernel for kernel in bootable if kernel not in kernels and self.pick(self.name_module(kernel))]
        self.kernels = list(kernels) + rest

    def run(self, extra, general) -> Closure:
        installed = [name for name in installed_driver(general, self.installed) if not self.lies_beside(name)]
        self.obsolete = [
            name
            for name in installed
            if is_other_flavour(general, self.flavour, name) or not self.mine(name, self.installed[name])
        ]
        self.unwanted |= set(name for name in self.obsolete if is_other_flavour(general, self.flavour, name))
        excluded = set(self.obsolete) | self.unwanted
        roots = [self.data["root"]] + list(self.table["roots"]) + self.modules() + extra
        roots += [name for name in self.table.get("optional_roots", ()) if self.pick(name)]
        roots += [
            name for name in installed if name not in excluded and not is_prebuilt(self.table, name)
        ] + self.find_carried(excluded, general)
        for name in self.index:
            if name not in excluded:
                for provided in (self.pick(name) or {"provides": ()})["provides"]:
                    self.providers.setdefault(provided, []).append(name)
        self.walk([(name, None, None) for name in dict.fromkeys(roots)], excluded)
        return self

    def lies_beside(self, name) -> bool:
        """Return whether an installed package is another version's by its name, and stays beside this one."""
        version = self.installed[name]["version"]
        return is_side_by_side(name, version) and upstream(version) != upstream(self.version)

    def mine(self, name, have) -> bool:
        """Return whether an installed package is of this branch's names and of this way to have modules."""
        if is_prebuilt(self.table, name):
            modules = self.modules()
            return (
                name in modules
                or name in ["linux-signatures-nvidia-%s" % kernel for kernel in self.kernels if modules]
                or name.replace("-objects-", "-modules-", 1) in modules
            )
        return is_member(self.table, name, have["source"], have["version"])

    def find_carried(self, excluded, general) -> list[str]:
        """Return what takes the place of packages of another branch: a part that the node has, such as the fabric
        manager, is not lost.
        """
        found = []
        for name in self.obsolete:
            named = re.match(r"^(.*?)-[0-9]{3}(-server)?(-open)?$", name)
            if not named or is_other_flavour(general, self.flavour, name) or is_prebuilt(self.table, name):
                continue
            rest = "".join(part or "" for part in named.groups()[1:])
            choices = ["%s-%s%s" % (named.group(1), branch_of(self.version), rest), named.group(1)]
            chosen = next((choice for choice in choices if choice in self.index), choices[0])
            if chosen not in excluded:
                found.append(chosen)
        return found

    def modules(self) -> list[str]:
        """The packages of prebuilt modules, one for every kernel."""
        return [self.name_module(kernel) for kernel in self.kernels if self.data.get("per_kernel")]

    def name_module(self, kernel) -> str:
        """The package of a kernel's prebuilt module; empty for a flavour that has none."""
        suffix = self.table.get("kernel_suffix", r"(?!)")
        template = self.data.get("per_kernel", "").replace("{version}", upstream(self.version))
        return template.replace("{kernel}", re.sub(suffix, "", kernel))

    def pick(self, name, exact=None) -> dict | None:
        """The record of a package that fits the version; a binary of another driver source counts when its upstream
        version agrees.
        """
        have = self.installed.get(name)
        fitting = []
        for record in self.index.get(name.split(":", 1)[0], []):  # the index is not told apart by architecture
            if not (record["downloadable"] or (have and have["version"] == record["version"])):
                continue
            if is_prebuilt(self.table, name):
                fits = record["version"] == exact if exact else driver_of(self.table, record) == upstream(self.version)
            else:
                fits = (
                    is_family_record(self.table, record)
                    and upstream(record["version"]) == upstream(self.version)
                    and (
                        record["version"] == self.version
                        or record["source"] != self.source
                        or self.table["package_manager"] == "dnf"
                    )
                )
            if fits:
                fitting.append(record)
        return max(
            fitting, key=lambda record: (record["version"] == self.version, self.key(record["version"])), default=None
        )

    def walk(self, queue, excluded) -> None:
        while queue:
            name, exact, owner = queue.pop(0)
            if name in self.packages or name in self.missing:
                continue
            record = self.pick(name, exact)
            if record is None:
                self.missing[name] = sorted(
                    (item["version"] for item in self.index.get(name, [])), key=self.key, reverse=True
                )
                self.needed_by[name] = owner
                continue
            self.packages[name] = record["version"]
            queued = [item[0] for item in queue]
            for group in record["relations"]:
                found = self.choose(group, excluded, queued)
                if found:
                    queue.append(found + (name,))

    def choose(self, group, excluded, queued) -> tuple[str, str | None] | None:
        """``(package, exact version)`` that answers a dependency; None when the dependency is none of the driver's
        business.
        """
        for name, operator, version in group:
            exact = version if operator == "=" and is_prebuilt(self.table, name) else None
            if name not in excluded and self.pick(name, exact):
                return name, exact
            if name in self.providers:
                providers = self.providers[name]
                return next((item for item in providers if item in self.packages or item in queued), providers[0]), None
        names = [name for name, operator, version in group]
        # Also one that is to be removed: a set that needs it cannot be had.
        ours = [name for name in names if name not in self.unwanted and self.a_driver_package(name)]
        return (ours[0], None) if ours and len(ours) == len(names) else None

    def a_driver_package(self, name) -> bool:
        return any(
            is_family_record(self.table, record) or is_driver_package(name, record["version"], record["source"])
            for record in self.index.get(name, [])
        )

    # why it cannot be had

    def refusals(self) -> list[dict]:
        modules = [name for name in self.modules() if name in self.missing]
        others = dict((name, self.missing[name]) for name in self.missing if name not in modules)
        trap = dict((name, self.needed_by[name]) for name in others if self.needed_by[name] and self.other_driver(name))
        found = [self.no_module(modules)] if modules else []
        if trap:
            found.append(self.transitional(trap))
        elif others:
            found.append(refuse_partial(self.version, self.packages, others))
        return found

    def other_driver(self, name) -> bool:
        """Return whether a package is there, and only of other driver branches."""
        branches = set(branch_of(record["version"]) for record in self.index.get(name, []))
        return bool(branches) and branch_of(self.version) not in branches

    def transitional(self, trap) -> dict:
        listing = ", ".join(
            "%s needs %s, which is there as %s" % (owner, name, ", ".join(self.missing[name]))
            for name, owner in sorted(trap.items())
        )
        return make_refusal(
            "transitional",
            list(trap) + list(trap.values()),
            listing,
            "packages of driver %s alone" % upstream(self.version),
            "Driver %s exists in name only: its packages are transitional and bring another driver: %s."
            % (upstream(self.version), listing),
            "ask for the driver that they bring, or mirror the packages of the wanted one",
        )

    def no_module(self, modules) -> dict:
        template = re.escape(self.data["per_kernel"].replace("{version}", upstream(self.version))).replace(
            re.escape("{kernel}"), "([0-9].+)"
        )
        offered = sorted(
            match.group(1)
            for match in (re.match("^%s$" % template, name) for name in self.index)
            if match and self.pick(match.group(0))
        )
        found = (
            "there are modules for: %s" % ", ".join(offered)
            if offered
            else "there are no prebuilt modules of this driver for any kernel"
        )
        drivers = set(driver_of(self.table, record) for name in modules for record in self.index.get(name, []))
        if drivers - {None}:
            found += "; for that kernel there are modules of driver %s" % ", ".join(sorted(drivers - {None}))
        return make_refusal(
            "no_prebuilt_module",
            modules,
            found,
            "a prebuilt module for the kernel that boots with the driver",
            "There is no prebuilt module of driver %s for a kernel of this node: %s; %s."
            % (upstream(self.version), ", ".join(modules), found),
            "change kernel and driver together: stage a kernel that has a module (role kernel_hold, tasks_from "
            "upgrade, with kernel_hold_driver_version) and name it in the upgrade (rollout_kernel), or use "
            "kernel_module dkms",
        )


def refuse_partial(version, packages, missing) -> dict:
    found = "; ".join(
        "%s: %s" % (name, "has %s" % ", ".join(versions) if versions else "not in the index")
        for name, versions in sorted(missing.items())
    )
    message = "Only a part of driver %s is available: %s cannot be had at that version (%s), %d other packages can." % (
        version,
        ", ".join(sorted(missing)),
        found,
        len(packages),
    )
    return make_refusal(
        "partly_available",
        missing,
        found,
        version,
        message,
        "choose a version all of whose packages are published, or mirror the missing packages",
    )


def find_available(table, index, flavour=None) -> list[str]:
    """Versions of the kernel module that can be downloaded, of every branch, newest first."""
    found = set()
    for era in list_variants(table):
        for name in [flavour] if flavour else sorted(era["flavours"]):
            if name not in era["flavours"]:
                continue
            root = re.compile("^%s$" % era["flavours"][name]["root"])
            for package, records in index.items():
                if root.match(package):
                    found.update(
                        record["version"]
                        for record in records
                        if record["downloadable"] and is_family_record(era, record)
                    )
    return sorted(found, key=KEYS[table["package_manager"]], reverse=True)


def make_empty(table, wanted, flavour, known) -> dict:
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


def resolve_set(
    table, index, installed, wanted, flavour="proprietary", extra=(), kernels=(), components=(), bootable=()
) -> dict:
    """The exact set of packages for a driver version on this system.

    ``flavour`` is proprietary, open or either with ``-prebuilt``; ``kernels`` are those that have to have a prebuilt
    module, and those of ``bootable`` get one where there is one. ``components`` are the parts that this node needs
    beside the driver itself. Packages of the driver that are installed already belong to the set, however they were
    installed; those of another branch or flavour are ``obsolete`` where their names differ, and so is the prebuilt
    module of a kernel that gets none.
    """
    general, table = table, instantiate_table(table, branch_of(wanted))
    if flavour not in table["flavours"]:
        result = make_empty(table, wanted, flavour, [])
        result["refusals"].append(refuse_flavour(table, flavour))
        return result
    data = table["flavours"][flavour]
    result = make_empty(table, wanted, flavour, find_available(general, index, flavour))
    module = table.get("module")
    result["stream"] = "%s:%s" % (module, data["stream"]) if module else None
    current = installed.get(data["root"], {}).get("version")
    usable = [
        rec["version"]
        for rec in index.get(data["root"], [])
        if matches_version(wanted, rec["version"])
        and is_family_record(table, rec)
        and (rec["downloadable"] or rec["version"] == current)
    ]
    key = KEYS[table["package_manager"]]
    candidates = sorted(set(usable), key=lambda version: (version == current, key(version)), reverse=True)
    chosen, refused = named_components(table, index, components)
    result["refusals"] += refused
    if not candidates:
        result["refusals"].append(refuse_version(general, table, index, wanted, flavour, result["available"]))
    if result["refusals"]:
        return result
    attempts = [
        Closure(table, index, installed, version, flavour, kernels, bootable).run(list(extra) + chosen, general)
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
    plain = dict((name, version) for name, version in best.packages.items() if not is_prebuilt(table, name))
    sources = dict((source_of(name, version, installed, index), version) for name, version in plain.items())
    result.update(resolvable=True, packages=best.packages, sources=sources)
    return result


def named_components(table, index, components) -> tuple[list, list]:
    """``(names, refusals)`` of the parts that were asked for."""
    names, refused = [], []
    for component in components:
        choices = table["components"].get(component)
        if not choices:
            why = table["no_component"].get(component, "it is not known")
            refused.append(
                make_refusal(
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


def refuse_flavour(table, flavour) -> dict:
    known = ", ".join(sorted(table["flavours"]))
    why = table["impossible"].get(flavour, "it is not known here")
    return make_refusal(
        "impossible_flavour",
        [],
        flavour,
        known,
        "Flavour %s cannot be had from %s: %s." % (flavour, table["name"], why),
        "use one of: %s" % known,
    )


def refuse_stream(resolved, module, name, known) -> dict:
    return make_refusal(
        "no_stream",
        [],
        ", ".join(sorted(known)),
        name,
        "Driver %s of flavour %s has no module stream: %s has %s and not %s."
        % (resolved["version"], resolved["flavour"], module, ", ".join(sorted(known)), name),
        "use a flavour or a driver branch that has a stream, or a mirror with it",
    )


def refuse_version(general, table, index, wanted, flavour, known) -> dict:
    others = [
        name
        for name in sorted(table["flavours"])
        if name != flavour and any(matches_version(wanted, version) for version in find_available(general, index, name))
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
    return make_refusal("unknown_version", [root], found, wanted, message, step)
