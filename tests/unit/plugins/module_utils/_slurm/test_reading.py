# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm says, read: the states in all their spellings, text and JSON, jobs, generic resources."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import records, states
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers

pytestmark = pytest.mark.pythons

# The word; base and flags; whether it is closed; what it does; whether a reboot is pending.
STATES = [
    ("IDLE", "IDLE", "", False, "idle", False),
    ("IDLE+DRAIN", "IDLE", "DRAIN", True, "idle", False),
    ("IDLE*+DRAIN", "IDLE", "DRAIN NOT_RESPONDING", True, "idle", False),
    ("IDLE+DRAIN+NOT_RESPONDING", "IDLE", "DRAIN NOT_RESPONDING", True, "idle", False),
    ("MIXED+DRAIN", "MIXED", "DRAIN", True, "busy", False),
    ("ALLOCATED+DRAIN", "ALLOCATED", "DRAIN", True, "busy", False),
    ("ALLOCATED", "ALLOCATED", "", False, "busy", False),
    ("MIXED", "MIXED", "", False, "busy", False),
    ("IDLE+COMPLETING", "IDLE", "COMPLETING", False, "busy", False),
    ("IDLE+DRAIN+COMPLETING", "IDLE", "COMPLETING DRAIN", True, "busy", False),
    ("DOWN*", "DOWN", "NOT_RESPONDING", False, "idle", False),
    ("DOWN+DRAIN", "DOWN", "DRAIN", True, "idle", False),
    ("DOWN*+DRAIN", "DOWN", "DRAIN NOT_RESPONDING", True, "idle", False),
    ("UNKNOWN+DRAIN+INVALID_REG", "UNKNOWN", "DRAIN INVALID_REG", True, "unknown", False),
    ("IDLE+PLANNED", "IDLE", "PLANNED", False, "idle", False),
    ("IDLE+MAINT", "IDLE", "MAINTENANCE", False, "idle", False),
    ("IDLE+MAINTENANCE+RESERVED", "IDLE", "MAINTENANCE RESERVED", False, "idle", False),
    ("IDLE+DRAIN+REBOOT_REQUESTED", "IDLE", "DRAIN REBOOT_REQUESTED", True, "idle", True),
    ("DOWN+DRAIN+REBOOT_ISSUED", "DOWN", "DRAIN REBOOT_ISSUED", True, "idle", True),
    ("IDLE+REBOOT_CANCEL", "IDLE", "REBOOT_CANCELED", False, "idle", False),
    ("IDLE+POWERED_DOWN", "IDLE", "POWERED_DOWN", False, "idle", False),
    ("IDLE+POWERING_UP", "IDLE", "POWERING_UP", False, "idle", False),
    ("MIXED+POWERING_DOWN", "MIXED", "POWERING_DOWN", False, "busy", False),
    ("IDLE+FAIL", "IDLE", "FAIL", True, "idle", False),
    ("FUTURE", "FUTURE", "", False, "unknown", False),
    ("ERROR", "ERROR", "", False, "unknown", False),
    ("SOMETHING_NEW", "UNKNOWN", "SOMETHING_NEW", False, "unknown", False),
    ("", "UNKNOWN", "", False, "unknown", False),
    # sinfo's words
    ("idle", "IDLE", "", False, "idle", False),
    ("drained", "IDLE", "DRAIN", True, "idle", False),
    ("drained*", "IDLE", "DRAIN NOT_RESPONDING", True, "idle", False),
    ("drain", "IDLE", "DRAIN", True, "idle", False),
    ("drng", "ALLOCATED", "DRAIN", True, "busy", False),
    ("draining@", "ALLOCATED", "DRAIN REBOOT_REQUESTED", True, "busy", True),
    ("mix-", "MIXED", "PLANNED", False, "busy", False),
    ("plnd", "IDLE", "PLANNED", False, "idle", False),
    ("comp", "UNKNOWN", "COMPLETING", False, "busy", False),
    ("inval", "UNKNOWN", "INVALID_REG", False, "unknown", False),
    ("maint", "UNKNOWN", "MAINTENANCE", False, "unknown", False),
    ("reboot^", "UNKNOWN", "REBOOT_ISSUED", False, "unknown", True),
    ("reboot", "UNKNOWN", "REBOOT_REQUESTED", False, "unknown", True),
    ("idle~", "IDLE", "POWERED_DOWN", False, "idle", False),
    ("alloc#", "ALLOCATED", "POWERING_UP", False, "busy", False),
    ("down$", "DOWN", "MAINTENANCE", False, "idle", False),
]


@pytest.mark.parametrize(("word", "base", "flags", "closed", "work", "reboots"), STATES, ids=[row[0] for row in STATES])
def test_states(word, base, flags, closed, work, reboots):
    state = states.parse(word)
    assert (state.base, sorted(state.flags)) == (base, flags.split())
    assert (states.is_closed(state), states.work(state), states.rebooting(state)) == (closed, work, reboots)
    assert states.parse(states.text(state)) == state, "what is shown can be read again"


def test_a_list_of_words_is_the_same_as_one():
    assert states.parse("mixed", "DRAIN", "NOT_RESPONDING") == states.parse("MIXED*+DRAIN")
    assert states.work(states.parse("IDLE"), alloc_cpus=2) == "busy", "whatever it is called"


def test_the_text_of_scontrol():
    first, second = records.from_text(answers.DRAINING + answers.REBOOTING)
    assert (first["name"], first["hostname"], states.text(first["state"]), first["partitions"]) == (
        "n1",
        "host1",
        "MIXED+DRAIN",
        ["batch", "debug"],
    )
    assert (first["reason"], first["reason_user"]) == ("gpufleet:tok-1 driver upgrade a=b Reason=x", "root")
    assert (first["gres"], first["alloc_cpus"], first["version"]) == ("gpu:a100:4", 1, "22.05.8")
    assert (second["name"], second["gres"], second["reason"]) == ("n2", "", "gpufleet:tok-1 test : reboot issued")
    assert records.from_text("Node nope not found\n") == []


def test_one_line_for_a_node_says_the_same():
    for text in (answers.DRAINING, answers.INVALID, answers.REBOOTING):
        (line,) = records.from_text(" ".join(text.split()) + " \n")
        assert line == records.from_text(text)[0]


@pytest.mark.parametrize("joined", [False, True])
def test_values_with_blanks_are_no_fields(joined):
    text = answers.DRAINING.replace(
        "   Reason=", "   Extra=a State=IDLE\n   Comment=b Gres=gpu:9 State=DOWN\n   Reason="
    )
    text = text.replace("PREEMPT_DYNAMIC", "State=DOWN Gres=gpu:9").replace(
        "driver upgrade a=b Reason=x", "State=DOWN c"
    )
    (found,) = records.from_text(" ".join(text.split()) + "\n" if joined else text)
    assert (states.text(found["state"]), found["gres"]) == ("MIXED+DRAIN", "gpu:a100:4")
    assert (found["reason"], found["reason_user"]) == ("gpufleet:tok-1 State=DOWN c", "root")


def test_both_kinds_of_json_and_text_say_the_same():
    text, old = records.from_text(answers.INVALID)[0], records.from_json(answers.JSON_22)[0]
    for key in ("name", "hostname", "state", "reason", "reason_user", "gres", "alloc_cpus", "partitions", "version"):
        assert text[key] == old[key], key
    new = records.from_json(answers.JSON_23)[0]
    assert (states.text(new["state"]), new["reason"], new["reason_user"], new["alloc_cpus"]) == (
        "MIXED+DRAIN",
        'gpufleet:tok-1 a = "b" [x@y]',
        "root",
        1,
    )
    assert new["version"] == "23.11.4"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Node nope not found",
        "[]",
        '{"jobs": []}',
        "null",
        '{"nodes": null}',
        '{"nodes": ["n1"]}',
        '{"nodes": [{"hostname": "n1", "state": "IDLE"}]}',
    ],
)
def test_what_is_no_json_of_nodes(text):
    with pytest.raises(records.NotJson):
        records.from_json(text)


def test_jobs_that_hold_a_node():
    assert [(job["id"], job["user"], job["state"], job["time_left"]) for job in records.jobs(answers.JOBS)] == [
        ("1", "root", "RUNNING", "29:57"),
        ("12_3", "kim", "SUSPENDED", "1-02:00:00"),
        ("15", "kim", "COMPLETING", "INVALID"),
    ]
    assert records.jobs("1|a|b|A_STATE_OF_THE_FUTURE|0\n"), "what nobody knows holds it"
    assert records.jobs("") == records.jobs("slurm_load_jobs error\n") == []


@pytest.mark.parametrize(
    ("listing", "counts"),
    [
        ("gpu:a100:4", {"a100": 4}),
        ("gpu:4", {"": 4}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:2(IDX:0,2),gpu:a100:1,shard:8", {"a100": 3}),
        (
            "gpu:nvidia_h100_80gb_hbm3_1g.10gb:14(S:0),gpu:nvidia_h100_80gb_hbm3:6",
            {"nvidia_h100_80gb_hbm3_1g.10gb": 14, "nvidia_h100_80gb_hbm3": 6},
        ),
        ("(null)", {}),
        ("N/A", {}),
        ("", {}),
        (None, {}),
        ("mps:100", {}),
        ("gpu:a100:no_consume:4", {"a100": 4}),
        ("gpu:(null):8(S:0-1)", {"": 8}),
    ],
)
def test_generic_resources(listing, counts):
    assert records.gres_counts(listing) == counts
