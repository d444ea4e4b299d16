# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One row of the table, asked about one GPU: the words in which its truth table is written."""

from __future__ import annotations

import collections
import copy
import json
import pathlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, policy, registry, verdict
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

POLICY = json.loads(
    (pathlib.Path(policy.__file__).parents[2] / "plugin_utils" / "_data" / "health_policy.json").read_text()
)
ABSENT = dict(readings.NOT_SUPPORTED)
RULES = policy.complete(POLICY, registry.IDENTS)
GONE = "gone"
NO_BASELINE = "no baseline"
PASS, FAIL, UNKNOWN, SKIP = "pass", "fail", "unknown", "not_applicable"
NOTICE = "notice"
JUDGES = dict((row.ident, row.judge) for row in registry.TABLE)
# The cases that absences() made.
MISSING = []

# What GPU 1 says now and said in the baseline, as changes of a healthy reading; options are those of ask().
Case = collections.namedtuple("Case", ["ident", "now", "then", "outcome", "action", "words", "options"])


class Row(tuple):
    """A row of absences()."""


def table(rows):
    """The cases of {ident: [(now, then, outcome, action, words, options), ...]}.

    From the action on all may be left out; then it is none, with any words.
    """
    found = []
    for ident, group in rows.items():
        for row in group:
            now, then, outcome, *rest = row
            options = rest.pop() if rest and isinstance(rest[-1], dict) else {}
            action, words = [*rest, *("none", "")[len(rest) :]]
            found.append(Case(ident, now, then, outcome, action, words, options))
            if isinstance(row, Row):
                MISSING.append(found[-1])
    return found


def changed(snapshot, change):
    gpu = snapshot["gpus"][1]
    for key, content in change.items():
        if content == GONE:
            del gpu[key]
        else:
            gpu[key] = (
                copy.deepcopy(content)
                if isinstance(content, dict) and "rc" in content
                else readings.value(copy.deepcopy(content))
            )
    return snapshot


def context(
    now,
    then,
    driver=readings.DRIVER,
    phase="post",
    expect=None,
    policy_change=None,
    peers=None,
    reading=None,
    baseline=None,
):
    """(reading, baseline, what a judge is given). PEERS changes GPU 0, READING and BASELINE change the documents."""
    snapshot = changed(readings.snapshot(driver=driver), now)
    for key, content in (peers or {}).items():
        snapshot["gpus"][0][key] = content if isinstance(content, dict) and "rc" in content else readings.value(content)
    document = readings.reading(snapshot, **(reading or {}))
    old = (
        None
        if then == NO_BASELINE
        else readings.baseline(
            **dict({"snapshot": changed(readings.snapshot(driver=driver), then)}, **(baseline or {}))
        )
    )
    rules = policy.complete(dict(POLICY, **policy_change), registry.IDENTS) if policy_change else RULES
    return document, old, verdict.context(document, old, rules, None, driver, phase, expect or {}, None)


def ask(ident, now, then, **options):
    """The check IDENT of GPU 1."""
    document, old, ctx = context(now, then, **options)
    before = copy.deepcopy((document, old))
    found = JUDGES[ident](ctx, ctx.snapshot["gpus"][1])
    assert (document, old) == before, "a judge changed what it was given"
    assert isinstance(found, dict) and found["id"] == ident and found["entity"] == readings.uuid(1)
    return found


def holds(one):
    """Ask for a case, and say what is wrong with the answer."""
    check = ask(one.ident, one.now, one.then, **one.options)
    outcome = NOTICE if check["notice"] else check["status"]
    assert (outcome, check["action"]) == (one.outcome, one.action), check
    assert one.words in check["message"], check["message"]
    if outcome in (FAIL, UNKNOWN, NOTICE):
        message = check["message"]
        assert readings.uuid(1) in message, message
        assert any(
            word in message
            for word in (
                "xpected",
                "answered in the baseline",
                "cannot be read",
                "is not known",
                "no number",
                "other GPUs",
            )
        ), message
        assert message.endswith(".") and message.count(". ") >= 1, "what is wrong, and then what to do: %s" % message
    assert check["source"] in ("policy", "baseline", "hardware")
    assert model.ACTIONS.index(check["action"]) >= 0
    json.dumps(check)
    return check


def same_load(uptime=3000.0):
    """Options for a baseline of the same boot, UPTIME seconds after it; the reading was at 3600."""
    return {"baseline": {"boot_id": "x", "system": dict(readings.system(), uptime_s=uptime)}}


def absences(key, fail_action="hold", both=True):
    """What every signal does that is not there. The baseline's healthy GPU has it."""
    rows = [
        ({key: GONE}, NO_BASELINE, UNKNOWN, "hold"),
        ({key: readings.failed(999)}, NO_BASELINE, FAIL, "reboot"),
        ({key: readings.failed(4)}, NO_BASELINE, UNKNOWN, "hold", "root"),
        ({key: ABSENT}, NO_BASELINE, UNKNOWN, "hold", "other GPUs of the same model"),
        ({key: ABSENT}, NO_BASELINE, SKIP, {"peers": {key: ABSENT}}),
        ({key: ABSENT}, {key: ABSENT}, SKIP),
    ]
    if both:
        rows += [
            ({key: ABSENT}, {}, FAIL, fail_action, "answered in the baseline"),
            ({key: GONE}, {}, FAIL, fail_action),
        ]
    return [Row(row) for row in rows]


def outcomes(cases):
    """{ident: set of outcomes}."""
    found = collections.defaultdict(set)
    for one in cases:
        found[one.ident].add(one.outcome)
    return found


def name(one):
    return "%s-%s-%s" % (one.ident, one.outcome, "-".join(sorted(one.now)) or "healthy")
