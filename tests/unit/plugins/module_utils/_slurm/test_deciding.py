# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a drain is, and what is done about it: truth tables."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import decide, marks, records, states

OURS = "gpufleet:tok-1 driver upgrade"
JOB = {"id": "1", "user": "kim", "partition": "batch", "state": "RUNNING", "time_left": "1:00"}


SHORT = "gres/gpu count reported lower than configured (0 < 4)"


def record(state, reason="", user="root", gres="gpu:a100:4", alloc=0):
    user = user if reason else ""
    return records.node("n1", "host1", states.parse(state), reason, user, gres, "", alloc, ["batch"], "22.05.8")


# State, reason, who set it; whose mark it is; what drained does, and resumed.
MARKS = [
    ("IDLE", "", "", "none", "do", "nothing"),
    ("MIXED", "", "", "none", "do", "nothing"),
    ("IDLE+DRAIN", OURS, "root", "ours", "nothing", "do"),
    ("IDLE+DRAIN", "gpufleet:tok-1", "root", "ours", "nothing", "do"),
    ("MIXED+DRAIN", OURS + " : reboot issued", "slurm", "ours", "nothing", "do"),
    ("DOWN+DRAIN", OURS + " : reboot complete", "slurm", "ours", "nothing", "do"),
    ("DOWN", OURS + " : reboot issued : reboot timed out", "slurm", "ours", "do", "do"),
    ("IDLE+DRAIN", "gpufleet:tok-12 driver upgrade", "root", "operator", "leave", "leave"),
    ("IDLE+DRAIN", "gpufleet:tok-1x", "root", "operator", "leave", "leave"),
    ("IDLE+DRAIN", "bad fan, was gpufleet:tok-1", "kim", "operator", "leave", "leave"),
    ("IDLE+DRAIN", "bad fan", "kim", "operator", "leave", "leave"),
    ("IDLE+DRAIN", "", "", "operator", "leave", "leave"),
    ("MIXED+DRAIN", "Kill task failed", "slurm", "operator", "leave", "leave"),
    ("IDLE+FAIL", "bad fan", "kim", "operator", "leave", "leave"),
    ("DOWN", "bad fan", "kim", "operator", "refuse", "leave"),
    ("DOWN*", "Not responding", "slurm", "none", "do", "nothing"),
    ("DOWN", "Node unexpectedly rebooted", "root", "none", "do", "nothing"),
    ("DOWN", "", "", "none", "do", "nothing"),
    ("FUTURE", "", "", "none", "refuse", "nothing"),
    ("IDLE+DRAIN+REBOOT_REQUESTED", "kernel", "kim", "operator", "refuse", "leave"),
    ("IDLE+DRAIN+REBOOT_ISSUED", OURS, "root", "ours", "refuse", "wait"),
    ("IDLE+DRAIN+INVALID_REG", OURS, "root", "ours", "nothing", "refuse"),
    ("IDLE+DRAIN+NOT_RESPONDING", OURS, "root", "ours", "nothing", "wait"),
    ("IDLE", OURS, "root", "none", "do", "nothing"),
    # Since 23.02.7 Slurm replaces the reason of a drained node that registers short.
    ("IDLE+DRAIN", SHORT, "slurm", "unknown", "leave", "refuse"),
    ("IDLE+DRAIN", "Low RealMemory (reported:1 < 100.00% of configured:2)", "root", "unknown", "leave", "refuse"),
    ("IDLE+DRAIN", "Low socket*core*thread count, Low CPUs", "slurm", "unknown", "leave", "refuse"),
    ("IDLE+DRAIN", "Could not unpack gres data", "slurm", "unknown", "leave", "refuse"),
    ("IDLE+DRAIN", ", Reported active features (a) are not a superset of b", "slurm", "unknown", "leave", "refuse"),
    ("IDLE+DRAIN", "Reported a bad fan", "kim", "operator", "leave", "leave"),
    (
        "IDLE+DRAIN",
        "gres/gpu GRES core specification 0-9 for node n1 doesn't match",
        "slurm",
        "unknown",
        "leave",
        "refuse",
    ),
    ("DOWN+DRAIN", "Node unexpectedly rebooted", "slurm", "unknown", "leave", "refuse"),
    ("IDLE+DRAIN", "Low on coolant", "kim", "operator", "leave", "leave"),
    ("IDLE+DRAIN", "kim: " + SHORT, "kim", "operator", "leave", "leave"),
    ("IDLE", SHORT, "slurm", "none", "do", "nothing"),
]


@pytest.mark.parametrize(
    ("state", "reason", "user", "owner", "drains", "resumes"), MARKS, ids=["%s %s" % row[:2] for row in MARKS]
)
def test_whose_it_is_and_what_is_done(state, reason, user, owner, drains, resumes):
    node = record(state, reason, user)
    mark = marks.mark(node, "tok-1")
    assert mark["owner"] == owner
    assert mark["previous"] == (reason or ("" if owner == "operator" else None) if owner != "ours" else None)
    assert (decide.drain(node, "tok-1").action, decide.resume(node, "tok-1").action) == (drains, resumes)


@pytest.mark.parametrize(
    ("recorded", "owner", "drains", "resumes"),
    [
        ("ours", "ours", "nothing", "do"),
        ("operator", "operator", "leave", "leave"),
        ("none", "operator", "leave", "leave"),
        ("unknown", "unknown", "leave", "refuse"),
    ],
)
def test_record_tells_whose_drain_it_is_when_slurm_replaced_its_reason(recorded, owner, drains, resumes):
    node = record("IDLE+DRAIN", SHORT, "slurm")
    assert marks.mark(node, "tok-1", recorded)["owner"] == owner
    assert decide.drain(node, "tok-1", recorded).action == drains
    assert decide.resume(node, "tok-1", recorded=recorded).action == resumes
    other = record("IDLE+DRAIN", "bad fan", "kim")
    assert decide.resume(other, "tok-1", recorded=recorded).action == "leave", "a user's reason is a user's"


@pytest.mark.parametrize(
    ("state", "jobs", "alloc", "empty", "drained"),
    [
        ("IDLE+DRAIN", [], 0, "yes", True),
        ("DOWN+DRAIN", [], 0, "yes", True),
        ("IDLE", [], 0, "yes", False),
        ("DOWN", [], 0, "yes", False),
        ("IDLE+DRAIN", [JOB], 0, "no", False),
        ("IDLE+DRAIN", [], 1, "no", False),
        ("MIXED+DRAIN", [], 0, "no", False),
        ("IDLE+DRAIN+COMPLETING", [], 0, "no", False),
        ("UNKNOWN+DRAIN", [], 0, "unknown", False),
        ("ERROR+DRAIN", [], 0, "unknown", False),
    ],
)
def test_when_a_node_is_empty(state, jobs, alloc, empty, drained):
    node = record(state, OURS, alloc=alloc)
    assert decide.empty(node, jobs)[0] == empty and bool(decide.empty(node, jobs)[1]) == (empty != "yes")
    assert decide.is_drained(node, jobs) == drained


@pytest.mark.parametrize(
    ("gres", "gpus", "types", "said"),
    [
        ("gpu:a100:4", 4, None, ""),
        ("gpu:a100:4", None, None, ""),
        ("gpu:a100:4", 8, None, "Slurm has 4 GPUs for it (Gres=gpu:a100:4), and the node has 8"),
        ("gpu:a100:1", 0, None, "Slurm has 1 GPU for it"),
        ("(null)", 8, None, ""),
        ("gpu:1g.10gb:14", None, {"1g.10gb": 14}, ""),
        ("gpu:A100:4", None, {"nvidia_a100-sxm4-80gb": 4}, ""),
        ("gpu:4", None, {"nvidia_a100-sxm4-80gb": 4}, ""),
        ("gpu:a100:2,gpu:2", None, {"nvidia_a100-sxm4-80gb": 2, "nvidia_h100": 2}, ""),
        ("gpu:a100:3,gpu:1", None, {"nvidia_a100-sxm4-80gb": 2, "nvidia_h100": 2}, "Slurm has 1 of no type, 3 a100"),
        ("gpu:h100:4", None, {"nvidia_a100-sxm4-80gb": 4}, "Slurm has 4 h100"),
        ("gpu:1g.10gb:7", None, {"nvidia_a100-sxm4-80gb_1g.10gb": 7}, ""),
        ("gpu:a100:2", None, {"nvidia_a100-sxm4-80gb": 1, "nvidia_a100-sxm4-80gb_3g.40gb": 1}, "Slurm has 2 a100"),
        (
            "gpu:1g.10gb:7,gpu:2g.20gb:3",
            None,
            {"1g.10gb": 14},
            "Slurm has 7 1g.10gb, 3 2g.20gb for it (Gres=gpu:1g.10gb:7,gpu:2g.20gb:3), and the node has 14 1g.10gb",
        ),
        ("(null)", None, {"a100": 4}, "Slurm has no GPUs for it (Gres=(null)), and the node has 4 a100"),
        ("gpu:a100:4", None, {}, "and the node has no GPUs"),
    ],
)
def test_gres_in_step(gres, gpus, types, said):
    node = record("IDLE+DRAIN", OURS, gres=gres)
    text = decide.gres(node, gpus, types)
    assert said in text and bool(text) == bool(said)
    assert decide.resume(node, "tok-1", gpus, types).action == ("refuse" if said else "do")


def test_the_reason_is_one_line_that_scontrol_leaves_as_it_is():
    assert marks.reason("tok-1", 'a "b"\n\'c\' \\ d') == "gpufleet:tok-1 a b c d"
    assert marks.token_of(marks.reason("tok-1", "x" * 500)) == "tok-1" and len(marks.reason("tok-1", "x" * 500)) == 200
    assert [marks.valid(token) for token in ("upgrade-535.261.03", "a", "", None, "a b", "-a", "a" * 101, "a\n")] == [
        True,
        True,
    ] + [False] * 6


def test_many_jobs_are_told_in_short():
    text = decide.jobs_told([dict(JOB, id=str(number)) for number in range(13)])
    assert text.startswith("job 0 (user kim, partition batch, RUNNING, 1:00 left), job 1 ")
    assert text.endswith(" and 3 more")
