# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of one node without a server: answers written by hand after the API's documentation, for what the test
server is too old for and for what it would take minutes to bring about.
"""

from __future__ import annotations

import copy

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, drain, gpus, resume, session
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import ApiError, KubeError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.pods import Policy


def refusal(status, message="no", causes=(), after=None):
    details = {"causes": [{"reason": reason, "message": text} for reason, text in causes]}
    if after is not None:
        details["retryAfterSeconds"] = after
    return ApiError("the server answered %d: %s" % (status, message), status, {"message": message, "details": details})


def budget(name, after=None):
    return refusal(
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
        [("DisruptionBudget", "The disruption budget %s needs 2 healthy pods and has 2 currently" % name)],
        after,
    )


OPTIONS = {"operators": "pause", "lays_out": False, "reason": "why", "timeout_s": 60, "grace_period_s": None}


def open_session(api, token="r7", check=False, name="gpu-1"):
    return session.Session(api, name, token, check, api.clock, api.sleep)


def drain_node(work, wanted=None, policy=None, want=None, **options):
    """Drain with the options of a test and return the result."""
    wanted, policy, want = wanted or change.Change(), policy or Policy(), want or gpus.Want()
    drain.Drain(work, dict(OPTIONS, **options), wanted, policy, want).run()
    return work.answer()


def resume_node(work, wanted=None, want=None, laid_out=False):
    resume.Resume(work, wanted or change.Change(), want or gpus.Want(), laid_out).run()
    return work.answer()


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class FakeApi:
    """The requests of client.Api.

    ANSWERS: pod name -> a list of what its evictions answer, one after the other; the last one stays.
    """

    class cluster:
        shown = "https://fake (kubeconfig x)"

    def __init__(self, node, pods=(), clock=None):
        self.stored = node
        self.there = list(pods)
        self.clock = clock or Clock()
        self.requests = 0
        self.said = []
        self.answers = {}
        self.denied = set()  # (verb, resource)
        self.grace = 2
        self.races = []  # what others write, one each before our patches
        self.on_sleep = []

    def sleep(self, seconds):
        self.clock.sleep(seconds)
        self.there = [
            pod for pod in self.there if not (pod["metadata"].get("ends") and pod["metadata"]["ends"] <= self.clock.now)
        ]
        for action in self.on_sleep:
            action(self)

    def node(self, name):
        self.count("get node")
        if name != self.stored["metadata"]["name"]:
            raise KubeError("no node %s" % name)
        return copy.deepcopy(self.stored)

    def patch_node(self, name, body):
        self.count("patch node")
        if self.races:
            self.races.pop(0)(self.stored)
            self.stored["metadata"]["resourceVersion"] += "1"
        if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise refusal(409, "the object has been modified")
        self.stored = change.applied(self.stored, body)
        self.stored["metadata"]["resourceVersion"] += "0"
        return copy.deepcopy(self.stored)

    def pods(self, name):
        self.count("list pods")
        return copy.deepcopy(self.there)

    def is_allowed(self, attributes):
        self.count("review")
        return (attributes["verb"], attributes["resource"]) not in self.denied

    def discover_eviction(self):
        self.count("discover")
        return "v1"

    def evict(self, namespace, pod, uid, grace_period_s=None, dry_run=False):
        self.count("evict %s%s" % (pod, " dry" if dry_run else ""))
        answers = self.answers.get(pod) or [None]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is not None:
            raise answer
        for each in self.there:
            if each["metadata"]["uid"] == uid and not dry_run:
                each["metadata"]["deletionTimestamp"] = "2026-11-21T22:00:00Z"
                each["metadata"]["ends"] = self.clock.now + self.grace

    def count(self, what):
        self.requests += 1
        self.said.append(what)

    def evictions(self):
        return [each[6:] for each in self.said if each.startswith("evict ")]
