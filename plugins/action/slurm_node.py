# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module slurm_node, and has it wait for jobs in slices where that is wanted."""

from __future__ import annotations

import math
import time

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands, marks, states
from ansible_collections.gpufleet.lifecycle.plugins.modules.slurm_node import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase

MODULE = "gpufleet.lifecycle.slurm_node"
LAST_S = 1.0  # what the module itself waits in the end: without any time it would find nothing wrong
PASSING = tuple(kind for kind, passing, dummy, dummy in commands.TROUBLES if passing)
# What is kept of an answer: how the node was when it was seen last, and what was done in any part.
SEEN = ("state", "work", "reason", "hostname", "gres", "slurm_version", "mark", "blockers")
DONE = ("job", "reservation")


def owner(answer) -> str:
    """Return the owner of the drain that keeps the node closed; None if the node is not drained."""
    return (
        answer["mark"]["owner"]
        if "mark" in answer and states.is_closed(states.parse(answer.get("state", "")))
        else marks.NONE
    )


def join_parts(earlier, answer) -> dict:
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


def keep_parts(whole) -> dict:
    """Return the parts of the result so far that are needed."""
    found = {name: whole[name] for name in SEEN + DONE + ("diff",) if name in whole}
    return dict(found, changed=bool(whole.get("changed")), left=whole.get("left", []))


def goes_on(earlier, whole) -> bool:
    """Tell if there is anything to wait for. Slurm may be unavailable for a while, but not on the first request."""
    if whole.get("unreachable"):
        return False
    if whole.get("failed"):
        return whole.get("trouble") in PASSING and bool(earlier or whole.get("changed"))
    return not whole["drained"]


class ActionModule(NodeActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True
    clock, sleep = staticmethod(time.monotonic), staticmethod(time.sleep)

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        _controller.require()
        args = dict(self._task.args)
        if not self._task.async_val and not self._task.check_mode and args.get("slice_s") is not None:
            dummy, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
            if options["state"] == "drained" and options["timeout_s"] > 0 and options["slice_s"] > 0:
                result.update(self.in_parts(args, options, task_vars))
                return result
        result.update(self.run_module(MODULE, args, task_vars, wrap_async=self._task.async_val))
        return result

    def in_parts(self, args, options, task_vars) -> dict:
        args = {name: value for name, value in args.items() if name != "slice_s"}
        began, earlier = self.clock(), {}
        while True:
            waited_s = self.clock() - began
            left_s = options["timeout_s"] - waited_s
            more = left_s > options["slice_s"]
            seconds = options["slice_s"] if more else math.ceil(max(LAST_S, left_s))
            part = {"waited_s": waited_s, "owner": owner(earlier), "more": more}
            whole = join_parts(earlier, self.run_module(MODULE, dict(args, timeout_s=seconds, part=part), task_vars))
            if not more or not goes_on(earlier, whole):
                return whole
            earlier = keep_parts(whole)
            if whole.get("failed"):  # Slurm is away, and the module did not wait
                _controller.pause(
                    max(0.0, min(options["poll_s"], options["timeout_s"] - LAST_S - (self.clock() - began))), self.sleep
                )
            else:
                _controller.require()
