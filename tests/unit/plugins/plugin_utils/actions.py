# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugins whose nodes answer what a test says."""

from __future__ import annotations

import copy
from unittest import mock

from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options


def make_action(plugin, args, execute=None, check=False, connection=None, loader=None, **task):
    """Return an action with the arguments ARGS.

    EXECUTE(module_name, module_args, task_vars) answers in the place of its node. TASK: other fields of its task.
    """
    fields = {"args": args, "async_val": 0, "check_mode": check, "diff": False, "action": "x", "environment": None}
    action = plugin.ActionModule(
        mock.Mock(**dict(fields, **task)),
        connection or mock.Mock(),
        mock.Mock(check_mode=check),
        DataLoader(),
        mock.Mock(),
        loader,
    )
    action._load_name = "x"
    action._execute_module = execute
    return action


def answer_in_turn(*answers):
    """Return a node that gives these answers one after the other, and the list of the calls that it gets."""
    calls, left = [], list(copy.deepcopy(answers))

    def execute(module_name, module_args, task_vars):
        calls.append((module_name, dict(module_args)))
        return left.pop(0)

    return execute, calls


def run_in_turn(plugin, host, args, *answers):
    """Return (result, calls) of the action whose node gives ANSWERS one after the other."""
    execute, calls = answer_in_turn(*answers)
    return make_action(plugin, args, execute).run(task_vars={"inventory_hostname": host}), calls


def make_plan_arguments(**given):
    """Return the arguments of rollout_plan, with the options of the rollout among GIVEN as variables of its policy."""
    names = {"rollout_id": "rollout_id", "target": "rollout_version"}
    names.update((key, options.PREFIX + key) for key in options.SPEC)
    policy = {names[key]: given.pop(key) for key in list(given) if key in names}
    return dict(given, policy={**policy, **given.get("policy", {})})


def run_rollout(plugin, arguments, check=False, **task_vars):
    """Return the result of an action of a rollout; ARGUMENTS of rollout_plan as of make_plan_arguments()."""
    if "audits" in arguments:
        arguments = make_plan_arguments(**arguments)
    return make_action(plugin, arguments, check=check, loader=mock.Mock()).run(task_vars=task_vars)
