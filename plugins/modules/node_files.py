#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_files
short_description: Writes files of the collection on a node under its lock
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Writes the files in O(files) that differ from what lies there, each whole or not at all. They can be read by all and
    changed by root alone (mode 0644). A directory that is missing is made.
  - The node's lock is taken for it. What belongs to an attempt of a rollout that has been followed by another one is
    refused, see M(gpufleet.lifecycle.node_claim).
  - What is no regular file, such as a link, is refused, and nothing is written.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  files:
    description: The whole text of each file, at most 1 MiB, by its path.
    type: dict
    required: true
seealso:
  - module: gpufleet.lifecycle.node_claim
  - module: gpufleet.lifecycle.node_services
"""

EXAMPLES = r"""
- name: Keep a note in the collection's directory
  gpufleet.lifecycle.node_files:
    files:
      /etc/gpufleet/note.conf: |
        color = green
  become: true
"""

RETURN = r"""
written:
  description: The files that were written, or in check mode would be.
  returned: unless nothing was changed because of an error
  type: list
  elements: str
  sample: [/etc/gpufleet/mig.json]
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, node_files


def main():
    module = AnsibleModule(argument_spec=dict(node_files.ARGUMENTS), supports_check_mode=True)
    try:
        result = node_files.perform(module.params, module.check_mode)
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except node_files.FilesError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(
            msg="%s cannot be written: %s. Next step: make room, or use become: true."
            % (exc.filename or "A file", exc.strerror)
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
