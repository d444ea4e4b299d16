# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG tasks on a simulated node, in processes of their own, as the module runs them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _mig
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

UTILS = str(pathlib.Path(_mig.__file__).resolve().parents[2])
CODE = """
import json, sys
sys.path.insert(0, %r)
from module_utils._mig import task
results = []
for given in json.loads(sys.stdin.read()):
    try:
        tools = task.Tools(given["timeout"], stuck_file=given["stuck"])
        results.append(task.run(given["options"], given["check"], tools, lambda: given["processes"]))
    except task.TaskError as exc:
        results.append({"error": str(exc), "snapshot": exc.snapshot})
print(json.dumps(results))
"""


def mig(node, check=False, wheel=wheels.VERSIONS[-1], processes=None, timeout=60, **options):
    """The result of a task on the node; {"error"} where nothing could be decided."""
    (result,) = several(node, [task(node, check, processes, timeout, **options)], wheel)
    return result


def task(node, check=False, processes=None, timeout=60, **options):
    """A task for several()."""
    return {
        "options": dict({"state": "present"}, **options),
        "check": check,
        "stuck": str(node.root / "stuck"),
        "processes": processes or {},
        "timeout": timeout,
    }


def several(node, given, wheel=wheels.VERSIONS[-1]):
    """The results of tasks that follow each other in one process."""
    done = subprocess.run(
        [sys.executable, "-c", CODE % UTILS],
        env=dict(node.environment, PYTHONPATH=str(wheels.path(wheel))),
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def configuration(*entries):
    """A configuration `wanted` of ENTRIES, as options."""
    return {"config": {"version": "v1", "mig-configs": {"wanted": list(entries)}}, "config_name": "wanted"}


def everywhere(**devices):
    """All GPUs with MIG on and these devices, such as d1g_10gb=7; options."""
    return configuration({"devices": "all", "mig-enabled": True, "mig-devices": named(devices)})


def named(devices):
    return dict((name[1:].replace("_", "."), count) for name, count in devices.items())


def statuses(result):
    return [row["status"] for row in result["gpus"]]


def layouts(result):
    return [row["after"] for row in result["gpus"]]


def codes(result):
    return sorted(set(problem["code"] for problem in result["failures"]))
