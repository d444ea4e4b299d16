# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of dkms_module: which archives are offered, sent and removed again."""

from __future__ import annotations

import copy
import os
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import dkms_module

VERSION = "535.261.03"
ONE, TWO = ("nvidia-current_%s_6.1.0-%d-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % (VERSION, number) for number in (1, 2))


@pytest.fixture(name="store")
def _store(tmp_path):
    for name in (ONE, TWO, "nvidia-current_1.2.3_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz"):
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / (name + ".sha256")).write_text("")
    (tmp_path / ("nvidia_%s_6.1.0-3-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % VERSION)).write_bytes(b"being written")
    return tmp_path


def act(args, *answers, copied=None):
    """(result, calls) of the action; ANSWERS are those of dkms_module, and copied what comes of each copy."""
    task = mock.Mock(args=args, async_val=0, check_mode=False, diff=False, action="x", environment=None)
    task.copy.side_effect = lambda: mock.Mock(args=None)
    loader = mock.Mock()
    action = dkms_module.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), loader)
    action._load_name = "x"
    calls, left = [], list(copy.deepcopy(answers))

    def execute(module_name, module_args, task_vars):
        calls.append((module_name.split(".")[-1], dict(module_args)))
        return left.pop(0) if module_name == dkms_module.MODULE else {"changed": True}

    def get(name, task, **dummy):
        calls.append((name.split(".")[-1], dict(task.args)))
        return mock.Mock(run=lambda task_vars: copied or {"changed": True})

    action._execute_module = execute
    action._shared_loader_obj = loader
    loader.action_loader.get.side_effect = get
    return action.run(task_vars={"inventory_hostname": "a1"}), calls


def test_without_a_directory_the_module_is_all(store):
    result, calls = act({"version": VERSION, "state": "absent"}, {"changed": True})
    assert result["changed"] and calls == [("dkms_module", {"version": VERSION, "state": "absent"})]


@pytest.mark.parametrize("directory", ["empty", "missing"])
def test_a_directory_without_archives_offers_none(tmp_path, directory):
    (tmp_path / "empty").mkdir()
    dummy, calls = act({"version": VERSION, "archive_dir": str(tmp_path / directory)}, {"changed": False})
    assert calls == [("dkms_module", {"version": VERSION})]


def test_whole_archives_of_the_version_are_offered_and_none_is_sent_that_is_not_needed(store):
    result, calls = act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "stale": []})
    assert result["stale"] == [] and calls == [("dkms_module", {"version": VERSION, "archives_offered": [ONE, TWO]})]


def test_the_node_is_told_what_an_archive_was_built_from(store):
    with open(str(store / TWO) + ".sha256", "a", encoding="ascii") as stream:
        stream.write("\n# source %s\n" % ("ab" * 32))
    dummy, calls = act({"version": VERSION, "archive_dir": str(store)}, {"changed": False})
    assert calls == [("dkms_module", {"version": VERSION, "archives_offered": [ONE, TWO], "archives_sources": {TWO: "ab" * 32}})]


def test_what_the_node_asks_for_is_brought_used_and_removed(store):
    result, calls = act({"version": VERSION, "archive_dir": str(store), "remove_stale": True},
                        {"changed": False, "needs_archives": [TWO], "warnings": ["one"]}, {"changed": True, "steps": [], "warnings": ["two"]})
    there = os.path.join(dkms_module.NODE_DIRECTORY, TWO)
    assert result["changed"] and result["warnings"] == ["one", "two"] and "needs_archives" not in result
    assert [name for name, dummy in calls] == ["dkms_module", "file", "copy", "copy", "dkms_module", "file"]
    assert (calls[1][1]["state"], calls[1][1]["mode"]) == ("directory", "0755")
    assert [call[1]["src"] for call in calls[2:4]] == [str(store / TWO), str(store / TWO) + ".sha256"]
    assert calls[4][1] == {"version": VERSION, "remove_stale": True, "import_files": [there]}
    assert calls[5][1] == {"path": dkms_module.NODE_DIRECTORY, "state": "absent"}


def test_what_cannot_be_brought_fails_with_the_node_and_is_removed(store):
    result, calls = act({"version": VERSION, "archive_dir": str(store)}, {"needs_archives": [ONE]}, copied={"failed": True, "msg": "No space left"})
    assert result["failed"] and result["msg"] == "a1: the archives could not be brought to /var/lib/gpufleet/dkms-transfer: No space left"
    assert [name for name, dummy in calls] == ["dkms_module", "file", "copy", "file"]


def test_a_failure_of_the_module_is_removed_after_too(store):
    result, calls = act({"version": VERSION, "archive_dir": str(store)}, {"needs_archives": [ONE]}, {"failed": True, "msg": "The archive does not fit"})
    assert result["failed"] and calls[-1] == ("file", {"path": dkms_module.NODE_DIRECTORY, "state": "absent"})


@pytest.mark.parametrize("more, words", [
    ({"archives_offered": []}, "set by the action plugin"),
    ({"archives_sources": {}}, "archives_sources: set by the action plugin"),
    ({"state": "imported"}, "a1: archive_dir goes with state=built"),
    ({"import_files": ["/x"]}, "without import_files"),
])
def test_what_does_not_go_together(store, more, words):
    with pytest.raises(AnsibleActionFail, match=words):
        act(dict({"version": VERSION, "archive_dir": str(store)}, **more))


def test_a_directory_that_cannot_be_read_is_no_empty_one(store):
    with pytest.raises(AnsibleActionFail, match="archive_dir.* on the controller cannot be read: Not a directory"):
        act({"version": VERSION, "archive_dir": str(store / ONE)})
