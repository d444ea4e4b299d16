# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what gpu_health would answer of a simulated node below a directory: python -m MODULE ROOT MODEL POLICY."""

from __future__ import annotations

import json
import pathlib
import sys

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

# What systemd would say of the units, and what the daemons say of their versions: what a directory cannot tell.
STATE = "services.json"


def attach(root, model):
    """The node that is in ROOT already."""
    world = w.World(root, simnode.built(), root, model)
    state = json.loads((pathlib.Path(root) / STATE).read_text())
    world.units = {name: tuple(words) for name, words in state["units"].items()}
    world.daemons = state["daemons"]
    return world


if __name__ == "__main__":
    taken = attach(sys.argv[1], sys.argv[2]).reading()
    health = w.judge(taken, None, "adhoc", json.loads(sys.argv[3]), expected=None)
    json.dump({"health": health, "baseline": w.baseline_of(taken)}, sys.stdout)
