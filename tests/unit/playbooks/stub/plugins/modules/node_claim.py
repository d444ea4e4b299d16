# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module itself, with a lock of the stub node's own in the place of the machine's."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim_task, lock


def main():
    module = AnsibleModule(argument_spec=dict(claim_task.ARGUMENTS), supports_check_mode=True)
    stubnode.wait(stubnode.load(), "claim " + module.params["state"])
    try:
        module.exit_json(
            **claim_task.perform(
                module.params,
                module.check_mode,
                lambda argv, timeout: (0, "running\n", ""),
                os.path.join(os.environ["GPUFLEET_STUB_NODE"], "lock"),
            )
        )
    except (lock.LockTimeout, claim_task.TaskError, OSError) as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
