# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the demonstration accepts, and what it shows while it runs."""

from __future__ import annotations

import copy
import io
import json
from unittest import mock

import pytest

from tests.lab import demo

NAMES = ["gpu-r1-1", "gpu-r2-1"]


def node(state, failed=(), begin=0, names=("install", "validate", "return")):
    """A node whose steps take ten seconds each, from BEGIN on."""
    steps = [
        {
            "name": name,
            "started": "%04d" % (begin + 10 * number),
            "finished": "%04d" % (begin + 10 * number + 10),
            "status": "failed" if name in failed else "ok",
        }
        for number, name in enumerate(names)
    ]
    return {"state": state, "from": demo.OLD, "to": demo.NEW, "reason": "", "steps": steps}


CANARY_STEPS = ("install", "validate", "return", "soak")


GOOD = {
    "schema": "gpufleet.report/1",
    "started": "s",
    "finished": "f",
    "target": demo.NEW,
    "verdict": "failed",
    "nodes": {"gpu-r1-1": node("done", names=CANARY_STEPS), "gpu-r2-1": node("rolled_back", ["validate"], 40)},
}


def changed(**changes):
    report = copy.deepcopy(GOOD)
    for key, value in changes.items():
        if key in report:
            report[key] = value
        else:
            name, field = key.split("__")
            report["nodes"][name.replace("_", "-")][field] = value
    return report


def test_exactly_the_expected_is_accepted():
    assert demo.complaints(GOOD, NAMES) == []


@pytest.mark.parametrize(
    "report, names, words",
    [
        (changed(schema="other/1"), NAMES, "schema"),
        (changed(target="1.2"), NAMES, "target"),
        (changed(verdict="complete"), NAMES, "verdict is complete"),
        (changed(finished=None), NAMES, "no end"),
        (GOOD, NAMES + ["gpu-r9-9"], "the nodes are"),
        (GOOD, NAMES[1:], "the nodes are"),
        (changed(gpu_r1_1__state="pending"), NAMES, "gpu-r1-1 is pending, expected done"),
        (changed(gpu_r1_1__state="rolled_back"), NAMES, "gpu-r1-1 is rolled_back, expected done"),
        (changed(gpu_r2_1__state="done"), NAMES, "gpu-r2-1 is done, expected rolled_back"),
        (changed(gpu_r2_1__state="quarantined"), NAMES, "gpu-r2-1 is quarantined"),
        (changed(**{"gpu_r1_1__from": demo.NEW}), NAMES, "went from"),
        (changed(gpu_r1_1__steps=node("done", ["install"])["steps"]), NAMES, "did not succeed"),
        (
            changed(gpu_r2_1__steps=node("done", ["install"])["steps"]),
            NAMES,
            "did not succeed are ['install'], expected ['validate']",
        ),
        (changed(gpu_r2_1__steps=node("done")["steps"]), NAMES, "did not succeed are []"),
        (changed(gpu_r1_1__steps=node("done")["steps"]), NAMES, "gpu-r1-1 was not watched at work"),
        (
            changed(gpu_r2_1__steps=node("rolled_back", ["validate"], 39)["steps"]),
            NAMES,
            "started at 0039, before the canary was watched to the end",
        ),
    ],
)
def test_anything_else_is_named(report, names, words):
    assert any(words in line for line in demo.complaints(report, names))


@pytest.mark.parametrize(
    "statuses, good",
    [
        (["interrupted", "ok", "ok", "ok"], True),
        (["ok", "ok", "ok", "ok"], True),
        (["interrupted", "interrupted", "ok", "ok"], False),
        (["interrupted", "failed", "ok", "ok"], False),
        (["failed", "ok", "ok", "ok"], False),
    ],
)
def test_of_a_node_whose_controller_was_killed_one_step_may_be_interrupted(statuses, good):
    report = copy.deepcopy(GOOD)
    for step, status in zip(report["nodes"]["gpu-r1-1"]["steps"], statuses):
        step["status"] = status
    assert (demo.complaints(report, NAMES, ("gpu-r1-1",)) == []) == good
    assert (demo.complaints(report, NAMES) == []) == ("interrupted" not in statuses and good)


@pytest.mark.parametrize(
    "begin, together",
    [(70, []), (69, ["gpu-r2-1 and gpu-r2-2 of one rack were out of service at the same time, at 0069"])],
)
def test_of_a_rack_one_node_may_be_out_of_service(begin, together):
    nodes = dict(GOOD["nodes"], **{"gpu-r2-2": node("done", begin=begin), "gpu-r3-1": node("done", begin=69)})
    assert demo.out_of_order(nodes) == together


GPU = {"uuid": {"value": "GPU-5d2f"}, "pci_bus_id": {"value": "00000000:4b:00.0"}}


@pytest.mark.parametrize(
    "reason, expected",
    [
        ("GPU GPU-5D2F does not answer", True),
        ("GPU at 00000000:4b:00.0 is gone", True),
        ("GPU at 0000:4b:00.0 is gone", True),
        ("GPU 3 is gone", False),
        ("GPU at 0000:4c:00.0 is gone", False),
        ("", False),
    ],
)
def test_the_reason_has_to_name_the_gpu(reason, expected):
    assert demo.names_the_gpu(reason, GPU) is expected


LOG = """TASK [Write the report]
[WARNING]: The report of rollout r1 cannot be made: KeyError: 'x'. The rollout
goes on without it.
ok: [localhost]
[DEPRECATION WARNING]: something of Ansible's own
"""


def test_a_warning_in_the_log_is_none_of_what_is_expected():
    assert demo.warned(LOG) == ["Ansible warned: The report of rollout r1 cannot be made: KeyError: 'x'. The rollout"]
    assert demo.warned(LOG.replace("[WARNING]: The report", "ok: the report")) == []
    assert demo.warned(LOG * 9) == demo.warned(LOG), "the same is told once"


@pytest.mark.parametrize("log, status", [("", 0), (LOG, 1)])
def test_a_warning_in_the_log_fails_the_demonstration(tmp_path, monkeypatch, capsys, log, status):
    (tmp_path / "report.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (tmp_path / "ansible.log").write_text(log, encoding="utf-8")
    monkeypatch.setattr(demo, "kept", lambda *where: {"snapshot": {"gpus": [{}] * 8}})
    monkeypatch.setattr(demo, "names_the_gpu", lambda reason, gpu: True)
    outcome = mock.Mock(rc=2)
    assert demo.conclude(demo.Progress(io.StringIO()), outcome, tmp_path, tmp_path, NAMES) == status
    assert ("NOT AS EXPECTED: Ansible warned: The report" in capsys.readouterr().out) == bool(status)
