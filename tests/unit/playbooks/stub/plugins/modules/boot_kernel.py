# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            kernel=dict(type="str", required=True),
            driver_version=dict(type="str", required=True),
            pin=dict(type="bool", default=True),
            rollout_id=dict(type="str"),
        ),
        supports_check_mode=True,
    )
    node, kernel = stubnode.load(), module.params["kernel"]
    found = stubnode.kernel(node)
    if (
        node.get("no_default_kernel")
        or kernel not in found["installed"]
        or node["disk"] != module.params["driver_version"]
    ):
        module.fail_json(
            msg="Kernel %s is not made the default: there is none, or not with driver %s."
            % (kernel, module.params["driver_version"])
        )
    changed = found["next_boot"] != kernel
    if changed:
        node["next_kernel"] = kernel
        stubnode.note(node, "default kernel %s" % kernel)
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
