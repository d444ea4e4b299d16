#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_claim
short_description: Tells which rollout a node belongs to, takes it for one, or gives it up
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - A node that a rollout may change says so itself, in C(claim.json) of its state directory. Rollouts of one ledger
    know of each other; those of two ledgers, and those whose ledger is gone, meet here.
  - M(gpufleet.lifecycle.rollout_gate) takes a node when it grants its drain, and
    M(gpufleet.lifecycle.rollout_step) gives it up when it is done, put back, or was never changed. A node that is
    quarantined or lost keeps its claim.
  - An attempt of a rollout is only ever followed by a later one of the same rollout. What belongs to an earlier attempt
    is refused from then on by every module that takes the node's lock.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - Only reads.
  diff_mode:
    support: none
options:
  state:
    description:
      - V(read) tells the marks of the node and changes nothing.
      - V(held) takes the node for O(claim), once the holder of the node's lock has ended. It fails when another rollout
        has it, or a later attempt. A node in quarantine is not taken, as RV(quarantine) says.
      - V(released) removes O(claim), and V(quarantined) records in it that the node stays out of service. Where another
        attempt has the node, nothing is done.
    type: str
    choices: [read, held, quarantined, released]
    default: read
  directory:
    description: The state directory of the node.
    type: path
    default: /var/lib/gpufleet
  claim:
    description:
      - Who takes the node, or gives it up, with its C(ledger), C(rollout_id), C(attempt), C(run), C(plan) and
        C(controller).
    type: dict
  over:
    description:
      - The claim of another rollout that may be taken over, with the same keys. Any other one is refused.
    type: dict
  changed:
    description: With V(released), whether the rollout changed the node. It is kept in C(last-change.json) then.
    type: bool
    default: false
  other_ledger_s:
    description: With V(held), refuse a node that a rollout of another ledger changed in the last so many seconds by
      the node's clock, unless O(over) is its claim.
    type: int
    default: 0
  lock_timeout_s:
    description: Seconds to wait for the node's lock. The task fails after them and names the holder. To read takes no
      lock.
    type: int
    default: 600
seealso:
  - module: gpufleet.lifecycle.rollout_gate
"""

EXAMPLES = r"""
- name: See whether the node belongs to a rollout, or is in quarantine
  gpufleet.lifecycle.node_claim:
  register: marks
"""

RETURN = r"""
claim:
  description: The claim on the node; V(null) if it has none, or if it cannot be read.
  returned: success
  type: dict
  sample:
    schema: gpufleet.claim/1
    rollout_id: upgrade-535.261.03
    ledger: 0f4a4c1e7e4b4f0f9a0c
    attempt: 1
    run: 7be1
    plan: 4be1
    controller: ctl1
    state: held
    time: "2026-01-31T12:00:00Z"
last_change:
  description: The claim of the rollout that changed the node last and is finished with it, with the C(time) of its end
    and its C(age_s) in seconds; V(null) if there is none.
  returned: success
  type: dict
problem:
  description: Why the claim cannot be read; empty when it can.
  returned: success
  type: str
no_room:
  description: Why no claim could be written to O(directory), such as a file system that is full or read-only; empty
    when one could.
  returned: success
  type: str
quarantine:
  description: Whether the marker of a node in quarantine C(exists), and its C(path).
  returned: success
  type: dict
going_down:
  description: Whether the node is about to reboot, or has a shutdown scheduled within an hour. It is not taken then.
  returned: with O(state=held)
  type: bool
boot_id:
  description: The boot id of the node.
  returned: with O(state=held)
  type: str
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim_task, lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner


def main():
    module = AnsibleModule(argument_spec=dict(claim_task.ARGUMENTS), supports_check_mode=True)
    try:
        result = claim_task.perform(module.params, module.check_mode, Runner())
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except claim_task.TaskError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg="The marks of the node in %s cannot be used: %s." % (module.params["directory"], exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
