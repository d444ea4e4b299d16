# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            gather_subset=dict(type="list", elements="str"), holders=dict(type="bool"), binding=dict(type="dict")
        ),
        supports_check_mode=True,
    )
    node = stubnode.load()
    snapshot = stubnode.snapshot(node)
    if "holders" in node:  # what the node knows when NVML does not tell
        for gpu in snapshot["gpus"]:
            gpu["compute_processes"] = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}
    module.exit_json(changed=False, nvml_available=True, snapshot=snapshot, holders=node.get("holders", []))


if __name__ == "__main__":
    main()
