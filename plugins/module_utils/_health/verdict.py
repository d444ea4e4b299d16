# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict about a node (schema gpufleet.health/1), out of data alone.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import baseline as baseline_family
from . import model, registry, versions
from . import policy as policy_rules
from .model import FAIL, PASS, UNKNOWN

SCHEMA = "gpufleet.health/1"


def check(baseline, policy, node):
    """Refuse a baseline or a policy that cannot be used, before anything is read; raises as evaluate does."""
    if baseline is not None:
        baseline_family.check_baseline(baseline, node)
    policy_rules.complete(policy)


def evaluate(snapshot, audit, baseline=None, policy=None, expected_driver=None, phase="adhoc", node="", boot_id=None, now=""):
    """Judge a reading. NOW is the time of the reading in UTC, like 2026-01-31T12:00:00Z.

    Raises BaselineError for a baseline that is none or another node's, PolicyError for a policy that cannot be followed.
    """
    if phase not in model.PHASES:
        raise ValueError("phase is %r, expected one of %s" % (phase, ", ".join(model.PHASES)))
    check(baseline, policy, node)
    rules = policy_rules.complete(policy)
    ctx = model.Context(snapshot, audit, baseline, rules, expected_driver, phase)
    checks = []
    for family in registry.FAMILIES:
        checks += family.checks(ctx)
    checks = policy_rules.apply(checks, rules["waivers"], now)
    checks.sort(key=lambda check: (check["id"], check["entity"], check["status"], check["message"]))
    return {
        "schema": SCHEMA,
        "node": node,
        "boot_id": boot_id,
        "time": now,
        "phase": phase,
        "simulated": bool(model.item(snapshot, "simulated")),
        "driver": dict(versions.seen(snapshot, audit), expected=versions.upstream(expected_driver)),
        "verdict": overall(checks),
        "action": action(checks),
        "checks": checks,
    }


def overall(checks):
    """fail before unknown before pass; and nothing that passed is no pass."""
    statuses = set(check["status"] for check in checks)
    for status in (FAIL, UNKNOWN):
        if status in statuses:
            return status
    return PASS if PASS in statuses else UNKNOWN


def action(checks):
    """The most severe action of a check that does not pass."""
    wanted = [check["action"] for check in checks if check["status"] in (FAIL, UNKNOWN)]
    return max(wanted, key=model.ACTIONS.index) if wanted else "none"


def summary(health):
    """The verdict for a person: one line, then a line for each check that does not pass."""
    checks = health["checks"]
    count = dict((status, len([check for check in checks if check["status"] == status])) for status in model.STATUSES)
    lines = ["%s: GPU health %s (phase %s, action %s): %d failed, %d unknown, %d waived, %d passed%s" % (
        health["node"], health["verdict"].upper(), health["phase"], health["action"], count[FAIL], count[UNKNOWN], count["waived"], count[PASS],
        " [simulated]" if health["simulated"] else "")]
    for status in (FAIL, UNKNOWN):
        for check in checks:
            if check["status"] == status:
                lines.append("%s %s %s: found %s, expected %s. %s" % (
                    status.upper(), check["id"], check["entity"], _brief(check["observed"]), _brief(check["expected"]), check["message"]))
    return "\n".join(lines)


def _brief(value):
    if value is None or value == []:
        return "nothing"
    text = ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else text[:197] + "..."
