# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles on the controller: whole or not there, never overwritten, and an action that fails when one has to be there
and is not.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import errno
import hashlib
import json
import os
import resource
import stat
import zlib

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_evidence
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _evidence_options as options
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_evidence as module
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding, _host_answers
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores

NODE = "gpu-1"
XML = "<nvidia_smi_log/>\n"


def sent(text, **fields):
    return dict(
        {"data": base64.b64encode(zlib.compress(text.encode())).decode(), "truncated": False, "note": ""}, **fields
    )


def answer(**fields):
    return copy.deepcopy(
        dict(
            {
                "changed": False,
                "facts": {
                    "schema": "gpufleet.reading/1",
                    "boot_id": "3c9f",
                    "snapshot": {"status": "ok", "simulated": True},
                },
                "files": {
                    "nvidia-smi.xml": sent(XML),
                    "processes.json": sent("{}\n"),
                    "kernel.log": sent("NVRM\n", truncated=True, note="cut"),
                },
                "missing": [],
            },
            **fields,
        )
    )


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(b"source", "1", "d" * 64))


def act(given, check_mode=False, node=NODE, calls=None, **args):
    def execute(module_name, module_args, task_vars):
        assert module_name == "gpufleet.lifecycle.gpu_evidence"
        if calls is not None:
            calls.append(dict(module_args))
        return copy.deepcopy(given)

    action = actions.make_action(gpu_evidence, args, execute, check_mode)
    return action.run(task_vars={"inventory_hostname": node})


def keep(path, given=None, **args):
    return act(answer() if given is None else given, artifact_dir=str(path), rollout_id="r1", moment="before", **args)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_bundle_says_what_it_holds(tmp_path):
    result = keep(tmp_path / "a", attempt=2)
    bundle = tmp_path / "a" / "evidence" / "r1" / NODE / "2-before"
    assert (result["bundle"], result["changed"], result["msg"]) == (
        str(bundle),
        False,
        "gpu-1: evidence kept in %s" % bundle,
    )
    assert not set(result) & {"facts", "files", "missing", "failed", "warnings"}
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest == result["manifest"]
    assert {
        name: manifest[name]
        for name in ("schema", "node", "rollout_id", "attempt", "moment", "boot_id", "simulated", "missing")
    } == {
        "schema": "gpufleet.evidence/1",
        "node": NODE,
        "rollout_id": "r1",
        "attempt": 2,
        "moment": "before",
        "boot_id": "3c9f",
        "simulated": True,
        "missing": [],
    }
    assert [entry["name"] for entry in manifest["files"]] == [
        "kernel.log",
        "nvidia-smi.xml",
        "processes.json",
        "reading.json",
    ]
    for entry in manifest["files"]:
        data = (bundle / entry["name"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert entry["truncated"] is (entry["name"] == "kernel.log")
    assert (bundle / "nvidia-smi.xml").read_text() == XML
    assert json.loads((bundle / "reading.json").read_text()) == answer()["facts"]
    assert sorted(os.listdir(bundle.parent)) == ["2-before"], "nothing else is left"


def test_owner_and_group_alone_can_read_it_whatever_the_umask_is(tmp_path):
    for number, umask in enumerate((0o000, 0o077)):
        before = os.umask(umask)
        try:
            bundle = keep(tmp_path / ("a%d" % number))["bundle"]
        finally:
            os.umask(before)
        directory = bundle
        while directory != str(tmp_path):
            assert mode(directory) == 0o750, directory
            directory = os.path.dirname(directory)
        assert set(mode(os.path.join(bundle, name)) for name in os.listdir(bundle)) == {0o640}


def test_a_bundle_is_never_written_to_again(tmp_path):
    first = keep(tmp_path)["bundle"]
    content = {name: (os.stat(os.path.join(first, name)).st_mtime_ns, name) for name in os.listdir(first)}
    others = [keep(tmp_path, answer(files={}))["bundle"] for dummy in range(2)]
    assert [os.path.basename(path) for path in others] == ["1-before-2", "1-before-3"]
    assert {name: (os.stat(os.path.join(first, name)).st_mtime_ns, name) for name in os.listdir(first)} == content
    (tmp_path / "evidence" / "r1" / NODE / "2-before").write_text("a file of that name")
    assert os.path.basename(keep(tmp_path, attempt=2)["bundle"]) == "2-before-2"


def test_what_is_missing_is_listed_and_fails_nothing(tmp_path):
    reasons = [{"part": "nvidia-smi.xml", "reason": "nvidia-smi: command not found"}]
    given = answer(missing=reasons)
    del given["files"]["nvidia-smi.xml"], given["files"]["kernel.log"]
    result = keep(tmp_path, given)
    assert "failed" not in result and result["msg"].endswith("; missing: kernel.log, nvidia-smi.xml")
    assert result["manifest"]["missing"] == reasons + [{"part": "kernel.log", "reason": "the node did not say why"}]


def test_names_of_what_is_missing_steer_no_terminal(tmp_path):
    evil = "boom \x1b[2K\u202eall done"
    result = keep(tmp_path, answer(missing=[{"part": evil, "reason": evil}]))
    assert "boom" in result["msg"] and result["msg"].isprintable()
    assert all(word.isprintable() for entry in result["manifest"]["missing"] for word in entry.values())


@pytest.mark.parametrize(
    "broken, words",
    [
        ({"data": "no base64!"}, "not base64"),
        ({"data": base64.b64encode(b"no zlib").decode()}, "incorrect header"),
        ({"data": base64.b64encode(zlib.compress(b"whole")[:-4]).decode()}, "its end is missing"),
        ({"data": base64.b64encode(zlib.compress(b"a" * (1 << 21))).decode()}, "longer than 1048576 bytes"),
        ("text", "it did not arrive whole"),
    ],
)
def test_a_file_that_did_not_arrive_is_missing_and_the_others_are_kept(tmp_path, monkeypatch, broken, words):
    monkeypatch.setattr(_host_answers, "MAX_DOCUMENT_BYTES", 1 << 20)
    given = answer()
    given["files"]["kernel.log"] = broken
    manifest = keep(tmp_path, given)["manifest"]
    assert [(entry["part"], words in entry["reason"]) for entry in manifest["missing"]] == [("kernel.log", True)]
    assert len(manifest["files"]) == 3


@pytest.mark.parametrize("name", ["../escape", "/etc/cron.d/x", "manifest.json", "reading.json", ""])
def test_a_node_does_not_choose_the_names_of_files(tmp_path, name):
    result = keep(tmp_path, answer(files={name: sent("evil")}))
    assert sorted(os.listdir(result["bundle"])) == ["manifest.json", "reading.json"]
    assert (
        json.loads(open(os.path.join(result["bundle"], "reading.json"), encoding="utf-8").read()) == answer()["facts"]
    )
    assert repr(name) in [entry["part"] for entry in result["manifest"]["missing"]]
    assert not (tmp_path / "evidence" / "r1" / "escape").exists()


@contextlib.contextmanager
def small_files():
    """No file may grow beyond 2 KiB, as on a disk that is full.

    Only for a moment: the tests' own output may go to a larger one.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_bundle_that_does_not_fit_fails_the_task_and_leaves_nothing(tmp_path):
    given = answer(files={"kernel.log": sent("NVRM\n" * 1000)})
    with small_files():
        result = keep(tmp_path, given)
    assert result["failed"] is True and result["bundle"] == ""
    assert "gpu-1: the bundle of evidence (" in result["msg"] and os.strerror(errno.EFBIG) in result["msg"]
    assert (
        "cannot be written as %s/evidence/r1/gpu-1/1-before: " % tmp_path in result["msg"]
        and "Make room there" in result["msg"]
    )
    assert os.listdir(tmp_path / "evidence" / "r1" / NODE) == []
    assert "1-before" in keep(tmp_path)["bundle"], "the next one fits and has the name"


def test_where_it_need_not_be_that_is_a_warning(tmp_path):
    with small_files():
        result = keep(tmp_path, answer(files={"kernel.log": sent("NVRM\n" * 1000)}), required=False)
    assert "failed" not in result and result["bundle"] == ""
    assert result["warnings"] == [result["msg"]] and "cannot be written" in result["msg"]


@pytest.mark.parametrize("name", ["a", "a/evidence/r1"])
def test_a_file_where_a_directory_has_to_be(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    result = keep(tmp_path / "a")
    assert result["failed"] is True and "cannot be written as " in result["msg"]


def test_a_node_that_gathers_nothing(tmp_path):
    failed = {"failed": True, "msg": "MODULE FAILURE", "rc": 1, "module_stderr": "Killed", "warnings": ["w"]}
    result = keep(tmp_path, failed)
    assert (result["failed"], result["msg"]) == (True, "gpu-1: no evidence could be gathered: MODULE FAILURE")
    assert (result["rc"], result["module_stderr"], result["warnings"]) == (1, "Killed", ["w"])
    result = keep(tmp_path, failed, required=False)
    assert "failed" not in result and result["warnings"] == [
        "w",
        "gpu-1: no evidence could be gathered: MODULE FAILURE",
    ]
    assert keep(tmp_path, {"changed": False})["failed"] is True
    assert os.listdir(tmp_path) == []


def test_check_mode_reads_and_writes_nothing(tmp_path):
    calls = []
    result = act(answer(), check_mode=True, calls=calls, artifact_dir=str(tmp_path / "a"), log_lines=7)
    assert result["bundle"] == "" and result["manifest"]["files"] and os.listdir(tmp_path) == []
    binding = {"digest": "d" * 64, "version": "1"}
    assert calls == [{"log_lines": 7, "nvidia_smi_timeout_s": 30, "timeout_s": 60, "binding": binding}]


@pytest.mark.parametrize(
    "args, words",
    [
        ({}, "artifact_dir is not set"),
        ({"artifact_dir": "/x", "rollout_id": "../x"}, "rollout_id '../x' cannot name"),
        ({"artifact_dir": "/x", "moment": "Before"}, "moment 'Before' cannot name"),
        ({"artifact_dir": "/x", "attempt": -1}, "attempt is -1"),
        ({"artifact_dir": "/x", "node": "../gpu"}, "node name '../gpu' cannot name"),
        ({"artifact_dir": "/x", "binding": {}}, "binding: set by the action plugin"),
    ],
)
def test_what_cannot_be_is_refused_before_the_node_is_asked(args, words):
    calls = []
    with pytest.raises(AnsibleActionFail, match="^.*") as caught:
        act(answer(), calls=calls, **args)
    assert words in str(caught.value) and calls == []


class Done(Exception):
    pass


class FakeModule:
    def __init__(self, params, argument_spec, **dummy):
        self.params = dict((name, option.get("default")) for name, option in argument_spec.items())
        self.params.update(params)
        self._remote_tmp = None
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        raise Done(result)

    def fail_json(self, **result):
        raise Done(dict(result, failed=True))


def gather(monkeypatch, take, **params):
    monkeypatch.setattr(module, "AnsibleModule", lambda **spec: FakeModule(params, **spec))
    monkeypatch.setattr(module.snapshot, "take", take)
    monkeypatch.setattr(module.reading, "gather_reading", lambda snapshot: {"snapshot": snapshot})
    monkeypatch.setattr(
        module.evidence,
        "gather_parts",
        lambda facts, log_lines, smi_timeout_s: {
            "files": {
                "kernel.log": {
                    "text": "%d lines, %d s, \ud800" % (log_lines, smi_timeout_s),
                    "truncated": True,
                    "note": "n",
                }
            },
            "missing": [{"part": "x", "reason": "y"}],
        },
    )
    with pytest.raises(Done) as done:
        module.main()
    return done.value.args[0]


def test_the_module_sends_what_the_action_unpacks(monkeypatch, tmp_path):
    result = gather(monkeypatch, lambda *args, **options: {"status": "ok"}, log_lines=3, nvidia_smi_timeout_s=9)
    kept = keep(tmp_path, json.loads(json.dumps(result)))
    with open(os.path.join(kept["bundle"], "kernel.log"), encoding="utf-8") as stream:
        assert stream.read() == "3 lines, 9 s, \\ud800"
    assert {"part": "x", "reason": "y"} in kept["manifest"]["missing"]
    assert [(entry["name"], entry["truncated"], entry["note"]) for entry in kept["manifest"]["files"]][0] == (
        "kernel.log",
        True,
        "n",
    )


def test_module_without_the_binding_asks_for_it(monkeypatch, tmp_path):
    binding = {"digest": "d" * 64, "version": "1", "source": None}
    result = gather(monkeypatch, lambda *args, **options: pytest.fail("read"), binding=binding)
    assert result == {"changed": False, "needs_binding": True}


@pytest.mark.parametrize(
    "params", [{"timeout_s": 0}, {"nvidia_smi_timeout_s": 0}, {"log_lines": 0}, {"log_lines": 10001}]
)
def test_the_module_refuses_limits_that_are_none(monkeypatch, params):
    result = gather(monkeypatch, lambda *args, **options: pytest.fail("read"), **params)
    assert result["failed"] is True and result["msg"].startswith("%s is " % list(params)[0])


def test_the_options_of_node_and_controller_are_apart():
    assert not set(options.GATHER_SPEC) & set(options.WRITE_SPEC)
    assert set(options.GATHER_SPEC) | set(options.WRITE_SPEC) == set(options.ARGUMENT_SPEC)


@pytest.mark.parametrize(
    "given",
    [
        {"facts": {"more": "x" * 5000}},
        {"files": ["x"]},
        {"files": {"kernel.log": 7}},
        {"missing": "x"},
        {"missing": [7]},
        {"missing": [{"part": "kernel.log", "reason": "x" * 9000}]},
        {"missing": [{"part": "x", "reason": "x"}] * 5000},
        {"files": {"kernel.log": sent("x" * 5000)}},
        {"files": {"kernel.log": sent("x", note="x" * 9000)}},
    ],
)
def test_what_a_node_answers_beside_the_matter_fills_no_disk_and_breaks_no_record(tmp_path, monkeypatch, given):
    monkeypatch.setattr(_host_answers, "MAX_DOCUMENT_BYTES", 4096)
    result = keep(tmp_path, answer(**given))
    assert result.get("failed") or result["manifest"]["missing"]
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept) < 5 * 4096 and len(kept) <= 5


def test_too_large_a_reading_fails_the_task_where_evidence_has_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(_host_answers, "MAX_DOCUMENT_BYTES", 4096)
    assert keep(tmp_path, answer(facts={"more": "x" * 5000}))["failed"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
