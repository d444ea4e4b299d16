# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of gpu_health as they come, to be broken by a test."""

from __future__ import annotations

import copy

DRIVER, OTHER = "535.216.03", "535.261.03"
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
L4, L40S = "NVIDIA L4", "NVIDIA L40S"
TIME = "2026-03-01T12:00:00Z"
IDENTS = ("gpu.ecc_volatile", "gpu.pcie_width", "gpu.present", "gpu.row_remap")


def value(content):
    return {"value": content, "rc": 0}


def uuid(node, index):
    return "GPU-%s-%d" % (node, index)


def gpu(node, index, name=H100):
    return {
        "index": index,
        "handle": value(True),
        "uuid": value(uuid(node, index)),
        "name": value(name),
        "serial": value("16528%s%02d" % (node[-1:], index)),
        "pci_bus_id": value("00000000:%02x:00.0" % (0x1A + index)),
        "vbios_version": value("96.00.89.00.01"),
        "inforom_image_version": value("G520.0200.00.05"),
        "memory_total_bytes": value(85520809984),
        "gsp_firmware_version": value(DRIVER),
        "power_limit_mw": value(700000),
        "pcie_width_current": value(16),
        "nvlink_active": value([True] * 18),
    }


def check(ident, entity, status="pass", **more):
    bad = status in ("fail", "unknown")
    fields = {
        "id": ident,
        "entity": entity,
        "status": status,
        "observed": None,
        "expected": None,
        "source": "policy",
        "action": "hold" if bad else "none",
        "message": "%s of %s: look at it." % (ident, entity) if bad else "",
    }
    fields.update(more)
    return fields


def healthy(node, count=8, name=H100, driver=DRIVER, compared=False):
    """The result of a node that passes."""
    gpus = [gpu(node, index, name) for index in range(count)]
    checks = [check(ident, one["uuid"]["value"]) for ident in IDENTS for one in gpus]
    checks += [
        check("node.driver", "node", observed=driver, expected=driver),
        check("node.units", "node", "not_applicable"),
    ]
    checks.append(check("baseline.usable", "node", "pass" if compared else "not_applicable", source="baseline"))
    health = {
        "schema": "gpufleet.health/1",
        "node": node,
        "boot_id": "b-" + node,
        "time": TIME,
        "phase": "adhoc",
        "simulated": False,
        "driver": {
            "nvml": driver,
            "loaded": driver,
            "library": driver,
            "on_disk": driver,
            "next_boot": driver,
            "expected": None,
        },
        "verdict": "pass",
        "action": "none",
        "checks": checks,
    }
    baseline = {
        "schema": "gpufleet.baseline/1",
        "node": node,
        "boot_id": "b-" + node,
        "time": TIME,
        "snapshot": {"schema": "gpufleet.snapshot/1", "gpus": gpus},
        "audit": {"kernel": {"running": "6.1.0-50-amd64"}},
    }
    return copy.deepcopy(
        {"changed": False, "health": health, "baseline": baseline, "msg": "%s: GPU health PASS" % node}
    )


def broken(result, ident, status="fail", entity=None, **more):
    """RESULT with one check that does not pass; the verdict follows."""
    result = copy.deepcopy(result)
    health = result["health"]
    wanted = entity or next(entry["entity"] for entry in health["checks"] if entry["id"] == ident)
    health["checks"] = [entry for entry in health["checks"] if (entry["id"], entry["entity"]) != (ident, wanted)] + [
        check(ident, wanted, status, **more)
    ]
    statuses = {entry["status"] for entry in health["checks"]}
    health["verdict"] = next((word for word in ("fail", "unknown") if word in statuses), "pass")
    health["action"] = "hold" if health["verdict"] != "pass" else "none"
    return result


def uncounted(node, count, name=L4):
    """The result of a node of which nothing but its peers could tell how many GPUs it should have."""
    return broken(
        healthy(node, count, name),
        "node.hardware",
        "unknown",
        "node",
        action="none",
        observed={"gpus": count, "nvswitches": 0},
    )


def unreachable(
    message="Failed to connect to the host via ssh: ssh: connect to host 10.0.0.9 port 22: No route to host",
):
    return {"changed": False, "unreachable": True, "msg": message}


def failed(message="Traceback (most recent call last):\n  <b>MemoryError</b>"):
    return {"changed": False, "failed": True, "msg": message}
