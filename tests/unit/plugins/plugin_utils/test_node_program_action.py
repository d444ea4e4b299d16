# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a node is put in its place only by the attempt of a rollout that the node belongs to."""

from __future__ import annotations

import shlex
import subprocess
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="an action runs on the controller")

from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import node_program
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _node_program

pytestmark = pytest.mark.cores

MINE = {
    "ledger": "l%d",
    "rollout_id": "r 1",
    "run": "b'",
    "plan": "p",
    "controller": "c",
    "time": "t",
    "state": "held",
    "attempt": 1,
}


@pytest.fixture(name="copied")
def _copied(monkeypatch, tmp_path):
    """copied(environment): the arguments with which both files are copied."""
    monkeypatch.setattr(_node_program, "build", lambda: mock.Mock(data=b"x", sha256="0", binding_version="1"))
    monkeypatch.setattr(node_program.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))

    def run(environment):
        seen = []
        task = mock.Mock(
            args={"dest": "/x/program"}, async_val=0, check_mode=False, diff=False, action="x", environment=environment
        )
        task.copy.side_effect = lambda: mock.Mock(args=None)
        action = node_program.ActionModule(
            task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), mock.Mock()
        )
        copy = mock.Mock()
        copy.run.side_effect = lambda task_vars: {"changed": True}
        action._shared_loader_obj = mock.Mock()
        action._shared_loader_obj.action_loader.get.side_effect = lambda name, task, **dummy: (
            seen.append(task.args) or copy
        )
        assert action.run(task_vars={"inventory_hostname": "a1"})["changed"]
        return seen

    return run


@pytest.mark.parametrize("environment", [[], [{"LC_ALL": "C"}], [{claim.FENCE: ""}]])
def test_outside_of_a_rollout_nothing_is_asked(copied, environment):
    assert ["validate" in args for args in copied(environment)] == [False, False]


def test_the_node_is_asked_before_each_file_takes_its_place(copied, tmp_path):
    place = tmp_path / "state of the node"
    calls = [args["validate"] for args in copied([{"LC_ALL": "C"}, {claim.FENCE: claim.token(MINE, str(place))}])]
    assert len(calls) == 2

    def asked():
        # As copy does: the file's name in the place of %s, and no shell of its own.
        return {
            subprocess.run(shlex.split(call % "/tmp/new"), capture_output=True, check=False).returncode
            for call in calls
        }

    assert asked() == {claim.GUARD_RC}, "the node has given itself up"
    claim.write(str(place), MINE)
    assert asked() == {0}
    claim.write(str(place), dict(MINE, attempt=2))
    assert asked() == {claim.GUARD_RC}
