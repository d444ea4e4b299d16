# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for the tests of the simulator."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode


@pytest.fixture(scope="session")
def build():
    """The simulator's compiled parts."""
    return simnode.built()


@pytest.fixture
def node(make_node):
    """A node of eight H100 with nothing installed."""
    return make_node()


@pytest.fixture
def booted(node):
    """A node of eight H100 with a driver, booted."""
    return node.booted()
