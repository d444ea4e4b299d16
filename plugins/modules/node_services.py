#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_services
short_description: Stops or starts services of a node under its lock, and reads each of them back
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Roles and playbooks of this collection call it. Its options may change in any release.
  - Brings the services in O(services) to O(state), in that order, and reads from systemd how each is afterwards. A
    service that fails keeps no other from its turn; the task fails at the end, and names all of them.
  - The node's lock is taken for it. What belongs to an attempt of a rollout that has been followed by another one is
    refused, see M(gpufleet.lifecycle.node_state).
  - No process is sent a signal. How a service ends is systemd's, by what its unit says.
  - A service that starts already is waited for. One of type oneshot has started when it ran with success.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
    description: Says in RV(actions) what would be done, and refuses the same units.
  diff_mode:
    support: none
options:
  services:
    description: The units, in the order of their turns. A name without a suffix is that of a service.
    type: list
    elements: str
    required: true
  state:
    description: What they are to be. A unit that failed is stopped.
    type: str
    required: true
    choices: [started, stopped]
  restart:
    description: Those of O(services) that are started again where they run already. Without meaning for
      O(state=stopped).
    type: list
    elements: str
    default: []
  timeout_s:
    description:
      - Seconds that one unit may take. The task waits no longer then; what systemd began goes on.
    type: int
    default: 900
seealso:
  - module: gpufleet.lifecycle.driver_reload
  - module: gpufleet.lifecycle.node_state
"""

EXAMPLES = r"""
- name: Stop what holds the GPUs
  gpufleet.lifecycle.node_services:
    services: [nvidia-dcgm.service, nvidia-persistenced.service]
    state: stopped
  become: true
"""

RETURN = r"""
services:
  description: The units, as systemd tells them at the end.
  returned: unless nothing was changed because of an error
  type: list
  elements: dict
  contains:
    name: {description: The unit., type: str}
    load: {description: Its C(LoadState)., type: str}
    active: {description: Its C(ActiveState)., type: str}
    sub: {description: Its C(SubState)., type: str}
    result: {description: Its C(Result)., type: str}
    action:
      description: V(start), V(stop), V(restart), V(wait) for one that was starting already, or empty. In check mode,
        what would be done.
      type: str
    changed: {description: Whether it was started or stopped; a restart is both., type: bool}
actions:
  description: What was done, or in check mode would be done, in order.
  returned: unless nothing was changed because of an error
  type: list
  elements: str
  sample: [stop nvidia-dcgm.service, stop nvidia-persistenced.service]
failures:
  description: The units that are not as they are to be.
  returned: unless nothing was changed because of an error
  type: list
  elements: dict
  contains:
    service: {description: The unit., type: str}
    code:
      description:
        - V(unknown_unit) and V(masked) for a unit that systemd was not told to start or stop, V(not_started),
          V(not_stopped), and V(unread) when systemd did not say how it is afterwards.
      type: str
    message: {description: What was found and what was expected., type: str}
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, services


def main() -> None:
    module = AnsibleModule(argument_spec=dict(services.ARGUMENTS), supports_check_mode=True)
    try:
        result = services.perform(module.params, module.check_mode)
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except services.ServicesError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(
            msg="The node's lock %s cannot be taken: %s. Nothing was changed. Next step: use become: true."
            % (lock.DEFAULT_PATH, exc)
        )
    if result["failures"]:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
