# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module slurm_node, and has it wait for jobs in slices where that is wanted."""

from __future__ import annotations

import math
import time

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands, marks, states
from ansible_collections.gpufleet.lifecycle.plugins.modules.slurm_node import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.waiting import LEAST_S, Waiting

MODULE = "gpufleet.lifecycle.slurm_node"
LAST_S = 1.0  # what the module itself waits in the end: without any time it would find nothing wrong
SHARE = 0.25  # of the time that it has waited so far: jobs that have taken hours need not be looked at every ten seconds
PASSING = tuple(kind for kind, passing, dummy, dummy in commands.TROUBLES if passing)
# What is kept of an answer: how the node was when it was seen last, and what was done in any part.
SEEN = ("state", "work", "reason", "hostname", "gres", "slurm_version", "mark", "blockers")
DONE = ("job", "reservation")


def next_look_s(options, waited_s, in_queue):
    """When to look again. While our own job is in the queue often: once it runs nobody works on the node."""
    growing = 0 if in_queue else waited_s * SHARE
    return max(LEAST_S, min(options["slice_s"], max(options["poll_s"], growing)))


def owner(answer):
    """Whose drain keeps the node closed; none while nobody's does."""
    return answer["mark"]["owner"] if "mark" in answer and states.closed(states.parse(answer.get("state", ""))) else marks.NONE


def joined(earlier, answer):
    """The result of all parts, from what was kept of the earlier ones and the answer to the last one."""
    whole = dict(answer)
    if not earlier:
        return whole
    if "state" not in whole:  # it could not be read this time
        whole.update((name, earlier[name]) for name in SEEN if name in earlier)
    whole.update((name, earlier[name]) for name in DONE if name in earlier)
    whole["changed"] = bool(earlier["changed"] or whole.get("changed"))
    whole["left"] = earlier["left"] + whole.get("left", [])
    if "diff" in earlier:
        whole["diff"] = dict(earlier["diff"], after=whole.get("diff", earlier["diff"])["after"])
    return whole


def kept(whole):
    """What is needed of the result so far."""
    found = {name: whole[name] for name in SEEN + DONE + ("diff",) if name in whole}
    return dict(found, changed=bool(whole.get("changed")), left=whole.get("left", []))


def goes_on(earlier, whole):
    """Whether there is anything to wait for. Slurm may be away for a while, but not when it is asked first."""
    if whole.get("unreachable"):
        return False
    if whole.get("failed"):
        return whole.get("trouble") in PASSING and bool(earlier or whole.get("changed"))
    return not whole["drained"]


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True
    clock = staticmethod(time.monotonic)

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if not self._task.async_val and not self._task.check_mode and args.get("slice_s") is not None:
            dummy, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
            if options["state"] == "drained" and options["timeout_s"] > 0 and options["slice_s"] > 0:
                result.update(self.in_parts(args, options, task_vars))
                return result
        result.update(self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars, wrap_async=self._task.async_val))
        return result

    def in_parts(self, args, options, task_vars):
        waiting = Waiting(self, task_vars)
        args = {name: value for name, value in args.items() if name != "slice_s"}
        began = waiting.note.get("began", self.clock())
        earlier = waiting.note.get("earlier", {})
        while True:
            waited_s = self.clock() - began
            left_s = options["timeout_s"] - waited_s
            more = left_s > (LEAST_S + LAST_S if waiting.gives_up else options["slice_s"])
            if more:
                seconds = 0 if waiting.gives_up else options["slice_s"]
            else:
                seconds = math.ceil(max(LAST_S, left_s))
            part = {"waited_s": waited_s, "owner": owner(earlier), "more": more}
            whole = joined(earlier, self._execute_module(module_name=MODULE, module_args=dict(args, timeout_s=seconds, part=part), task_vars=task_vars))
            if not more or not goes_on(earlier, whole):
                return whole
            earlier = kept(whole)
            self.wait(waiting, options, began, earlier, bool(whole.get("failed")))

    def wait(self, waiting, options, began, earlier, away):
        waited_s = self.clock() - began
        seconds, least = options["poll_s"] if away else 0, 0
        if waiting.gives_up:
            seconds, least = next_look_s(options, waited_s, owner(earlier) == marks.NONE), LEAST_S
        seconds = min(seconds, options["timeout_s"] - LAST_S - waited_s)
        # What is left may be too short, and then the module waits for it.
        if seconds > 0 and seconds >= least:
            waiting.pause(seconds, began=began, earlier=earlier)
