# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module itself, with a lock of the simulated node's own in the place of the machine's."""

from __future__ import annotations

import json
import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import node_state


def main():
    module = AnsibleModule(argument_spec=dict(node_state.ARGUMENTS), supports_check_mode=True)
    root = json.loads(os.environ["GPUFLEET_SIMULATED_NODE"])["root"]
    try:
        module.exit_json(**node_state.perform(module.params, module.check_mode, None, os.path.join(root, "node.lock")))
    except node_state.TaskError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
