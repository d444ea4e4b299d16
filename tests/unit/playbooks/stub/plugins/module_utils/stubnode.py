# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of the control-flow tests: one JSON file, no hardware, no packages."""

from __future__ import annotations

import json
import os
import time


def archive(version):
    """What the built module of a version is called on the controller."""
    return "nvidia-current-open_%s_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % version


def directory():
    return os.environ["GPUFLEET_STUB_NODE"]


def load(path=None):
    with open(os.path.join(path or directory(), "node.json"), encoding="utf-8") as stream:
        return json.load(stream)


def journal(node, what="", path=None):
    """Say in the node's own journal when what was so: [time, services that run, driver that runs, driver on disk, boots, what was done]."""
    line = json.dumps([time.time(), node["running"], node["loaded"], node["disk"], node["boots"], what])
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


def wait(node, where):
    """Stand still, for as long as the node is told to at this place; the node as it is afterwards."""
    if where in node.get("waits_at", []):
        note(node, "waits")
        deadline = time.monotonic() + 600
        while where in load().get("waits_at", []) and time.monotonic() < deadline:
            time.sleep(0.2)
        node = load()
    return node


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
        "versions": {"loaded": node["loaded"], "library": node["disk"]},
        "verdict": "pass",
        "reboot_safe": safe,
        "reboot_safe_reason": "the module is on disk" if safe else "kernel 6.1 boots next and has no module",
        "reboot_required": node["loaded"] != node["disk"] or kernels["running"] != kernels["next_boot"],
        "reboot_required_reason": "",
    }


def snapshot(node):
    def value(what):
        return {"value": what, "rc": 0}

    processes = [{"pid": 4711, "used_bytes": 1}] if node.get("busy") or node["loaded"] in node.get("busy_with", []) else []
    devices = node.get("mig_devices", 0)  # of each GPU; without any the GPUs are not in MIG mode
    instances = [{"gpu_instance": number, "compute_instance": 0} for number in range(devices)]
    mode, instances = (value(int(devices > 0)), value(instances)) if not node.get("mig_unread") else [{"value": None, "rc": 999}] * 2
    persistence = 1 if "nvidia-persistenced.service" in node["running"] else 0
    return {
        "schema": "gpufleet.snapshot/1",
        "status": "ok",
        "system": {"driver_version": value(node["loaded"])},
        "gpus": [
            {"index": index, "name": value("Stub GPU"), "compute_processes": value(processes), "persistence_mode": value(persistence),
             "mig_mode_current": mode, "mig_instances": instances} for index in range(2)
        ],
    }
