# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a snapshot with rows that are planned for them, and a simulated node whose settings are set as on a node."""

from __future__ import annotations

import json
import pathlib
import sys

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import plan as settings_plan
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import cutoff, wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

UTILS = pathlib.Path(snapshot.__file__).resolve().parents[2]
HELPERS = str(pathlib.Path(cutoff.__file__).parent)
RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from module_utils._nvml import session
from module_utils._nvml.settings import task
sys.path.insert(0, sys.argv[3])
import cutoff
session.finish = cutoff.finish_when(session.finish)
options, check, root = json.loads(sys.argv[2])
try:
    print(json.dumps(task.run(options, check, stuck_file=root + "/stuck", root=root, \
state_directory=root + "/var/lib/gpufleet")))
except task.TaskError as exc:
    print(json.dumps({"failed": True, "changed": False, "msg": str(exc)}))
"""
TAKE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from module_utils._nvml import snapshot
print(json.dumps(snapshot.take()))
"""


def complete(given):
    """The options of a task with all defaults, as the module has them."""
    params = dict((name, option.get("default")) for name, option in options.ARGUMENT_SPEC.items())
    for name, value in given.items():
        sub = options.ARGUMENT_SPEC[name].get("options")
        if sub:
            value = dict(dict((key, option.get("default")) for key, option in sub.items()), **value)
        params[name] = str(value) if name == "power_limit_w" else value
    return params


def _process(node, code, wheel, *arguments):
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheel)))
    done = simnode.run([sys.executable, "-c", code, str(UTILS)] + list(arguments), env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def settings(node, check=False, wheel=wheels.VERSIONS[-1], **given):
    """What task.run answers for the options GIVEN; the deadline of a call that hangs passes when it does."""
    return _process(node, RUN, wheel, json.dumps([complete(given), check, str(node.root)]), HELPERS)


def baseline(node, wheel=wheels.VERSIONS[-1]):
    """A baseline as gpu_health returns it, as far as settings are concerned."""
    return {"schema": "gpufleet.baseline/1", "node": "node-1", "snapshot": _process(node, TAKE, wheel)}


def rows(result, *keys):
    """The given keys of each row of a result."""
    return [tuple(row[key] for key in keys) for row in result["settings"]]


UUID = "GPU-1"
LOAD = "boot/1"
VALUES = {
    "handle": True,
    "uuid": UUID,
    "pci_bus_id": "00000000:1b:00.0",
    "persistence_mode": 1,
    "compute_mode": 0,
    "power_limit_mw": 700000,
    "power_limit_default_mw": 700000,
    "power_limit_min_mw": 200000,
    "power_limit_max_mw": 700000,
    "applications_clocks_mhz": {"graphics": 1980, "mem": 2619},
    "applications_clocks_default_mhz": {"graphics": 1980, "mem": 2619},
    "clocks_max_mhz": {"graphics": 1980, "sm": 1980, "mem": 2619, "video": 1545},
    "ecc_mode_current": 1,
    "ecc_mode_pending": 1,
    "mig_mode_current": 0,
    "compute_processes": [],
    "graphics_processes": [],
}
BUSY = [{"pid": 4711, "used_bytes": 1}]
LOCK = {"min": 1000, "max": 1500}


def gpu(index=0, **changed):
    """A GPU of a snapshot; a value that is an integer code in a tuple stands in the value's place: (15,)."""
    result = {"index": index}
    for key, content in dict(VALUES, **changed).items():
        result[key] = codes.missing(content[0]) if isinstance(content, tuple) else codes.value(content)
    return result


def wish(value, explicit=True, **more):
    return dict({"value": value, "explicit": explicit}, **more)


def decide(name, wanted, kept=None, daemon=False, processes_ok=False, load=LOAD, **changed):
    """The one row that is planned."""
    wanted = wanted if isinstance(wanted, dict) and ("explicit" in wanted or "problem" in wanted) else wish(wanted)
    entries = {UUID: {name: kept}} if kept else {}
    plan = settings_plan.decide([gpu(**changed)], {UUID: {name: wanted}}, entries, load, daemon, processes_ok)
    return plan[0] if plan else None


OK = {"rc": 0, "error": "SUCCESS", "detail": None, "tried": True}


def refused(rc, tried=True):
    return {"rc": rc, "error": codes.name(rc), "detail": None, "tried": tried}
