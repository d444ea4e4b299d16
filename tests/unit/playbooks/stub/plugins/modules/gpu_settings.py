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
            baseline=dict(type="dict"),
            rollout_id=dict(type="str"),
            step=dict(type="str"),
            # What the real action gives.
            binding=dict(type="dict"),
            timeout_s=dict(type="int"),
            lock_timeout_s=dict(type="int"),
            # What thermal_relief gives.
            gpus=dict(type="list", elements="str", default=[]),
            power_limit_w=dict(type="str"),
            processes=dict(type="str", default="refuse"),
        ),
        required_if=[("state", "restored", ("baseline", "step"))],
        supports_check_mode=True,
    )
    node = stubnode.load()
    if node["loaded"] in node.get("settings_lost_with", []):
        module.fail_json(
            msg="GPU 2: the power limit is 700 W, expected 500 W as in the baseline", failures=["power_limit_w"]
        )
    changed = False
    if module.params["power_limit_w"]:
        wanted = dict.fromkeys(module.params["gpus"], round(float(module.params["power_limit_w"]) * 1000))
        changed = not wanted.items() <= node["power"].items()
        if set(wanted) & set(node.get("refuses_power", [])):
            module.fail_json(msg="NVML does not set the power limit", failures=["power_limit_w"])
        if changed and not module.check_mode:
            node["power"].update(wanted)
            stubnode.note(node, "power limit %s W" % module.params["power_limit_w"])
    module.exit_json(changed=changed, msg="2 same", settings=[], failures=[])


if __name__ == "__main__":
    main()
