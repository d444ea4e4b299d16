# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carry out a plan for driver packages, step by step, through a package manager, and say what it does, or did:
sentences, the difference, and the module's result.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .._dkms import dkms
from .._node import boot_expectation, files
from .._node.files import write_atomically
from . import holds, package_plan, systems, transaction
from .manager import Manager, ManagerError
from .package_plan import Plan
from .package_state import Installed, State, Versions

# --- sentences -------------------------------------------------------------------------------------------------------


def describe_kept(kept: Versions) -> List[str]:
    return ["keep for the way back: %s" % ", ".join("%s %s" % item for item in sorted(kept.items()))] if kept else []


def describe_downloads(size: int) -> List[str]:
    return ["download %d MiB of packages" % -(-size // transaction.MIB)] if size else []


def describe_file(path: str, content: Optional[str]) -> str:
    return "%s %s" % ("remove" if content is None else "write", path)


def describe_repaired(state: State) -> str:
    what, journal = transaction.WORDS[state.manager]["repair"], ", ".join(state.journal) or "empty"
    broken = ", ".join(state.broken) or "none"
    return "finished an interrupted %s run (journal: %s; not configured: %s)" % (what, journal, broken)


def describe_repair(state: State) -> List[str]:
    if not state.interrupted:
        return []
    what = transaction.WORDS[state.manager]["repair"]
    return ["finish an interrupted %s run: %s" % (what, ", ".join(state.journal + state.broken))]


def foresee_actions(plan: Plan) -> List[str]:
    """The sentences of what carrying it out does, in their order. A run that ends well says the same."""
    if plan.wish.state == "downloaded":
        return describe_kept(plan.keep) + describe_downloads(plan.download_bytes)
    sentences = describe_kept(plan.keep) + describe_repair(plan.state) + transaction.action_sentences(plan.transaction)
    return (
        sentences
        + holds.describe_marks("hold", plan.hold, plan.state.lock_package)
        + holds.describe_marks("unhold", plan.lift)
        + [describe_file(path, text) for path, text in plan.files]
    )


# --- the result ------------------------------------------------------------------------------------------------------


def make_answer(plan: Plan, done: Sequence[str], repaired: bool, unkept: Sequence[str] = ()) -> Dict[str, Any]:
    """The part of the result that every way out has."""
    resolved, chosen = plan.resolved, plan.flavour
    return {
        "resolvable": resolved["resolvable"] if resolved else None,
        "reason": " ".join(item["message"] for item in resolved["refusals"]) if resolved else "",
        "resolved": resolved,
        "transaction": plan.transaction,
        "refusals": list(plan.refusals),
        "disk": plan.disk,
        "download_bytes": plan.download_bytes,
        "gpus": chosen["gpus"] if chosen else [],
        "flavour_reason": chosen["reason"] if chosen else "",
        "unkept": list(unkept),
        "actions": list(done),
        "repaired": repaired,
    }


def refusal_text(plan: Plan, done: Sequence[str]) -> str:
    """Return why nothing is changed, and each next step."""
    what = transaction.WORDS[plan.state.manager]["repair"]
    before = "Only an interrupted %s run was finished." % what if done else "Nothing was changed."
    return " ".join([before] + ["%s Next step: %s." % (item["message"], item["next_step"]) for item in plan.refusals])


def make_diff(plan: Plan) -> List[Dict[str, str]]:
    """Return what --diff shows: package versions, and the files."""
    if plan.wish.state not in ("present", "absent"):
        return []
    before = systems.driver_versions(plan.state.table, plan.state.installed)
    after = dict(before)
    for item in plan.transaction["remove"]:
        after.pop(item["name"], None)
    for kind in ("install", "upgrade", "downgrade"):
        after.update((item["name"], item["version"]) for item in plan.transaction[kind])
    old, new = ("".join("%s %s\n" % item for item in sorted(versions.items())) for versions in (before, after))
    parts = [("driver packages", old, new)]
    parts += [(path, plan.state.texts.get(path) or "", content or "") for path, content in plan.files]
    return [{"before_header": name, "after_header": name, "before": old, "after": new} for name, old, new in parts]


class ChangeFailed(Exception):
    """The change did not end as it should have; ``details`` go to the caller as they are."""

    def __init__(self, message: str, **details: Any) -> None:
        self.details = details
        super().__init__(message)


class Actor:
    """Changes one node. ``done`` are the sentences of what was done so far, also when a step failed."""

    def __init__(self, manager: Manager, clock: Callable[[], float] = time.time) -> None:
        self.manager, self.clock = manager, clock
        self.started = clock()
        self.done: List[str] = []
        self.unkept: Tuple[str, ...] = ()  # new packages that could not be kept

    def repair(self, state: State) -> None:
        """Finish an interrupted run of the package manager. What it cannot finish is left to the transaction."""
        self.done.append(describe_repaired(state))
        error = self.manager.configure(package_plan.own_broken(state))
        if error:
            self.done.append("%s did not finish: %s" % (transaction.WORDS[state.manager]["finish"], error))

    def carry_out(self, plan: Plan) -> None:
        self.keep(plan)
        if plan.wish.state == "downloaded":
            self.download(plan)
        else:
            try:
                self.transact(plan)
            finally:
                self.put_holds_back(plan)
            self.write_files(plan)
        self.keep_new(plan)

    def keep(self, plan: Plan) -> None:
        """The way back first: without it nothing is begun."""
        wrong = self.manager.keep(plan.keep, plan.state.index) if plan.keep else {}
        if wrong:
            why = "; ".join("%s: %s" % item for item in sorted(wrong.items()))
            raise ChangeFailed(
                "The driver that is installed cannot be kept for the way back: %s. "
                "Nothing was changed. Next step: %s." % (why, package_plan.KEEP_STEP)
            )
        self.done += describe_kept(plan.keep)

    def download(self, plan: Plan) -> None:
        if plan.download_bytes:
            self.manager.download(plan.arguments, self.manager.download_options(plan.state.broken))
        self.done += describe_downloads(plan.download_bytes)

    def transact(self, plan: Plan) -> None:
        if not (plan.has_transaction or plan.state.broken):
            return
        options = list(self.manager.fix_options(plan.state.broken))
        if plan.wish.dkms_build == "deferred":
            options += self.manager.deferred_dkms_options()
        try:
            self.manager.change(plan.arguments, "remove" if plan.wish.state == "absent" else "install", options)
        except ManagerError as exc:
            step = "read the output, repair its cause, run again"
            raise ChangeFailed("%s. Next step: %s." % (exc, step), output=exc.output, **self.build_log(plan)) from exc
        self.done += transaction.action_sentences(plan.transaction)
        if plan.wish.repair and plan.state.broken:  # what other packages needed before is free now
            self.manager.configure(package_plan.own_broken(plan.state))

    def build_log(self, plan: Plan) -> Dict[str, Any]:
        """The end of make.log when a DKMS build of this run failed."""
        name = plan.resolved["dkms_name"] if plan.resolved else None
        path = dkms.log_path(self.manager.root, name, plan.resolved["dkms_version"]) if name else None
        if not path or os.stat(self.manager.path(path)).st_mtime < self.started - 1:
            return {}
        return {"make_log": path, "make_log_tail": dkms.log_tail(self.manager.root, path)}

    def put_holds_back(self, plan: Plan) -> None:
        """A change drops the hold of what it changes, or leaves one of the old version: hold again, and what is new."""
        installed = self.manager.list_installed()
        there = set(name for name, have in installed.items() if have["installed"])
        loose = set(name for name in there if not installed[name]["hold"])
        lift = there.intersection(plan.lift)
        self.manager.mark("hold", loose.intersection(plan.hold + plan.held))
        self.manager.mark("unhold", lift)
        self.manager.forget([name for name in plan.held + plan.lift if name not in there])
        self.done += holds.describe_marks("hold", loose.intersection(plan.hold), plan.state.lock_package)
        self.done += holds.describe_marks("unhold", lift)

    def write_files(self, plan: Plan) -> None:
        for path, content in plan.files:
            if content is None:
                os.unlink(self.manager.path(path))
            else:
                write_atomically(self.manager.path(path), content)
            self.done.append(describe_file(path, content))

    def keep_new(self, plan: Plan) -> None:
        """Keep what was downloaded, from the cache. What cannot be kept is told, and is no failure."""
        self.unkept = tuple(sorted(self.manager.keep(plan.keep_new, plan.state.index))) if plan.keep_new else ()
        if plan.before and plan.wish.state == "present":
            self.manager.store.forget(set(plan.before.items()) | set(plan.packages.items()))

    # what the node is told of it

    def record_holds(self, plan: Plan, installed: Installed) -> None:
        """Keep the time since when each package is held. It is no change of the node."""
        path = self.manager.path(holds.RECORD)
        known = holds.parse_record(files.read_text(path))
        held = package_plan.held_driver(plan.state.table, installed)
        before = package_plan.held_driver(plan.state.table, plan.state.installed)
        record = holds.update_record(
            known, held, self.clock(), [name for name in held if held[name] != before.get(name)]
        )
        if record != known:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, holds.render_record(record))

    def record_expectation(self, plan: Plan) -> None:
        """Expect the driver that is installed now: the check at boot would fail otherwise."""
        if plan.expect:
            boot_expectation.keep_driver(self.manager.path(boot_expectation.PATH), plan.expect)
            self.done.append("wrote driver %s into %s" % (plan.expect, boot_expectation.PATH))
