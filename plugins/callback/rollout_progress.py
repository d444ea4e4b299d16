# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line on stderr for each transition of a rollout, and one a minute while nodes are in flight."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rollout_progress
type: notification
short_description: Show the progress of a rollout, with an estimate of its end
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Prints one plain line for each transition of a node in a rollout of M(gpufleet.lifecycle.rollout_plan), with how
    many nodes are done, failed, in flight and to go, and an estimate of the time left with its lower bound. The
    estimate comes from the nodes that were done in this run, and from C(rollout_node_s)
    before the first one is.
  - While nodes are in flight and nothing else is printed, prints a line every minute with the steps that have lasted
    longest, since when, and how long the step usually takes.
  - The lines go to stderr, so that they are not in the output of another callback, such as one that prints JSON. The
    tasks themselves print no line for a step while this callback is enabled.
requirements:
  - enable it in the configuration, C(callbacks_enabled = gpufleet.lifecycle.rollout_progress), or by
    C(ANSIBLE_CALLBACKS_ENABLED)
"""

import threading
import time
import typing as t

from ansible.plugins.callback import CallbackBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import plan_text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import report
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

DONE = ("done", "skipped")
FAILED = ("failed", "rolled_back", "quarantined", "lost")
IN_FLIGHT = ("draining", "down", "validating", "soaking")
OUT = ("quarantined", "lost")
# Seconds without a line after which the steps in progress are printed, and how many of them.
SILENCE_S = 60.0
STEPS = 5


def format_span(seconds: float) -> str:
    """Return a number of seconds in readable form."""
    minutes = int(round(seconds / 60.0))
    return (
        "%d s" % round(seconds)
        if seconds < 60
        else "%d min" % minutes
        if minutes < 60
        else "%d h %02d min" % divmod(minutes, 60)
    )


class Progress:
    """The times of the nodes in this run; the numbers come with each result."""

    def __init__(self, clock: t.Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began: dict[str, float] = {}
        self.took: list[float] = []
        self.steps: dict[str, tuple[str, float]] = {}  # the open step of each node, and its begin
        self.steps_took: dict[str, list[float]] = {}
        self.numbers: dict[str, t.Any] = {}
        self.printed = clock()

    def describe_result(self, node: str, action: str, result: dict) -> str | None:
        """Return the line for the RESULT of a rollout's ACTION; None if nothing has changed."""
        numbers = result.get("numbers") or {}
        if not numbers.get("counts"):
            return None
        if action == "rollout_gate":
            if result.get("answer") != "go":
                return None
            if result.get("phase") == "drain":
                self.began[node] = self.clock()
            words = "%s: ticket to %s" % (
                node,
                {"drain": "drain", "down": "go down", "return": "serve again"}.get(result.get("phase"), "go"),
            )
        else:
            state = result.get("state")
            if state in DONE + FAILED and node in self.began:
                took = self.clock() - self.began.pop(node)
                if state == "done":
                    self.took.append(took)
            words = str(result.get("progress") or node)
        self._note_step(node, result.get("step"), result.get("state"))
        self.numbers, self.printed = numbers, self.clock()
        return "%s | %s" % (self.describe_standing(numbers), text.one_line(words))

    def _note_step(self, node, step, state) -> None:
        """Note the step that a node began, and how long the one before took."""
        is_over = state is not None and state not in IN_FLIGHT
        if not step and not is_over:
            return
        before = self.steps.pop(node, None)
        if before and state not in FAILED:
            self.steps_took.setdefault(before[0], []).append(self.clock() - before[1])
        if step and not is_over:
            self.steps[node] = (step, self.clock())

    def describe_silence(self) -> str | None:
        """Return a line about the steps in progress, the longest first; None if one was printed within a minute."""
        now = self.clock()
        if not self.steps or now - self.printed < SILENCE_S:
            return None
        self.printed = now
        oldest = sorted(self.steps.items(), key=lambda item: item[1][1])
        parts = [
            "%s: %s" % (node, report.describe_step(step, now - began, self._usual_step(step)))
            for node, (step, began) in oldest[:STEPS]
        ]
        if len(oldest) > STEPS:
            parts.append("and %s" % text.count_noun(len(oldest) - STEPS, "node"))
        return "%s | %s" % (self.describe_standing(self.numbers), text.one_line("; ".join(parts)))

    def _usual_step(self, step):
        took = self.steps_took.get(step)
        return plan_text.median(took) if took else None

    def describe_standing(self, numbers: dict) -> str:
        """Return how many nodes are done, failed, in flight and to go, and the time left."""
        counts = numbers["counts"]

        def count(states):
            return sum(counts.get(state, 0) for state in states)

        words = "%d/%d done, %d failed, %d in flight, %d to go" % (
            count(DONE),
            sum(counts.values()),
            count(FAILED),
            count(IN_FLIGHT),
            counts.get("pending", 0),
        )
        left = count(IN_FLIGHT) + counts.get("pending", 0)
        if not left or not numbers.get("max_down"):
            return words
        now = self.clock()
        slots = numbers["max_down"] - count(OUT) - (numbers.get("broken_elsewhere") or 0)
        ages = [now - began for began in self.began.values()][: count(IN_FLIGHT)]
        ages += [0.0] * (count(IN_FLIGHT) - len(ages))
        expected, bound = plan_text.estimate_remaining(
            counts.get("pending", 0), ages, slots, self.took, numbers.get("node_s") or 0
        )
        return "%s, about %s left (at least %s)" % (words, format_span(expected), format_span(bound))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpufleet.lifecycle.rollout_progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.progress = Progress()
        self.lock, self.ended = threading.Lock(), threading.Event()

    def v2_playbook_on_start(self, playbook) -> None:
        # Ansible calls nothing while a task lasts.
        threading.Thread(target=self._watch_silence, daemon=True).start()

    def v2_playbook_on_stats(self, stats) -> None:
        self.ended.set()

    def _watch_silence(self) -> None:
        while not self.ended.wait(SILENCE_S / 12):
            with self.lock:
                line = self.progress.describe_silence()
            if line:
                display.display(line, stderr=True)

    def v2_runner_on_ok(self, result) -> None:
        task, host = getattr(result, "task", None) or result._task, getattr(result, "host", None) or result._host
        action = str(getattr(task, "resolved_action", None) or task.action).rpartition(".")[2]
        if action in ("rollout_gate", "rollout_step"):
            found = getattr(result, "result", None)
            with self.lock:
                line = self.progress.describe_result(
                    host.get_name(), action, found if isinstance(found, dict) else result._result
                )
            if line:
                display.display(line, stderr=True)
