# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role gpu_scheduler asks: what to do about a node and its schedulers, and whether its GPUs are in use."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use, _scheduler_state

SLURM, KUBE = "slurm", "kubernetes"
IN_SLURM, IN_KUBE = {"action": "gpufleet.lifecycle.slurm_node"}, {"action": "gpufleet.lifecycle.kube_node"}
OURS, OPERATOR, NONE = {"owner": "ours"}, {"owner": "operator"}, {"owner": "none"}


def decide(*backends, **facts):
    return _scheduler_state.decide(dict({"backends": backends, "on_timeout": "lift", "drain_timeout": 60}, **facts))


def answer(drained, mark=None, **more):
    return dict({"drained": drained, "mark": mark or NONE}, **more)


@pytest.mark.parametrize(
    ("backends", "slurm", "kubernetes", "drained"),
    [
        ((), {}, {}, True),  # nothing gives it work
        ((SLURM,), answer(True), {}, True),
        ((SLURM,), answer(False), {}, False),
        ((SLURM,), {}, {}, False),
        ((SLURM,), None, None, False),
        ((SLURM,), answer(True), answer(False), True),  # not one of its schedulers
        ((SLURM, KUBE), answer(True), answer(True), True),
        ((KUBE, SLURM), answer(True), answer(False), False),
        ((SLURM, KUBE), answer(True), {}, False),
    ],
)
def test_a_node_is_drained_if_each_of_its_schedulers_says_so(backends, slurm, kubernetes, drained):
    state = decide(*backends, slurm=slurm, kubernetes=kubernetes)
    assert state["drained"] is drained and (state["not_drained"] == "") is drained
    assert list(state["ownership"]) == list(backends)


def test_who_holds_it_and_who_drained_it():
    state = decide(
        SLURM, KUBE, slurm=answer(False, OURS, blockers=[1, 2], state="IDLE"), kubernetes=answer(False, blockers=[3])
    )
    assert state["blockers"] == [1, 2, 3] and state["ownership"] == {SLURM: OURS, KUBE: NONE}
    assert "IDLE, no answer in slurm and kubernetes, held by 3 jobs" in state["not_drained"]
    assert decide(KUBE)["ownership"] == {KUBE: {"owner": "none", "token": None, "previous": None}}


@pytest.mark.parametrize(
    ("result", "task", "failure", "failed"),
    [
        ({"msg": "two\n lines"}, IN_SLURM, "two lines", {SLURM: "two lines"}),
        ({"msg": "long story", "why": "short one"}, IN_KUBE, "short one", {KUBE: "short one"}),
        (
            {},
            {"name": "Find the processes", "action": "gpufleet.lifecycle.gpu_info"},
            "task failed: Find the processes",
            {},
        ),
        (None, None, "task failed:", {}),
    ],
)
def test_which_scheduler_failed_and_why(result, task, failure, failed):
    state = decide(SLURM, KUBE, failed_result=result, failed_task=task)
    assert state["failure"] == state["drain_failure"] == failure and state["failed"] == failed


def test_failure_of_a_node_is_bounded_and_has_no_control_characters():
    failure = decide(SLURM, failed_result={"msg": "boom \x1b[2K" + "x" * 100000})["failure"]
    assert failure.startswith("boom ") and failure.isprintable() and len(failure) <= 4000


@pytest.mark.parametrize(
    ("backends", "slurm", "waits"),
    [
        ((SLURM,), {"waiting": True, "node": "n-a1", "holding": "2 jobs hold it"}, True),
        ((KUBE, SLURM), {"waiting": True, "node": "n-a1", "holding": "2 jobs hold it"}, True),
        ((SLURM,), {"waiting": False, "node": "n-a1"}, False),
        ((KUBE,), {"waiting": True, "node": "n-a1", "holding": "2 jobs hold it"}, False),
    ],
)
def test_jobs_that_did_not_end_are_named(backends, slurm, waits):
    state = decide(*backends, slurm=slurm, failed_result={"msg": "it waits"}, failed_task=IN_SLURM)
    assert ("n-a1 is not empty in Slurm after 60 s, 2 jobs hold it." in state["drain_failure"]) is waits
    assert state["failure"] == "it waits", "what a lift says that failed is not this"


@pytest.mark.parametrize(
    ("on_timeout", "timeout", "backends", "task", "slurm", "lift", "close"),
    [
        ("lift", 60, (SLURM, KUBE), IN_KUBE, answer(True, OURS), [SLURM, KUBE], []),
        ("lift", 60, (SLURM, KUBE), IN_KUBE, answer(True, OPERATOR), [], []),
        ("lift", 0, (SLURM, KUBE), IN_KUBE, answer(True, OURS), [SLURM, KUBE], []),
        ("lift", 60, (SLURM,), IN_SLURM, {}, [], []),
        ("keep", 60, (SLURM, KUBE), IN_SLURM, answer(True, OURS), [], []),
        ("keep", 0, (SLURM, KUBE), IN_SLURM, {}, [], [KUBE]),
        ("keep", 0, (KUBE, SLURM), IN_SLURM, {}, [], []),
        ("keep", 0, (KUBE, SLURM), IN_KUBE, {}, [], [SLURM]),
        ("keep", 0, (KUBE, SLURM), {"action": "another"}, {}, [], [KUBE, SLURM]),
    ],
)
def test_what_is_done_about_a_drain_that_failed(on_timeout, timeout, backends, task, slurm, lift, close):
    state = decide(*backends, on_timeout=on_timeout, drain_timeout=timeout, failed_task=task, slurm=slurm)
    assert (state["lift"], state["close"]) == (lift, close)


@pytest.mark.parametrize(
    ("backends", "task", "resume"),
    [
        ((SLURM, KUBE), IN_KUBE, [SLURM]),
        ((SLURM, KUBE), IN_SLURM, []),
        ((KUBE, SLURM), IN_SLURM, [KUBE]),
        ((KUBE,), IN_KUBE, []),
        ((SLURM, KUBE), {"action": "another"}, [KUBE, SLURM]),
    ],
)
def test_the_schedulers_after_the_one_that_did_not_take_it_back(backends, task, resume):
    assert decide(*backends, failed_task=task)["resume"] == resume


AWAY = {KUBE: "no answer"}


@pytest.mark.parametrize(
    ("on_timeout", "timeout", "failures", "slurm", "said", "unseen"),
    [
        ("lift", 60, {}, {}, "it waits.", []),
        ("lift", 60, AWAY, {}, "it waits. Not lifted in kubernetes: no answer. If", [KUBE]),
        ("keep", 60, AWAY, answer(True, OURS), "it waits. It stays drained by us in slurm.", []),
        (
            "keep",
            0,
            AWAY,
            answer(False, OURS),
            "not closed in kubernetes: no answer. It stays drained by us in slurm.",
            [],
        ),
        ("keep", 0, {SLURM: "away.", KUBE: "no answer"}, {}, "not closed in slurm: away. kubernetes: no answer.", []),
        ("keep", 0, {}, {}, "it waits.", []),
    ],
)
def test_what_is_said_of_a_drain_that_failed(on_timeout, timeout, failures, slurm, said, unseen):
    state = decide(
        SLURM, KUBE, on_timeout=on_timeout, drain_timeout=timeout, reason="it waits.", failures=failures, slurm=slurm
    )
    assert state["drain_failed"].startswith(said) and ("stays drained by us" in said) == (
        "stays drained by us" in state["drain_failed"]
    )
    assert state["unseen"] == {name: {"owner": "unknown", "token": None, "previous": None} for name in unseen}


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ({KUBE: "no answer"}, "not taken back by kubernetes: no answer. slurm has it back."),
        ({SLURM: "a.", KUBE: "b"}, "not taken back by slurm: a. kubernetes: b."),
    ],
)
def test_what_is_said_of_a_node_that_was_not_taken_back(failures, said):
    assert decide(SLURM, KUBE, failures=failures)["resume_failed"] == said


def test_a_node_whose_gpus_are_in_use_is_left_alone():
    process = {"index": 0, "compute_processes": {"rc": 0, "value": [{"pid": 4711}]}}
    assert "pid 4711" in decide(users={"snapshot": {"gpus": [process]}})["in_use"]
    holders = [{"pid": 7, "comm": "nvidia-persiste", "unit": "nvidia-persistenced.service"}]
    assert decide(users={"holders": holders}, services=["nvidia-persistenced.service"])["in_use"] == ""
    assert decide(users={"holders": holders})["in_use"] and decide()["in_use"]


FREE, USED = {"value": [], "rc": 0}, {"value": [{"pid": 4711}, {"pid": 12}], "rc": 0}
NAMED = {"value": [{"pid": 4711, "comm": "python3", "user": "alice", "job": "31"}], "rc": 0}
SILENT = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}


def gpus(*answers):
    return [{"index": index, "compute_processes": answer} for index, answer in enumerate(answers)]


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (gpus(FREE), None),
        (gpus(FREE, FREE), None),
        (gpus(FREE, USED), ["pid 12, pid 4711"]),
        (gpus(FREE, NAMED), ["python3 (pid 4711, user alice, Slurm job 31)"]),
        (gpus(USED, USED), ["pid 12, pid 4711"]),
        (gpus(SILENT, USED), ["pid 12, pid 4711"]),
        (gpus(FREE, SILENT), ["GPU 1", "GPU_IS_LOST"]),
        (gpus(SILENT, SILENT), ["GPU 0, 1", "NVML: GPU_IS_LOST"]),
        (gpus({"value": [], "rc": 3}), ["GPU 0", "no answer"]),
        (gpus({}), ["GPU 0", "no answer"]),
        ([{"index": 5}], ["GPU 5", "no answer"]),
        ([], ["none was read"]),
        (None, ["none was read"]),
        ({}, ["none was read"]),
    ],
)
def test_a_node_is_idle_only_if_each_gpu_says_so(read, named):
    said = _gpu_use.in_use(read)
    assert (said == "") == (named is None)
    assert all(words in said for words in named or [])


SERVICE = {"pid": 7, "comm": "nvidia-persiste", "unit": "nvidia-persistenced.service"}
OTHER = {"pid": 4712, "comm": "python3", "unit": None}
NOT_TOLD = "it cannot be told"


def seen_gpus(*answers, **more):
    return dict({"snapshot": {"gpus": gpus(*answers)}}, **more)


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (seen_gpus(FREE, FREE, holders=[]), None),
        # NVML tells: a process that only has a device file open does not compute
        (seen_gpus(FREE, FREE, holders=[OTHER]), None),
        (seen_gpus(FREE, USED, holders=[]), ["pid 12, pid 4711"]),
        (seen_gpus(SILENT, USED, holders=[]), ["pid 12, pid 4711"]),
        (seen_gpus(FREE, NAMED, holders=[]), ["python3 (pid 4711, user alice, Slurm job 31)"]),
        (seen_gpus(FREE, SILENT, holders=[]), None),
        (seen_gpus(FREE, SILENT, holders=[SERVICE]), None),
        (seen_gpus(FREE, SILENT, holders=[SERVICE, OTHER]), ["python3 (pid 4712)"]),
        (seen_gpus(FREE, SILENT, holders=None), [NOT_TOLD, "/proc"]),
        (seen_gpus(FREE, SILENT), [NOT_TOLD, "/proc"]),
        (seen_gpus(holders=[]), None),
        (seen_gpus(holders=[OTHER]), ["python3 (pid 4712)"]),
        ({"snapshot": {"gpus": [{"index": 0}]}, "holders": [OTHER]}, ["python3 (pid 4712)"]),
        ({"unreachable": True, "msg": "gpu-1 does not answer"}, [NOT_TOLD, "gpu-1 does not answer"]),
        ({}, [NOT_TOLD, "/proc"]),
    ],
)
def test_a_drained_node_is_idle_by_nvml_or_by_its_device_files(read, named):
    said = _gpu_use.in_use_when_drained(read, ["nvidia-dcgm.service", "nvidia-persistenced.service"])
    assert (said == "") == (named is None)
    assert all(words in said for words in named or [])


def partitioned(*names, mode=1):
    return {
        "mig_mode_current": {"value": mode, "rc": 0},
        "mig_instances": {"value": [{"name": name} for name in names], "rc": 0},
    }


@pytest.mark.parametrize(
    ("snapshot", "devices"),
    [
        (None, {}),
        ({"gpus": [{}]}, {}),
        ({"gpus": [partitioned(mode=0)]}, {}),
        (
            {"gpus": [partitioned("X MIG 1g.10gb", "X MIG 1g.10gb+me"), partitioned("X MIG 1g.10gb")]},
            {"1g.10gb": 2, "1g.10gb+me": 1},
        ),
        ({"gpus": [partitioned("")]}, {"unknown": 1}),
    ],
)
def test_mig_devices_are_counted_by_profile(snapshot, devices):
    assert _gpu_use.mig_devices(snapshot) == devices
