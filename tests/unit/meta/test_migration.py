# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes the place of other projects' variables is there, and takes the value that the page shows."""

from __future__ import annotations

import importlib
import pathlib

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names, _variables
from tests.tools import migration_docs

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULES = "ansible_collections.gpufleet.lifecycle.plugins.modules."
DATA = migration_docs.load()
ROWS = [row for source in DATA["sources"] for row in source["rows"]]
OURS = [row for row in ROWS if row["ours"]]
THEIRS = [name for row in ROWS for name in migration_docs.names(row)]


def options_of_roles():
    found = {}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found.update(entry.get("options") or {})
    return found


ROLES = options_of_roles()


def spec_of(documented):
    """An argument spec, of what a module says of its options."""
    found = {}
    for name, option in documented.items():
        found[name] = {key: option[key] for key in ("type", "elements", "choices") if key in option}
        if option.get("suboptions"):
            found[name]["options"] = spec_of(option["suboptions"])
    return found


def options(row):
    if row.get("module"):
        return spec_of(yaml.safe_load(importlib.import_module(MODULES + row["module"]).DOCUMENTATION)["options"])
    # The variables of playbooks have no type; the hosts are a text.
    return dict({name: {"type": "str"} for name in _variable_names.PLAYBOOKS}, **ROLES)


def complaints(row):
    """What is wrong with our side of a row."""
    known, given = options(row), yaml.safe_load(row["ours"])
    strange = sorted(set(given) - set(known))
    if strange:
        return strange
    spec = {name: dict(known[name], required=False) for name in given}
    found = ArgumentSpecValidator(spec).validate(given)
    # A text would take anything; a number or a list there is a mistake of the page.
    texts = [name for name, value in given.items() if spec[name].get("type") in ("str", "path")]
    return found.error_messages + [name for name in texts if not isinstance(given[name], str)]


def test_the_data_is_read():
    assert len(ROWS) > 25 and len(OURS) > 18
    assert len(set(THEIRS)) == len(THEIRS), "one is in two rows"


@pytest.mark.parametrize("row", OURS, ids=lambda row: row["theirs"].partition(":")[0])
def test_ours_are_there_and_take_the_value(row):
    assert complaints(row) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["theirs"].partition(":")[0])
def test_theirs_is_one_variable_with_a_value_and_is_not_ours(row):
    ((name, value),) = yaml.safe_load(row["theirs"]).items()
    assert name == migration_docs.names(row)[0] and value is not None
    assert [one for one in migration_docs.names(row) if one in ROLES] == []
    assert row["ours"] or row["note"], "what has no place here says why"


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [
        ("nvidia_driver_branch: 535", "nvidia_driver_branch"),
        ("nvidia_driver_source: network", "nvidia_driver_source"),
        ("nvidia_mig_replace_manager: maybe", "maybe"),
        ("nvidia_driver_version: 535.2", "nvidia_driver_version"),
    ],
)
def test_a_row_that_is_wrong_is_found(ours, wrong):
    assert wrong in " ".join(map(str, complaints({"ours": ours})))


@pytest.mark.parametrize("ours", ["power_limit: 300", "locked_graphics_clocks_mhz: {most: 1}"])
def test_an_option_that_a_module_lacks_is_found(ours):
    assert complaints({"ours": ours, "module": "gpu_settings"})


def test_the_page_marks_exactly_what_is_refused():
    refused = {name for name, *dummy in _variables.strangers(THEIRS, _variable_names.of_roles())}
    text = (ROOT / migration_docs.PAGE).read_text(encoding="utf-8")
    assert text == migration_docs.render(DATA, refused)
    assert "nvidia_driver_branch" in refused and "hostlist" not in refused
    for name in refused:
        with pytest.raises(_variables.VariableError, match=name):
            _variables.refuse_strangers([name], _variable_names.of_roles())
