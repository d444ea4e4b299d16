# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task of driver_packages: read, plan, refuse or act, read back, and the result.

``module`` is the AnsibleModule that the task runs in, ``actor`` a :class:`package_act.Actor`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Tuple

from . import package_act, package_locks, package_plan, package_read, systems, transaction
from .manager import Manager
from .package_act import Actor, ChangeFailed
from .package_plan import Plan
from .package_state import Installed, State, Wish


def make_plan(manager: Manager, wish: Wish) -> Plan:
    """Read the node, decide what it should have, and read what that asks for. Nothing is changed."""
    table, refusals = systems.decide_system(manager.os_release(), wish.source)
    if table is None:
        return Plan(State(manager.name), wish, tuple(refusals))
    plan = package_plan.choose_packages(package_read.read_state(manager, wish, table), wish)
    if plan.action:
        plan = package_plan.judge_rehearsal(plan, package_read.rehearse_plan(manager, plan))
    if package_plan.needs_room(plan):
        plan = package_plan.with_room(plan, package_read.read_room(manager, plan))
    if package_plan.needs_archives(plan):
        plan = package_plan.with_archives(plan, package_read.read_archives(manager, plan))
    return package_plan.settle_rest(plan)


def wait_for_locks(module: Any, manager: Manager, timeout_s: int) -> Tuple[List[Dict[str, Any]], bool]:
    """Return the refusals of locks that the package manager still has after the timeout, and whether it had any."""
    for text in package_locks.make_warnings(package_locks.held_by_users(manager.name, manager.root)):
        module.warn(text)
    found, waited = package_locks.wait_for_release(
        lambda: package_locks.find_held(manager.name, manager.root), timeout_s
    )
    return package_locks.make_refusals(found, timeout_s), waited


def make_unlocked(module: Any, manager: Manager, wish: Wish, timeout_s: int) -> Plan:
    """Return the plan, made while the package manager's locks are free; refuse while they are held."""
    plan = make_plan(manager, wish)
    if wish.state == "resolved" or not (plan.refusals or plan.changes):
        return plan
    refusals, waited = wait_for_locks(module, manager, timeout_s)
    if waited and not refusals:
        return make_plan(manager, wish)  # the first one was of what that other run was changing
    return package_plan.add_refusals(plan, refusals)


def is_tolerated(module: Any, plan: Plan) -> bool:
    """Check mode on a node whose repository is not there yet: it cannot be known, which is no failure."""
    if not module.check_mode or [item["id"] for item in plan.refusals] != ["unknown_version"]:
        return False
    if module.params["require_available"]:
        return False
    return not module.params["repository_ready"] or not plan.resolved["available"]


def asks_mirrors(module: Any, plan: Plan) -> bool:
    """In check mode a mirror that is gone is not noticed otherwise, as long as its index is on the node.

    A run finds out when it downloads, before anything is changed. Sources that an earlier task would have changed are
    not those that the run has.
    """
    asked = plan.wish.state != "resolved" and module.params["repository_ready"]
    return asked and not plan.refusals and plan.download_bytes > 0


def find_shortfall(plan: Plan, installed: Installed, left: Dict[str, int]) -> Optional[str]:
    """Return how the node differs from the plan; None when it does not.

    ``installed`` are the packages after the change, ``left`` is what would still be downloaded.
    """
    if plan.wish.state == "downloaded" and left:
        return "Still not in the package cache after the download: %s." % ", ".join(sorted(left))
    if plan.wish.state == "absent":
        rest = systems.installed_driver(plan.state.table, installed)
        return "Still installed after the removal: %s." % ", ".join(rest) if rest else None
    return present_shortfall(plan, installed) if plan.wish.state == "present" else None


def present_shortfall(plan: Plan, installed: Installed) -> Optional[str]:
    words = transaction.WORDS[plan.state.manager]
    wrong = transaction.find_differences(installed, plan.packages)
    if wrong:
        expected = ((name, found, plan.packages[name]) for name, found in sorted(wrong.items()))
        listing = ", ".join("%s %s (expected %s)" % item for item in expected)
        return "%s ended well, and yet these packages are not as resolved: %s. Next step: %s of them on the node." % (
            plan.state.manager,
            listing,
            words["policy"],
        )
    hold, lift = package_plan.hold_changes(plan.wish, plan.packages, installed)
    return "%s did not take: %s." % (words["hold"], ", ".join(hold + lift)) if hold or lift else None


def prove_plan(manager: Manager, plan: Plan) -> Tuple[Installed, Optional[Dict[str, Any]]]:
    """Read the node again: ``(installed packages, set)``. Raises ChangeFailed where it is not as planned."""
    installed = manager.list_installed()
    left = package_read.read_downloads(manager, plan) if plan.wish.state == "downloaded" else {}
    wrong = find_shortfall(plan, installed, left)
    if wrong:
        raise ChangeFailed(wrong)
    return installed, package_read.read_back(manager, plan)


def run_task(module: Any, actor: Actor, acting: bool) -> Dict[str, Any]:
    """Plan, then act unless told not to; answers the result."""
    manager, wish = actor.manager, Wish.of(module.params)
    timeout_s = manager.lock_timeout_s
    if not acting and (wish.state != "unlocked" or module.check_mode):
        timeout_s = min(module.params["apt_lock_look_s"], timeout_s)
    if wish.state == "unlocked":
        plan = Plan(State(manager.name), wish, tuple(wait_for_locks(module, manager, timeout_s)[0]))
        return refuse_plan(module, plan, actor, False) if plan.refusals else {"changed": False}
    plan = make_unlocked(module, manager, wish, timeout_s)
    repaired = plan.state.interrupted
    if repaired and acting and wish.state != "downloaded" and not plan.lacking:
        actor.repair(plan.state)
        plan = make_plan(manager, wish)
    if not acting and asks_mirrors(module, plan):
        plan = package_plan.with_mirrors(plan, package_read.read_silent_mirrors(manager, plan))
    if plan.refusals:
        return refuse_plan(module, plan, actor, repaired)
    changes = plan.changes or bool(actor.done)
    result = dict(changed=changes or plan.expect is not None, diff=package_act.make_diff(plan) if changes else [])
    if acting:
        return dict(package_act.make_answer(plan, (), repaired), **dict(result, **carry_out_plan(plan, actor, changes)))
    rows = package_read.read_holds(manager, plan, plan.state.installed, actor.clock())
    return dict(package_act.make_answer(plan, package_act.foresee_actions(plan), repaired), holds=rows, **result)


def refuse_plan(module: Any, plan: Plan, actor: Actor, repaired: bool) -> Dict[str, Any]:
    answer = package_act.make_answer(plan, actor.done, repaired)
    if is_tolerated(module, plan):
        return dict(answer, changed=plan.wish.state != "resolved")
    # Ansible prints all of it: the message has what an operator needs, and the refusals what a program does.
    kept = {key: answer[key] for key in ("resolvable", "reason", "refusals", "actions", "repaired")}
    return module.fail_json(msg=package_act.refusal_text(plan, actor.done), changed=bool(actor.done), **kept)


def carry_out_plan(plan: Plan, actor: Actor, changes: bool) -> Dict[str, Any]:
    """Carry the plan out and prove it: the part of the result that only a run has."""
    found: Dict[str, Any] = {}
    if changes:
        sure = dataclasses.replace(plan, keep_new={}).changes or bool(actor.done) or plan.expect is not None
        actor.carry_out(plan)
        # That something cannot be kept is the same in every run, and no change.
        found.update(changed=sure or bool(set(plan.keep_new) - set(actor.unkept)), unkept=list(actor.unkept))
    installed, resolved = prove_plan(actor.manager, plan)
    actor.record_holds(plan, installed)
    actor.record_expectation(plan)
    rows = package_read.read_holds(actor.manager, plan, installed, actor.clock())
    return dict(found, resolved=resolved, actions=list(actor.done), holds=rows)
