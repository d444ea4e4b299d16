# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of holds that hold_info prints."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.action import hold_info
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores


def hold(package, version, days, security=()):
    return {
        "package": package,
        "version": version,
        "age_days": days,
        "security": None if security is None else list(security),
    }


@pytest.fixture(name="lines")
def _lines(monkeypatch):
    """lines(nodes): what is printed of them, each line as it is."""

    def run(nodes):
        printed = []
        monkeypatch.setattr(hold_info.display, "display", printed.append, raising=False)
        done, calls = actions.run_in_turn(hold_info, "localhost", {"table": nodes})
        assert calls == [] and done["lines"] == printed and not done["changed"]
        return printed

    return run


def result(kernel=(), driver=(), other=()):
    return {"holds": {"kernel": list(kernel), "driver": list(driver), "other": list(other)}}


def test_the_longest_hold_comes_first_and_no_node_is_left_out(lines):
    found = lines(
        {
            "n1": result(kernel=[hold("linux-image-amd64", "6.1", 3, ["6.2", "6.1.9"])]),
            "n2": result(
                driver=[
                    hold("libcuda1", "535", 90),
                    hold("nvidia-smi", "535", 80, ["536"]),
                    hold("nvidia-alternative", "535", 90),
                ],
                other=[hold("vim", "8", None, None)],
            ),
            "n3": result(),
            "n4": {"msg": "Failed to connect\nto the host", "unreachable": True},
            "n5": {},
        }
    )
    assert [" ".join(line.split()) for line in found[:1] + found[2:]] == [
        "node held days packages security updates kept out",
        "n2 driver 90 libcuda1 535, nvidia-smi 535 and 1 more nvidia-smi 536",
        "n1 kernel 3 linux-image-amd64 6.1 linux-image-amd64 6.2",
        "n2 other not recorded vim 8 cannot be told",
        "nothing is held on: n3",
        "n4: not known: Failed to connect to the host",
        "n5: not known: no answer",
    ]


def test_without_holds_there_is_no_table(lines):
    assert lines({"n1": result()}) == ["nothing is held on: n1"]
