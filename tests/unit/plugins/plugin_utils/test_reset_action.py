# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of gpu_reset: what it sends to the node, and what it refuses before the node is asked."""

from __future__ import annotations

import copy
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_reset
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding, _controller

pytestmark = pytest.mark.cores

DIGEST = "d" * 64


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "shipped", lambda: _binding.Archive(b"zip", DIGEST, "1", None))


def act(args, *answers):
    """(result, calls) of the action whose node gives ANSWERS one after the other."""
    task = mock.Mock(args=args, async_val=0, check_mode=False, diff=False, action="x", environment=None)
    action = gpu_reset.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), None)
    action._load_name = "x"
    calls, left = [], list(copy.deepcopy(answers))

    def execute(module_name, module_args, task_vars):
        calls.append((module_name, dict(module_args)))
        return left.pop(0)

    action._execute_module = execute
    return action.run(task_vars={"inventory_hostname": "gpu-r1-1"}), calls


def test_the_node_gets_what_the_task_says():
    result, calls = act(
        {"gpus": ["0"], "when_needed": "yes", "reason": "ECC"}, {"changed": True, "gpus": [{"uuid": "GPU-1"}]}
    )
    assert result["changed"] is True and result["gpus"] == [{"uuid": "GPU-1"}]
    assert calls == [
        (
            "gpufleet.lifecycle.gpu_reset",
            {
                "gpus": ["0"],
                "when_needed": True,
                "destroy_mig": False,
                "reason": "ECC",
                "reset_timeout_s": 300,
                "timeout_s": 60,
                "lock_timeout_s": 600,
                "binding_digest": DIGEST,
            },
        )
    ]


def test_the_binding_follows_where_the_node_asks_for_it():
    result, calls = act({"gpus": ["all"]}, {"needs_binding": True}, {"changed": False})
    assert len(calls) == 2 and "binding_archive" in calls[1][1] and "needs_binding" not in result


def test_a_failure_of_the_node_stays_one():
    result, calls = act({"gpus": ["all"]}, {"failed": True, "msg": "refused", "reasons": [{"id": "holder"}]})
    assert result["failed"] is True and result["reasons"] == [{"id": "holder"}] and len(calls) == 1


@pytest.mark.parametrize(
    "args",
    [
        {"gpus": []},
        {"gpus": ["all"], "reset_timeout_s": 0},
        {"gpus": ["all"], "binding_digest": "x"},
        {},
        {"gpus": ["all"], "force": True},
    ],
)
def test_options_that_do_not_do_are_refused_before_the_node_is_asked(args):
    with pytest.raises(AnsibleError):
        act(args)


def test_a_task_whose_playbook_has_ended_resets_nothing(monkeypatch):
    monkeypatch.setattr(_controller, "require", mock.Mock(side_effect=_controller.ControllerError("ended")))
    with pytest.raises(_controller.ControllerError):
        act({"gpus": ["all"]})


def test_the_node_is_named_in_a_refusal():
    with pytest.raises(AnsibleActionFail, match="gpu-r1-1"):
        act({"gpus": []})
