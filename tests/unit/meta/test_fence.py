# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module still does for a controller that died, while another one has the node: nothing.

Every module that changes a node takes the node's lock, and the lock admits a call of a rollout only while the node has
its claim (``_node.lock.NodeLock``). Modules that take no lock are named here, each with the reason.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.meta import test_rooms

ROOT = test_rooms.ROOT
LOCK = "plugins/module_utils/_node/lock.py"
CONTROLLER = "it runs on the controller, where the ledger decides"
READS = "it reads alone"
WITHOUT = {
    "artifact_store": CONTROLLER,
    "capacity_report": CONTROLLER,
    "dkms_archives": CONTROLLER,
    "health_report": CONTROLLER,
    "kube_node": CONTROLLER + "; its own marks on the node in Kubernetes say whose they are",
    "playbook_variables": CONTROLLER,
    "quarantine_record": CONTROLLER,
    "rollout_control": CONTROLLER,
    "rollout_gate": CONTROLLER,
    "rollout_node": CONTROLLER,
    "rollout_plan": CONTROLLER,
    "rollout_report": CONTROLLER,
    "rollout_step": CONTROLLER,
    "slurm_gres": "it changes a service host and no node",
    "slurm_node": "it asks Slurm; its reason there says whose drain it is",
    "driver_audit": READS,
    "gpu_evidence": READS,
    "gpu_info": READS,
    "gpu_smoke": "its programs end with it, and leave nothing",
    "hold_info": READS,
    "node_program": "its action asks the node for its claim before the file takes its place",
    "repository_key": "the key that is wanted is the same for every controller; the file is checked and replaced whole",
}


def modules():
    return sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py") if path.stem != "__init__")


def locked(name):
    """Whether the module, or something of the project that it imports, takes the lock."""
    files, ahead = set(), [ROOT / "plugins" / "modules" / (name + ".py")]
    while ahead:
        file = ahead.pop()
        if file not in files:
            files.add(file)
            ahead += [path for module in test_rooms.imported(file) for path in files_of(module)]
    return any("NodeLock(" in file.read_text(encoding="utf-8") for file in files - {ROOT / LOCK})


def files_of(module):
    """Return the file of an imported module, or of the module that an imported name stands in."""
    path = ROOT / module.replace(".", "/")
    found = (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py"))
    return [file for file in found if file.is_file()]


@pytest.mark.parametrize("name", modules())
def test_a_module_takes_the_lock_of_the_node_or_says_why_not(name):
    assert name in WITHOUT or locked(name)


def test_no_reason_outlives_its_module():
    assert set(WITHOUT) <= set(modules())
