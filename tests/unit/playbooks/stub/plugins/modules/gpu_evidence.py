# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node would gather; its action, which keeps the bundle, is the real one."""

from __future__ import annotations

import base64
import zlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    names = ("log_lines", "nvidia_smi_timeout_s", "timeout_s")
    spec = dict((name, dict(type="int")) for name in names)
    spec.update(binding=dict(type="dict"))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    node = stubnode.load()
    if node["loaded"] in node.get("tells_nothing_with", []):
        module.fail_json(msg="the node tells nothing")
    log = "driver %s after %d boots, running: %s\n" % (node["loaded"], node["boots"], " ".join(node["running"]))
    module.exit_json(
        changed=False,
        facts={
            "schema": "gpufleet.reading/1",
            "boot_id": "boot-%d" % node["boots"],
            "snapshot": dict(stubnode.snapshot(node), simulated=True),
        },
        files={
            "kernel.log": {
                "data": base64.b64encode(zlib.compress(log.encode())).decode(),
                "truncated": False,
                "note": "",
            }
        },
        missing=[
            {"part": "nvidia-smi.xml", "reason": "nvidia-smi: command not found"},
            {"part": "processes.json", "reason": "not here"},
        ],
    )


if __name__ == "__main__":
    main()
