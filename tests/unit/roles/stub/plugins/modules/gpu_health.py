# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Stands in for gpu_health on a simulated node below a directory: another process reads and judges it with the
# collection's own functions.
from __future__ import annotations

import json
import os

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec=dict(
            expect=dict(type="dict"),
            policy=dict(type="dict", default={}),
            full=dict(type="bool", default=False),
            fail_on=dict(type="list", elements="str", default=["fail", "unknown"]),
        ),
        supports_check_mode=True,
    )
    node = json.loads(os.environ["GPUFLEET_SIMULATED_NODE"])
    rc, out, err = module.run_command(
        [node["python"], "-m", node["reader"], node["root"], node["model"], json.dumps(module.params["policy"])],
        cwd=node["cwd"],
        environ_update={"PYTHONPATH": node["path"], "ANSIBLE_LOCAL_TEMP": node["root"]},
    )
    if rc:
        module.fail_json(msg="the simulated node was not read: %s" % err)
    module.exit_json(changed=False, **json.loads(out))


if __name__ == "__main__":
    main()
