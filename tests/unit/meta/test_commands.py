# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and examples on pages name playbooks, plugins, variables and options that exist."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import heads
from tests.tools.common import ROOT, tracked_files

PAGES = [name for name in tracked_files() if name.endswith((".md", ".rst")) or re.match(r"playbooks/\w+\.yml", name)]
ROLES = sorted(path.parents[1].name for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
NAMES = {
    *ROLES,
    *(path.stem for path in ROOT.glob("playbooks/*.yml")),
    *(path.stem for path in ROOT.glob("plugins/*/*.py")),
    *(path.stem for path in ROOT.glob("extensions/eda/rulebooks/*.yml")),
}


def find_commands(text: str) -> list[str]:
    """Return the ansible-playbook commands of a page that run a playbook of the collection."""
    text = re.sub(r" *\\\n[# ]*", " ", text)
    return re.findall(r"ansible-playbook [^\n`]*gpufleet\.lifecycle\.\w[^\n`]*", text)


def find_extra_variables(command: str) -> set[str]:
    """Return the names of the extra variables of a command."""
    documents = re.findall(r"-e '(\{.+?\})'", command)
    return {*re.findall(r"-e (\w+)=", command), *(name for document in documents for name in json.loads(document))}


def find_unknown_variables(command: str) -> set[str]:
    """Return the extra variables of a command that its playbook does not document."""
    playbook = re.search(r"gpufleet\.lifecycle\.(\w+)", command).group(1)
    known = heads.find_variables(playbook) | set(_variable_names.of_roles())
    if "rollout_version" in known:
        known |= set(_variable_names.ROLLOUT)
    return find_extra_variables(command) - known


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_collection_on_a_page_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"(?<![\w./])gpufleet\.lifecycle\.([a-z_0-9]+)", text)) - NAMES == set()


@pytest.mark.parametrize("page", PAGES)
def test_extra_variables_of_commands_on_a_page_are_documented(page):
    commands = find_commands((ROOT / page).read_text(encoding="utf-8"))
    assert {command: unknown for command in commands if (unknown := find_unknown_variables(command))} == {}


def test_unknown_variables_of_a_command_are_found():
    commands = find_commands(
        "`ansible-playbook gpufleet.lifecycle.upgrade -e rollout_max_down=1 -e rollout_max_dwon=1 \\\n"
        "  -e '{\"rollout_canary\": [\"a\"]}'` and `ansible-playbook -i x gpufleet.lifecycle.holds -e mig_hosts=a`\n"
    )
    assert [find_unknown_variables(command) for command in commands] == [
        {"rollout_max_dwon", "rollout_canary"},
        {"mig_hosts"},
    ]


def test_every_variable_of_the_playbooks_is_in_a_head():
    documented = {name for path in (ROOT / "playbooks").glob("*.yml") for name in heads.find_variables(path.stem)}
    assert {*_variable_names.PLAYBOOKS, *_variable_names.CONTROL, "gpufleet_artifact_dir"} - documented == set()


def test_every_playbook_is_on_the_page_of_the_playbooks_and_on_that_of_the_commands():
    page, commands = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("docs/reference/playbook-variables.md", "docs/commands.md")
    )
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert set(re.findall(r"\]\(\.\./\.\./playbooks/(\w+)\.yml\)", page)) == playbooks
    assert playbooks - set(re.findall(r"gpufleet\.lifecycle\.(\w+)", commands)) == set()


@pytest.mark.parametrize("role", ROLES)
def test_example_of_a_role_fits_its_argument_specs(role):
    page = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
    ((play,),) = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    (call,) = play.get("roles") or play["tasks"]
    name, entry = call.get("role"), "main"
    if name is None:
        name, entry = (call["ansible.builtin.import_role"][key] for key in ("name", "tasks_from"))
    specs = (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    options = yaml.safe_load(specs)["argument_specs"][entry]["options"]
    assert name == "gpufleet.lifecycle." + role
    # Defaults may be templates, which only Ansible evaluates.
    options = {name: {key: option[key] for key in option if key != "default"} for name, option in options.items()}
    assert ArgumentSpecValidator(options).validate(call.get("vars", {})).error_messages == []
