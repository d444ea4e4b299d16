# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            state=dict(type="str"),
            baseline=dict(type="dict", required=True),
            rollout_id=dict(type="str"),
            step=dict(type="str", required=True),
        ),
        supports_check_mode=True,
    )
    node = stubnode.load()
    if node["loaded"] in node.get("settings_lost_with", []):
        module.fail_json(
            msg="GPU 2: the power limit is 700 W, expected 500 W as in the baseline", failures=["power_limit_w"]
        )
    module.exit_json(changed=False, msg="2 same", settings=[], failures=[])


if __name__ == "__main__":
    main()
