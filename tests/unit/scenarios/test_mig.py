# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose GPUs are cut into MIG instances: what passes against their baseline, and what Slurm is given of them."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import gres
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use, _upgrade_state
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w

SEVENTHS, PARTS = ("1g.10gb",) * 7, ("3g.40gb", "2g.20gb", "1g.10gb")


def laid_out(world, profiles):
    """What is read of the node with these instances on each GPU; without any MIG is off."""
    for gpu in range(world.gpus):
        world.node.sim("mig", "--gpu", str(gpu), *profiles)
    return world.reading()


@pytest.mark.parametrize(
    ("before", "after"), [((), SEVENTHS), (SEVENTHS, PARTS), (PARTS, ())], ids=["on", "other", "off"]
)
def test_the_reference_of_a_node_with_another_layout(healthy, tmp_path, before, after):
    world = healthy("h100-sxm").world.copy(tmp_path / "root")
    try:
        free = w.baseline_of(world.reading())
        baseline = w.baseline_of(laid_out(world, before)) if before else free
        taken = laid_out(world, after)
    finally:
        world.close()
    reference = _upgrade_state.documents(
        {"layout": {"name": "x"}, "before": {"baseline": baseline}, "layout_read": {"snapshot": taken["snapshot"]}}
    )["reference"]
    health = w.judge(taken, reference, expect={"mig_free": free})
    assert health["verdict"] == "pass", [check for check in health["checks"] if check["status"] in ("fail", "unknown")]
    stale = w.judge(taken, baseline, expect={"mig_free": free})
    assert stale["verdict"] != "pass"
    assert {check["id"] for check in stale["checks"] if check["status"] == "fail"} & {"gpu.mig_layout", "gpu.mig_mode"}
    unread = dict(
        taken["snapshot"],
        gpus=[dict(gpu, mig_instances={"value": None, "rc": 999}) for gpu in taken["snapshot"]["gpus"]],
    )
    blind = _upgrade_state.documents(
        {"layout": {"name": "x"}, "before": {"baseline": baseline}, "layout_read": {"snapshot": unread}}
    )["reference"]
    assert w.judge(taken, blind, expect={"mig_free": free})["verdict"] != "pass", (
        "a layout that was not read back proves nothing"
    )


ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_devices_of_a_node_with_instances_are_those_that_nvml_has(healthy, tmp_path):
    world = healthy("h100-sxm").world.copy(tmp_path / "root")
    try:
        world.node.sim("mig", "--gpu", "1", "3g.40gb", "1g.10gb+me", "1g.10gb")
        # The subsets that the role reads.
        tasks = yaml.safe_load((ROOT / "roles/gpu_scheduler/tasks/slurm/gres.yml").read_text())
        subsets = tasks[0]["gpufleet.lifecycle.gpu_info"]["gather_subset"]
        load = w.binding(world.library)
        with world.environment():
            taken = snapshot.take(world.deadline_s, world.stuck_file, gather=subsets, load=load)
        minors = (world.root / "proc/driver/nvidia-caps/mig-minors").read_text()
        gpus = gres.of_snapshot(taken, minors)
        board = gres.type_name(taken["gpus"][0]["name"]["value"])
        slices = {board + "_" + profile: 1 for profile in ("3g.40gb", "1g.10gb.me", "1g.10gb")}
        assert gres.counts(gpus) == {board: len(gpus) - 1, **slices}
        assert sum(gres.counts(gpus).values()) == _gpu_use.schedulable(taken)
        files = {path for gpu in gpus for device in gpu.devices for path in device.files}
        assert len(files) == len(gpus) + 6, "each instance has two files of its own"
        assert [path for path in sorted(files) if not (world.root / path.lstrip("/")).exists()] == []
    finally:
        world.close()
