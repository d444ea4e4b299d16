# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Stands in for gpu_info on a simulated node below a directory, as the stub of gpu_health does.
from __future__ import annotations

import json
import os

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    node = json.loads(os.environ["GPUFLEET_SIMULATED_NODE"])
    rc, out, err = module.run_command(
        [node["python"], "-m", node["reader"], node["root"], node["model"], "{}"],
        cwd=node["cwd"],
        environ_update={"PYTHONPATH": node["path"], "ANSIBLE_LOCAL_TEMP": node["root"]},
    )
    if rc:
        module.fail_json(msg="the simulated node was not read: %s" % err)
    snapshot = json.loads(out)["baseline"]["snapshot"]
    module.exit_json(changed=False, snapshot=snapshot, nvml_available=snapshot["status"] == "ok")


if __name__ == "__main__":
    main()
