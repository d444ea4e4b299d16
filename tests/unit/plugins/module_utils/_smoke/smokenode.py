# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated node with the CUDA library, and the test of its GPUs as it runs on a node: in a process of its own."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import run as smoke_run
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import cutoff, wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

PLUGINS = pathlib.Path(smoke_run.__file__).resolve().parents[2]
HELPERS = str(pathlib.Path(cutoff.__file__).parent)
CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from module_utils._nvml import session
from module_utils._smoke import run, tests
sys.path.insert(0, sys.argv[4])
import cutoff
session.finish = cutoff.finish_when(session.finish)
tests.WARM_S = json.loads(sys.argv[3]) or tests.WARM_S
options = json.loads(sys.argv[2])
try:
    document, snapshot = run.take(runner=lambda argv, timeout: (127, "", ""), **options)
except run.Choice as exc:
    document, snapshot = {"refused": str(exc)}, None
print(json.dumps([document, snapshot]))
"""


def make(root, templates, gpus=2, model="h100-sxm", name="node-1"):
    """A booted node with driver, NVML and CUDA libraries."""
    node = simnode.Node(root, simnode.built(), templates, model, gpus, name)
    node.booted()
    shutil.copy(str(node.build / "libcuda.so.1"), str(node.root / "usr/local/lib/libcuda.so.1"))
    node.write("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so." + simnode.OLD, "")
    return node


def library(node):
    return str(node.root / "usr/local/lib/libcuda.so.1")


def test(node, environment=None, warm_s=1e-9, **options):
    """(document, snapshot) of the node's test; ENVIRONMENT is added to the process's.

    A simulated GPU has no idle clocks to leave: it is warmed up by one run of the work, or for as long as a real one
    with a WARM_S of None. The share of a GPU that hangs passes when it does.
    """
    options.setdefault("library_path", library(node))
    options.setdefault("stuck_file", str(node.root / "stuck"))
    variables = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    variables.update(environment or {})
    done = simnode.run(
        [sys.executable, "-c", CODE, str(PLUGINS), json.dumps(options), json.dumps(warm_s), HELPERS], env=variables
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
