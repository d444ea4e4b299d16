# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action rollout_step, as far as it touches the node: its own copies of documents."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_step
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger

pytestmark = pytest.mark.cores

BASE = {
    "artifact_dir": "/nowhere",
    "mode": "none",
    "name": "drain",
    "documents": {"baseline": {"b": 1, "a": [2]}, "other": {}},
}


def act(check=False, file=None, copied=None, there=False, **more):
    """(result, what was asked of the node). THERE: the node has the directory."""
    args = {
        key: value for key, value in dict(BASE, **more).items() if value and not (key == "name" and "failed" in more)
    }
    task = mock.Mock(args=args, async_val=0, check_mode=check, diff=False, action="x", environment=None)
    task.copy.side_effect = lambda: mock.Mock(args=None)
    action = rollout_step.ActionModule(task, mock.Mock(), mock.Mock(check_mode=check), DataLoader(), mock.Mock(), None)
    action._load_name = "x"
    action._shared_loader_obj = mock.Mock()
    calls = []

    def get(name, task, **dummy):
        calls.append((name, task.args))
        return mock.Mock(run=lambda task_vars: copied or {"changed": True})

    def execute(module_name, module_args, task_vars):
        calls.append((module_name, module_args))
        if module_name == "ansible.legacy.stat":
            return {"changed": False, "stat": {"exists": there, "isdir": there}}
        return file or {"changed": False}

    action._execute_module = execute
    action._shared_loader_obj.action_loader.get.side_effect = get
    return action.run(task_vars={"inventory_hostname": "a1"}), calls


@pytest.mark.parametrize(
    "reason, told, line",
    [
        ("GPU 3 is lost. It serves.", "", "failed (GPU 3 is lost. It serves.)"),
        ("GPU 3 is lost. It serves.", "GPU 3 is lost.", "failed (It serves.)"),
        ("GPU 3 is lost; its rollback failed: x", "GPU 3 is lost.", "failed (its rollback failed: x)"),
        ("GPU 3 is lost.", "GPU 3 is lost.", "failed (as above)"),
        ("another", "GPU 3 is lost.", "failed (another)"),
        ("", "GPU 3 is lost.", "failed"),
    ],
)
def test_failure_that_was_printed_is_not_printed_again(reason, told, line):
    assert rollout_step.words({"state": "failed", "reason": reason, "name": "", "failed": ""}, told) == line


def test_without_a_directory_the_node_is_not_asked():
    result, calls = act()
    assert calls == [] and result["progress"] == "a1: drain" and not result["changed"]


def test_the_node_gets_the_named_documents_readable_for_root_alone():
    result, calls = act(node_dir="/var/lib/gpufleet", node_documents=["baseline"])
    assert result["changed"] and [name for name, dummy in calls] == [
        "ansible.legacy.stat",
        "ansible.legacy.file",
        "ansible.legacy.copy",
    ]
    assert calls[1][1] == {
        "path": "/var/lib/gpufleet",
        "state": "directory",
        "owner": "root",
        "group": "root",
        "mode": "0755",
    }
    assert (calls[2][1]["dest"], calls[2][1]["mode"], calls[2][1]["owner"]) == (
        "/var/lib/gpufleet/baseline.json",
        "0600",
        "root",
    )
    assert json.loads(calls[2][1]["content"]) == BASE["documents"]["baseline"]
    assert [call[1]["dest"] for call in act(node_dir="/d")[1][2:]] == ["/d/baseline.json", "/d/other.json"]


def test_a_directory_that_is_there_keeps_its_owner_and_mode():
    dummy, calls = act(node_dir="/root", node_documents=["baseline"], there=True)
    assert [name for name, dummy in calls] == ["ansible.legacy.stat", "ansible.legacy.copy"]


def test_in_check_mode_nothing_is_written():
    result, calls = act(check=True, node_dir="/var/lib/gpufleet")
    assert calls == [] and not result["changed"] and not result.get("failed")


def test_a_copy_that_was_the_same_is_no_change():
    assert not act(copied={"changed": False}, node_dir="/d")[0]["changed"]


def test_what_cannot_be_written_fails_with_node_place_and_reason():
    result, calls = act(file={"failed": True, "msg": "Read-only file system"}, node_dir="/d")
    assert (
        result["failed"]
        and result["msg"] == "a1: its copy of the documents could not be written to /d: Read-only file system"
        and len(calls) == 2
    )
    result, calls = act(copied={"failed": True, "msg": "No space left"}, node_dir="/d")
    assert result["failed"] and result["msg"].endswith("/d: No space left") and len(calls) == 3


def test_a_document_that_is_not_there_is_not_copied():
    result, calls = act(node_dir="/d", node_documents=["verdict"])
    assert (
        result["failed"]
        and "names verdict; expected some of documents: baseline, other" in result["msg"]
        and calls == []
    )


def test_no_password_of_an_address_is_kept():
    result, dummy = act(failed="E: https://user:s3cret@mirror.example.com/debian is not signed, http://key@x and a@b")
    assert (
        result["progress"]
        == "a1: failed (E: https://***@mirror.example.com/debian is not signed, http://***@x and a@b)"
    )


def test_a_reason_that_a_node_makes_long_is_cut():
    result, dummy = act(failed="E: " + "x" * 1000000)
    assert len(result["progress"]) < 10000 and result["progress"].startswith("a1: failed (E: xxx")


@pytest.mark.parametrize("given", ["failed", "reason", "detail"])
def test_words_of_a_node_are_cleaned_where_they_enter_the_ledger(given):
    more = {"failed": {}, "reason": {"state": "failed"}, "detail": {"name": "install"}}[given]
    result, dummy = act(**dict({given: "boom \x1b[2K\x1b[1A\x9b2K\u202eall done %s" % ("x" * 10000)}, **more))
    assert result["progress"].isprintable() and "boom" in result["progress"] and len(result["progress"]) < 5000


@pytest.mark.parametrize(
    ("record", "goes_on"),
    [
        *(({"name": name}, name in (*state.PUTTING_BACK, *state.CLOSING)) for name in state.STEPS),
        *(({"name": "", "state": ended}, True) for ended in ("failed", "rolled_back", "quarantined", "lost")),
        *(({"name": "", "state": ended}, False) for ended in ("done", "skipped", "pending")),
        ({"failed": "boom"}, True),
        ({"name": ""}, False),
    ],
    ids=str,
)
def test_failed_node_is_put_back_while_the_ledger_does_not_answer(tmp_path, monkeypatch, record, goes_on):
    asked = []

    def refuse(ledger, work):
        asked.append(ledger.store.patience_s)
        raise store.StoreError("the ledger did not answer")

    monkeypatch.setattr(Ledger, "transact", refuse)
    result, calls = act(mode="ledger", artifact_dir=str(tmp_path), rollout_id="r1", **record)
    assert bool(result.get("failed")) is not goes_on and calls == []
    assert ("unrecorded" in result) is goes_on
    assert asked == [rollout_step.RESCUE_PATIENCE_S if goes_on else store.PATIENCE_S]
