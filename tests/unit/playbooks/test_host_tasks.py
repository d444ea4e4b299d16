# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counting host-tasks: what is over a limit is told with its tasks."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks

NAMES = ["a1", "a2"]


def counted(before, then, once=1):
    probes, tasks = (
        ["%s %d" % (word, number) for number in range(length)] for word, length in (("probe", before), ("task", then))
    )
    plan = {"a1": probes + ["plan"] * once, "a2": probes}
    return {
        "Plan the rollout": plan,
        "Upgrade node after node": {"a1": tasks[:-1], "a2": tasks},
        "Report": {"a1": ["report"]},
    }


@pytest.mark.parametrize(
    ("before", "then", "kept"), [(3, 57, True), (2, 58, True), (3, 58, False), (4, 30, False), (0, 61, False)]
)
def test_the_limits(before, then, kept):
    text = host_tasks.too_many(counted(before, then), NAMES)
    assert (text == "") == kept


def test_what_is_too_much_is_named():
    text = host_tasks.too_many(counted(2, 59), NAMES)
    assert text.splitlines()[0] == "61 host-tasks of a node in all, at most 60:"
    assert text.splitlines()[1].strip() == "1. probe 0" and text.splitlines()[-1].strip() == "61. task 58", (
        "in order, of the node with the most of them"
    )
    assert "4 host-tasks of a node in the preflight, at most 3:" in host_tasks.too_many(counted(4, 1), NAMES)


def test_what_is_done_once_for_all_is_no_task_of_every_node():
    assert host_tasks.once_for_all(counted(3, 1, once=2), NAMES) == ["plan", "plan"]
    assert host_tasks.preflight(counted(3, 1, once=2), NAMES) == ["probe 0", "probe 1", "probe 2"]
