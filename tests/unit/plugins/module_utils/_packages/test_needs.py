# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node lacks that its driver needs, as a truth table."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems


@pytest.mark.parametrize(
    ("wanted", "gpus", "headers", "ids"),
    [
        ([], [], {}, []),
        (["gpu"], [{"address": "0000:1b:00.0"}], {}, []),
        (["gpu"], [], {}, ["no_gpu"]),
        (["gpu"], None, {}, ["no_gpu"]),
        (["headers"], None, {"6.1.0-1": True}, []),
        (["headers"], None, {}, ["no_kernel"]),
        (["headers"], None, {"6.1.0-1": True, "6.1.0-2": False}, ["no_headers"]),
        (["gpu", "headers"], [], {"6.1.0-2": False}, ["no_gpu", "no_headers"]),
    ],
)
def test_what_a_node_needs(wanted, gpus, headers, ids):
    found = systems.decide_needs(wanted, gpus, headers)
    assert [item["id"] for item in found] == ids
    assert all(item["message"] and item["found"] and item["expected"] and item["next_step"] for item in found)
    if "no_headers" in ids:
        assert (
            "6.1.0-2" in found[-1]["message"]
            and "linux-headers-6.1.0-2" in found[-1]["next_step"]
            and "6.1.0-1" not in found[-1]["message"]
        )
