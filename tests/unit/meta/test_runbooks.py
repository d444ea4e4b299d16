# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runbooks say of the variables of a rollout is what the plan does."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.modules import rollout_plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in (ROOT / "docs" / "runbooks" / "rollout.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `rollout_")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_every_variable_has_a_row():
    assert set(_variable_names.ROLLOUT) - set(ROWS) == set()


def test_every_limit_has_a_row():
    known = {"rollout_" + name for name in limits.DEFAULTS if name in rollout_plan.ARGUMENT_SPEC}
    assert len(known) > 15 and known - set(ROWS) == set()


@pytest.mark.parametrize("variable", sorted(ROWS))
def test_a_row_is_whole_and_its_default_is_that_of_the_option(variable):
    default, meaning, refused = ROWS[variable]
    assert default and meaning and refused is not None
    option = rollout_plan.ARGUMENT_SPEC.get(variable[len("rollout_") :], {})
    if default.startswith("`") and "default" in option and option["default"] != "":
        assert yaml.safe_load(default.strip("`")) == json.loads(json.dumps(option["default"])), default
