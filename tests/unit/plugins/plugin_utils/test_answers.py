# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node answers: one malformed answer makes one node unknown, by name, and the others keep their outcome."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import pathlib

import pytest
import yaml

pytest.importorskip("hypothesis", reason="the plain pytest run has it")

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.lifecycle.plugins.action import hold_info
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import audit
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import (
    files,
    precheck,
    precheck_formats,
    precheck_page,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import probes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import formats
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver import test_audit
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

ROOT = pathlib.Path(__file__).resolve().parents[4]
AUDIT = {
    "versions": {"loaded": "535.216.03", "library": "535.216.03", "package": "535.216.03-1"},
    "pci": [{"address": "0000:1b:00.0", "device": "0x2330", "class": "0x030200"}] * 8,
    "kernel": {"running": "6.1.0-1-amd64", "next_boot": "6.1.0-1-amd64", "installed": ["6.1.0-1-amd64"]},
    "compute_users": 0,
    "identity": {"machine_id": "f" * 32, "board_serial": None, "gpus": ["GPU-1"]},
    "dkms": [{"name": "nvidia", "version": "535.216.03", "kernel": "6.1.0-1-amd64", "arch": "x86_64", "note": ""}],
}
CLAIM = {
    "ledger": "l",
    "rollout_id": "upgrade-535.261.03",
    "attempt": 1,
    "run": "r",
    "plan": "p",
    "controller": "c",
    "time": "2026-01-31T12:00:00Z",
    "state": "held",
}
MARKER = {"quarantine": {"exists": False, "path": "q"}, "claim": CLAIM, "problem": "", "no_room": ""}
HOLD = {"package": "linux-image-amd64", "version": "6.1", "since": None, "age_days": 3, "security": ["6.2"]}
PACKAGES = {
    "resolved": {"packages": {"nvidia-driver": "535"}},
    "transaction": {"install": [{"name": "x", "version": "1"}]},
}
MIG = {"gpus": [{"index": 0, "status": "same"}], "failures": [], "msg": ""}
HEALTH = {
    "health": {
        "verdict": "pass",
        "driver": {"loaded": "535.216.03"},
        "checks": [{"id": "nvml.answers", "entity": "node", "status": "pass", "message": ""}],
    },
    "baseline": {"audit": AUDIT, "snapshot": {"gpus": [{"index": 0, "values": {"name": {"value": "H100", "rc": 0}}}]}},
}
WELL = {
    "driver_audit": {"audit": AUDIT},
    "node_state": MARKER,
    "hold_info": {"holds": {"kernel": [HOLD], "driver": [], "other": []}},
    "driver_packages": PACKAGES,
    "gpu_mig": MIG,
    "gpu_health": HEALTH,
}
TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from(["pass", "fail", "held", "\x1b[2J", "\ud800", "\u0000", "{{ 1 }}", "x" * 999])
)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([10**400, -(2**70), 1e308, float("inf"), float("nan")]),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)


def places(value, path=()):
    """Return the path of every value in a document."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def replaced(document, path, value):
    if not path:
        return value
    document = copy.deepcopy(document)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


@st.composite
def malformed(draw):
    """A module, and its answer in which one value is replaced by any JSON."""
    module = draw(st.sampled_from(sorted(WELL)))
    path = draw(st.sampled_from(places(WELL[module])))
    return module, replaced(WELL[module], path, draw(JSON))


def outcome(module, answers):
    """Return what the controller makes of the answers of several nodes: {node: its outcome}."""
    found = {name: _answers.accept(module, answer) for name, answer in answers.items()}
    if module == "driver_audit":
        counts = probes.count_gpus(found)
        _peers.expectation(counts), _peers.own(counts)
        return {name: probes.make_probe(name, one, MARKER, {}) for name, one in found.items()}
    if module == "node_state":
        return {name: probes.make_probe(name, {"audit": AUDIT}, one, {}) for name, one in found.items()}
    if module == "hold_info":
        lines = [line.split() for line in hold_info.render_lines(found)]  # whatever the widths of its columns
        return {name: [line for line in lines if any(word.strip(":,") == name for word in line)] for name in found}
    if module == "driver_packages":
        return {name: [line for line in formats.preview_packages({name: one})] for name, one in found.items()}
    if module == "gpu_mig":
        probes.refuse_unfit({name: one for name, one in found.items() if not one.get("failures")})
        return {name: probes.layout_looked_at(one) for name, one in found.items()}
    document = precheck.build_document(list(found), found)
    json.loads(files.json_text(document)), precheck_formats.render_summary(document)
    for text in (
        precheck_page.render_page(document),
        precheck_formats.render_markdown(document),
        precheck_formats.render_junit(document, found),
    ):
        text.encode("utf-8")
    return {name: (entry["verdict"], entry["state"], entry["message"]) for name, entry in document["nodes"].items()}


@pytest.mark.parametrize("module", sorted(WELL))
def test_answer_of_module_is_accepted_as_it_is(module):
    answer = dict(WELL[module], changed=False)
    assert _answers.accept(module, answer) == answer


def test_what_the_modules_read_is_accepted():
    facts = readings.reading()
    judged = _health.evaluate(facts, node=readings.NODE, now=readings.NOW)
    for module, answer in (
        ("driver_audit", {"audit": audit.decide(test_audit.good(), test_audit.NEW), "changed": False}),
        ("gpu_health", {"facts": facts, "changed": False}),
        ("gpu_health", {"health": judged, "baseline": _health.baseline_of(facts, readings.NODE, readings.NOW)}),
        ("gpu_info", {"snapshot": facts["snapshot"]}),
        ("driver_packages", dict(PACKAGES, transaction={"upgrade": ["nvidia-driver 535"]})),
        ("node_state", {"changed": True, "notes": {}, "msg": "noted"}),
    ):
        assert _answers.accept(module, answer) == answer


@given(malformed())
def test_malformed_answer_changes_no_other_node(case):
    module, answer = case
    honest = {"a1": WELL[module], "a3": replaced(WELL[module], (), WELL[module])}
    alone = outcome(module, honest)
    together = outcome(module, dict(honest, a2=answer))
    if module == "hold_info":
        assert "a2" in str(together["a2"])
    assert {name: together[name] for name in ("a1", "a3")} == alone


@given(st.sampled_from(sorted(WELL)), JSON)
def test_any_json_in_place_of_answer_is_accepted_or_a_failure(module, answer):
    found = _answers.accept(module, answer)
    assert isinstance(found, dict)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert _answers.accept(module, found) == found


def nested(depth):
    value = "x"
    for dummy in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "module, answer, place",
    [
        ("driver_audit", {"audit": "x"}, "audit"),
        ("driver_audit", {"audit": dict(AUDIT, versions=[1])}, "audit.versions"),
        ("driver_audit", {"audit": dict(AUDIT, pci=[1])}, "audit.pci[0]"),
        ("driver_audit", {"audit": dict(AUDIT, pci=AUDIT["pci"] + [None])}, "audit.pci[8]"),
        ("driver_audit", {"audit": dict(AUDIT, compute_users="x")}, "audit.compute_users"),
        ("driver_audit", {"audit": dict(AUDIT, compute_users=True)}, "audit.compute_users"),
        ("driver_audit", {"audit": dict(AUDIT, compute_users=-1)}, "audit.compute_users"),
        ("driver_audit", {"audit": dict(AUDIT, identity={"gpus": [[1]]})}, "audit.identity.gpus[0]"),
        ("driver_audit", {"audit": dict(AUDIT, kernel={"installed": 5})}, "audit.kernel.installed"),
        ("driver_audit", {"audit": dict(AUDIT, kernel={"running": "6.1\n6.2"})}, "audit.kernel.running"),
        ("node_state", dict(MARKER, claim={"x": 1}), "claim.ledger"),
        ("node_state", dict(MARKER, claim=dict(CLAIM, attempt=None)), "claim.attempt"),
        ("node_state", dict(MARKER, claim="x"), "claim"),
        ("node_state", dict(MARKER, claim=dict(CLAIM, rollout_id="x; curl x | sh")), "claim.rollout_id"),
        ("node_state", dict(MARKER, claim=dict(CLAIM, rollout_id="../x")), "claim.rollout_id"),
        ("node_state", dict(MARKER, quarantine=[]), "quarantine"),
        ("hold_info", {"holds": {"kernel": [{"package": "x"}]}}, "holds.kernel[0].version"),
        ("hold_info", {"holds": {"\x1b]0;x" + "k" * 500: 5}}, "holds.?]0;x" + "k" * 109),
        ("gpu_mig", {"gpus": ["x"]}, "gpus[0]"),
        ("gpu_health", {"baseline": {"audit": {"identity": "x"}}}, "baseline.audit.identity"),
        (
            "gpu_health",
            {"facts": {"snapshot": {"gpus": [{"uuid": {"value": [1]}}]}}},
            "facts.snapshot.gpus[0].uuid.value",
        ),
        ("gpu_health", {"facts": {"kernel_log": {"events": [{"pci": ["x"]}]}}}, "facts.kernel_log.events[0].pci"),
        (
            "gpu_health",
            {"facts": {"kernel_log": {"suppressed": [{"code": {}}]}}},
            "facts.kernel_log.suppressed[0].code",
        ),
        ("gpu_info", {"more": nested(200)}, "depth"),
        ("gpu_info", {"more": 10**400}, "number"),
        ("gpu_info", {"more": float("nan")}, "number"),
        ("gpu_info", {"more": "x" * (_answers.TEXT_LIMIT + 1)}, "size"),
        ("gpu_info", {"more": [0] * (_answers.VALUE_LIMIT + 1)}, "size"),
        ("gpu_info", ["x"], "answer"),
        ("gpu_smoke", {"facts": {"smoke": {}}}, "facts.snapshot"),
        ("gpu_smoke", {"facts": {"smoke": {"gpus": 5}, "snapshot": {}}}, "facts.smoke.gpus"),
        ("gpu_evidence", {"files": ["kernel.log"]}, "files"),
        ("gpu_evidence", {"missing": ["x"]}, "missing[0]"),
        ("driver_reload", {"reboot_required": "no"}, "reboot_required"),
        ("node_state", {"note": "x"}, "note"),
        ("node_services", {"failures": [5]}, "failures[0]"),
        ("slurm_node", {"drained": "no"}, "drained"),
        ("node_state", {"warnings": 5}, "warnings"),
        ("node_state", {"warnings": ["x", None]}, "warnings[1]"),
        ("node_state", {"msg": {"x": 1}}, "msg"),
        ("node_state", {"failed": "no"}, "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_answer_is_a_failure_that_names_the_place(module, answer, place):
    found = _answers.accept(module, answer)
    assert found["failed"] is True and set(found) <= {"failed", "msg", "changed", "problem_at"}
    assert found["problem_at"] == place and module in found["msg"]


@pytest.mark.parametrize("key", ["ansible_facts", "ansible_stats", "add_host", "add_group", "_ansible_no_log"])
@pytest.mark.parametrize("value", [{"rollout_max_down": 7}, 5, ["x"], None], ids=str)
def test_answer_carries_nothing_that_ansible_acts_on(key, value):
    assert _answers.accept("driver_audit", {"audit": AUDIT, key: value}) == {"audit": AUDIT}


def test_text_that_no_encoding_has_is_replaced():
    found = _answers.accept("gpu_evidence", {"more": {"a\udc80": "\ud800x"}})
    assert found == {"more": {"a?": "?x"}}


@pytest.mark.parametrize("key", ["{{ 1 }}", "a{% if 1 %}", "{# x #}"])
def test_key_that_is_a_template_is_left_out(key):
    assert _answers.accept("gpu_info", {key: 1, "more": [{key: 1, "b": 2}]}) == {"more": [{"b": 2}]}


def documented(module):
    """Return {name of a result: its type} as the documentation of the MODULE has it."""
    tree = ast.parse((ROOT / "plugins" / "modules" / (module + ".py")).read_text(encoding="utf-8"))
    texts = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
    }
    return {name: entry["type"] for name, entry in yaml.safe_load(texts["RETURN"]).items()}


def kind(shape):
    if isinstance(shape, _answers.Record):
        return "dict"
    kinds = {dict: "dict", list: "list", _answers.Text: "str", _answers.Number: "int"}
    return {bool: "bool", dict: "dict"}[shape] if isinstance(shape, type) else kinds[type(shape)]


@pytest.mark.parametrize("module", sorted(_answers.SHAPES))
def test_shape_is_that_of_documentation(module):
    types = documented(module)
    shapes = {name: kind(shape) for name, shape in _answers.SHAPES[module].items() if name in types}
    assert shapes and shapes == {name: types[name] for name in shapes}


def test_answer_may_be_a_failure():
    answer = {"failed": True, "msg": "no binding", "changed": False}
    assert _answers.accept("gpu_health", answer) == answer


def test_failure_that_ansible_made_keeps_its_message():
    """ansible-core 2.19 and newer have objects of their own in it."""
    answer = {
        "failed": True,
        "msg": "Module result deserialization failed",
        "exception": object(),
        "warnings": [object()],
    }
    assert _answers.accept("gpu_health", answer) == answer


@pytest.mark.parametrize("answer", [None, {}])
def test_node_that_was_not_asked_stays_without_answer(answer):
    assert _answers.accept("gpu_health", answer) == {}


@dataclasses.dataclass(frozen=True)
class Summary:
    """As Ansible's objects, which a node's JSON makes from ansible-core 2.19 on."""

    msg: str
    inner: object = None


@pytest.mark.parametrize("place", ["facts", "boot_id", "other"])
def test_object_of_ansible_that_is_no_message_makes_node_unknown(place):
    kept = _answers.accept("gpu_health", {"facts": {"boot_id": "b"}, place: {"x": [Summary("x")]}})
    assert kept["failed"] and kept["problem_at"] == "type"


def test_object_of_ansible_is_kept_as_message():
    given = {"failed": True, "warnings": [Summary("x")], "deprecations": [Summary("x")], "exception": Summary("x")}
    assert _answers.accept("gpu_health", given) == given


@pytest.mark.parametrize(
    ("message", "place"),
    [(Summary("x" * (_answers.TEXT_LIMIT + 1)), "size"), (Summary("x", Summary("y", 2**70)), "number")],
)
def test_message_in_object_of_ansible_is_bounded(message, place):
    assert _answers.accept("gpu_health", {"warnings": [message]})["problem_at"] == place
