# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            wanted_version=dict(type="str"),
            expect_loaded=dict(type="bool", default=True),
            fail_on=dict(type="list", elements="str", default=[]),
            findings=dict(type="list", elements="str", default=[]),
            require_reboot_safe=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
    )
    node = stubnode.load()
    if module.params["require_reboot_safe"]:
        node = stubnode.wait(node, "prove")
    audit = stubnode.audit(node)
    wanted = module.params["wanted_version"]
    if module.params["fail_on"] and wanted and node["disk"] != wanted:
        module.fail_json(msg="driver %s is on disk, expected %s" % (node["disk"], wanted), audit=audit)
    if module.params["require_reboot_safe"] and not audit["reboot_safe"]:
        module.fail_json(msg="not safe to reboot: %s" % audit["reboot_safe_reason"], audit=audit)
    module.exit_json(changed=False, audit=audit)


if __name__ == "__main__":
    main()
