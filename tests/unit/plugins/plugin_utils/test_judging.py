# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller brings to a verdict: what is wrong in a file is told by file, line and key, and every layer has
its say.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ansible", reason="the controller's part needs what Ansible brings along, such as PyYAML")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import policy as rules
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import registry
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import special_files
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings


def complete(policy):
    return rules.complete(policy, registry.IDENTS)


def written(tmp_path, text, name="policy.yml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_collections_own_policy_can_be_followed_and_has_every_threshold():
    own = _judging.policy()
    assert set(own) == set(rules.STRICTEST) | {"schema"}
    full = complete(own)
    for key, row in own.items():
        if key == "schema":
            continue
        assert set(row) - {"minimum", "maximum"} == {"value", "unit", "text", "source"}, key
        assert row["text"].endswith(".") and row["source"] and row["unit"], key
        assert full["limits"][key] == row["value"]


def test_the_strictest_threshold_is_within_the_bounds_of_its_row():
    for key, row in _judging.policy().items():
        if key != "schema":
            value = rules.STRICTEST[key]
            assert row.get("minimum", value) <= value <= row.get("maximum", value), key


def test_later_layers_win_and_what_is_strict_or_waived_adds_up(tmp_path):
    path = written(
        tmp_path,
        """
memory_total_tolerance_percent: 1
ecc_volatile_uncorrected_max: 2
models:
  "*H100*": {memory_total_tolerance_percent: 2, ecc_volatile_uncorrected_max: 7}
strict: [gpu.*]
waivers:
  - {check: gpu.handle, reason: of the file, expires: 2026-12-31}
""",
    )
    waivers = [{"check": "gpu.count", "reason": "of the task", "expires": "2026-12-30"}]
    full = complete(
        _judging.policy(
            path,
            {
                "memory_total_tolerance_percent": 3,
                "models": {"*H100*": {"memory_total_tolerance_percent": 4}},
                "strict": ["driver.*"],
            },
            waivers,
        )
    )
    assert full["limits"]["memory_total_tolerance_percent"] == 3 and full["limits"]["ecc_volatile_uncorrected_max"] == 2
    assert full["models"] == [
        {"pattern": "*H100*", "limits": {"memory_total_tolerance_percent": 4, "ecc_volatile_uncorrected_max": 7}}
    ]
    assert full["strict"] == ["gpu.*", "driver.*"]
    assert [(entry["check"], entry["reason"], entry["expires"]) for entry in full["waivers"]] == [
        ("gpu.handle", "of the file", "2026-12-31"),
        ("gpu.count", "of the task", "2026-12-30"),
    ]


@pytest.mark.parametrize(
    "text, line, said",
    [
        ("a: 1\nb: [\n", None, "is neither YAML nor JSON: line 3"),
        ("{\"strict\": [\n", None, "is neither YAML nor JSON: line 2"),
        ("strict: []\nstrict: []\n", None, "line 2: the key 'strict' is there twice"),
        ("1: 2\n", None, "line 1: the key 1 is no text"),
        ("- x\n", 1, "holds no dictionary"),
        ("", None, "holds no dictionary"),
        ("&a\nmodels: *a\n", None, "neither YAML nor JSON"),
        ("strict: []\nmemory_tolerance: 1\n", 2, "has the unknown entry 'memory_tolerance'; known: "),
        ("\n\nmemory_total_tolerance_percent: much\n", 3, "memory_total_tolerance_percent = 'much', expected a number"),
        ("memory_total_tolerance_percent: true\n", 1, "= True, expected a number"),
        ("memory_total_tolerance_percent: .nan\n", 1, "= nan, expected a number"),
        ("memory_total_tolerance_percent: -1\n", 1, "= -1, expected a number of at least 0"),
        ("memory_total_tolerance_percent: 50\n", 1, "= 50, expected a number of at most 5"),
        (
            "memory_total_tolerance_percent:\n  unit: percent\n  value: 50\n",
            3,
            "memory_total_tolerance_percent.value = 50, expected a number of at most 5",
        ),
        (
            "models:\n  '*H100*':\n    memory_total_tolerance_percent: 50\n",
            3,
            "models.*H100*.memory_total_tolerance_percent = 50, expected a number of at most 5",
        ),
        ("models:\n  '*H100*':\n    memory: 50\n", 3, "unknown entry 'memory' for the model '*H100*'"),
        ("models:\n  '*H100*': 3\n", 2, "models.*H100* = 3, expected a dictionary"),
        ("models: []\n", 1, "models = [], expected a dictionary"),
        ("strict: gpu.count\n", 1, "strict = 'gpu.count', expected a list"),
        (
            "strict:\n  - gpu.count\n  - gpu.counter\n",
            3,
            "strict[1] is 'gpu.counter', and there is no such check; the nearest are gpu.count",
        ),
        ("strict:\n  - nothing.*\n", 2, "strict[0] is 'nothing.*', and there is no such check"),
        ("strict: [3]\n", 1, "strict[0] is 3, expected the id of a check"),
        (
            "waivers:\n  - check: gpu.counter\n    reason: x\n    expires: 2026-12-31\n",
            2,
            "waivers[0].check is 'gpu.counter', and there is no such check",
        ),
        (
            "waivers:\n  - check: gpu.*\n    reason: x\n    expires: 2026-12-31\n",
            2,
            "waivers[0].check is 'gpu.*', and there is no such check",
        ),
        (
            "waivers:\n  - check: gpu.count\n    reason: x\n    expires: later\n",
            4,
            "waivers[0].expires is 'later', expected a UTC date",
        ),
        ("waivers:\n  - check: gpu.count\n    reason: x\n", 2, "waivers[0] has no expires"),
        (
            "waivers:\n  - check: gpu.count\n    reason: x\n    expires: 2026-12-31\n    until: 3\n",
            5,
            "waivers[0] has the unknown entry 'until'",
        ),
        (
            "waivers:\n  - check: gpu.count\n    entity: 3\n    reason: x\n    expires: 2026-12-31\n",
            3,
            "waivers[0].entity is 3",
        ),
        (
            "schema: gpufleet.health-policy/2\n",
            1,
            "has schema 'gpufleet.health-policy/2', expected 'gpufleet.health-policy/1'",
        ),
    ],
)
def test_what_is_wrong_in_a_policy_file_is_told_by_file_line_and_key(tmp_path, text, line, said):
    path = written(tmp_path, text)
    with pytest.raises(_judging.InputError) as refused:
        _judging.policy(path)
    told = str(refused.value)
    assert said in told and path in told
    if line:
        assert "%s, line %d" % (path, line) in told


def test_a_policy_in_the_task_is_told_by_its_key():
    with pytest.raises(
        _judging.InputError,
        match=r"^option policy: the health policy says memory_total_tolerance_percent = 50, expected .* at most 5",
    ):
        _judging.policy(None, {"memory_total_tolerance_percent": 50})
    with pytest.raises(_judging.InputError, match=r"^option waivers: waivers\[0\]\.check is 'x'"):
        _judging.policy(None, None, [{"check": "x", "reason": "y", "expires": "2026-12-31"}])


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path):
    path = tmp_path / "p.yml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(_judging.InputError, match="p.yml on the controller is no UTF-8 text"):
        _judging.policy(str(path))
    with pytest.raises(_judging.InputError, match="q.yml on the controller cannot be read: No such file"):
        _judging.policy(str(tmp_path / "q.yml"))


@pytest.mark.parametrize(
    "change, line, said",
    [
        ({"schema": "other/1"}, 2, "has schema 'other/1'"),
        ({"node": "gpu-2"}, 3, "that of node gpu-2, not of gpu-1"),
        ({"node": ""}, 3, "names no node"),
        ({"snapshot": {"gpus": {}}}, 6, "holds no reading of its GPUs"),
        (
            {"snapshot": {"gpus": [3]}},
            7,
            "snapshot.gpus[0] in the baseline of gpu-1 is of type int, expected a dictionary",
        ),
        ({"audit": []}, 10, "audit in the baseline of gpu-1 is of type list, expected a dictionary"),
        ({"smoke": "x"}, 11, "smoke in the baseline of gpu-1 is of type str, expected a dictionary"),
    ],
)
def test_what_is_wrong_in_a_baseline_file_is_told_by_file_line_and_key(tmp_path, change, line, said):
    document = dict(
        {
            "schema": "gpufleet.baseline/1",
            "node": "gpu-1",
            "boot_id": "b",
            "snapshot": {"gpus": [{}]},
            "audit": {},
            "smoke": None,
        },
        **change,
    )
    path = written(tmp_path, json.dumps(document, indent=1), "b.json")
    with pytest.raises(_judging.InputError) as refused:
        _judging.baseline(path, "gpu-1")
    told = str(refused.value)
    assert said in told and "%s, line %d" % (path, line) in told


def test_a_baseline_that_is_not_json_is_told_with_its_line(tmp_path):
    path = written(tmp_path, "{\n \"schema\": \n}", "b.json")
    with pytest.raises(_judging.InputError, match=r"b\.json on the controller is not JSON: Expecting value: line 3"):
        _judging.baseline(path, "gpu-1")
    path = written(tmp_path, "[]", "c.json")
    with pytest.raises(_judging.InputError, match=r"c\.json, line 1: the baseline is a list, not a dictionary"):
        _judging.baseline(path, "gpu-1")


def test_a_good_baseline_file_is_read(tmp_path):
    path = written(tmp_path, json.dumps(readings.baseline()), "b.json")
    assert _judging.baseline(path, readings.NODE) == readings.baseline()


def test_the_data_files_are_found_by_name(tmp_path):
    (tmp_path / "other.json").write_text('{"rows": []}')
    (tmp_path / "health_policy.json").write_text("{}")
    (tmp_path / "readme.txt").write_text("x")
    assert _judging.tables(str(tmp_path)) == {"other": {"rows": []}}
    assert {"xid", "sxid"} <= set(_judging.tables())


@pytest.mark.parametrize(
    "text, words",
    [
        (
            (
                '{"schema": "gpufleet.sxid-table/1", "codes": [{"sxid": 1, "family": "", "name": "", "step": '
                '"", "gate": "no"}]}'
            ),
            ".codes[0].gate is 'no'",
        ),
        ("{", "is not JSON"),
        ("[]", "expected a dictionary"),
    ],
)
def test_a_damaged_data_file_is_named_with_its_key(tmp_path, text, words):
    (tmp_path / "sxid.json").write_text(text)
    with pytest.raises(_judging.InputError) as caught:
        _judging.tables(str(tmp_path))
    assert (
        str(tmp_path / "sxid.json") in str(caught.value)
        and words.lstrip(".") in str(caught.value)
        and "install the collection again" in str(caught.value)
    )


def test_a_model_has_its_own_threshold_the_longest_pattern_wins_and_a_nameless_gpu_gets_the_strictest():
    policy = {
        "memory_total_tolerance_percent": 1,
        "models": {
            "*": {"memory_total_tolerance_percent": 2},
            "*h100 80gb*": {"memory_total_tolerance_percent": 3},
            "*L4*": {"memory_total_tolerance_percent": 4},
        },
    }

    def verdict(loss_percent, name):
        snapshot, baseline = readings.snapshot(), readings.baseline()
        for gpu in snapshot["gpus"] + baseline["snapshot"]["gpus"]:
            gpu["name"] = name
        total = snapshot["gpus"][0]["memory_total_bytes"]["value"]
        snapshot["gpus"][0]["memory_total_bytes"] = readings.value(int(total * (100 - loss_percent) / 100))
        health = _health.evaluate(
            readings.reading(snapshot), baseline, policy, phase="post", node=readings.NODE, now=readings.NOW
        )
        return [check["status"] for check in health["checks"] if check["id"] == "gpu.memory_total"][0]

    assert (
        verdict(2.9, readings.value("NVIDIA H100 80GB HBM3")) == "pass"
        and verdict(3.1, readings.value("NVIDIA H100 80GB HBM3")) == "fail"
    )
    assert (
        verdict(1.9, readings.value("NVIDIA H200")) == "pass" and verdict(2.1, readings.value("NVIDIA H200")) == "fail"
    )
    assert verdict(0.1, readings.failed(999)) == "fail"


@pytest.mark.parametrize("kind", ["fifo", "socket", "link to a fifo", "link to a device", "link to nothing"])
def test_baseline_that_is_no_file_is_refused_and_not_waited_for(tmp_path, kind):
    special_files.make(kind, tmp_path / "d" / "a.json")
    with pytest.raises(_judging.InputError):
        special_files.within(lambda: _judging.baseline(str(tmp_path / "d" / "a.json"), "a"))


def test_baseline_may_be_a_link(tmp_path):
    (tmp_path / "real").write_text("{}")
    (tmp_path / "a.json").symlink_to(tmp_path / "real")
    assert _judging.read_text(str(tmp_path / "a.json"), "baseline file", "") == "{}"
