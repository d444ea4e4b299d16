# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that was given another MIG layout passes against its baseline with that layout, and against nothing else."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _upgrade_state
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
    assert stale["verdict"] != "pass" and {check["id"] for check in stale["checks"] if check["status"] == "fail"} & {
        "gpu.mig_layout",
        "gpu.mig_mode",
    }
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
