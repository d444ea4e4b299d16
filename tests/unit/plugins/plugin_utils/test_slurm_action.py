# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of slurm_node: a drain in slices ends as one that was not divided."""

from __future__ import annotations

import json
import re
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import slurm_node
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm.slurm_node import (
    NodeError,
    SlurmNode,
    contradiction,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers, fake_slurm
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm.fake_slurm import Cluster

pytestmark = pytest.mark.cores

DRAINS = "scontrol update nodename=n1 state=drain reason=gpufleet:tok-1 driver upgrade"
RESUMES = "scontrol update nodename=n1 state=resume"
KIM = ("12", "kim", 300, "RUNNING")
LONG = ("13", "lee", 9999, "RUNNING")
ARGS = {"node_name": "n1", "state": "drained", "token": "tok-1", "reason": "driver upgrade", "slice_s": 60}
PARAMS = tuple(slurm_node.ARGUMENT_SPEC)


class Run:
    """The action with the real work of the module on a cluster of which only the time is not real.

    COST_S: what a call of the module takes besides.
    """

    def __init__(self, cluster, cost_s=0.0, check=False, diff=True, async_val=0):
        self.cluster, self.cost_s, self.check, self.diff, self.async_val = cluster, cost_s, check, diff, async_val
        self.calls, self.pauses = [], []

    def module(self, module_name, module_args, task_vars, wrap_async=0):
        assert module_name == slurm_node.MODULE and set(module_args) <= set(PARAMS)
        self.calls.append(dict(module_args))
        self.cluster.sleep(self.cost_s)
        cluster = self.cluster
        params = dict(fake_slurm.OPTIONS, **module_args)
        params.update(timeout_s=int(params["timeout_s"]), poll_s=float(params["poll_s"]))
        assert not contradiction(params)
        work = SlurmNode(cluster.slurm(), params, self.check, sleep=cluster.sleep, clock=lambda: cluster.now)
        try:
            work.run()
            told = dict(work.result)
        except commands.SlurmError as exc:
            told = dict(work.result, failed=True, msg=str(exc), trouble=exc.kind)
        except NodeError as exc:
            told = dict(work.result, failed=True, msg=str(exc))
        if not self.diff:
            told.pop("diff", None)
        return json.loads(json.dumps(told))

    def __call__(self, **args):
        args = dict(ARGS, **args)
        what = mock.Mock(
            args=args, async_val=self.async_val, check_mode=self.check, diff=self.diff, action="x", environment=None
        )
        action = slurm_node.ActionModule(
            what, mock.Mock(), mock.Mock(check_mode=self.check), DataLoader(), mock.Mock(), mock.Mock()
        )
        action._load_name = "x"
        action.clock, action.sleep = lambda: self.cluster.now, self.sleep
        action._execute_module = self.module
        return action.run(task_vars={"inventory_hostname": "a1"})

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.cluster.sleep(seconds)


def undivided(cluster, **options):
    result = cluster.do("drained", **options)
    return dict(result, failed=True, msg=str(cluster.failure)) if cluster.failure else result


COURSES = {
    "idle": (Cluster, {"timeout_s": 600}),
    "jobs that end": (lambda: Cluster(jobs=[KIM]), {"timeout_s": 600}),
    "jobs that do not": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 600}),
    "jobs that do not, kept": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 600, "on_timeout": "keep"}),
    "less than a slice": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 40}),
    "no whole slices": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 250}),
    "no time": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 0}),
    "an operator's": (lambda: Cluster("IDLE+DRAIN", "bad fan", "kim", jobs=[KIM]), {"timeout_s": 600}),
    "an operator's, too long": (lambda: Cluster("IDLE+DRAIN", "bad fan", "kim", jobs=[LONG]), {"timeout_s": 600}),
    "an earlier run's": (
        lambda: Cluster("IDLE+DRAIN", "gpufleet:tok-1 driver upgrade", jobs=[KIM]),
        {"timeout_s": 600},
    ),
    "refused": (lambda: Cluster("DOWN", "bad fan", "kim"), {"timeout_s": 600}),
    "a reservation": (lambda: Cluster(jobs=[KIM]), {"timeout_s": 600, "reservation_minutes": 30}),
    "a reservation, too long": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 600, "reservation_minutes": 30}),
    "a window": (
        lambda: later(Cluster(jobs=[KIM]), 300, lambda it: it.own.update({"77": "RUNNING"})),
        {"timeout_s": 900, "method": "job"},
    ),
    "a window that does not come": (lambda: Cluster(jobs=[LONG]), {"timeout_s": 600, "method": "job"}),
    "resumed meanwhile": (lambda: later(Cluster(jobs=[KIM]), 150, resumed), {"timeout_s": 600}),
    "drained by another meanwhile": (
        lambda: later(Cluster(jobs=[KIM]), 150, lambda it: setattr(it, "reason", "mine now")),
        {"timeout_s": 600},
    ),
    "Slurm away for a while": (
        lambda: later(
            Cluster(jobs=[KIM]),
            150,
            lambda it: it.answers.update(scontrol=answers.AWAY),
            245,
            lambda it: it.answers.clear(),
        ),
        {"timeout_s": 600},
    ),
    "Slurm away in the end": (
        lambda: later(Cluster(jobs=[LONG]), 150, lambda it: it.answers.update(scontrol=answers.AWAY)),
        {"timeout_s": 600},
    ),
    "Slurm away at first": (
        lambda: later(Cluster(jobs=[KIM]), 0, lambda it: it.answers.update(scontrol=answers.AWAY)),
        {"timeout_s": 600},
    ),
}


def later(cluster, *what):
    cluster.later = list(zip(what[::2], what[1::2]))
    cluster.sleep(0)
    return cluster


def resumed(cluster):
    cluster.state, cluster.reason = "IDLE", ""


def timeless(result):
    """Without the moment at which it ended."""
    text = json.dumps({name: value for name, value in result.items() if name != "waited_s"})
    return json.loads(re.sub(r"\d+:00( left)?", "TIME", text))


@pytest.mark.parametrize("course", COURSES)
def test_it_ends_as_if_it_had_not_been_divided(course):
    make, options = COURSES[course]
    whole, parts = make(), make()
    expected = undivided(whole, **options)
    found = Run(parts)(**options)
    found.pop("trouble", None)
    assert timeless(found) == timeless(expected)
    for name in ("calls", "state", "reason", "own", "reservations"):
        assert getattr(parts, name) == getattr(whole, name), name
    # A look comes later, the later it is.
    assert whole.now <= parts.now <= max(whole.now + 11, whole.now * 1.25 + 1)
    assert ("waited_s" in found) == ("waited_s" in expected)
    if "waited_s" in found:
        assert found["waited_s"] == round(parts.now, 1)


def test_slices_are_all_that_the_module_waits():
    run = Run(Cluster(jobs=[LONG]), cost_s=1.5)
    result = run(timeout_s=200, on_timeout="keep")
    assert [call["timeout_s"] for call in run.calls] == [60, 60, 60, 16] and [
        call["part"]["more"] for call in run.calls
    ] == [True, True, True, False]
    assert [call["part"]["owner"] for call in run.calls] == ["none", "ours", "ours", "ours"] and run.pauses == []
    assert (
        result["failed"]
        and result["waiting"]
        and result["msg"].startswith("n1 is not empty after 200 s, 1 job holds it: job 13 (user lee")
    )
    assert result["changed"] and result["diff"]["before"] == {"state": "MIXED", "reason": ""}


def test_a_slurm_that_is_away_is_not_hammered():
    cluster = later(Cluster(jobs=[LONG]), 100, lambda it: it.answers.update(scontrol=answers.AWAY))
    run = Run(cluster)
    result = run(timeout_s=600)
    assert (
        result["failed"]
        and result["trouble"] == "unreachable"
        and set(run.pauses[:-1]) == {10}
        and len(run.calls) < 60
        and 600 <= cluster.now < 620
    )
    assert result["mark"]["owner"] == "ours" and result["changed"], "whoever cleans up knows of the drain"


@pytest.mark.parametrize(
    "args, check, async_val",
    [
        ({"slice_s": None, "timeout_s": 100}, False, 0),
        ({"timeout_s": 100}, True, 0),
        ({"timeout_s": 0}, False, 0),
        ({"timeout_s": 100, "state": "read"}, False, 0),
        ({"timeout_s": 100, "state": "resumed"}, False, 0),
        ({"timeout_s": 100}, False, 500),
    ],
)
def test_elsewhere_the_module_is_all(args, check, async_val):
    run = Run(Cluster(), check=check, async_val=async_val)
    run.module = mock.Mock(return_value={"changed": False, "said": 1})
    args = {name: value for name, value in dict(ARGS, **args).items() if value is not None}
    with mock.patch.dict(ARGS, args, clear=True):
        assert run()["said"] == 1
    run.module.assert_called_once_with(
        module_name=slurm_node.MODULE, module_args=args, task_vars={"inventory_hostname": "a1"}, wrap_async=async_val
    )


def test_options_as_they_come_from_templates_and_ones_that_are_none():
    run = Run(Cluster(jobs=[LONG]))
    assert run(timeout_s="100", slice_s="60", poll_s="5")["waiting"] and [call["timeout_s"] for call in run.calls] == [
        60,
        40,
    ]
    with pytest.raises(AnsibleActionFail, match="slice_s"):
        Run(Cluster())(slice_s="soon", timeout_s=100)


@pytest.mark.parametrize(
    "answer",
    [
        {"unreachable": True, "msg": "no route"},
        {"failed": True, "msg": "MODULE FAILURE"},
        {"failed": True, "trouble": "permission"},
    ],
)
def test_what_does_not_pass_ends_it_and_what_was_done_is_told(answer):
    run = Run(Cluster(jobs=[LONG]))
    real = run.module
    run.module = lambda **words: real(**words) if not run.calls else dict(answer)
    result = run(timeout_s=600)
    assert (
        {name: result[name] for name in answer} == answer
        and result["changed"]
        and result["mark"]["owner"] == "ours"
        and len(run.calls) == 1
    )
