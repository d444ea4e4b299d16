# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            state=dict(type="str", choices=["updated", "followed"], required=True),
            patterns=dict(type="list", elements="str"),
            kernel=dict(type="str"),
            pin=dict(type="bool"),
            exclude_unattended=dict(type="bool"),
        ),
        required_if=[("state", "followed", ["kernel", "pin", "exclude_unattended"])],
        supports_check_mode=True,
    )
    node, kernel = stubnode.load(), module.params["kernel"]
    if module.params["state"] == "followed":
        if node.get("no_metapackages") or kernel != stubnode.kernel(node)["next_boot"]:
            module.fail_json(msg="the metapackages do not follow kernel %s" % kernel)
        stubnode.note(node, "metapackages of %s" % kernel)
        module.exit_json(changed=True, actions=["brought linux-generic"])
    if node.get("refuses_updates"):
        module.fail_json(msg="no security update is applied: %s" % node["refuses_updates"])
    stubnode.note(node, "security updates")
    module.exit_json(changed=True, actions=["update openssl to 3.0.22"])


if __name__ == "__main__":
    main()
