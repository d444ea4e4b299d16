# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module itself, with the stub node's own lock in the place of the machine's. It waits where it would wait for the
lock.
"""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, lock, node_state


def main():
    module = AnsibleModule(argument_spec=dict(node_state.ARGUMENTS), supports_check_mode=True)
    record, mine = module.params["record"], claim.from_token(os.environ.get(claim.FENCE))
    moment = {
        "claim": "claim " + module.params["state"],
        "files": "files in attempt %d" % (mine[0]["attempt"] if mine else 0),
    }
    stubnode.wait(stubnode.load(), moment.get(record, "note " + module.params["state"]))
    try:
        result = node_state.perform(
            module.params,
            module.check_mode,
            lambda argv, timeout: (0, "running\n", ""),
            os.path.join(stubnode.directory(), "lock"),
        )
    except (lock.LockTimeout, node_state.TaskError, OSError) as exc:
        if record == "files":
            with open(os.path.join(stubnode.directory(), "refused"), "a", encoding="utf-8") as stream:
                stream.write("%s files %s\n" % (module.params["step"], type(exc).__name__))
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
