# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of nodes that wait asks the gate as a task does, so that an option of the gate does not break it."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_gate import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import waiters


def test_it_asks_with_every_option_of_the_gate_and_no_other():
    assert set(waiters.ASKING) == set(ARGUMENT_SPEC)
    assert waiters.ASKING["version"] == waiters.NEW and waiters.ASKING["max_turns"] == 250


def test_the_calls_of_the_gate_that_it_measures_are_answered(tmp_path):
    found = waiters.calls(str(tmp_path), "", 60, 2)
    assert set(found) == {"wait", "look", "go"} and all(took > 0 for took in found.values())
