# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated nodes in health, for tests that copy them."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def healthy(tmp_path_factory):
    """Return a function that returns a node in health with two GPUs, built once for each model."""
    from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w

    base, known = tmp_path_factory.mktemp("healthy"), {}

    def make(model="h100-sxm"):
        if model not in known:
            known[model] = w.World(base / model, w.simnode.built(), base, model, gpus=2).build()
        return known[model]

    yield make
    for world in known.values():
        world.close()
