# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            gpus=dict(type="list", elements="str", required=True),
            reason=dict(type="str"),
            when_needed=dict(type="bool", default=False),
            destroy_mig=dict(type="bool", default=False),
            rollout_id=dict(type="str"),
            step=dict(type="str"),
        ),
        supports_check_mode=True,
    )
    node = stubnode.load()
    if node["running"]:
        module.fail_json(msg="%s has the GPUs open" % node["running"][0])
    if node.get("cannot_reset"):
        module.fail_json(msg="nvidia-smi did not reset GPU-b")
    if stubnode.mig_now(node):
        if not module.params["destroy_mig"]:
            module.fail_json(msg="a reset destroys the MIG instances of GPU-b")
        node["mig_now"] = 0
    pending = node.pop("mode_pending", None)
    if module.params["when_needed"] and pending is None:
        module.exit_json(changed=False)
    if pending is not None and not node.get("reset_keeps_mode"):
        node["mode_now"] = pending
    stubnode.note(stubnode.cured(node, "reset_gpu"), "reset %s" % " ".join(module.params["gpus"]))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
