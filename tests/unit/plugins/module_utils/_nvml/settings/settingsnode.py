# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a simulated node, set as on a node: in a process of its own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import cutoff, wheels

UTILS = pathlib.Path(snapshot.__file__).resolve().parents[1]
HELPERS = str(pathlib.Path(cutoff.__file__).parent)
RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from _nvml import session
from _nvml.settings import task
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
from _nvml import snapshot
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
    done = subprocess.run(
        [sys.executable, "-c", code, str(UTILS)] + list(arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=600,
        check=False,
    )
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
