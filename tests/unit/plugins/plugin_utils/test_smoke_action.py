# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of gpu_smoke on simulated nodes: the regression gate, the second measurement, the peers, and bad
input.
"""

from __future__ import annotations

import copy
import json

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_smoke
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _smoke_options as options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._smoke import smokenode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

# On other ansible-cores runs what Ansible has a part in: that an action calls its module, and calls it again. What it
# makes of the figures is the same on all.

NODE = "node-1"
RATES = {"device_copy", "host_to_device", "device_to_host"}


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture
def make_node(tmp_path, templates):
    nodes = []

    def make(name=NODE, gpus=1):
        nodes.append(smokenode.make(tmp_path / ("root-%s" % name), templates, gpus=gpus, name=name))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(b"source", "1", "d" * 64))


def act(execute, **args):
    """The action's result; EXECUTE(module arguments) answers for the node."""

    def answer(module_name, module_args, task_vars):
        return execute(dict(module_args))

    action = actions.make_action(gpu_smoke, args, answer)
    return action.run(task_vars={"inventory_hostname": NODE})


class Calls(list):
    """A node that is tested on the simulator; BETWEEN runs after each test but the last.

    What it was asked is the list.
    """

    def __init__(self, node, between=None):
        super().__init__()
        self.node, self.between = node, between

    def __call__(self, args):
        assert args.pop("binding")["digest"] == "d" * 64
        assert set(args) <= set(options.NODE_OPTIONS + ("tests",))
        self.append(args)
        document, snapshot = smokenode.test(
            self.node, level=args["level"], wanted=args["gpus"], together=args["together"], only=args.get("tests")
        )
        if self.between:
            self.between()
        return {"changed": False, "facts": {"smoke": document, "snapshot": snapshot}}


def verdicts(result, status):
    return set(check["id"] for check in result["health"]["checks"] if check["status"] == status)


def test_a_healthy_node_is_measured_once_and_passes(make_node):
    calls = Calls(make_node())
    before = act(calls, phase="baseline")
    assert not before.get("failed") and before["tested"] and before["health"]["verdict"] == "pass"
    assert (
        before["baseline"]["smoke"] == before["smoke"]
        and before["smoke"]["simulated"] is before["health"]["simulated"] is True
    )
    after = act(calls, phase="post", baseline=before["baseline"])
    assert not after.get("failed") and verdicts(after, "pass") == {
        "smoke.ran",
        "smoke.compute",
        "smoke.memory_bandwidth",
        "smoke.host_to_device",
        "smoke.device_to_host",
    }
    assert len(calls) == 2 and "peers" not in after["smoke"]
    json.dumps(after)


@pytest.mark.cores
def test_a_regression_is_measured_once_more_and_then_fails_with_both_kept(make_node):
    node = make_node()
    before = act(Calls(node))
    node.sim("inject", "cuda-slow", "--gpu", "0")
    calls = Calls(node)
    after = act(calls, phase="post", baseline=before["baseline"], full=True)
    uuid = before["smoke"]["gpus"][0]["uuid"]
    assert after["failed"] and verdicts(after, "fail") == {
        "smoke.memory_bandwidth",
        "smoke.host_to_device",
        "smoke.device_to_host",
    }
    assert len(calls) == 2 and calls[1]["gpus"] == [uuid] and set(calls[1]["tests"]) == RATES
    for name in RATES:
        test = after["smoke"]["gpus"][0]["tests"][name]
        assert [len(one["samples"]) for one in [test] + test["attempts"]] == [5, 5]
    assert "measured 2 times" in after["msg"] and "[simulated]" in after["msg"]


def test_a_regression_that_is_gone_the_second_time_passes_with_both_kept(make_node):
    node = make_node()
    before = act(Calls(node))
    node.sim("inject", "cuda-slow", "--gpu", "0")
    calls = Calls(node, between=lambda: node.sim("clear"))
    after = act(calls, baseline=before["baseline"])
    assert not after.get("failed") and len(calls) == 2
    assert len(after["smoke"]["gpus"][0]["tests"]["device_copy"]["attempts"]) == 1


@pytest.mark.parametrize(
    "args, calls_made, failed",
    [
        ({"retries": 0}, 1, True),
        ({"retries": 2}, 3, True),
        ({"tolerance_percent": 10}, 1, False),
        ({"policy": {"smoke_tolerance_percent": 10}}, 1, False),
        ({"fail_on": ["unknown"]}, 2, False),
    ],
)
def test_how_often_and_how_strict_is_the_tasks_choice(make_node, args, calls_made, failed):
    node = make_node()
    before = act(Calls(node))
    node.sim("inject", "cuda-slow", "--gpu", "0")
    calls = Calls(node)
    assert bool(act(calls, baseline=before["baseline"], **args).get("failed")) is failed
    assert len(calls) == calls_made


def test_noise_is_measured_once_more_and_is_unknown(make_node):
    node = make_node()
    before = act(Calls(node))
    node.sim("inject", "cuda-noisy", "--gpu", "0", "--value", "40")
    calls = Calls(node)
    after = act(calls, baseline=before["baseline"], full=True)
    assert after["failed"] and len(calls) == 2 and verdicts(after, "unknown") and not verdicts(after, "fail")


@pytest.mark.parametrize(
    "fault, args", [(("cuda-corrupt-byte",), {}), (("cuda-wrong-result", "--value", "1"), {}), (("cuda-error",), {})]
)
def test_what_is_wrong_is_not_measured_until_it_is_right(make_node, fault, args):
    node = make_node()
    node.sim("inject", *(fault + ("--gpu", "0")))
    calls = Calls(node, between=lambda: node.sim("clear"))
    after = act(calls, **args)
    assert after["failed"] and "smoke.compute" in verdicts(after, "fail") and len(calls) == 1


def test_a_gpu_that_is_slower_than_those_of_other_nodes_fails_without_a_baseline(make_node):
    slow, peers = make_node(), [act(Calls(make_node("node-%d" % number)))["smoke"] for number in (2, 3, 4)]
    slow.sim("inject", "cuda-slow", "--gpu", "0", "--value", "15")
    calls = Calls(slow)
    after = act(calls, peers=copy.deepcopy(peers))
    assert after["failed"] and verdicts(after, "fail") == {"smoke.peers"} and len(calls) == 2
    # Too few peers say nothing.
    assert verdicts(act(Calls(slow), peers=peers[:2]), "fail") == set()


def test_results_of_nccl_are_kept_and_compared(make_node):
    node = make_node()
    before = act(Calls(node), nccl={"node_gbps": [470, 471, 469, 470, 470]})
    assert before["smoke"]["nccl"]["node"]["samples"] == [470, 471, 469, 470, 470]
    after = act(Calls(node), nccl={"node_gbps": [400, 401, 399, 400, 400]}, baseline=before["baseline"])
    assert verdicts(after, "fail") == {"smoke.nccl_node"}


@pytest.mark.cores
def test_no_library_fails_only_where_the_test_is_required():
    document, snapshot = (
        {
            "schema": "gpufleet.smoke/1",
            "level": "t0",
            "status": "no_library",
            "message": "libcuda.so.1 is not installed",
            "gpus": [],
            "asked": [],
            "simulated": False,
            "boot_id": "b",
            "dcgm": None,
        },
        {"schema": "gpufleet.snapshot/1", "status": "ok", "gpus": []},
    )

    def answer(_args):
        return {"facts": copy.deepcopy({"smoke": document, "snapshot": snapshot})}

    result = act(answer)
    assert not result.get("failed") and result["tested"] is False and "libcuda.so.1 is not installed" in result["msg"]
    assert result["health"]["verdict"] != "pass"
    result = act(answer, require=True)
    assert result["failed"] and result["health"]["verdict"] == "unknown"


@pytest.mark.cores
@pytest.mark.parametrize(
    "args, text",
    [
        ({"retries": -1}, "retries is -1"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"tests": ["x"]}, "tests: set by the action plugin"),
        ({"binding": {}}, "binding: set by the action plugin"),
        ({"peers": [{"schema": "x"}]}, "peers[0] has schema 'x'"),
        ({"baseline": {"schema": "gpufleet.baseline/1", "node": "other"}}, "the baseline is that of node other"),
        ({"policy": {"smoke_tolerance": 1}}, "smoke_tolerance"),
        ({"tolerance_percent": 99}, "smoke_tolerance_percent"),
        ({"waivers": [{"check": "smoke.nothing", "reason": "r", "expires": "2026-12-31"}]}, "no such check"),
        ({"baseline_file": "/nonexistent.json"}, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_told_before_the_node_is_asked(args, text):
    with pytest.raises(AnsibleActionFail) as raised:
        act(lambda module_args: pytest.fail("asked"), **args)
    assert text in str(raised.value)


@pytest.mark.cores
def test_a_node_that_answers_nothing_fails():
    assert act(lambda args: {"failed": True, "msg": "why"})["msg"] == "why"
    assert act(lambda args: {"rc": 1})["failed"] is True


@pytest.mark.cores
def test_a_second_measurement_that_fails_leaves_the_first_one(make_node):
    node = make_node()
    before = act(Calls(node))
    node.sim("inject", "cuda-slow", "--gpu", "0")
    first = Calls(node)

    def answer(args):
        return first(args) if not first else {"failed": True, "msg": "unreachable"}

    after = act(answer, baseline=before["baseline"])
    assert after["failed"] and "smoke.memory_bandwidth" in verdicts(after, "fail")
    assert after["warnings"] == ["low rates could not be measured again: unreachable"]
