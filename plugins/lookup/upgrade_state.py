# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node that is being upgraded."""

from __future__ import annotations

DOCUMENTATION = r"""
name: upgrade_state
short_description: Tell the state of a node on its way through an upgrade
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides what was found on a node, what was changed, what runs, what to restore, and what to report. The role
    C(gpu_node_upgrade) has no other decisions than these.
  - The answers of the rollout's gate and the results of the role's tasks are read from the node's variables, as they
    were registered, at the moment at which the lookup is asked. They are too large to be handed over by templates again
    and again.
  - Nothing is read of the node and nothing is changed. What is not known is left out of the answer, so that a task that
    needs it fails.
options:
  _terms:
    description:
      - The documents to return instead of the state, V(baseline), V(reference), V(mig_free), V(health_before),
        V(proof), V(layout_proof), V(snapshot) or V(identified). They are large.
      - A document that is not known is an error.
    type: list
    elements: str
  version:
    description: The driver version that the rollout wants.
    type: str
    default: ''
  layout:
    description: The MIG layout that the rollout wants. Empty where it wants none.
    type: dict
    default: {}
  install:
    description: Whether the driver is installed, or only the MIG layout is made.
    type: bool
    default: true
  services:
    description: Units that hold the GPUs, in the order in which they are stopped.
    type: list
    elements: str
    default: []
  backends:
    description: The node's schedulers.
    type: list
    elements: str
    default: []
  expected:
    description: What the node should have, as C(gpu_health_expect). Of it only C(hardware) and C(peers) count.
    type: dict
    default: {}
  soak_interval:
    description: Seconds between two health checks of a canary at work.
    type: int
    default: 30
"""

EXAMPLES = r"""
---
- name: Refuse a node that must not be changed
  ansible.builtin.fail:
    msg: "{{ __gpu_node_upgrade_state.unfit }}"
  when: __gpu_node_upgrade_state.unfit | length > 0
  vars:
    __gpu_node_upgrade_state: "{{ lookup('gpufleet.lifecycle.upgrade_state', version='535.261.03') }}"

- name: Compare the node with its baseline
  gpufleet.lifecycle.gpu_health:
    phase: post
    baseline: "{{ lookup('gpufleet.lifecycle.upgrade_state', 'baseline') }}"
"""

RETURN = r"""
---
_raw:
  description: The state, or the documents that were asked for.
  type: list
  elements: dict
  contains:
    resume:
      description: Where an earlier controller left the node. Empty if none had begun.
      type: str
    recover:
      description: Whether an earlier controller had begun.
      type: bool
    previous:
      description: The driver version to go back to. Empty if the node had none, absent if it is not known.
      type: str
    current:
      description: Whether an earlier controller had upgraded the node, and it is healthy.
      type: bool
    touched:
      description: Whether a failure has to be undone on the node.
      type: bool
    active:
      description: Services that run now.
      type: list
      elements: str
    running:
      description: Services that run now or have to run again, in the order in which they are stopped.
      type: list
      elements: str
    scheduled:
      description: Whether a scheduler gives the node work.
      type: bool
    drained_by_us:
      description: Whether the node is drained by this rollout, or may be.
      type: bool
    expected_gpus:
      description: How many GPUs or MIG devices a scheduler has to know of, see
        P(gpufleet.lifecycle.schedulable_gpus#filter).
      type: int
    booted:
      description: Whether the node was rebooted on purpose since its baseline, V(yes), V(no) or V(unknown).
      type: str
    expect:
      description: The option O(gpufleet.lifecycle.gpu_health#module:expect) after the change.
      type: dict
    hardware:
      description: The same before the change.
      type: dict
    unfit:
      description: Why the node must not be changed, because it is unhealthy or has no version to go back to. Empty if
        it may be.
      type: str
    in_use:
      description: Why the node must not be changed, because its GPUs are in use. Empty if they are not.
      type: str
    mig:
      description: Whether a GPU was in MIG mode and no other layout is wanted, so that its layout has to be made again.
      type: bool
    reboot_due:
      description: Whether the driver on disk, or the kernel that boots next, needs a reboot or a reload. Absent as long
        as neither was proven.
      type: bool
    layout:
      description: Whether another MIG layout is wanted.
      type: bool
    layout_before:
      description: The layout before, as the option O(gpufleet.lifecycle.gpu_mig#module:layout). Absent if none is
        wanted, or if it was not read.
      type: list
      elements: dict
    clear_mig:
      description: Whether the MIG instances have to be destroyed before the installation, to read what NVML does not
        tell while they exist.
      type: bool
    mig_unfit:
      description: Why the node must not be changed, because of what was read without its MIG instances. Empty if it may
        be.
      type: str
    serving:
      description: The option O(gpufleet.lifecycle.gpu_health#module:expect) for a node that serves.
      type: dict
    joining:
      description: Whether GPUs that join their NVLink fabric are all that the comparison waits for.
      type: bool
    hung:
      description: Whether NVML did not answer within its deadline.
      type: bool
    not_returned:
      description: Why the node is not as it was before the change. Empty if it is.
      type: str
    soak_looks:
      description: Numbers of the health checks of a canary at work.
      type: list
      elements: int
    failure:
      description: In a rescue, why, in one line.
      type: str
    failed_checks:
      description: In a rescue, the ids of the health checks that did not pass.
      type: list
      elements: str
    outcome:
      description: What to report of a node that failed and is not in quarantine.
      type: str
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _upgrade_state

# Variables of the role: facts of the state by their own names.
RESULTS = (
    "before",
    "drained",
    "after",
    "units",
    "ran",
    "mig_cleared",
    "mig_free",
    "install",
    "layout_begun",
    "layout_made",
    "layout_again",
    "layout_read",
    "proof",
    "kernel",
    "reboot",
    "booted",
    "restored",
    "started",
    "returned",
    "reason",
    "resume_failed",
    "lift_failed",
)


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        facts = self._facts(variables or {})
        if not terms:
            return [_upgrade_state.decide(facts)]
        documents = _upgrade_state.documents(facts)
        missing = [term for term in terms if term not in documents]
        if missing:
            raise AnsibleLookupError("not known of this node: %s" % ", ".join(missing))
        return [documents[term] for term in terms]

    def _facts(self, variables):
        facts = {
            name: variables["__gpu_node_upgrade_" + name]
            for name in RESULTS
            if "__gpu_node_upgrade_" + name in variables
        }
        facts.update(
            version=self.get_option("version"),
            layout=self.get_option("layout"),
            installs=self.get_option("install"),
            services=self.get_option("services"),
            backends=self.get_option("backends"),
            hardware=self.get_option("expected"),
            soak_interval=self.get_option("soak_interval"),
            gate=variables.get("gpu_node_upgrade_gate"),
            ownership=variables.get("gpu_scheduler_mark"),
            failed_result=variables.get("ansible_failed_result"),
            failed_task=(variables.get("ansible_failed_task") or {}).get("name"),
        )
        return facts
