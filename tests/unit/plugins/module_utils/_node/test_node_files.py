# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are written under the node's lock: which are due, what is refused, and whom."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, lock, node_state

pytestmark = pytest.mark.pythons

MINE = {
    "ledger": "l",
    "rollout_id": "r",
    "run": "one",
    "plan": "p",
    "controller": "c",
    "time": "t",
    "state": "held",
    "attempt": 1,
}


@pytest.mark.parametrize(
    ("path", "content", "named"),
    [
        ("x", "", "x is no absolute path"),
        ("/x", "é" * 600000, "/x would be longer"),
        ("/x", {"a": 1}, "/x has no text"),
        ("/x", None, "/x has no text"),
        ("/x", "", ""),
    ],
)
def test_what_cannot_be_written(path, content, named):
    said = node_state.find_problem(path, content)
    assert said.startswith(named) and bool(said) == bool(named)


def given(tmp_path, **contents):
    texts = {str(tmp_path / "etc" / name): content for name, content in contents.items()}
    defaults = {name: spec.get("default") for name, spec in node_state.ARGUMENTS.items()}
    return dict(defaults, record="files", state="present", content=texts, lock_timeout_s=0, step="mig")


def perform(tmp_path, check=False, **contents):
    return node_state.perform(given(tmp_path, **contents), check, None, str(tmp_path / "lock"))


def test_files_are_written_and_a_second_run_writes_none(tmp_path):
    said = perform(tmp_path, check=True, a="1\n", b="2\n")
    assert not (tmp_path / "etc").exists() and not (tmp_path / "lock").exists()
    done = perform(tmp_path, a="1\n", b="2\n")
    assert done == said and done["changed"] and done["written"] == [str(tmp_path / "etc" / name) for name in "ab"]
    assert (tmp_path / "etc" / "a").read_text() == "1\n" and (tmp_path / "etc" / "a").stat().st_mode & 0o777 == 0o644
    assert perform(tmp_path, a="1\n", b="2\n") == {"changed": False, "written": [], "diff": []}
    (tmp_path / "etc" / "b").chmod(0o666)
    again = perform(tmp_path, a="3\n", b="2\n")
    assert [one["before"] for one in again["diff"]] == ["1\n", "2\n"]
    assert (tmp_path / "etc" / "b").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in (tmp_path / "etc").iterdir()) == ["a", "b"]
    for damage in (lambda path: path.write_text("1"), lambda path: path.chmod(0o600)):
        damage(tmp_path / "etc" / "b")
        assert perform(tmp_path, b="2\n")["written"] == [str(tmp_path / "etc" / "b")]


@pytest.mark.parametrize(
    ("record", "state"), [("files", "read"), ("files", "held"), ("claim", "present"), ("drain", "released")]
)
def test_state_of_another_record_is_refused(tmp_path, record, state):
    with pytest.raises(node_state.TaskError):
        node_state.perform(dict(given(tmp_path, a="1\n"), record=record, state=state), False, None)


def test_what_is_no_file_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "b").symlink_to(tmp_path / "elsewhere")
    for texts, words in (({"b": "2\n"}, "is no regular file"), ({"c": 2}, "has no text")):
        with pytest.raises(node_state.TaskError, match=words):
            perform(tmp_path, a="1\n", **texts)
    assert not (tmp_path / "etc" / "a").exists() and not (tmp_path / "elsewhere").exists()


def test_it_works_under_the_lock_and_for_the_attempt_that_the_node_belongs_to(tmp_path, monkeypatch):
    claim.write(str(tmp_path), MINE)
    monkeypatch.setenv(claim.FENCE, claim.make_token(MINE, str(tmp_path)))
    with lock.NodeLock(path=str(tmp_path / "lock")), pytest.raises(lock.LockTimeout):
        perform(tmp_path, a="1\n")
    assert perform(tmp_path, a="1\n")["changed"]
    assert lock.read_json(str(tmp_path / "lock"))["module"] == "node_state"
    assert lock.read_json(str(tmp_path / "lock"))["step"] == "mig"
    for then in (dict(MINE, attempt=2, run="two"), None):
        if then:
            claim.write(str(tmp_path), then)
        else:
            os.unlink(str(tmp_path / claim.NAME))
        with pytest.raises(lock.Fenced):
            perform(tmp_path, a="late\n")
    assert (tmp_path / "etc" / "a").read_text() == "1\n"
