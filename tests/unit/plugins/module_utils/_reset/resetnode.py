# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated node whose GPUs are reset as on a node: in a process of its own, by the simulator's nvidia-smi."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import sys

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _reset_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

PLUGINS = pathlib.Path(snapshot.__file__).resolve().parents[2]
# ON: what happens when nvidia-smi is called with a word - before it, instead of it, after it.
RUN = """
import json, os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
from module_utils._driver import capture
from module_utils._nvml import snapshot
from module_utils._reset import gpu_reset

params, check, root, main, manager, on = json.loads(sys.argv[2])
called = []

def sim(words):
    subprocess.run([sys.executable, main] + words, check=True, stdout=subprocess.DEVNULL)

def do(moment, argv):
    for word, deed in on.items():
        if word in argv and deed["when"] == moment:
            if "sim" in deed:
                sim(deed["sim"])
            if "appears" in deed and not os.path.exists("%s/proc/%d" % (root, deed["appears"])):
                os.makedirs("%s/proc/%d/fd" % (root, deed["appears"]))
                os.symlink("/dev/nvidia0", "%s/proc/%d/fd/3" % (root, deed["appears"]))
            if "killed" in deed:
                os.kill(os.getpid(), signal.SIGKILL)
            return deed.get("answer")

def command(argv, timeout_s):
    called.append(argv)
    do("before", argv)
    answer = do("instead", argv)
    if answer:
        return capture.Captured(*answer[:2], answer[2].encode(), *answer[3:])
    done = capture.run([sys.executable, main] + argv, timeout_s, gpu_reset.OUTPUT)
    do("after", argv)
    return done

def run(argv, timeout=60):
    if argv[:2] != ["systemctl", "show"] or manager is None:
        return 1, "", "no such command"
    return 0, "Id=%s\\nNames=%s\\nActiveState=%s" % (argv[-1], argv[-1], "active" if manager else "inactive"), ""

def take(gather):
    return snapshot.take(deadline_s=params["timeout_s"], stuck_file=root + "/stuck", gather=gather)

task = gpu_reset.GpuReset(params, take, command, run, root)
try:
    result = task.preview() if check else task.run()
except gpu_reset.ResetError as exc:
    result = {"failed": True, "changed": False, "msg": str(exc), "refused": True}
print(json.dumps(dict(result, called=called)))
"""


def process(node, pid, comm, unit="session-1.scope", devices=("/dev/nvidia0",)):
    """A process as /proc shows it, which the simulator's own look at the machine's /proc does not see."""
    base = node.root / "proc" / str(pid)
    (base / "fd").mkdir(parents=True)
    for number, device in enumerate(devices, 3):
        os.symlink(device, str(base / "fd" / str(number)))
    for name, text in (
        ("comm", comm + "\n"),
        ("cgroup", "0::/system.slice/%s\n" % unit),
        ("status", "Uid:\t0\t0\t0\t0\n"),
    ):
        (base / name).write_text(text)


def reset(node, check=False, manager=True, on=None, **given):
    """What the module answers for the options GIVEN; None if it was killed."""
    params = dict((name, option.get("default")) for name, option in options.ARGUMENT_SPEC.items())
    params.update({"gpus": ["all"]}, **given)
    arguments = json.dumps([params, check, str(node.root), str(simnode.SIM / "main.py"), manager, on or {}])
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    done = simnode.run([sys.executable, "-c", RUN, str(PLUGINS), arguments], env=environment)
    if done.returncode < 0:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ids(result, key="reasons"):
    return [item["id"] for item in result[key]]


def statuses(result):
    return [row["status"] for row in result["gpus"]]


GPU = "GPU-%08d-0000-0000-0000-000000000000"
MIG = {
    "gpu_instance": 1,
    "compute_instance": 0,
    "uuid": "MIG-1",
    "name": "MIG 3g.40gb",
    "slices": 3,
    "compute_slices": 3,
    "memory_bytes": 1,
}


def ok(content):
    return {"value": content, "rc": 0}


def rc(code):
    return {"value": None, "rc": code, "error": "CODE_%d" % code}


def gpu(index=0, **different):
    """A healthy H100 that waits for nothing. A dict with "rc" is an answer of NVML, all else is a value."""
    found = {
        "index": index,
        "handle": ok(True),
        "uuid": ok(GPU % index),
        "pci_bus_id": ok("00000000:%02x:00.0" % (index + 16)),
        "minor_number": ok(index),
        "architecture": ok(9),
        "mig_mode_current": ok(0),
        "mig_mode_pending": ok(0),
        "ecc_mode_current": ok(1),
        "ecc_mode_pending": ok(1),
        "mig_instances": ok([]),
        "remapped_rows": ok({"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}),
        "retired_pages_pending": rc(3),
        "repair_status": rc(3),
        "recovery_action": ok(0),
        "persistence_mode": ok(0),
        "nvlinks": rc(3),
        "ecc_volatile_corrected": ok(0),
        "ecc_volatile_uncorrected": ok(0),
    }
    for key, content in different.items():
        found[key] = content if isinstance(content, dict) and "rc" in content else ok(content)
    return found


def link(number=0, remote="00000000:11:00.0", kind="gpu", active=True):
    return {"link": number, "active": active, "remote_pci": remote, "remote_type": kind, "version": 4, "errors": {}}


def holder(
    pid=812, comm="python3", unit="session-1.scope", pod=None, job=None, devices=("/dev/nvidia0", "/dev/nvidiactl")
):
    return {"pid": pid, "user": "u", "comm": comm, "unit": unit, "pod": pod, "job": job, "devices": list(devices)}


def module(refcnt=0, *users):
    return {"refcnt": refcnt, "holders": list(users)}


def facts(*gpus, **different):
    """A node on which nothing stands in the way."""
    found = {
        "snapshot": {"status": "ok", "gpus": list(gpus) or [gpu(0), gpu(1)]},
        "holders": [],
        "references": {"nvidia": module(1, "nvidia_uvm"), "nvidia_uvm": module()},
        "drm_modeset": None,
        "hung": [],
        "command": True,
        "fabric_manager": False,
        "interrupted": None,
    }
    found.update(copy.deepcopy(different))
    return found
