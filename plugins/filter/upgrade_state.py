# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node that is being upgraded."""

from __future__ import annotations

DOCUMENTATION = r"""
name: upgrade_state
short_description: Decide the state of a node on its way through an upgrade
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides from the answers of the rollout's gate and the results of the tasks of the role C(gpu_node_upgrade) what was
    found on the node, what was changed, what runs, what to restore, and what to report. The role has no other decisions
    than these.
  - What is not known is left out of the state, so that a task that needs it fails.
options:
  _input:
    description:
      - The results, by the names that C(vars/main.yml) of the role has for them. Those that are not there yet, and
        those that a decision does not need, may be left out.
      - Write the mapping in the same expression as the filter. Ansible before 2.19 makes a text of the mapping and
        parses it again where it is a variable.
    type: dict
    required: true
  document:
    description:
      - The document to return instead of the state, V(baseline), V(reference), V(mig_free), V(health_before), V(proof),
        V(layout_proof), V(snapshot) or V(identified). They are large.
      - A document that is not known is an error.
    type: str
"""

EXAMPLES = r"""
---
- name: Fail if the node must not be changed
  ansible.builtin.fail:
    msg: "{{ unfit }}"
  when: unfit | length > 0
  vars:
    unfit: "{{ ({'version': '535.261.03', 'before': before} | gpufleet.lifecycle.upgrade_state).unfit }}"

- name: Compare the node with its baseline
  gpufleet.lifecycle.gpu_health:
    phase: post
    baseline: "{{ {'before': before} | gpufleet.lifecycle.upgrade_state('baseline') }}"
"""

RETURN = r"""
---
_value:
  description: The state, or the document.
  type: dict
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

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _upgrade_state


def upgrade_state(facts: _upgrade_state.Facts, document: str = "") -> t.Mapping[str, t.Any]:
    """Return the state of a node, or one of its documents."""
    if not document:
        return _upgrade_state.decide(facts)
    documents = _upgrade_state.documents(facts)
    if document not in documents:
        raise AnsibleFilterError("not known of this node: %s" % document)
    return documents[document]


class FilterModule:
    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return {"upgrade_state": upgrade_state}
