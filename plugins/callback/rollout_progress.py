# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line on stderr for each transition of a rollout."""

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
  - The lines go to stderr, so that they are not in the output of another callback, such as one that prints JSON.
requirements:
  - enable it in the configuration, C(callbacks_enabled = gpufleet.lifecycle.rollout_progress), or by
    C(ANSIBLE_CALLBACKS_ENABLED)
"""

import time

from ansible.plugins.callback import CallbackBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import estimate
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

DONE = ("done", "skipped")
FAILED = ("failed", "rolled_back", "quarantined", "lost")
IN_FLIGHT = ("draining", "down", "validating", "soaking")
OUT = ("quarantined", "lost")


def span(seconds):
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

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.began = {}
        self.took = []

    def line(self, node, action, result):
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
        return "%s | %s" % (self.standing(numbers), text.line(words))

    def standing(self, numbers):
        counts = numbers["counts"]

        def of(states):
            return sum(counts.get(state, 0) for state in states)

        words = "%d/%d done, %d failed, %d in flight, %d to go" % (
            of(DONE),
            sum(counts.values()),
            of(FAILED),
            of(IN_FLIGHT),
            counts.get("pending", 0),
        )
        left = of(IN_FLIGHT) + counts.get("pending", 0)
        if not left or not numbers.get("max_down"):
            return words
        now = self.clock()
        slots = numbers["max_down"] - of(OUT) - (numbers.get("broken_elsewhere") or 0)
        ages = [now - began for began in self.began.values()][: of(IN_FLIGHT)]
        ages += [0.0] * (of(IN_FLIGHT) - len(ages))
        expected, bound = estimate.remaining(
            counts.get("pending", 0), ages, slots, self.took, numbers.get("node_s") or 0
        )
        return "%s, about %s left (at least %s)" % (words, span(expected), span(bound))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpufleet.lifecycle.rollout_progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.progress = Progress()

    def v2_runner_on_ok(self, result):
        task, host = getattr(result, "task", None) or result._task, getattr(result, "host", None) or result._host
        action = str(getattr(task, "resolved_action", None) or task.action).rpartition(".")[2]
        if action in ("rollout_gate", "rollout_step"):
            found = getattr(result, "result", None)
            line = self.progress.line(host.get_name(), action, found if isinstance(found, dict) else result._result)
            if line:
                display.display(line, stderr=True)
