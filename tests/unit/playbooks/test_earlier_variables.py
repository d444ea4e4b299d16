# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that an inventory of 0.1.0 has: each still does what it did, or is refused with its new name.

``earlier/variables.json`` has them as they were at commit 3117e628, the last one before anything was marked as new in a
later version: those of the roles with the words that they take, those that each playbook reads, and what the roles say
of a node.
"""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names, _variables

ROOT = pathlib.Path(__file__).resolve().parents[3]
EARLIER = json.loads((pathlib.Path(__file__).resolve().parent / "earlier" / "variables.json").read_text())
# By the name of a variable of 0.1.0 that another one took the place of: the name that the refusal has to offer. So far
# there is none.
RENAMED = {}
NAMES = sorted(
    {name for names in EARLIER["playbooks"].values() for name in names}
    | {name for options in EARLIER["roles"].values() for name in options}
    | set(EARLIER["fleet"])
)


def wrong_with(name):
    """What a playbook says of a variable that it does not know; empty of one that it knows."""
    try:
        _variables.refuse_strangers([name], _variable_names.of_roles(), _variable_names.CONTROL)
    except _variables.VariableError as exc:
        return str(exc)
    return ""


def reads(playbook):
    """The words of a playbook and of those that it imports."""
    text = (ROOT / "playbooks" / (playbook + ".yml")).read_text()
    imported = re.findall(r"import_playbook: (\w+)\.yml", text)
    return set(re.findall(r"\w+", text)).union(*map(reads, imported))


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_of_0_1_0_is_known_or_refused_with_its_new_name(name):
    if name in RENAMED:
        assert RENAMED[name] in wrong_with(name) and not wrong_with(RENAMED[name])
    else:
        assert wrong_with(name) == ""


@pytest.mark.parametrize("role", EARLIER["roles"])
def test_a_role_still_takes_its_variables(role):
    assert set(EARLIER["roles"][role]) - set(RENAMED) - _variable_names.of_roles()[role] == set()


def test_a_variable_still_takes_the_words_that_it_took():
    today = _variable_names.choices()
    before = {name: words for options in EARLIER["roles"].values() for name, words in options.items() if words}
    assert len(before) > 10
    assert {
        name: sorted(set(words) - set(today[name][1]))
        for name, words in before.items()
        if name in today and not set(words) <= set(today[name][1])
    } == {}


@pytest.mark.parametrize("playbook", EARLIER["playbooks"])
def test_a_playbook_still_reads_its_variables(playbook):
    assert set(EARLIER["playbooks"][playbook]) - set(RENAMED) - reads(playbook) == set()


def test_what_roles_say_of_a_node_still_has_its_name():
    assert set(EARLIER["results"]) - set(_variable_names.RESULTS) == set()


def test_a_name_that_is_not_known_any_more_would_be_noticed():
    """A prefix of the collection's with another ending is no variable."""
    assert "nvidia_driver_version" in wrong_with("nvidia_driver_versions")
