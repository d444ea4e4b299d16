# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver is brought to nodes ahead of their upgrade."""

from __future__ import annotations

import pytest

OLD, NEW = "1.0.1", "2.0.1"


@pytest.mark.cores
@pytest.mark.parametrize("wanted", [{}, {"rollout_version": "", "nvidia_driver_version": NEW}])
def test_driver_is_brought_to_each_node_and_nothing_in_use_is_changed(fleet, wanted):
    for name in ("a1", "a2"):
        fleet.add(name)
    result = fleet.run("prestage", **fleet.install_for_real(), **wanted)
    assert result.rc == 0, result.output
    for name in ("a1", "a2"):
        node = fleet.read(name)
        assert (node["downloaded"], node["loaded"], node["disk"]) == (NEW, OLD, OLD)
