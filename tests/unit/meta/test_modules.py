# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every module can be used from its documentation alone, and the tarball that users install holds all that runs."""

from __future__ import annotations

import pathlib
import tarfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
ACTIONS = sorted(path.stem for path in (ROOT / "plugins" / "action").glob("*.py"))
MODULE_LINES = 380


def leaves(values, path=()):
    """Every return value, the nested ones too, with its path."""
    for name, value in (values or {}).items():
        yield (*path, name), value
        yield from leaves(value.get("contains"), (*path, name))


def test_the_collection_has_modules():
    assert MODULES


@pytest.mark.parametrize("name", MODULES)
def test_documentation_is_whole(name, module_documentation):
    doc = module_documentation[name]["doc"]
    assert doc["version_added"], "version_added"
    assert doc["author"], "author"
    assert not doc["short_description"].endswith("."), "a short description is no sentence"
    assert doc["description"], "description"
    assert {"check_mode", "diff_mode", "platform"} <= set(doc.get("attributes") or {})
    for attribute in doc["attributes"].values():
        assert attribute["support"] in ("full", "partial", "none", "N/A")
        assert attribute["support"] != "partial" or attribute.get("details"), "partial support says what is missing"


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_tasks_with_full_names(name, module_documentation):
    tasks = yaml.safe_load(module_documentation[name]["examples"])
    assert isinstance(tasks, list) and tasks, "examples are a list of tasks"
    text = module_documentation[name]["examples"]
    assert "gpufleet.lifecycle.{0}:".format(name) in text


@pytest.mark.parametrize("name", MODULES)
def test_every_return_value_is_described(name, module_documentation):
    returned = list(leaves(module_documentation[name]["return"]))
    assert returned, "the module documents what it returns"
    for path, value in returned:
        assert value.get("description"), ".".join(path) + " has no description"
        assert value.get("type"), ".".join(path) + " has no type"
        assert len(path) > 1 or value.get("returned"), ".".join(path) + " does not say when it is returned"


@pytest.mark.parametrize("name", MODULES)
def test_every_option_is_described(name, module_documentation):
    for option, spec in (module_documentation[name]["doc"].get("options") or {}).items():
        assert spec.get("description"), option
        assert spec.get("type"), option


@pytest.mark.parametrize("name", MODULES)
def test_file_is_short_enough(name):
    lines = (ROOT / "plugins" / "modules" / (name + ".py")).read_text(encoding="utf-8").count("\n")
    assert lines <= MODULE_LINES, "logic belongs in module_utils"


def test_module_defaults_group_names_every_module():
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    assert sorted(runtime["action_groups"]["gpu"]) == MODULES


def test_every_action_has_a_module_of_its_name():
    assert set(ACTIONS) <= set(MODULES)


RUNS = ("plugins/", "roles/", "playbooks/", "extensions/", "meta/", "docs/")
TOP = {
    "MANIFEST.json",
    "FILES.json",
    "README.md",
    "LICENSE",
    "CHANGELOG.rst",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "changelogs/changelog.yaml",
    "changelogs/config.yaml",
}


@pytest.fixture(scope="module")
def members(artifact):
    with tarfile.open(str(artifact)) as tarball:
        return {member.name for member in tarball.getmembers() if not member.isdir()}


def test_holds_nothing_but_what_runs(members):
    assert sorted(name for name in members if not name.startswith(RUNS) and name not in TOP) == []


def test_holds_everything_that_runs(members, tracked):
    assert sorted(name for name in tracked if name.startswith(RUNS) and name not in members) == []


def test_has_the_top_files(members):
    assert TOP - members == set()


def test_no_link_leads_out_of_the_collection(artifact):
    with tarfile.open(str(artifact)) as tarball:
        assert [member.name for member in tarball.getmembers() if member.issym() or member.islnk()] == []


def test_installs_offline_and_is_whole(installed, members):
    root = installed / "ansible_collections" / "gpufleet" / "lifecycle"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == members


def test_is_small_enough_to_be_read(artifact):
    assert artifact.stat().st_size < 2 * 1024 * 1024
