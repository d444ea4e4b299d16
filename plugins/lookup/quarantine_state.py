# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node on its way into quarantine and out of it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: quarantine_state
short_description: Tell the state of a node on its way into quarantine and out of it
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides whether a node may be put in quarantine or returned to service, what its marker says, and what to report.
    The role C(gpu_quarantine) has no other decisions than these.
  - The results of the role's tasks are read from the node's variables, as they were registered, at the moment at
    which the lookup is asked.
  - Nothing is read of the node, and nothing is changed.
options:
  _terms:
    description: None.
    type: list
    elements: str
  reason:
    description: Why the node is put in quarantine.
    type: str
    default: ""
  origin:
    description: What puts it there, V(upgrade), V(quarantine) or V(recover_gpu).
    type: str
    default: quarantine
  token:
    description: Whose drain it is, of a node that has no marker yet.
    type: str
    default: quarantine
  user:
    description: Who puts it there. By default the user on the controller.
    type: str
    default: ""
  given_baseline:
    description: The baseline to compare with, when the caller has one.
    type: dict
    default: {}
  actions:
    description: The actions that the playbook C(recover_gpu) may take.
    type: list
    elements: str
    default: [restart_service, reset_gpu, reboot]
  smoked:
    description: Whether a smoke test has to pass before the node returns to service.
    type: bool
    default: true
  new_baseline:
    description: Whether the GPUs as they are become the baseline of the node.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Refuse a node that a rollout has in flight
  ansible.builtin.fail:
    msg: "{{ state.refusal }}"
  when: state.refusal | length > 0
  vars:
    state: "{{ lookup('gpufleet.lifecycle.quarantine_state', reason='XID 79') }}"
"""

RETURN = r"""
---
_raw:
  description: The state.
  type: list
  elements: dict
  contains:
    answers:
      description: Whether the node answered.
      type: bool
    silent:
      description: Why it did not. Empty if it did.
      type: str
    refusal:
      description: Why nothing may be done, because a rollout has the node or that is not known. Empty otherwise.
      type: str
    marked:
      description: Whether its marker is there, readable or not.
      type: bool
    known:
      description: Whether it is in quarantine already and has a record, so that nothing has to be gathered.
      type: bool
    token:
      description: Whose drain keeps it out of its schedulers.
      type: str
    marked_at:
      description: Since when it is in quarantine. Empty if it is not.
      type: str
    owned:
      description: The schedulers that this token drained.
      type: list
      elements: str
    kept_by_others:
      description: The schedulers in which an operator or another rollout drained it.
      type: list
      elements: str
    baseline:
      description: The baseline to compare with, V(null) if there is none.
      type: dict
    about:
      description: What its record says of the quarantine.
      type: dict
    marker:
      description: The marker to write. Empty as long as it is not known what it says.
      type: dict
    incomplete:
      description: What is still to do for a node that was put in quarantine. Empty if nothing is.
      type: str
    no_way_back:
      description: Why it cannot be compared with its baseline. Empty if it can.
      type: str
    unfit:
      description: Why it is not healthy, with the checks that did not pass. Empty if it is.
      type: str
    in_mig:
      description: Whether a GPU is in MIG mode.
      type: bool
    mig_layout:
      description: The MIG layout of such a node, as the option O(gpufleet.lifecycle.gpu_mig#module:layout) of
        M(gpufleet.lifecycle.gpu_mig). V(null) if a GPU does not tell it, and of a node without MIG.
      type: list
      elements: dict
    failed_checks:
      description: The ids of the health checks that did not pass.
      type: list
      elements: str
    step:
      description: The next step of C(recover_gpu), C(do) (V(none), V(restart_service), V(reset_gpu), V(reboot),
        V(quarantine) or V(refuse)), C(why), C(gpus), C(services) and C(checks).
      type: dict
    reason:
      description: Why that is the next step, with the checks that did not pass.
      type: str
    begun:
      description: The history of the node with that step, to be written ahead of it.
      type: dict
    ended:
      description: The history of the node with the outcome of the last step.
      type: dict
    position:
      description: The position in the kernel log at the last verdict.
      type: dict
    running:
      description: The services that hold the GPUs and run, in the order in which they are stopped.
      type: list
      elements: str
    since:
      description: From where the kernel log counts for the next verdict, V(null) if from where the baseline says.
      type: dict
    failure:
      description: In a rescue, why, in one line.
      type: str
"""

import getpass
import socket

from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import quarantining

# Variables of the role: facts of the state by their own names.
RESULTS = (
    "marks",
    "note",
    "flight",
    "baseline_file",
    "stat",
    "health",
    "smoke",
    "info",
    "evidence",
    "record",
    "not_closed",
    "time",
    "history",
    "units",
    "first",
    "acted",
    "act_failed",
    "layout_made",
)
OPTIONS = ("actions", "smoked", "reason", "origin", "token", "given_baseline", "new_baseline")


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        variables = variables or {}
        facts = {
            name: variables["__gpu_quarantine_" + name] for name in RESULTS if "__gpu_quarantine_" + name in variables
        }
        facts.update((name, self.get_option(name)) for name in OPTIONS)
        facts.update(
            node=variables.get("inventory_hostname"),
            user=self.get_option("user") or getpass.getuser(),
            controller=socket.gethostname(),
            ownership=variables.get("gpu_scheduler_mark"),
            failed_result=variables.get("ansible_failed_result"),
            failed_task=variables.get("ansible_failed_task"),
        )
        return [quarantining.decide(facts)]
