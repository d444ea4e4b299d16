# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task of driver_packages: plan, refuse or act, and the result. ``module`` is the AnsibleModule it runs in."""

from __future__ import annotations

import dataclasses

from . import package_locks, package_plan, package_read, packages
from .manager import Manager
from .package_plan import Plan
from .package_state import State, Wish


def make(manager: Manager, wish: Wish) -> Plan:
    """Read the node, decide what it should have, and read what that asks for. Nothing is changed."""
    table, refusals = packages.decide_system(manager.os_release(), wish.source)
    if table is None:
        return Plan(State(manager.name), wish, tuple(refusals))
    plan = package_plan.choose(package_read.read(manager, wish, table), wish)
    if plan.action:
        plan = package_plan.judge(plan, package_read.rehearse(manager, plan))
    if package_plan.needs_room(plan):
        plan = package_plan.with_room(plan, package_read.read_room(manager, plan))
    if package_plan.keeps(plan):
        plan = package_plan.with_archives(plan, package_read.read_archives(manager, plan))
    return package_plan.settle(plan)


def tolerated(module, plan):
    """Check mode on a node whose repository is not there yet: it cannot be known, which is no failure."""
    if not module.check_mode or [item["id"] for item in plan.refusals] != ["unknown_version"]:
        return False
    return not module.params["repository_ready"] or not plan.resolved["available"]


def refuse(module, plan, change):
    words = " ".join("%s Next step: %s." % (item["message"], item["next_step"]) for item in plan.refusals)
    before = "Only an interrupted %s run was finished." % change.words["repair"] if change.actions else "Nothing was changed."
    module.fail_json(msg="%s %s" % (before, words), changed=bool(change.actions), **change.answer(plan))


def planned(change, acting):
    """Return the plan, made while the package manager's locks are free; refuse while they are held."""
    plan, manager = make(change.manager, change.wish), change.manager
    if change.options["state"] == "resolved" or not (plan.refusals or plan.changes):
        return plan
    timeout_s = manager.lock_timeout_s if acting else min(package_locks.LOOK_S, manager.lock_timeout_s)
    found, waited = package_locks.wait(lambda: package_locks.held(manager.name, manager.root), timeout_s)
    if waited and not found:
        return make(change.manager, change.wish)  # it was of what that other run was changing
    return package_plan.refused(plan, package_locks.refusals(found, timeout_s))


def run(module, change, acting):
    """Plan, then act unless told not to; answers the result."""
    plan = planned(change, acting)
    if acting and module.params["state"] != "downloaded" and not plan.lacking and change.repair(plan):
        plan = make(change.manager, change.wish)
    if plan.refusals:
        if tolerated(module, plan):
            return dict(change.answer(plan), changed=module.params["state"] != "resolved")
        refuse(module, plan, change)
    changed = plan.changes or bool(change.actions)
    expects_another = plan.expect is not None
    result = dict(change.answer(plan), changed=changed or expects_another, diff=change.difference(plan, changed))
    if not acting:
        return dict(result, actions=change.foresee(plan), holds=change.holds(plan))
    if changed:
        sure = dataclasses.replace(plan, keep_new={}).changes or bool(change.actions)
        change.act(plan)
        # That something cannot be kept is the same in every run, and no change.
        result.update(changed=sure or expects_another or bool(set(plan.keep_new) - set(change.unkept)), unkept=change.unkept)
    installed = change.verify(plan)
    change.find_module_archives(plan)
    change.record_holds(plan, installed)
    change.record_expectation(plan)
    return dict(result, actions=change.actions, holds=change.holds(plan, installed))
