# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Artifacts on another host: whole or not there, never overwritten, compared with what was sent, and a host that is
away loses no node.
"""

from __future__ import annotations

import json
import os
import stat

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.gpufleet.lifecycle.plugins.action import artifact_store as action_plugin
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.modules import artifact_store as module
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores

FILES = {"manifest.json": b"{}\n", "kernel.log": b"NVRM\n" * 1000, "empty": b""}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "controller" / "1-before"
    path.mkdir(parents=True)
    for name, data in FILES.items():
        (path / name).write_bytes(data)
    return path


class Done(Exception):
    pass


class FakeModule:
    def __init__(self, params, check_mode):
        self.params, self.check_mode = params, check_mode

    def exit_json(self, **result):
        raise Done(result)

    def fail_json(self, **result):
        raise Done(dict(result, failed=True))


def there(monkeypatch, params, check_mode=False):
    """What the module answers on the artifact host."""
    monkeypatch.setattr(module, "AnsibleModule", lambda **spec: FakeModule(params, check_mode))
    with pytest.raises(Done) as done:
        module.main()
    return done.value.args[0]


@pytest.fixture
def store(monkeypatch):
    def act(src, path, answer=None, check_mode=False, **args):
        def execute(module_name, module_args, task_vars):
            assert module_name == "gpufleet.lifecycle.artifact_store"
            if isinstance(answer, Exception):
                raise answer
            return there(monkeypatch, module_args, check_mode) if answer is None else answer

        given = dict(args, src=str(src), path=str(path))
        action = actions.make_action(action_plugin, given, execute, check_mode, delegate_to="keeper")
        return action.run(task_vars={"inventory_hostname": "gpu-1"})

    return act


def test_a_copy_is_whole_private_and_made_once(store, source, tmp_path):
    path = tmp_path / "keeper" / "evidence" / "1-before"
    first = store(source, path)
    assert (first["changed"], first["path"]) == (True, str(path)) and first["files"] == _artifacts.describe_files(FILES)
    assert _artifacts.read(str(path)) == FILES and os.listdir(path.parent) == ["1-before"]
    assert {stat.S_IMODE(os.stat(path / name).st_mode) for name in FILES} == {0o640} and stat.S_IMODE(
        os.stat(path).st_mode
    ) == 0o750
    second = store(source, path)
    assert (second["changed"], second["path"]) == (False, str(path))


def test_what_is_there_is_never_written_to(store, source, tmp_path):
    path = tmp_path / "keeper" / "1-before"
    store(source, path)
    (source / "manifest.json").write_bytes(b"{1}\n")
    other = store(source, path)
    assert (other["changed"], other["path"]) == (True, str(path) + "-2")
    assert (path / "manifest.json").read_bytes() == b"{}\n" and store(source, path)["path"] == str(path) + "-2"


def test_check_mode_asks_and_writes_nothing(store, source, tmp_path):
    path = tmp_path / "keeper" / "1-before"
    before = store(source, path, check_mode=True)
    assert (before["changed"], before["path"], path.parent.exists()) == (True, "", False)
    store(source, path)
    after = store(source, path, check_mode=True)
    assert (after["changed"], after["path"]) == (False, str(path))


@pytest.mark.parametrize(
    "answer, words",
    [
        (AnsibleConnectionFailure("no route"), "it cannot be reached (no route). Check its connection variables"),
        ({"failed": True, "msg": "MODULE FAILURE"}, "MODULE FAILURE"),
        (
            {"changed": True, "path": "/x", "files": _artifacts.describe_files(dict(FILES, empty=b"1"))},
            "/x holds other files than were sent",
        ),
        ({"changed": True, "path": "/x", "files": []}, "/x holds other files than were sent"),
        ({"changed": True, "path": "/etc/passwd", "files": _artifacts.describe_files(FILES)}, "expected /x"),
        ({"changed": True, "path": "/a\n/x", "files": _artifacts.describe_files(FILES)}, "expected /x"),
        ({"changed": True, "path": ["/x"], "files": _artifacts.describe_files(FILES)}, "expected /x"),
    ],
)
def test_a_copy_that_is_not_there_fails_the_task_and_names_the_host(store, source, answer, words):
    result = store(source, "/x", answer)
    assert result["failed"] is True and result["path"] == "" and result["changed"] is False
    assert (
        result["msg"].startswith("gpu-1: %s was not kept on the artifact host keeper: " % source)
        and words in result["msg"]
    )
    softly = store(source, "/x", answer, required=False)
    assert "failed" not in softly and softly["warnings"] == [softly["msg"]] and words in softly["msg"]


def test_a_place_where_nothing_can_be_written(store, source, tmp_path):
    (tmp_path / "file").write_text("")
    result = store(source, tmp_path / "file" / "1-before")
    assert (
        result["failed"] is True
        and "cannot be written by user %d: " % os.geteuid() in result["msg"]
        and "Make room there" in result["msg"]
    )


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda source: None, "there is no file in it on the controller"),
        (lambda source: (source / "directory").mkdir(), "cannot be read on the controller: Is a directory"),
        (lambda source: (source / "link").symlink_to("/etc/passwd"), "cannot be read on the controller: "),
        (lambda source: os.mkfifo(source / "pipe"), "pipe is no file of up to"),
        (lambda source: source.rmdir(), "cannot be read on the controller: No such file"),
    ],
)
def test_only_files_are_sent(store, tmp_path, make, words):
    source = tmp_path / "bundle"
    source.mkdir()
    make(source)
    result = store(source, "/x", {"changed": True})
    assert result["failed"] is True and words in result["msg"] and str(source) in result["msg"]
    softly = store(source, "/x", {"changed": True}, required=False)
    assert "failed" not in softly and softly["warnings"] == [result["msg"]]


def written(source, events, ledger="l", **more):
    found = dict({"rollout_id": "r", "ledger": ledger, "events": events}, **more)
    (source / "report.json").write_text(json.dumps(found))
    (source / "page.html").write_text("<p>%d" % events)
    return ["report.json", "page.html"]


def test_a_report_is_replaced_by_a_newer_edition_and_never_by_an_older_one(store, source, tmp_path):
    path = tmp_path / "keeper" / "reports" / "r"

    def bring(events, **more):
        names = written(source, events, **more)
        return store(source, path, names=names, edition="report.json")

    first = bring(3)
    assert (first["changed"], first["path"], first["newer"]) == (True, str(path), False)
    assert sorted(os.listdir(path)) == ["page.html", "report.json"], "those that were named"
    assert (bring(5)["changed"], (path / "page.html").read_text()) == (True, "<p>5")
    late = bring(4)
    assert (late["changed"], late["newer"], late["path"]) == (False, True, str(path)) and "failed" not in late
    assert (path / "page.html").read_text() == "<p>5"
    elsewhere = bring(1, ledger="m")
    assert (elsewhere["path"], elsewhere["changed"]) == (str(path) + "-2", True)
    assert (path / "page.html").read_text() == "<p>5"


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"rollout_id": "r", "ledger": "l", "events": "many"}'])
def test_what_does_not_say_which_edition_it_is_replaces_nothing(store, source, tmp_path, text):
    path = tmp_path / "keeper" / "r"
    (source / "report.json").write_text(text)
    result = store(source, path, names=["report.json"], edition="report.json", required=False)
    assert result["warnings"] and "report.json" in result["msg"] and result["path"] == "" and not path.exists()


def test_the_internal_option_is_not_for_playbooks(store, source):
    with pytest.raises(AnsibleActionFail, match="files: set by the action plugin"):
        store(source, "/x", {}, files={"a": "b"})


@pytest.mark.parametrize(
    "sent, words",
    [
        (None, "files: set by the action plugin"),
        ({"../x": _artifacts.pack(b"")}, "is no name of a file"),
        ({"..": _artifacts.pack(b"")}, "is no name of a file"),
        ({"x": "?"}, "did not arrive whole: not base64"),
        ({"x": _artifacts.pack(b"y" * 100)[:-4]}, "did not arrive whole"),
    ],
)
def test_the_module_takes_whole_files_of_plain_names_alone(monkeypatch, tmp_path, sent, words):
    answer = there(monkeypatch, {"src": "/s", "path": str(tmp_path / "p"), "required": True, "files": sent})
    assert answer["failed"] is True and words in answer["msg"] and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a\x00", "a\nb", "a\x1b[2K", "a\x9b", "-", "x" * 256, "\ud800", "a\u202eb"]
)
def test_name_that_is_none_of_a_file_is_refused_on_the_host(tmp_path, monkeypatch, name):
    params = {"src": "/s", "path": str(tmp_path / "d"), "names": [], "edition": "", "required": True}
    answer = there(monkeypatch, dict(params, files={name: _artifacts.pack(b"1"), "b": _artifacts.pack(b"2")}))
    assert answer.get("failed") and not (tmp_path / "d").exists()
    assert answer["msg"].isprintable()


def test_answer_of_the_host_steers_no_terminal(store, source, tmp_path):
    result = store(source, tmp_path / "kept", answer={"failed": True, "msg": "no\x1b[2K"})
    assert result["failed"] and "\x1b" not in result["msg"]
