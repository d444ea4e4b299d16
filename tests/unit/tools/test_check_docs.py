# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the health checks says of every check what the code does."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, registry
from tests.tools import check_docs
from tests.tools.docs import POLICY

ROWS = dict((row.ident, row) for row in registry.TABLE)


@pytest.fixture(scope="module")
def policy():
    return json.loads(POLICY.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("ident", "action"),
    [
        ("gpu.persistence", "restart_service"),
        ("gpu.power_limit", "restore_setting"),
        ("gpu.remap_pending", "reset_gpu"),
        ("gpu.remap_failure", "field_diag"),
        ("nvml.answers", "reboot"),
        ("gpu.count", "hold"),
        ("driver.loaded", "reboot"),
    ],
)
def test_a_check_asks_for_what_its_judge_says(ident, action):
    assert action in check_docs.actions(ROWS[ident], model.ACTIONS)


def test_a_check_does_not_ask_for_what_only_another_one_does():
    assert check_docs.actions(ROWS["gpu.count"], model.ACTIONS) == ["hold"]
    assert "field_diag" not in check_docs.actions(ROWS["gpu.remap_pending"], model.ACTIONS)


@pytest.mark.parametrize(
    ("ident", "keys"),
    [
        ("gpu.ecc_volatile", ["ecc_volatile_uncorrected_max"]),
        ("gpu.bank_availability", ["bank_low_max", "bank_none_max", "bank_partial_max"]),
        ("gpu.count", []),
    ],
)
def test_a_check_names_the_thresholds_it_asks_for(policy, ident, keys):
    assert check_docs.thresholds(ROWS[ident], policy) == keys


def test_every_threshold_is_asked_for_by_a_check(policy):
    used = set(key for row in registry.TABLE for key in check_docs.thresholds(row, policy))
    assert sorted(set(policy) - {"schema"} - used) == []


def test_the_page_has_every_check_and_every_threshold_once(policy):
    lines = check_docs.render(registry.FAMILIES, model.ACTIONS, policy).splitlines()
    first = [line.split("|")[1].strip() for line in lines if line.startswith("| `")]
    assert sorted(first) == sorted("`{0}`".format(name) for name in [*ROWS, *(set(policy) - {"schema"})])


def test_a_bar_in_a_text_does_not_break_the_table():
    row = model.Row("x.y", "node", lambda ctx: None, "a | b\nc", ("s",), "source", ())
    family = type("Family", (), {"ROWS": (row,), "__doc__": "A family.\n\nMore."})
    (line,) = [
        line for line in check_docs.render([family], model.ACTIONS, {}).splitlines() if line.startswith("| `x.y`")
    ]
    assert "a \\| b c" in line
