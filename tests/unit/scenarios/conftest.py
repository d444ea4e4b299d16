# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated nodes in health, each booted once, and the verdict about a node with a fault."""

from __future__ import annotations

import collections
import itertools
import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

Healthy = collections.namedtuple("Healthy", ["world", "reading", "baseline"])


@pytest.fixture(scope="session")
def healthy(tmp_path_factory):
    """Makes nodes in health: once for each model."""
    base = pathlib.Path(str(tmp_path_factory.mktemp("healthy")))
    known = {}

    def make(model="h100-sxm"):
        if model not in known:
            world = w.World(base / model, simnode.built(), base, model).build()
            taken = world.reading()
            known[model] = Healthy(world, taken, w.baseline_of(taken))
        return known[model]

    yield make
    for node in known.values():
        node.world.close()


@pytest.fixture
def sick(healthy, tmp_path):
    """Makes a copy of a node in health with the fault of a scenario."""
    worlds = []
    numbers = itertools.count()

    def make(scenario):
        world = healthy(scenario.model).world.copy(tmp_path / ("root%d" % next(numbers)))
        worlds.append(world)
        for step in scenario.make:
            if isinstance(step, str):
                world.sim(*step.split())
            else:
                step(world)
        return world

    yield make
    for world in worlds:
        world.close()


@pytest.fixture(scope="session")
def at_work(healthy):
    """What gpu_smoke measures on the node in health."""
    return healthy().world.at_work("t1")
