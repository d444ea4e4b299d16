# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def mig_checks(node, given):
    """What is hidden while there are MIG devices, what is bad in it, and devices that are gone."""
    checks = []
    told = given["mig_free_reading"] or not stubnode.mig_now(node)
    if not told and given["expect"].get("mig_hidden") != "all":
        checks.append(
            {
                "id": "gpu.remap_failure",
                "entity": "GPU-0",
                "status": "unknown",
                "message": "Remapped rows cannot be read.",
            }
        )
    elif told and node.get("mig_devices") and node["loaded"] not in node.get("rows_failed_with", []):
        checks.append({"id": "gpu.remap_failure", "entity": "GPU-0", "status": "pass", "message": ""})
    if told and node["loaded"] in node.get("rows_failed_with", []):
        checks.append(
            {
                "id": "gpu.remap_failure",
                "entity": "GPU-0",
                "status": "fail",
                "message": "A row remapping of GPU 0 failed.",
            }
        )
    if given["phase"] == "post":
        before = given["baseline"]["snapshot"]["gpus"][0].get("mig_instances", {}).get("value")
        if before is not None and len(before) != stubnode.mig_now(node):
            checks.append(
                {"id": "gpu.mig_layout", "entity": "GPU-0", "status": "fail", "message": "The MIG layout is gone."}
            )
    return checks


def main():
    module = AnsibleModule(
        argument_spec=dict(
            phase=dict(type="str", default="adhoc"),
            baseline=dict(type="dict"),
            mig_free_reading=dict(type="dict"),
            expected_driver_version=dict(type="str"),
            expect=dict(type="dict", default={}),
            fail_on=dict(type="list", elements="str", default=["fail", "unknown"]),
            sequence=dict(type="int"),
            # What precheck and the quarantine's playbooks give beside these, and the stub needs not.
            smoke=dict(type="dict"),
            since=dict(type="dict"),
            baseline_file=dict(type="path"),
            policy=dict(type="dict"),
            policy_file=dict(type="path"),
            waivers=dict(type="list", elements="dict", default=[]),
            timeout_s=dict(type="int", default=60),
            full=dict(type="bool"),
        ),
        supports_check_mode=True,
    )
    node = stubnode.wait(stubnode.load(), "health " + module.params["phase"])
    if not module.check_mode:
        with open(os.path.join(stubnode.directory(), "expected"), "a", encoding="utf-8") as stream:
            stream.write(json.dumps([module.params["phase"], module.params["expect"].get("hardware")]) + "\n")
    wanted = module.params["expected_driver_version"]
    checks = []
    if node["loaded"] in node.get("sick_with", []):
        checks.append(
            {
                "id": "gpu_answers",
                "entity": "GPU-3",
                "status": "fail",
                "message": "GPU 3 does not answer with driver %s" % node["loaded"],
            }
        )
    if node["loaded"] in node.get("hangs_with", []):
        checks.append(
            {
                "id": "nvml.answers",
                "entity": "node",
                "status": "fail",
                "observed": "timeout",
                "message": "NVML did not answer within 60 s",
            }
        )
    kernel = stubnode.kernel(node)["running"]
    if kernel in node.get("sick_on_kernels", []):
        checks.append(
            {
                "id": "gpu_answers",
                "entity": "GPU-3",
                "status": "fail",
                "message": "GPU 3 does not answer on kernel %s" % kernel,
            }
        )
    if module.params["phase"] == "soak":
        stubnode.note(node, "looked at, at work")
        if node["loaded"] in node.get("sick_at_work_with", []):
            checks.append({"id": "xid", "entity": "GPU-3", "status": "fail", "message": "GPU 3 had XID 79 at work"})
    if wanted and wanted != node["loaded"]:
        checks.append(
            {
                "id": "driver_version",
                "entity": "node",
                "status": "fail",
                "message": "driver %s runs, expected %s" % (node["loaded"], wanted),
            }
        )
    checks += mig_checks(node, module.params) + stubnode.faults(node)
    joining = node.get("joins_after", 0)
    if joining and module.params["phase"] == "post":
        node["joins_after"] = joining - 1
        stubnode.store(node)
        checks.append(
            {
                "id": "gpu.fabric",
                "entity": "GPU-0",
                "status": "unknown",
                "observed": "in progress",
                "message": "GPU 0 is joining its NVLink fabric.",
            }
        )
    boot_id = "boot-%d" % node["boots"]
    rebooted = module.params["expect"].get("reboot")
    if module.params["phase"] == "post":
        node.setdefault("reboots_expected", []).append(rebooted)
        stubnode.store(node)
        if rebooted is not None and rebooted != (module.params["baseline"]["boot_id"] != boot_id):
            checks.append(
                {
                    "id": "node.boot",
                    "entity": "node",
                    "status": "fail",
                    "message": "it is boot %s, reboot: %s" % (boot_id, rebooted),
                }
            )
    statuses = set(check["status"] for check in checks)
    verdict = "fail" if "fail" in statuses else "unknown" if "unknown" in statuses else "pass"
    stubnode.journal(node, "health %s %s" % (module.params["phase"], verdict))
    broke = [check["id"] for check in checks if check["status"] != "pass"] if module.params["phase"] == "post" else []
    order = ("none", "restore_setting", "restart_service", "reset_gpu", "reboot", "hold", "field_diag")
    action = max(
        [check.get("action", "hold") for check in checks if check["status"] != "pass"] or ["none"], key=order.index
    )
    health = {
        "schema": "gpufleet.health/1",
        "verdict": verdict,
        "action": action,
        "checks": checks,
        "simulated": True,
        "node": os.path.basename(stubnode.directory()),
        "phase": module.params["phase"],
        "kernel": kernel,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sequence": module.params["sequence"],
        "driver": {"expected": wanted},
        "attribution": {"sick_before": [], "broke_during": broke},
    }
    if health["verdict"] in module.params["fail_on"]:
        module.fail_json(msg="unhealthy", health=health)
    baseline = {
        "schema": "gpufleet.baseline/1",
        "boot_id": boot_id,
        "snapshot": stubnode.snapshot(node),
        "audit": stubnode.audit(node),
        "kernel_log": stubnode.kernel_log(node, boot_id),
    }
    module.exit_json(changed=False, health=health, baseline=baseline)


if __name__ == "__main__":
    main()
