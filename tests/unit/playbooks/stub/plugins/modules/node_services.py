# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module itself, with the stub node's own lock and systemctl in the place of the machine's. It waits where it would
wait for the lock.
"""

from __future__ import annotations

import os
import subprocess

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, lock, services


def runner_of(descriptors):
    def call(argv, timeout):
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            pass_fds=descriptors,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def main():
    module = AnsibleModule(argument_spec=dict(services.ARGUMENTS), supports_check_mode=True)
    mine = claim.from_token(os.environ.get(claim.FENCE))
    stubnode.wait(
        stubnode.load(), "services %s in attempt %d" % (module.params["state"], mine[0]["attempt"] if mine else 0)
    )
    try:
        result = services.perform(
            module.params, module.check_mode, runner_of, os.path.join(stubnode.directory(), "lock")
        )
    except (lock.LockTimeout, services.ServicesError) as exc:
        with open(os.path.join(stubnode.directory(), "refused"), "a", encoding="utf-8") as stream:
            stream.write("%s %s %s\n" % (module.params["step"], module.params["state"], type(exc).__name__))
        module.fail_json(msg=str(exc))
    (module.fail_json if result["failures"] else module.exit_json)(**result)


if __name__ == "__main__":
    main()
