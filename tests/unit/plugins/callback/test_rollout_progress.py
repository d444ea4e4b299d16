# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line for each transition, and nothing else."""

from __future__ import annotations

import threading
import types

import pytest

pytest.importorskip("ansible", reason="a callback lives in Ansible; nodes have none")

from ansible_collections.gpufleet.lifecycle.plugins.callback import rollout_progress

pytestmark = pytest.mark.cores


def numbers(**more):
    return dict(
        {
            "counts": {"pending": 2, "down": 1, "done": 1},
            "total": 4,
            "max_down": 1,
            "broken_elsewhere": 0,
            "node_s": 600,
        },
        **more,
    )


def gate(answer="go", phase="drain", **more):
    return dict({"answer": answer, "phase": phase, "numbers": numbers()}, **more)


@pytest.fixture
def progress():
    clock = types.SimpleNamespace(now=0.0)
    made = rollout_progress.Progress(lambda: clock.now)
    made.at = clock
    return made


def test_where_it_stands_and_when_it_will_be_over(progress):
    first = progress.describe_result("a1", "rollout_gate", gate())
    assert (
        first == "1/4 done, 0 failed, 1 in flight, 2 to go, about 30 min left (at least 30 min) | a1: ticket to drain"
    )
    progress.at.now = 100.0
    line = progress.describe_result(
        "a1",
        "rollout_step",
        {"progress": "[1/4] a1: done", "state": "done", "numbers": numbers(counts={"pending": 2, "done": 2})},
    )
    assert line == "2/4 done, 0 failed, 0 in flight, 2 to go, about 3 min left (at least 3 min) | [1/4] a1: done"


def test_a_node_that_failed_tells_nothing_of_how_long_nodes_take(progress):
    progress.describe_result("a1", "rollout_gate", gate())
    progress.at.now = 1.0
    progress.describe_result("a1", "rollout_step", {"progress": "x", "state": "failed", "numbers": numbers()})
    assert progress.took == [] and progress.began == {}


@pytest.mark.parametrize(
    "action, result",
    [
        ("rollout_gate", gate("wait")),
        ("rollout_gate", gate("stop")),
        ("rollout_gate", {"answer": "go", "numbers": {}}),
        ("rollout_gate", {}),
        ("rollout_step", {"progress": "a1: install"}),
        ("rollout_step", {"progress": "x", "numbers": {"counts": {}}}),
    ],
)
def test_what_is_no_transition_says_nothing(progress, action, result):
    assert progress.describe_result("a1", action, result) is None


def test_an_end_has_no_estimate(progress):
    assert (
        progress.describe_standing(numbers(counts={"done": 3, "lost": 1})) == "3/4 done, 1 failed, 0 in flight, 0 to go"
    )


def test_a_line_stays_one_line(progress):
    line = progress.describe_result(
        "a1", "rollout_step", {"progress": "a1: failed (x\ny)", "state": "down", "numbers": numbers()}
    )
    assert "\n" not in line


def step(name, state="down", **more):
    return dict({"progress": "a1: " + name, "state": state, "step": name, "numbers": numbers()}, **more)


def test_steps_in_progress_are_printed_once_a_minute_with_their_age_and_the_usual_time(progress):
    assert progress.describe_silence() is None
    progress.describe_result("a1", "rollout_gate", gate(step="evidence"))
    progress.at.now = 23.0
    progress.describe_result("a1", "rollout_step", step("install"))
    progress.at.now = 46.0
    progress.describe_result("a1", "rollout_step", step("", "done"))
    progress.at.now = 50.0
    progress.describe_result("b1", "rollout_step", step("install"))
    progress.at.now = 109.0
    assert progress.describe_silence() is None, "a line was printed within a minute"
    progress.at.now = 470.0
    assert progress.describe_silence().endswith("| b1: install, since 7 min (usual: 23 s)")
    progress.at.now = 529.0
    assert progress.describe_silence() is None
    for name in ("c1", "c2", "c3", "c4", "c5", "c6"):
        progress.describe_result(name, "rollout_gate", gate(step="drain"))
    progress.at.now = 600.0
    line = progress.describe_silence()
    assert line.count("since") == rollout_progress.STEPS and line.endswith("; and 2 nodes")
    assert line.index("b1: install") < line.index("c1: drain, since 71 s")


@pytest.mark.parametrize("state", ["done", "failed", "lost", "pending"])
def test_node_that_is_not_in_flight_any_more_is_in_no_step(progress, state):
    progress.describe_result("a1", "rollout_step", step("drain", "draining"))
    progress.describe_result("a1", "rollout_step", step("", state))
    progress.at.now = 1000.0
    assert progress.describe_silence() is None
    assert ("drain" in progress.steps_took) == (state in ("done", "pending"))


def test_silence_is_watched_from_the_start_of_the_playbook_to_its_end(monkeypatch, capsys):
    monkeypatch.setattr(rollout_progress, "SILENCE_S", 0.12)
    callback = rollout_progress.CallbackModule()
    callback.progress.describe_result("a1", "rollout_step", step("install"))
    printed = threading.Event()
    monkeypatch.setattr(rollout_progress.display, "display", lambda line, stderr: printed.set())
    callback.v2_playbook_on_start(None)
    assert printed.wait(60)
    callback.v2_playbook_on_stats(None)
    assert callback.ended.is_set()


@pytest.mark.parametrize("seconds, words", [(5, "5 s"), (61, "1 min"), (3599, "1 h 00 min"), (7384, "2 h 03 min")])
def test_lengths(seconds, words):
    assert rollout_progress.format_span(seconds) == words


@pytest.mark.parametrize("new", [True, False])
def test_both_shapes_of_a_result_are_read_and_stdout_stays_clean(new, capsys):
    task = types.SimpleNamespace(action="gpufleet.lifecycle.rollout_gate", resolved_action=None)
    host = types.SimpleNamespace(get_name=lambda: "a1")
    result = (
        types.SimpleNamespace(task=task, host=host, result=gate())
        if new
        else types.SimpleNamespace(_task=task, _host=host, _result=gate())
    )
    callback = rollout_progress.CallbackModule()
    callback.v2_runner_on_ok(result)
    other = types.SimpleNamespace(
        _task=types.SimpleNamespace(action="ansible.builtin.debug"), _host=host, _result=gate()
    )
    callback.v2_runner_on_ok(other)
    out, err = capsys.readouterr()
    assert out == "" and err.count("a1: ticket to drain") == 1
    assert callback.CALLBACK_TYPE == "notification" and callback.CALLBACK_NEEDS_ENABLED


def test_words_of_a_node_steer_no_terminal(progress):
    result = {
        "progress": "[1/4] a1: failed (boom \x1b[2K\x1b[1A\x9b2K\u202eall done)",
        "state": "failed",
        "numbers": numbers(),
    }
    assert progress.describe_result("a1", "rollout_step", result).isprintable()
    assert progress.describe_result("a1\x1b[2K", "rollout_gate", gate()).isprintable()
