# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a change of driver packages: what is installed, removed, held, pinned, kept for the way back, or refused. Pure.

A plan begins with :func:`choose` and ends with :func:`settle`. Between them it says what else has to be read, and each
reading makes another plan of it: :func:`judge`, :func:`with_room`, :func:`with_archives`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, Iterable, Optional, Tuple

from .._dkms import dkms
from .._node.dpkg import is_side_by_side
from .._node.versions import upstream
from . import compatibility, driver_set, holds, package_state, systems, transaction
from .package_state import Archives, Installed, Problem, Rehearsal, Room, State, Versions, Wish, make_refusal

Refusal = Dict[str, Any]  # as package_state.refusal makes it
Names = Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The change of a node in this state for this wish. A plan with refusals is not carried out."""

    state: State
    wish: Wish
    refusals: Tuple[Refusal, ...] = ()
    lacking: bool = False  # refused for what the node is: an interrupted run is not finished there either
    flavour: Optional[Dict[str, Any]] = None  # as compatibility.decide_flavour answers
    resolved: Optional[Dict[str, Any]] = None  # as driver_set.resolve answers, with trees and module_archives
    # the transaction
    action: Optional[str] = None  # install, remove; None: no transaction is thought of
    due: bool = False  # whether there is anything for it to do
    targets: Names = ()  # what a removal removes
    stream: Optional[str] = None  # the module stream that is enabled for it
    removable: Names = ()  # what may be removed in it
    arguments: Names = ()
    foreseen: bool = False  # the package manager has been asked what it would do, and has an answer
    transaction: Dict[str, Any] = dataclasses.field(default_factory=transaction.make_empty)
    download_bytes: int = 0
    disk: Dict[str, Optional[int]] = dataclasses.field(default_factory=dict)
    # the way back
    before: Versions = dataclasses.field(default_factory=dict)  # the driver that is replaced
    keep: Versions = dataclasses.field(default_factory=dict)  # what is kept before the change
    keep_new: Versions = dataclasses.field(default_factory=dict)  # what is kept after it
    # beside the packages
    hold: Names = ()  # packages that are held and were not
    lift: Names = ()  # packages whose hold is lifted
    held: Names = ()  # packages whose hold is put back if the change takes it
    files: Tuple[Tuple[str, Optional[str]], ...] = ()  # (path, content): pin and exclusion; None removes it
    expect: Optional[str] = None  # the driver that the node's check at boot is told to expect

    @property
    def packages(self) -> Versions:
        return self.resolved["packages"] if self.resolved else {}

    @property
    def has_transaction(self) -> bool:
        return not transaction.is_empty(self.transaction)

    @property
    def changes(self) -> bool:
        """Return whether carrying it out changes the node."""
        kept = bool(self.keep or self.keep_new)
        if self.wish.state == "resolved":
            return False
        if self.wish.state == "downloaded":
            return self.download_bytes > 0 or kept
        return self.state.interrupted or self.has_transaction or kept or bool(self.hold or self.lift or self.files)


def add_refusals(plan: Plan, refusals: Iterable[Refusal]) -> Plan:
    return dataclasses.replace(plan, refusals=plan.refusals + tuple(refusals))


# --- what the node should have ---------------------------------------------------------------------------------------


def choose_packages(state: State, wish: Wish) -> Plan:
    """The packages that are wanted on the node, or why they cannot be. They are not compared with a transaction yet."""
    owned = systems.decide_owner(state.operator) if wish.state != "resolved" else []
    lacking = owned + systems.decide_needs(list(wish.require), state.gpus, state.headers)
    lacking += decide_interrupted(state, wish)
    plan = Plan(state, wish, tuple(lacking), lacking=bool(lacking), removable=wish.allow_removal)
    return choose_removal(plan) if wish.state == "absent" else choose_presence(plan)


def own_broken(state: State) -> Names:
    """Return the packages of the driver that an interrupted run left half done."""
    table, have = state.table, state.installed
    return tuple(
        name
        for name in state.broken
        if systems.is_driver_package(name, have[name]["version"], have[name]["source"], table)
    )


def decide_interrupted(state: State, wish: Wish) -> list:
    """Refuse a node that an interrupted run left half done, unless its repair is asked for and possible.

    rpm has nothing to finish by itself, so there the repair is for the driver's own packages alone.
    """
    if not state.interrupted or wish.state == "resolved":
        return []
    words, own = transaction.WORDS[state.manager], own_broken(state)
    others = [name for name in state.broken if name not in own]
    if wish.repair and not (others and state.manager == "dnf"):
        return []
    half_done = ", ".join("%s (%s)" % (name, state.installed[name]["status"]) for name in state.broken)
    found = half_done or "journal: %s" % ", ".join(state.journal)
    message = "An interrupted %s run left these half done: %s." % (words["repair"], found)
    by_hand = words["by_hand"] + ", then run again"
    step = by_hand if others else "ask for its repair (option repair, nvidia_driver_repair: true), or %s" % by_hand
    return [package_state.make_refusal("interrupted", state.broken, found, "no package half done", message, step)]


def choose_removal(plan: Plan) -> Plan:
    targets = tuple(systems.installed_driver(plan.state.table, plan.state.installed))
    if not targets:
        return plan
    return dataclasses.replace(plan, action="remove", due=True, targets=targets, removable=plan.removable + targets)


def choose_presence(plan: Plan) -> Plan:
    state, wish = plan.state, plan.wish
    chosen = compatibility.decide_flavour(state.gpus, wish.version, wish.flavour)
    resolved = resolve_set(state, wish, chosen)
    plan = add_refusals(dataclasses.replace(plan, flavour=chosen, resolved=resolved), resolved["refusals"])
    if not resolved["resolvable"]:
        return plan
    resolved, stream, refusals = decide_stream(resolved, state)
    if wish.hold and wish.state == "present" and state.hold_problem:
        refusals = refusals + [refuse_hold(*state.hold_problem)]
    plan = add_refusals(dataclasses.replace(plan, resolved=resolved, stream=stream), refusals)
    if plan.refusals:
        return plan
    differs = transaction.find_differences(state.installed, resolved["packages"])
    due = bool(differs or resolved["obsolete"] or stream)
    removable = (
        plan.removable + tuple(resolved["obsolete"]) + find_beside(state)
    )  # a newer set may replace what lies beside
    return dataclasses.replace(plan, action="install", due=due, removable=removable)


def find_beside(state: State) -> Names:
    """Return the installed packages of the driver that lie beside those of other versions."""
    found = systems.driver_versions(state.table, state.installed)
    return tuple(name for name, version in found.items() if is_side_by_side(name, version))


def resolve_set(state: State, wish: Wish, chosen: Dict[str, Any]) -> Dict[str, Any]:
    """The set, of the flavour that was asked for or that the GPUs ask for, at or above every floor."""
    prebuilt = wish.kernel_module == "prebuilt"
    variant = (chosen["flavour"] or "open") + ("-prebuilt" if prebuilt else "")
    found = driver_set.resolve_set(
        state.table,
        state.index,
        state.installed,
        wish.version,
        variant,
        wish.extra_packages,
        choose_kernels(state, wish),
        wish.components,
        state.kernels,
    )
    declared = [dict(floor, require=floor.get("require_cuda")) for floor in wish.floors]
    below = compatibility.decide_floors(found["upstream"] or wish.version, declared + list(state.workloads or ()))
    if state.workloads is None:
        below = below + [compatibility.refuse_unread(wish.version)]
    if prebuilt and wish.kernel and wish.kernel not in state.kernels:
        below = below + [refuse_kernel(wish.kernel, state.kernels)]
    refusals = chosen["refusals"] + found["refusals"] + below
    found = dict(found, refusals=refusals, resolvable=found["resolvable"] and not refusals, flavour=chosen["flavour"])
    archives = [] if unpacks_archives(state.manager) else None
    return dict(found, trees=tree_names(found, state), module_archives=archives)


def unpacks_archives(manager: str) -> bool:
    """Return whether a module can be compiled ahead of its installation. The scripts of an rpm compile in any case."""
    return manager == "apt"


def choose_kernels(state: State, wish: Wish) -> Names:
    """The kernels that have to have a prebuilt module: the one that is to boot with the driver, else the one that boots
    next, and all that can boot where that is not known.
    """
    kernel = wish.kernel or state.next_kernel
    return (kernel,) if kernel in state.kernels else state.kernels


def refuse_kernel(kernel: str, kernels: Names) -> Refusal:
    found = ", ".join(kernels) or "none"
    return package_state.make_refusal(
        "no_kernel",
        [],
        found,
        kernel,
        "Kernel %s, which is to boot with the driver, is not installed so that it can boot; there is: %s."
        % (kernel, found),
        "stage it (role gpufleet.lifecycle.kernel_hold, tasks_from upgrade), or name a kernel that can boot",
    )


def tree_names(resolved: Dict[str, Any], state: State) -> Dict[str, Optional[str]]:
    """Return the name of an exported DKMS tree of this driver for each kernel; None when a part of it is unknown."""
    name, version = resolved["dkms_name"], resolved["dkms_version"]
    if not resolved["resolvable"] or not name:
        return {}
    return dict(
        (kernel, dkms.tree_name(name, version, kernel, state.architecture, compiler) if compiler else None)
        for kernel, compiler in state.compilers.items()
    )


def rename_module(resolved: Dict[str, Any], names: Iterable[str], state: State) -> Dict[str, Any]:
    """The set with the name that the installed package gives its module: a mirror's own may give another."""
    found = list(names)
    if not resolved["dkms_name"] or len(found) != 1 or found[0] == resolved["dkms_name"]:
        return resolved
    renamed = dict(resolved, dkms_name=found[0])
    return dict(renamed, trees=tree_names(renamed, state))


def decide_stream(resolved: Dict[str, Any], state: State) -> Tuple[Dict[str, Any], Optional[str], list]:
    """``(set, stream to enable, refusals)``; the repository may have it under its rolling name alone, or no module."""
    if not resolved["stream"]:
        return resolved, None, []
    module, name = resolved["stream"].split(":", 1)
    there = next((stream for stream in (name, resolved["rolling_stream"]) if stream in state.streams), None)
    resolved = dict(resolved, stream="%s:%s" % (module, there) if there else None)
    refusals = [driver_set.refuse_stream(resolved, module, name, state.streams)] if state.streams and not there else []
    return resolved, resolved["stream"] if there and state.enabled_stream != there else None, refusals


def refuse_hold(why: str, step: str) -> Refusal:
    return package_state.make_refusal(
        "no_hold", [], why, "holds that hold", "The driver cannot be held: %s." % why, step
    )


# --- the transaction -------------------------------------------------------------------------------------------------


def judge_rehearsal(plan: Plan, rehearsal: Rehearsal) -> Plan:
    """The plan with the transaction that the package manager would make, or why that one may not be made."""
    plan = dataclasses.replace(plan, arguments=rehearsal.arguments)
    if rehearsal.problem:
        return add_refusals(plan, [refuse_solution(plan.state.manager, rehearsal.problem)])
    if not plan.due:
        return dataclasses.replace(
            plan, foreseen=True, resolved=rename_module(plan.resolved, rehearsal.dkms_names, plan.state)
        )
    state, found = plan.state, rehearsal.transaction
    refusals = transaction.decide_transaction(
        found, plan.packages, state.installed, state.index, plan.removable, state.table
    )
    return add_refusals(dataclasses.replace(plan, foreseen=True, transaction=found), refusals)


def refuse_solution(manager: str, problem: Problem) -> Refusal:
    holds = transaction.WORDS[manager]["holds"]
    return package_state.make_refusal(
        "no_solution",
        problem.packages,
        problem.output,
        "%s finds a transaction" % manager,
        "%s finds no way to the resolved set: %s." % (manager, problem.why.rstrip(".")),
        "look at what %s names here; %s tell what stands in the way" % (manager, holds),
    )


def needs_room(plan: Plan) -> bool:
    """Return whether its room is read. A download needs that of the installation: the drain is between the two."""
    installs = plan.foreseen and plan.action == "install" and not plan.refusals
    return installs and (plan.wish.state == "downloaded" or plan.has_transaction)


def with_room(plan: Plan, room: Room) -> Plan:
    """Room for the archives, the packages and the DKMS build, each on the file system it goes to."""
    state, wish = plan.state, plan.wish
    download = sum(room.downloads.values())
    builds = bool(plan.resolved["dkms_name"]) and plan.has_transaction
    disk = transaction.disk_needs(
        download, grown_bytes(plan, room), len(state.kernels), state.initrd_bytes, builds, state.manager
    )
    refusals = transaction.decide_disk(
        disk,
        room.filesystems,
        wish.min_free_mib * transaction.MIB,
        state.manager,
        wish.min_free_boot_mib * transaction.MIB,
        None if wish.min_free_var_mib is None else wish.min_free_var_mib * transaction.MIB,
    )
    return add_refusals(dataclasses.replace(plan, download_bytes=download, disk=disk), refusals)


def with_mirrors(plan: Plan, silent: Iterable[Dict[str, str]]) -> Plan:
    """The plan, or why it could not download: mirrors from which nothing comes, as Manager.silent_mirrors answers."""
    return add_refusals(plan, [refuse_mirror(plan.state.manager, item) for item in silent])


def refuse_mirror(manager: str, item: Dict[str, str]) -> Refusal:
    return package_state.make_refusal(
        "no_mirror",
        [item["package"]],
        "%s: %s" % (item["mirror"], item["why"]),
        "a mirror from which %s %s comes" % (item["package"], item["version"]),
        "%s %s cannot be fetched from %s: %s."
        % (item["package"], item["version"], item["mirror"], item["why"].rstrip(".")),
        "see that the node reaches this mirror (its name, its proxy), bring the package index up to date if the mirror "
        "has it no more, or name another mirror, then run again",
    )


def changed_items(plan: Plan) -> list:
    return [item for kind in ("install", "upgrade", "downgrade") for item in plan.transaction[kind]]


def find_unsized(plan: Plan) -> Names:
    """Return the changed packages whose sizes the index that was read does not have."""
    return tuple(item["name"] for item in changed_items(plan) if item["name"] not in plan.state.index)


def grown_bytes(plan: Plan, room: Room) -> Optional[int]:
    """Return by how much the installed packages grow; None where none changes."""
    if not plan.has_transaction:
        return None
    sizes, grown = dict(plan.state.index, **room.sizes), 0
    for item in changed_items(plan):
        records = [record for record in sizes.get(item["name"], []) if record["version"] == item["version"]]
        old = plan.state.installed.get(item["name"], {})
        grown += (records[0]["installed_kib"] if records else 0) * 1024
        grown -= old["size_kib"] * 1024 if old.get("installed") else 0
    return grown


# --- the way back ----------------------------------------------------------------------------------------------------


def needs_archives(plan: Plan) -> bool:
    """Return whether packages are kept in the node's store."""
    wish = plan.wish
    return wish.keep and plan.foreseen and wish.state in ("downloaded", "present")


def module_sources(plan: Plan) -> Versions:
    """Return the packages that hold the source of the kernel module; none where it is prebuilt."""
    sources = (item for item in plan.packages.items() if re.search(systems.SOURCE_PATTERN, item[0]))
    return dict(sources) if plan.resolved and plan.resolved["dkms_name"] else {}


def driver_before(plan: Plan) -> Versions:
    """Return the packages of the installed driver, if they would be changed."""
    found = systems.driver_versions(plan.state.table, plan.state.installed) if plan.has_transaction else {}
    of_driver = set(upstream(version) for name, version in found.items() if name not in find_beside(plan.state))
    return dict(
        item for item in found.items() if item[0] not in find_beside(plan.state) or upstream(item[1]) in of_driver
    )


def with_archives(plan: Plan, archives: Archives) -> Plan:
    """Keep those installed that would be changed, to roll back, and those that take their place."""
    keep, lost = split_obtainable(archives.before, archives.cached, plan.state.index)
    keep_new, dummy = split_obtainable(archives.after, archives.cached, plan.state.index)
    plan = dataclasses.replace(plan, before=driver_before(plan), keep=keep, keep_new=keep_new)
    return add_refusals(plan, [refuse_keep(lost)] if lost else [])


# --- beside the packages ---------------------------------------------------------------------------------------------


def settle_rest(plan: Plan) -> Plan:
    """The plan with its holds, its files and what the check at boot expects: all that follows from the rest."""
    state, wish = plan.state, plan.wish
    if plan.refusals or wish.state not in ("present", "absent"):
        return plan
    hold, lift = hold_changes(wish, plan.packages, foreseen_packages(plan))
    if wish.state == "present" and wish.hold:  # firmware of a driver before is apt autoremove's to take away
        lift = tuple(name for name in find_beside(state) if name not in plan.packages and state.installed[name]["hold"])
    held = tuple(sorted(name for name, have in state.installed.items() if have["hold"] and name not in lift))
    driver = plan.resolved["upstream"] if plan.resolved else None
    expect = driver if driver and state.expected_driver not in (None, driver) else None
    return dataclasses.replace(plan, hold=hold, lift=lift, held=held, files=files_due(plan), expect=expect)


def held_driver(table: Optional[Dict[str, Any]], installed: Installed) -> Versions:
    """The driver's packages that are held."""
    names = systems.installed_driver(table, installed) if table else []
    return dict((name, installed[name]["version"]) for name in names if installed[name]["hold"])


def foreseen_packages(plan: Plan) -> Installed:
    """The installed packages as the transaction would leave them, holds put back."""
    after = dict(plan.state.installed)
    for item in plan.transaction["install"]:
        after[item["name"]] = {"installed": True, "hold": False}
    return after


def hold_changes(wish: Wish, names: Iterable[str], installed: Installed) -> Tuple[Names, Names]:
    """``(names to hold, names whose hold is lifted)`` of those that are installed, to have them as asked."""
    if wish.state != "present" or wish.hold is None:
        return (), ()
    mine = set(name for name in names if installed.get(name, {}).get("installed"))
    held = set(name for name in mine if installed[name]["hold"])
    return (tuple(sorted(mine - held)), ()) if wish.hold else ((), tuple(sorted(held)))


def files_due(plan: Plan) -> Tuple[Tuple[str, Optional[str]], ...]:
    """``(path, content)`` of the files that are not as they should be; None where there should be none."""
    state, wish, due = plan.state, plan.wish, []
    present = wish.state == "present"
    if not present or wish.pin is not None:
        pin = holds.pin_content(state.manager, state.table, plan.resolved) if present and wish.pin else None
        due.append((wish.pin_file, pin))
    if wish.exclude_unattended is not None:
        path = state.unattended_file
        exclude = present and wish.exclude_unattended
        due.append((path, holds.unattended_content(state.manager, state.texts.get(path), exclude)))
    return tuple((path, content) for path, content in due if state.texts.get(path) != content)


KEEP_STEP = (
    "put these packages into the package manager's cache or on the mirror, or go without a way back (option keep: "
    "false, nvidia_driver_keep: false)"
)


def split_obtainable(wanted, cached, index) -> tuple[dict, dict]:
    """``({name: version}, {name: version})``: what is in the cache or can be downloaded, and what cannot be had."""
    there = dict(
        (name, version)
        for name, version in wanted.items()
        if (name, version) in cached
        or any(record["version"] == version and record["downloadable"] for record in index.get(name, []))
    )
    return there, dict((name, version) for name, version in wanted.items() if name not in there)


def refuse_keep(lost) -> dict:
    listing = ", ".join("%s %s" % item for item in sorted(lost.items()))
    return make_refusal(
        "cannot_keep",
        lost,
        "neither in the cache nor at a mirror: %s" % listing,
        "the packages of the driver that is installed",
        "The driver that is installed cannot be kept for the way back: %s cannot be had any more." % listing,
        KEEP_STEP,
    )
