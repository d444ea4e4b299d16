# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict about a node (schema gpufleet.health/1), out of data alone."""

from __future__ import annotations

from . import baseline as baseline_family
from . import mig_free, model, nodefacts, registry, relief, signals
from . import policy as policy_rules
from .checks import hardware
from .diff import EXPECTED
from .model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from .nodefacts import Checks, strip_package_version

SCHEMA = "gpufleet.health/1"
# What gpu.fabric observes of a GPU that has not joined its NVLink fabric yet (NVML, nvmlGpuFabricState_t).
JOINING = ("in progress", "not started")


def check_policy(policy, rows=None) -> None:
    """Refuse a policy that cannot be followed; ROWS are the data file's, for the bounds of thresholds.

    Raises PolicyError.
    """
    policy_rules.complete(policy, registry.IDENTS, rows)


def evaluate(
    reading,
    baseline=None,
    policy=None,
    tables=None,
    expected_driver=None,
    phase="adhoc",
    node="",
    now="",
    expect=None,
    smoke=None,
    table=None,
) -> dict:
    """Judge a READING (gpufleet.reading/1).

    NOW is its time in UTC, like 2026-01-31T12:00:00Z; SMOKE is the result of gpu_smoke.

    TABLE are the rows to judge by, None for all. With some rows only, changes since the baseline are not told.

    Raises BaselineError for a baseline that is none or another node's, PolicyError for a policy that cannot be
    followed.
    """
    if phase not in model.PHASES:
        raise ValueError("phase is %r, expected one of %s" % (phase, ", ".join(model.PHASES)))
    if baseline is not None:
        baseline_family.check_baseline(baseline, node)
    rules = policy_rules.complete(policy, registry.IDENTS)
    expect = dict(expect) if isinstance(expect, dict) else {}
    expect["mig_free"] = mig_free.check_usable(expect.get("mig_free"), reading, node, rules)
    ctx = context(reading, baseline, rules, tables, expected_driver, phase, expect, smoke)
    rules["waivers"] = rules["waivers"] + relief.list_waivers(reading, ctx.snapshot)
    earlier = None
    if baseline is not None:
        # The baseline is judged by the same rules, but not by what is wanted now.
        earlier = policy_rules.apply_strict(
            judge_table(context(baseline, None, rules, tables, None, "baseline", {}, baseline.get("smoke")), table),
            rules,
        )
    found = mig_free.accept_hidden(policy_rules.apply_strict(judge_table(ctx, table), rules), ctx)
    # Waivers end by the latest of the controller's clock, the node's, and the baseline's time.
    clock = (
        policy_rules.find_latest(now, model.item(reading, "time"), model.item(baseline, "time"))
        if rules["waivers"]
        else now
    )
    checks = policy_rules.apply_policy(fill_since(found, earlier), rules, clock)
    # In the order of the table: what explains the rest comes first.
    order = dict((row.ident, number) for number, row in enumerate(registry.TABLE))
    checks.sort(
        key=lambda check: (order.get(check["id"], len(order)), check["entity"], check["status"], check["message"])
    )
    return {
        "schema": SCHEMA,
        "node": node,
        "boot_id": model.item(reading, "boot_id"),
        "kernel": model.item(ctx.audit, "kernel", "running"),
        "time": now,
        "phase": phase,
        "simulated": bool(model.item(ctx.snapshot, "simulated")),
        "driver": dict(
            nodefacts.collect_versions(ctx.snapshot, ctx.audit), expected=strip_package_version(expected_driver)
        ),
        "verdict": decide_verdict(checks),
        "action": action(checks),
        "notices": len([check for check in checks if check["notice"]]),
        "attribution": sum_attribution(checks),
        "changes": baseline_family.list_changes(ctx) if table is None else [],
        "checks": checks,
        "left_out": {},
    }


def context(reading, baseline, rules, tables, expected_driver, phase, expect, smoke):
    """Return the input of the checks; sections that are missing or not dictionaries are None."""
    sections = dict(
        (key, section if isinstance(section, dict) else None)
        for key, section in ((key, model.item(reading, key)) for key in baseline_family.SECTIONS)
    )
    sections["snapshot"] = mig_free.graft_hidden_values(sections["snapshot"], expect.get("mig_free"))
    return model.Context(
        reading=reading if isinstance(reading, dict) else {},
        smoke=smoke,
        baseline=baseline,
        policy=rules,
        tables=tables if isinstance(tables, dict) else {},
        expected_driver=expected_driver,
        phase=phase,
        expect=expect,
        **sections,
    )


def judge_table(ctx, table=None) -> list[dict]:
    """All checks of the table, or of TABLE."""
    checks = []
    for row in registry.TABLE if table is None else table:
        if row.scope == "node":
            checks += run_judge(row, model.NODE, ctx)
        else:
            for gpu in signals.list_ready_gpus(ctx):
                checks += run_judge(row, model.entity(gpu), ctx, gpu)
    return checks


def run_judge(row, entity, *arguments) -> list[dict]:
    """The checks of one judge. What it cannot digest is unknown, never a pass and never the end of the verdict."""
    try:
        answer = row.judge(*arguments)
        answer = [answer] if isinstance(answer, dict) else list(answer)
        wrong = [
            check
            for check in answer
            if check["id"] != row.ident or check["status"] not in model.STATUSES or check["action"] not in model.ACTIONS
        ]
        if not wrong:
            return answer
        problem = "it answered %r" % (wrong[0],)
    except Exception as exc:  # noqa: BLE001 (whatever it is, the verdict goes on and does not pass)
        problem = "%s: %s" % (type(exc).__name__, exc)
    return [
        Checks(row.ident, entity).unknown(
            None,
            None,
            "The check %s could not judge this reading (%s). That is an error of this collection: report it "
            "with the reading." % (row.ident, problem),
        )
    ]


def decide_verdict(checks) -> str:
    """fail before unknown before pass; and nothing that passed is no pass."""
    statuses = set(check["status"] for check in checks)
    for status in (FAIL, UNKNOWN):
        if status in statuses:
            return status
    return PASS if PASS in statuses else UNKNOWN


def action(checks) -> str:
    """The most severe action of a check that does not pass."""
    wanted = [check["action"] for check in checks if check["status"] in (FAIL, UNKNOWN)]
    return max(wanted, key=model.ACTIONS.index) if wanted else "none"


def with_peers(health, reading, peers) -> dict | None:
    """HEALTH, which was judged before it was known what other nodes have, as it is once their PEERS are known
    (expect.peers).

    READING is what it was judged from, or the baseline that was made of it. No other check depends on other nodes.
    """
    checks = model.item(health, "checks")
    if not isinstance(checks, list) or not any(hardware.is_open(check) for check in checks):
        return health
    snapshot, audit = (model.item(reading, key) for key in ("snapshot", "audit"))
    checks = [
        hardware.settle_by_peers(check, snapshot, audit, peers) if hardware.is_open(check) else check
        for check in checks
    ]
    return dict(health, checks=checks, verdict=decide_verdict(checks), action=action(checks))


def joining(checks) -> bool:
    """Tell if GPUs that are still joining their NVLink fabric are all that is open in CHECKS: the node is then read
    again.
    """
    waiting = [check for check in checks if check.get("status") in (FAIL, UNKNOWN)]
    return bool(waiting) and all(
        check.get("id") == "gpu.fabric" and check.get("status") == UNKNOWN and check.get("observed") in JOINING
        for check in waiting
    )


def compact(health) -> dict:
    """Return the verdict without what needs no attention: checks that pass or do not apply, and expected changes.

    left_out has their numbers.
    """

    def quiet(check) -> bool:
        return check["status"] in (PASS, NOT_APPLICABLE) and not check["notice"]

    kept = [check for check in health["checks"] if not quiet(check)]
    gone = [check["status"] for check in health["checks"] if quiet(check)]
    changed = [change for change in health["changes"] if change["class"] != EXPECTED]
    left_out = dict((status, gone.count(status)) for status in sorted(set(gone)))
    if len(changed) < len(health["changes"]):
        left_out["expected_changes"] = len(health["changes"]) - len(changed)
    return dict(health, checks=kept, changes=changed, left_out=left_out)


def summary(health) -> str:
    """The verdict for a person: one line, then a line for each check that does not pass and for each notice."""
    checks = health["checks"]
    count = dict((status, len([check for check in checks if check["status"] == status])) for status in model.STATUSES)
    lines = [
        "%s: GPU health %s (phase %s, action %s): %d failed, %d unknown, %d waived, %d passed%s%s"
        % (
            health["node"],
            health["verdict"].upper(),
            health["phase"],
            health["action"],
            count[FAIL],
            count[UNKNOWN],
            count["waived"],
            count[PASS],
            ", %d notices" % health["notices"] if health["notices"] else "",
            " [simulated]" if health["simulated"] else "",
        )
    ]
    for status in (FAIL, UNKNOWN):
        for check in checks:
            if check["status"] == status:
                lines.append(
                    "%s %s %s: found %s, expected %s. %s"
                    % (
                        status.upper(),
                        check["id"],
                        check["entity"],
                        _shorten_value(check["observed"]),
                        _shorten_value(check["expected"]),
                        check["message"],
                    )
                )
    lines += [
        "NOTICE %s %s: %s" % (check["id"], check["entity"], check["message"]) for check in checks if check["notice"]
    ]
    return "\n".join(lines)


def _shorten_value(value) -> str:
    if value is None or value == []:
        return "nothing"
    text = ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else text[:197] + "..."


BEFORE, DURING = "before", "during"
# What these say belongs to the comparison, and there was none when the baseline was taken.
OF_THE_COMPARISON = ("baseline.",)


def fill_since(checks, earlier) -> list[dict]:
    """CHECKS with since filled in for those that fail or are unknown.

    EARLIER are the checks of the baseline's own reading; None without one.
    """
    if earlier is None:
        return checks
    was = {}
    for check in earlier:
        was.setdefault((check["id"], check["entity"]), set()).add(check["status"])
    return [dict(check, since=_find_since(check, was.get((check["id"], check["entity"]), set()))) for check in checks]


def _find_since(check, before) -> str | None:
    if check["status"] not in (FAIL, UNKNOWN) or check["id"].startswith(OF_THE_COMPARISON):
        return None
    if check["since"] is not None:
        # The judge looked closer than by entity: another XID of a GPU that had one before is another fault.
        return check["since"]
    if FAIL in before:
        return BEFORE
    if UNKNOWN in before:
        # What was not known before may have been broken then.
        return BEFORE if check["status"] == UNKNOWN else None
    return DURING


def sum_attribution(checks) -> dict[str, list]:
    """Return the checks that did not pass before, and those that changed since: {"sick_before": [id], "broke_during":
    [id]}."""
    return {
        "sick_before": sorted(set(check["id"] for check in checks if check["since"] == BEFORE)),
        "broke_during": sorted(set(check["id"] for check in checks if check["since"] == DURING)),
    }
