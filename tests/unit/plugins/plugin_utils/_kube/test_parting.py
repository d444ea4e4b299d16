# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain that many processes share, each of which ends when it comes to wait, ends as one that never parted."""

from __future__ import annotations

import json
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import kube_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, operators
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.course import LEAST_S, Course
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.pods import Policy
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.words import KubeError
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._kube.fake import FakeApi, budget, refusal
from tests.lab.kube.objects import node, pod

pytestmark = pytest.mark.cores

OPTIONS = {"operators": "pause", "reason": "why", "timeout_s": 60, "grace_period_s": None}
DEPLOY = {"nvidia.com/gpu.deploy.driver": "pre-installed", "nvidia.com/gpu.deploy.dcgm": "true", "example.org/other": "1"}
OPERAND = pod("dcgm", owner="DaemonSet", selector={"nvidia.com/gpu.deploy.dcgm": "true"})
ALL = {"policy": Policy(scope="all")}
TAINT = {"key": "example.org/down", "value": "", "effect": "NoSchedule", "state": "present"}
WANTED = {"wanted": change.Change(labels={"b": "1"}, annotations={"c": "2"}, taints=[TAINT])}


class Ended(Exception):
    """The process has."""


class Story:
    """One drain from its beginning to its end; RESTS has the seconds for which a process was given up."""

    def __init__(self, api, parts, late_s=0.0):
        self.api, self.parts, self.late_s = api, parts, late_s
        self.rests, self.notes = [], []

    def date(self):
        return "2026-11-21T22:%02d:%02dZ" % divmod(int(self.api.clock.now - 1000), 60)

    def rest(self, seconds, **known):
        self.rests.append(seconds)
        self.notes.append(json.loads(json.dumps(known)))
        self.api.sleep(seconds + self.late_s)
        if self.parts:
            raise Ended

    def __call__(self, policy=None, wanted=None, **options):
        while True:
            if self.parts:
                self.api.requests = 0  # they are of a process
            known = self.notes[-1] if self.parts and self.notes else None
            one = Course(self.api, "gpu-1", "r7", False, self.api.clock, self.api.sleep, rest=self.rest if self.parts else None, known=known,
                         date=self.date)
            try:
                one.drain(dict(OPTIONS, **options), wanted or change.Change(), policy or Policy())
            except Ended:
                continue
            except KubeError as exc:
                return dict(one.answer(), msg=str(exc), why=exc.why)
            return one.answer()


def api(labels=None, pods=(), answers=None, on_sleep=None, grace=2, races=()):
    one = FakeApi(node(labels=labels), [json.loads(json.dumps(each)) for each in pods])
    for each in one.there:
        each["metadata"]["uid"] = "uid-" + each["metadata"]["name"]
    one.answers = {name: list(found) for name, found in (answers or {}).items()}
    one.on_sleep = list(on_sleep or [])
    one.grace = grace
    one.races = list(races)
    return one


def lifecycle_controller(each):
    """What the server's own controller writes to a node that was cordoned."""
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if each.stored["spec"].get("unschedulable") and taint not in each.stored["spec"].get("taints", []):
        each.stored["spec"].setdefault("taints", []).append(taint)
        each.stored["metadata"]["resourceVersion"] += "7"


def daemonset_controller(seconds):
    def control(each):
        off = each.stored["metadata"]["labels"].get("nvidia.com/gpu.deploy.dcgm") == operators.PAUSED
        each.off_since = getattr(each, "off_since", None) or (each.clock.now if off else None)
        if off and each.clock.now - each.off_since >= seconds:
            each.there = [one for one in each.there if one["metadata"]["name"] != "dcgm"]

    return control


STORIES = {
    "empty": (api, {}),
    "pods that go at once": (lambda: api(pods=[pod("a", gpus=1), pod("b", gpus=1)]), {}),
    "pods that take a while": (lambda: api(pods=[pod("a", gpus=1), pod("b", gpus=1)], grace=25), {}),
    "others after the holders": (lambda: api(pods=[pod("a"), pod("z", gpus=1)], grace=15), ALL),
    "a budget that gives way": (lambda: api(pods=[pod("a", gpus=1), pod("b", gpus=1)], answers={"a": [budget("train")] * 4 + [None]}), {}),
    "a budget that does not": (lambda: api(pods=[pod("a", gpus=1), pod("b", gpus=1)], answers={"a": [budget("train")]}), {}),
    "a server that says when": (lambda: api(pods=[pod("a", gpus=1)], answers={"a": [budget("train", after=12)]}), {}),
    "two budgets": (lambda: api(pods=[pod("a", gpus=1)], answers={"a": [refusal(500, "more than one PodDisruptionBudget")]}), {}),
    "a pod that does not end": (lambda: api(pods=[pod("a", gpus=1)], grace=9999), {}),
    "one that waits for a holder": (lambda: api(pods=[pod("a"), pod("z", gpus=1)], answers={"z": [budget("train")]}), ALL),
    "labels, annotations and taints": (lambda: api({"b": "0"}, [pod("a", gpus=1)], grace=25), WANTED),
    "others write": (lambda: api(pods=[pod("a", gpus=1)], grace=25, races=[lambda one: one["metadata"]["labels"].update(x="2")]), WANTED),
    "a taint of the server": (lambda: api(pods=[pod("a", gpus=1)], grace=25, on_sleep=[lifecycle_controller]), {}),
    "an operator's parts": (lambda: api(DEPLOY, [pod("a", gpus=1), OPERAND], grace=15, on_sleep=[daemonset_controller(20)]), {}),
    "an operator's parts and a taint": (
        lambda: api(DEPLOY, [pod("a", gpus=1), OPERAND], grace=15, on_sleep=[lifecycle_controller, daemonset_controller(20)]), WANTED),
    "an operator's parts that stay": (lambda: api(DEPLOY, [OPERAND]), {}),
}


@pytest.mark.parametrize("story", STORIES)
def test_it_ends_as_if_it_had_been_one(story):
    make, options = STORIES[story]
    one, many = make(), make()
    expected = Story(one, False)(**options)
    told = Story(many, True)
    found = told(**options)
    # Who has just looked at the node is not told first that somebody else wrote to it.
    assert abs(found.pop("waited_s") - expected.pop("waited_s")) < (0.2 if lifecycle_controller in many.on_sleep else 0.01)
    assert {name: value for name, value in found.items() if name != "requests"} == {name: value for name, value in expected.items() if name != "requests"}
    assert many.evictions() == one.evictions() and many.stored["spec"] == one.stored["spec"]
    assert found["requests"] == len(many.said) and all(seconds >= LEAST_S for seconds in told.rests)
    assert bool(told.rests) == (one.clock.now - 1000 > 6), "a short wait is slept, a long one is not"
    assert json.loads(json.dumps(found["diff"])) == found["diff"]


@pytest.mark.parametrize("late_s", [0.0, 7.0])
def test_a_pod_that_its_budget_keeps_is_asked_about_no_more_often(late_s):
    """However often the drain is begun anew: the wait between two tries doubles, up to fifteen seconds."""
    one = api(pods=[pod("a", gpus=1)], answers={"a": [budget("train")]})
    asked = []
    evict = one.evict
    one.evict = lambda *words, **more: (asked.append(one.clock.now), evict(*words, **more))[-1]
    told = Story(one, True, late_s)
    found = told(timeout_s=600)
    gaps = [later - sooner for sooner, later in zip(asked, asked[1:])]
    assert all(gap >= least for gap, least in zip(gaps, [1, 2, 4, 8] + [15] * len(gaps)))
    assert len(told.rests) > 30 and found["why"].startswith("gpu-1: not drained in 600 s") and 600 <= found["waited_s"] < 610 + late_s


def test_what_is_kept_is_small_and_has_of_the_node_what_may_change():
    labels = dict(DEPLOY, **{"feature.node.kubernetes.io/cpu-%d" % number: "true" for number in range(200)})
    told = Story(api(labels, [pod("a", gpus=1)], grace=25), True)
    told(**WANTED)
    assert told.notes and len(json.dumps(told.notes[0])) < 2000
    assert sorted(told.notes[0]["before"]["metadata"]["labels"]) == ["nvidia.com/gpu.deploy.dcgm", "nvidia.com/gpu.deploy.driver"]


def once(at, what):
    due = [what]
    return lambda each: due.pop()(each) if due and each.clock.now > at else None


@pytest.mark.parametrize("change_it", [
    lambda each: each.stored["spec"].pop("unschedulable"),
    lambda each: each.stored["metadata"]["annotations"].clear(),
    lambda each: each.stored["metadata"]["annotations"].update({"gpufleet.lifecycle/mark": '{"token":"r8"}'}),
])
def test_who_put_the_node_back_meanwhile_is_not_overruled(change_it):
    one = api(pods=[pod("a", gpus=1), pod("b", gpus=1)], answers={"a": [budget("train")]}, on_sleep=[once(1020, change_it)])
    found = Story(one, True)()
    assert "somebody put it back while its pods were waited for" in found["msg"] and not found["drained"]
    assert found["changed"] and [each["pod"] for each in found["evicted"]] == ["b"] and one.said.count("patch node") == 1


def test_a_cluster_that_cannot_be_asked_when_it_goes_on_is_told_with_what_was_done():
    away = once(1020, lambda each: setattr(each, "node", mock.Mock(side_effect=KubeError("it does not answer"))))
    found = Story(api(pods=[pod("a", gpus=1), pod("b", gpus=1)], answers={"a": [budget("train")]}, on_sleep=[away]), True)()
    assert found["msg"] == "it does not answer" and found["changed"] and [each["pod"] for each in found["evicted"]] == ["b"] and not found["drained"]


class FakeWaiting:
    """What Waiting is where tasks are given up: the note of a process is that of the one before it."""

    note = {}

    def __call__(self, action, task_vars):
        self.note = json.loads(json.dumps(self.note))
        return self

    def pause(self, seconds, **note):
        self.note.update(note)
        raise Ended


def act(waiting, connect):
    arguments = {"state": "drained", "token": "r7", "timeout_s": 60}
    task = mock.Mock(args=arguments, async_val=0, check_mode=False, diff=True, action="x", environment=None)
    action = kube_node.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), None)
    action._load_name = "x"
    action._shared_loader_obj = mock.Mock()
    with mock.patch.object(kube_node, "Waiting", waiting), mock.patch.object(kube_node.client.Cluster, "connect", connect), \
            mock.patch.object(kube_node.client, "Api", lambda one: one), mock.patch("time.sleep"):
        return action.run(task_vars={"inventory_hostname": "gpu-1"})


def test_the_action_gives_its_worker_back_and_goes_on_with_what_it_left():
    one, waiting = api(pods=[pod("a", gpus=1)], grace=9999), FakeWaiting()
    with pytest.raises(Ended):
        act(waiting, lambda *words: one)
    assert waiting.note["changed"] and [each["pod"] for each in waiting.note["evicted"]] == ["a"]
    gone = FakeApi(one.stored, [])
    found = act(waiting, lambda *words: gone)
    assert found["drained"] and found["changed"] and [each["pod"] for each in found["evicted"]] == ["a"] and "patch node" not in gone.said
    assert found["diff"]["before"]["unschedulable"] is False and found["diff"]["after"]["unschedulable"] is True and found["requests"] > len(gone.said)


def test_an_action_that_cannot_go_on_says_that_something_was_changed():
    one, waiting = api(pods=[pod("a", gpus=1)], grace=9999), FakeWaiting()
    with pytest.raises(Ended):
        act(waiting, lambda *words: one)
    found = act(waiting, mock.Mock(side_effect=KubeError("no kubeconfig")))
    assert found["failed"] and found["msg"] == "no kubeconfig" and found["changed"]
    assert not act(FakeWaiting(), mock.Mock(side_effect=KubeError("no kubeconfig")))["changed"]
