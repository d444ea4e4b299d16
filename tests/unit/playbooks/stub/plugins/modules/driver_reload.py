# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            policy=dict(type="str", choices=["auto", "reload", "reboot"], default="auto"),
            services=dict(type="list", elements="str", default=[]),
            nvswitch=dict(type="bool", default=False),
            force=dict(type="bool", default=False),
            rollout_id=dict(type="str"),
            step=dict(type="str"),
        ),
        supports_check_mode=True,
    )
    node = stubnode.load()
    if node["disk"] in node.get("job_before_boot_into", []):
        module.fail_json(
            msg=(
                "The GPUs are at work, so that the driver is not loaded anew and the node not rebooted: "
                "python3 (pid 4712)"
            ),
            action="refuse",
            reboot_required=False,
        )
    if module.params["policy"] == "reboot":
        module.exit_json(changed=False, action="reboot", reboot_required=True, reboot_reason="the policy is to reboot")
    if node["loaded"] in node.get("no_reload_from", []):
        reason = "python3 (pid 4711) has /dev/nvidia0 open"
        if module.params["policy"] == "reload":
            module.fail_json(
                msg="The driver cannot be loaded anew without a reboot: %s" % reason,
                action="refuse",
                reboot_required=False,
            )
        module.exit_json(changed=False, action="reboot", reboot_required=True, reboot_reason=reason)
    node["loaded"] = node["disk"]
    if node.get("mig_devices"):
        node["mig_now"] = 0
    stubnode.note(node, "reload of %s" % node["disk"])
    module.exit_json(changed=True, action="reload", reboot_required=False, reboot_reason="")


if __name__ == "__main__":
    main()
