#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_state
short_description: Read and write the records of a node in its state directory
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Roles and playbooks of this collection call it. Its options may change in any release.
  - O(record=claim) is the rollout that the node belongs to, in C(claim.json). Rollouts of one ledger know of each
    other; those of two ledgers, and those whose ledger is gone, meet here. M(gpufleet.lifecycle.rollout_gate) and
    M(gpufleet.lifecycle.rollout_step) write it. A later attempt replaces an earlier one of the same rollout, whose
    tasks no longer get the node's lock from then on.
  - A note, such as O(record=quarantine), is a JSON document. It is replaced as a whole, also if the node loses its
    power.
  - O(record=files) writes files of the collection that differ, under the node's lock, with mode 0644. A path that is no
    regular file is refused, and nothing is written.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details:
      - Not for O(record=claim).
options:
  record:
    description: What is read or written.
    type: str
    default: claim
    choices:
      claim: The rollout that the node belongs to, and whether it is in quarantine.
      files: The files in O(content).
      drain: The drain of the role C(gpu_scheduler). The node's alerts are silent while this note is there.
      quarantine: The marker that keeps rollouts away from the node, see the role C(gpu_quarantine).
      recovery: The actions of the playbook C(recover_gpu) on the node.
      thermal_relief: The power limits before the playbook C(thermal_relief) lowered them.
  state:
    description:
      - V(read) changes nothing. V(present) and V(absent) write and remove a note; files can be V(present) alone.
      - V(held) takes the node for the claim in O(content), once the holder of the node's lock has ended. It fails if
        another rollout or a later attempt has the node. A node in quarantine is not taken, see RV(quarantine).
      - V(released) removes this claim, and V(quarantined) records in it that the node stays out of service. The claim
        of another attempt stays as it is.
    type: str
    choices: [read, present, absent, held, quarantined, released]
    default: read
  content:
    description:
      - The note; or the text of each file by its path; or the claim with its C(ledger), C(rollout_id), C(attempt),
        C(run), C(plan) and C(controller).
    type: dict
  directory:
    description: The state directory of the node.
    type: path
    default: /var/lib/gpufleet
  over:
    description: The claim of another rollout that O(state=held) may replace. Any other one is refused.
    type: dict
  changed:
    description: Whether the rollout changed the node. O(state=released) then keeps the claim in C(last-change.json).
    type: bool
    default: false
  other_ledger_s:
    description: Seconds after a change by a rollout of another ledger in which O(state=held) is refused, unless O(over)
      is its claim.
    type: int
    default: 0
  refuse_held:
    description: Whether to write no note on a node that a rollout holds. The note is then written under the node's
      lock.
    type: bool
    default: false
  step:
    description: Written into the lock with O(record=files).
    type: str
  lock_timeout_s:
    description: Seconds to wait for the node's lock. The task fails after them and names the holder. Reading takes no
      lock.
    type: int
    default: 600
seealso:
  - module: gpufleet.lifecycle.rollout_gate
"""

EXAMPLES = r"""
- name: Read whether the node belongs to a rollout, or is in quarantine
  gpufleet.lifecycle.node_state:
  register: marks

- name: Read why the node is in quarantine
  gpufleet.lifecycle.node_state:
    record: quarantine
  register: marker
"""

RETURN = r"""
claim:
  description: The claim; V(null) if there is none, or if it cannot be read.
  returned: with O(record=claim)
  type: dict
last_change:
  description: The claim of the rollout that changed the node last and is finished with it, with the C(time) of its end
    and its C(age_s) in seconds; V(null) if there is none.
  returned: with O(record=claim)
  type: dict
problem:
  description: Why the claim or the note cannot be read; empty if it can, or if there is none.
  returned: unless O(record=files)
  type: str
no_room:
  description: Why no claim could be written to O(directory), such as a full file system; empty if one could.
  returned: with O(record=claim)
  type: str
quarantine:
  description: Whether the marker of a node in quarantine C(exists), and its C(path).
  returned: with O(record=claim)
  type: dict
going_down:
  description: Whether the node is about to reboot, or has a shutdown scheduled within an hour. It is not taken then.
  returned: with O(state=held)
  type: bool
boot_id:
  description: The boot id of the node.
  returned: with O(state=held)
  type: str
note:
  description: The note; V(null) if there is none, or if it cannot be read.
  returned: for notes
  type: dict
exists:
  description: Whether there is a file, readable or not.
  returned: for notes
  type: bool
path:
  description: The file.
  returned: for notes
  type: str
written:
  description: The files that were written, or would be in check mode.
  returned: with O(record=files)
  type: list
  elements: str
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, node_state
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner


def main() -> None:
    module = AnsibleModule(argument_spec=dict(node_state.ARGUMENTS), supports_check_mode=True)
    try:
        result = node_state.perform(module.params, module.check_mode, Runner())
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except node_state.TaskError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(
            msg="The record %s of the node cannot be used: %s. Make room there, or use become: true."
            % (module.params["record"], exc)
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
