# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node in its schedulers."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scheduler_state
short_description: Tell the state of a node in its schedulers
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides whether a node is drained, who drained it, whether its GPUs are in use, and what to do and to report when
    one of its schedulers could not be told. The role C(gpu_scheduler) has no other decisions than these.
  - The results of the role's tasks are read from the node's variables, as they were registered, at the moment at which
    the lookup is asked.
  - Nothing is read of the node or of a scheduler, and nothing is changed.
options:
  _terms:
    description: None.
    type: list
    elements: str
  backends:
    description: The node's schedulers, V(slurm) and V(kubernetes), in the order in which they drain it.
    type: list
    elements: str
    default: []
  services:
    description: Units that may hold the GPUs of a drained node.
    type: list
    elements: str
    default: []
  drain_timeout:
    description: Seconds that jobs have to end. With V(0) the node is only closed for new work.
    type: int
    default: 0
  on_timeout:
    description: What becomes of the drain of this token when the node could not be drained, V(lift) or V(keep).
    type: str
    choices: [lift, keep]
    default: lift
"""

EXAMPLES = r"""
---
- name: Refuse a node whose GPUs are in use
  ansible.builtin.fail:
    msg: "{{ state.in_use }}"
  when: state.in_use | length > 0
  vars:
    state: "{{ lookup('gpufleet.lifecycle.scheduler_state', backends=['slurm'],
      services=['nvidia-persistenced.service']) }}"
"""

RETURN = r"""
---
_raw:
  description: The state.
  type: list
  elements: dict
  contains:
    drained:
      description: Whether every scheduler has drained the node. True if it has none.
      type: bool
    ownership:
      description: Who drained it, by scheduler, as the modules return it.
      type: dict
    blockers:
      description: Jobs and pods that hold it.
      type: list
      elements: raw
    in_use:
      description: Why the node must be left alone, because processes use its GPUs or may. Empty if none do.
      type: str
    not_drained:
      description: Why the node does not count as drained. Empty if it does.
      type: str
    failure:
      description: In a rescue, why, in one line.
      type: str
    drain_failure:
      description: In the rescue of a drain, why, with the jobs that did not end.
      type: str
    failed:
      description: In a rescue, the scheduler whose task failed, and why. Empty if it was another task.
      type: dict
    lift:
      description: After a drain that failed, the schedulers in which it is to be lifted.
      type: list
      elements: str
    close:
      description: After a drain that failed, the schedulers in which the node is to be closed all the same.
      type: list
      elements: str
    resume:
      description: After a resume that failed, the schedulers that were not asked yet.
      type: list
      elements: str
    unseen:
      description: The ownership in schedulers that could not be told to lift a drain.
      type: dict
    drain_failed:
      description: What to report of a node that could not be drained.
      type: str
    resume_failed:
      description: What to report of a node that was not taken back.
      type: str
"""

from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _scheduler_state

# Variables of the role: facts of the state by their own names.
RESULTS = ("slurm", "kubernetes", "users", "reason", "failures")


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        variables = variables or {}
        facts = {
            name: variables["__gpu_scheduler_" + name] for name in RESULTS if "__gpu_scheduler_" + name in variables
        }
        facts.update((name, self.get_option(name)) for name in ("backends", "services", "drain_timeout", "on_timeout"))
        facts.update(
            failed_result=variables.get("ansible_failed_result"), failed_task=variables.get("ansible_failed_task")
        )
        return [_scheduler_state.decide(facts)]
