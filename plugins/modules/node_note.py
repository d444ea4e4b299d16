#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_note
short_description: Reads, keeps or removes a note that a node has about itself
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - A note is a JSON document in the state directory of the node, such as C(quarantine.json). Ledgers and controllers
    come and go; they meet on the node.
  - A note is replaced whole, also when the node loses its power meanwhile.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  name:
    description: The note.
    type: str
    required: true
    choices:
      drain: The drain of the role C(gpu_scheduler), with the fields C(token) and C(reason). The alerts of the node are
        silent while it is there.
      quarantine: The marker that keeps rollouts away from the node. See the role C(gpu_quarantine) for its fields.
      recovery: The actions of the playbook C(recover_gpu) on the node.
      thermal_relief: The power limits before the playbook C(thermal_relief) lowered them.
  state:
    description:
      - V(read) tells the note and changes nothing, V(present) keeps O(note) in its place, and V(absent) removes it.
    type: str
    choices: [read, present, absent]
    default: read
  directory:
    description: The state directory of the node.
    type: path
    default: /var/lib/gpufleet
  note:
    description: The whole note, with O(state=present).
    type: dict
  refuse_held:
    description:
      - Whether to change nothing on a node that a rollout holds, see M(gpufleet.lifecycle.node_claim). The node's
        lock is taken for it, so that no rollout takes the node in between.
    type: bool
    default: false
  lock_timeout_s:
    description: Seconds to wait for the node's lock, with O(refuse_held=true). The task fails after them and names
      the holder.
    type: int
    default: 60
seealso:
  - module: gpufleet.lifecycle.node_claim
"""

EXAMPLES = r"""
- name: See why the node is in quarantine
  gpufleet.lifecycle.node_note:
    name: quarantine
  register: marker
"""

RETURN = r"""
note:
  description: The note, V(null) when there is none, or when it cannot be read.
  returned: success
  type: dict
  sample: {schema: gpufleet.quarantine/1, node: gpu-r1-1, reason: XID 79}
problem:
  description: Why the note that is there cannot be read. Empty when it can, and when there is none.
  returned: success
  type: str
exists:
  description: Whether there is a file, readable or not.
  returned: success
  type: bool
path:
  description: The file.
  returned: success
  type: str
  sample: /var/lib/gpufleet/quarantine.json
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, notes


def main():
    module = AnsibleModule(argument_spec=dict(notes.ARGUMENTS), supports_check_mode=True)
    try:
        result = notes.perform(module.params, module.check_mode)
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except notes.NoteError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(
            msg="The note %s in %s cannot be used: %s." % (module.params["name"], module.params["directory"], exc)
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
