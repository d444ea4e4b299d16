# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of the control-flow tests: one JSON file, no hardware, no packages."""

from __future__ import annotations

import hashlib
import json
import os
import time

LIMIT_S = 1800


def archive(version):
    """What the built module of a version is called on the controller."""
    return "nvidia-current-open_%s_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % version


def directory():
    return os.environ["GPUFLEET_STUB_NODE"]


def load(path=None):
    with open(os.path.join(path or directory(), "node.json"), encoding="utf-8") as stream:
        return json.load(stream)


def journal(node, what="", path=None):
    """Say in the node's own journal when what was so: [monotonic time, services that run, driver that runs, driver on
    disk, boots, what was done].
    """
    line = json.dumps([time.monotonic(), node["running"], node["loaded"], node["disk"], node["boots"], what])
    with open(os.path.join(path or directory(), "journal"), "a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def store(node, path=None, what=""):
    name = os.path.join(path or directory(), "node.json")
    new = "%s.%d" % (name, os.getpid())
    with open(new, "w", encoding="utf-8") as stream:
        json.dump(node, stream)
    os.rename(new, name)
    journal(node, what, path)


def note(node, what, path=None):
    """What was done to the node, in order."""
    node["log"].append(what)
    store(node, path, what)


def take(node, where, path=None):
    """Take the time that this takes the node, which says meanwhile what it is at."""
    seconds = node.get("takes", {}).get(where, 0)
    if seconds:
        store(dict(node, at=where), path)
        time.sleep(seconds)
        store(node, path)


def wait(node, where):
    """Stand still, for as long as the node is told to at this place; the node as it is afterwards."""
    take(node, where)
    if where in node.get("waits_at", []):
        note(node, "waits")
        wait_while(lambda: where in load().get("waits_at", []), "told to go on at %r" % where)
        node = load()
    return node


def wait_while(condition, what):
    """Wait for as long as a test wants it; a test that never says otherwise has made a mistake, or is gone."""
    deadline = time.monotonic() + LIMIT_S
    while condition():
        if time.monotonic() > deadline:
            raise RuntimeError("this node was never %s" % what)
        time.sleep(0.2)


def kernel(node):
    """The kernels of the node, one unless it is told otherwise."""
    installed = node.get("kernels", ["6.1.0-1-amd64"])
    running = node.get("kernel", installed[0])
    return {"running": running, "installed": installed, "next_boot": node.get("next_kernel", running)}


def audit(node):
    kernels = kernel(node)
    safe = not node.get("no_module_for_next_boot")
    return {
        "schema": "gpufleet.audit/1",
        "kernel": kernels,
        "identity": {
            "machine_id": hashlib.sha256(os.path.basename(directory()).encode()).hexdigest()[:32],
            "board_serial": None,
        },
        "versions": dict(
            {"loaded": node["loaded"], "library": node["disk"]},
            **({"package": node["package"]} if "package" in node else {}),
        ),
        "verdict": "pass",
        "reboot_safe": safe,
        "reboot_safe_reason": "the module is on disk" if safe else "kernel 6.1 boots next and has no module",
        "reboot_required": node["loaded"] != node["disk"] or kernels["running"] != kernels["next_boot"],
        "reboot_required_reason": "",
    }


def mig_now(node):
    """MIG devices that each GPU has now: those that it is set up with, until they are destroyed or a boot forgets
    them.
    """
    return node.get("mig_now", node.get("mig_devices", 0))


def snapshot(node):
    def value(what):
        return {"value": what, "rc": 0}

    processes = (
        [{"pid": 4711, "used_bytes": 1}] if node.get("busy") or node["loaded"] in node.get("busy_with", []) else []
    )
    devices = node.get("mig_devices", 0)  # of each GPU; without any the GPUs are not in MIG mode
    instances = [
        {"gpu_instance": number, "compute_instance": 0, "name": "Stub GPU MIG 1g.10gb"}
        for number in range(mig_now(node))
    ]
    mode, instances = (
        (value(int(devices > 0)), value(instances)) if not node.get("mig_unread") else [{"value": None, "rc": 999}] * 2
    )
    exchanged = node.get("gpus", ["GPU-a", "GPU-b"])  # their UUIDs
    # Those of a GPU that no layout is about.
    layouts = {
        uuid: (value(0), value([])) if uuid in node.get("whole_gpus", []) else (mode, instances) for uuid in exchanged
    }
    persistence = 1 if "nvidia-persistenced.service" in node["running"] else 0
    return {
        "schema": "gpufleet.snapshot/1",
        "status": "ok",
        "system": {"driver_version": value(node["loaded"])},
        "gpus": [
            {
                "index": index,
                "name": value("Stub GPU"),
                "compute_processes": value(processes),
                "persistence_mode": value(persistence),
                "mig_mode_current": layouts[uuid][0],
                "mig_instances": layouts[uuid][1],
                "uuid": value(uuid),
                "minor_number": value(index),
                "serial": value("S/N " + uuid),
                "board_part_number": value("900-1"),
                "pci_bus_id": value("00000000:%02x:00.0" % (index + 1)),
                **heat(node, uuid),
            }
            for index, uuid in enumerate(exchanged)
        ],
    }


def heat(node, uuid):
    """Clock event reasons, temperature and power of a GPU, of a node that is told its power limits in milliwatts."""
    if "power" not in node:
        return {}
    told = {
        "clocks_event_reasons": node.get("reasons", {}).get(uuid, 0),
        "temperature_gpu_c": 60,
        "power_limit_mw": node["power"][uuid],
        "power_limit_min_mw": 200000,
        "power_limit_max_mw": 700000,
    }
    return {key: {"value": number, "rc": 0} for key, number in told.items()}


def faults(node):
    """Checks that do not pass, each until what its action is has been done: {"action", "until", ...}."""
    return [
        {
            "id": fault.get("id", "gpu.xid"),
            "entity": fault.get("entity", "GPU-b"),
            "status": "fail",
            "observed": fault.get("observed"),
            "expected": None,
            "action": fault["action"],
            "message": "XID %s on GPU-b." % fault.get("xid", 79),
        }
        for fault in node.get("faults", [])
    ]


def kernel_log(node, boot_id):
    """The XIDs of the faults, a minute ago and now."""
    events = [
        {
            "kind": "xid",
            "xid": fault.get("xid", 79),
            "pci": "0000:02:00.0",
            "monotonic_us": moment,
            "text": "NVRM: Xid (PCI:0000:02:00): 79",
        }
        for fault in node.get("faults", [])
        for moment in (40 * 10**6, 100 * 10**6)
    ]
    return {
        "schema": "gpufleet.kernel-log/1",
        "boot_id": boot_id,
        "read_at_us": 100 * 10**6,
        "events": events,
        "suppressed": [],
        "complete": True,
        "problem": "",
        "position": {"boot_id": boot_id, "seq": 7, "monotonic_us": 100 * 10**6},
    }


def cured(node, action):
    """The faults that ACTION does away with are gone."""
    node["faults"] = [fault for fault in node.get("faults", []) if fault.get("until", fault["action"]) != action]
    return node
