# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A layout of a stub node is one number: how many MIG devices of 1g.10gb each of its GPUs has; none where MIG is off.

On a node with C(mode_waits) the mode changes at a reset, as on Ampere: C(mode_pending) is the mode that waits for it,
C(mode_now) the one after it.
"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode

PROFILE, MOST = "1g.10gb", 7


def devices(params):
    """(whether MIG is on, devices of each GPU) of what is wanted."""
    if params["config"]:
        entry = params["config"]["mig-configs"][params["config_name"]][0]
        return entry["mig-enabled"], (entry.get("mig-devices") or {}).get(PROFILE, 0)
    entry = params["layout"][0]
    return entry["mig_enabled"], (entry.get("mig_devices") or {}).get(PROFILE, 0)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            state=dict(type="str", choices=["present", "cleared", "restored"], default="present"),
            baseline=dict(type="dict"),
            config=dict(type="dict"),
            config_name=dict(type="str"),
            layout=dict(type="list", elements="dict"),
            instances=dict(type="bool", default=True),
            rollout_id=dict(type="str"),
            step=dict(type="str", default=""),
            # What the real action gives.
            binding=dict(type="dict"),
            timeout_s=dict(type="int"),
            lock_timeout_s=dict(type="int"),
        ),
        supports_check_mode=True,
    )
    params, step, state = module.params, module.params["step"], module.params["state"]
    node = stubnode.wait(stubnode.load(), step)
    made = params["instances"] and state != "cleared"
    if made and node["loaded"] in node.get("mig_fails_with", []):
        module.fail_json(msg="GPU 0: it did not get its layout", failures=[{"code": "failed"}])
    wanted, mode = 0, node.get("mig_devices", 0)
    if state == "restored" and params["instances"]:
        wanted = len(params["baseline"]["snapshot"]["gpus"][0]["mig_instances"]["value"])
    elif state == "present":
        enabled, wanted = devices(params)
        if enabled and (node.get("no_mig") or wanted > MOST):
            module.fail_json(
                msg="Nothing was changed: GPU 0: the layout is not for it",
                gpus=[{"status": "refused"}],
                failures=[{"code": "not_supported" if node.get("no_mig") else "does_not_fit"}],
            )
        if enabled and wanted in node.get("cannot_have", []) and not module.check_mode:
            module.fail_json(msg="GPU 0: it did not get its layout", failures=[{"code": "failed"}])
        mode = wanted
    on = node.get("mode_now", node.get("mig_devices", 0) > 0)
    waits = bool(node.get("mode_waits") and state == "present" and on != (mode > 0))
    if waits and not module.check_mode:
        node.update(mode_pending=mode > 0)
        stubnode.note(node, "%s: the MIG mode waits for a reset" % step)
        rows = [{"gpu": uuid, "status": "reset_required"} for uuid in node.get("gpus", ["GPU-a", "GPU-b"])]
        module.exit_json(
            changed=True, failures=[], reset_required=True, gpus=rows, msg="MIG layout: 2 GPUs wait for a reset"
        )
    changed = (wanted, mode) != (stubnode.mig_now(node), node.get("mig_devices", 0))
    before, after = (
        {"enabled": on > 0, "devices": {PROFILE: number} if number else {}}
        for on, number in ((node.get("mig_devices", 0), stubnode.mig_now(node)), (mode, wanted))
    )
    rows = [
        {
            "gpu": uuid,
            "before": before,
            "wanted": after,
            "status": "changed" if changed and not module.check_mode else "change" if changed else "same",
        }
        for uuid in node.get("gpus", ["GPU-a", "GPU-b"])
    ]
    off = {"enabled": False, "devices": {}}
    rows = [
        dict(row, before=off, wanted=off, status="same") if row["gpu"] in node.get("whole_gpus", []) else row
        for row in rows
    ]
    if not module.check_mode:
        node.update(mig_now=wanted, mig_devices=mode)
        node.pop("mode_pending", None)
        node.pop("mode_now", None)
        stubnode.note(node, "%s: %d MIG devices" % (step, wanted))
    module.exit_json(changed=changed, failures=[], reset_required=False, gpus=rows)


if __name__ == "__main__":
    main()
