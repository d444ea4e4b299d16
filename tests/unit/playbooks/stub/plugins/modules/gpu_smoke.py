# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            level=dict(type="str"),
            phase=dict(type="str"),
            baseline=dict(type="dict"),
            fail_on=dict(type="list", elements="str"),
        ),
        supports_check_mode=True,
    )
    node = stubnode.load()
    stubnode.journal(node, "smoke %s" % module.params["level"])
    checks = [
        {
            "id": "smoke.memory",
            "entity": "GPU-b",
            "status": "fail",
            "action": "hold",
            "message": "GPU-b: a pattern was read back changed.",
        }
    ]
    checks = checks if node.get("smokes") else []
    module.exit_json(
        changed=False,
        smoke={"schema": "gpufleet.smoke/1"},
        tested=True,
        health={"verdict": "fail" if checks else "pass", "checks": checks},
        msg="",
    )


if __name__ == "__main__":
    main()
