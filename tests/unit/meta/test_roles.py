# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role says what it takes in one place, and its defaults agree."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import driver_tables

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir()) if (ROOT / "roles").is_dir() else []
TASK_FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("roles/*/tasks/**/*.yml"))
PLAYBOOKS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("playbooks/**/*.yml"))
TASK_LINES = 85
# The files that list the steps of an upgrade, so that these are not seen one below another.
STEP_LISTS = {"main.yml", "upgrade.yml", "change.yml", "put_back.yml", "undo.yml"}
LIST_LINES = 60

# Options that have no sane default: the role refuses to run without them.
REQUIRED = {"nvidia_driver": {"nvidia_driver_version"}, "gpu_node_upgrade": {"gpu_node_upgrade_version"}}


def load(role, *parts):
    path = ROOT.joinpath("roles", role, *parts)
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def defaults(role):
    directory = ROOT / "roles" / role / "defaults" / "main"
    if directory.is_dir():
        merged = {}
        for path in sorted(directory.glob("*.yml")):
            merged.update(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
        return merged
    return load(role, "defaults", "main.yml")


def specs(role):
    return load(role, "meta", "argument_specs.yml").get("argument_specs", {})


def options(role):
    """Every option of every entry point of the role."""
    merged = {}
    for spec in specs(role).values():
        merged.update(spec.get("options") or {})
    return merged


def test_the_collection_has_roles():
    assert ROLES


@pytest.mark.parametrize("role", ROLES)
def test_has_its_files(role):
    for part in ("defaults/main.yml", "meta/main.yml", "meta/argument_specs.yml", "tasks/main.yml", "README.md"):
        assert (ROOT / "roles" / role / part).exists(), part


@pytest.mark.parametrize("role", ROLES)
def test_galaxy_and_ansible_doc_describe_a_role_alike(role):
    assert load(role, "meta", "main.yml")["galaxy_info"]["description"] == specs(role)["main"]["short_description"]


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_name_the_same_options(role):
    required = {name for name, option in options(role).items() if option.get("required")}
    assert required == REQUIRED.get(role, set()), "an option without a default is a decision: it is listed in this test"
    assert set(defaults(role)) == set(options(role)) - required


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_give_the_same_value(role):
    """A default that is itself a template may be said in words instead."""
    values = defaults(role)
    for name, option in options(role).items():
        if option.get("required"):
            continue
        templated = "{{" in str(values[name])
        if "default" in option or not templated:
            assert option.get("default") == values[name], name


@pytest.mark.parametrize("role", ROLES)
def test_every_option_has_type_and_description(role):
    for name, option in options(role).items():
        assert option.get("type"), name
        assert option.get("description"), name
        assert option["type"] != "list" or option.get("elements"), name


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_is_described(role):
    for name, spec in specs(role).items():
        assert spec.get("short_description"), name
        assert spec.get("version_added"), name
        assert (ROOT / "roles" / role / "tasks" / (name + ".yml")).exists(), name


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_carries_the_name_of_its_role(role):
    assert [name for name in defaults(role) if not name.startswith(role + "_")] == []
    internal = {}
    for path in sorted((ROOT / "roles" / role / "vars").glob("*.yml")):
        internal.update(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    assert [name for name in internal if not name.startswith("__{0}_".format(role))] == []


@pytest.mark.parametrize("path", TASK_FILES)
def test_task_file_is_short_enough(path):
    assert (ROOT / path).read_text(encoding="utf-8").count("\n") <= TASK_LINES


INCLUDE = re.compile(r"^ *(?:ansible\.builtin\.(?:include|import)_tasks|tasks_from): *(.+?)$", re.MULTILINE)


@pytest.mark.parametrize("path", TASK_FILES + PLAYBOOKS)
def test_an_include_names_its_file(path):
    names = INCLUDE.findall((ROOT / path).read_text(encoding="utf-8"))
    assert [name for name in names if "{{" in name] == []


def test_the_steps_of_an_upgrade_are_included_from_the_files_that_list_them():
    """One level below them, apart from what several steps do alike, and from a file that includes itself for another
    turn.
    """
    directory = ROOT / "roles/gpu_node_upgrade/tasks"
    found = {
        path.name: {name for name in INCLUDE.findall(path.read_text(encoding="utf-8")) if name.endswith(".yml")}
        for path in directory.glob("*.yml")
    }
    below = {(name, other) for name, others in found.items() if name not in STEP_LISTS for other in others - {name}}
    shared = {"evidence.yml", "start_services.yml"}
    assert {other for _name, other in below} == shared, below
    listed = set().union(*(found[name] for name in STEP_LISTS))
    assert set(found) == listed | shared | {"main.yml", "preview.yml"}, "no file is left over"
    assert all((directory / name).read_text(encoding="utf-8").count("\n") <= LIST_LINES for name in STEP_LISTS)


@pytest.mark.parametrize("path", TASK_FILES)
def test_errors_are_not_waved_through(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    assert "ignore_errors" not in text
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"failed_when:\s*false\b", line):
            assert "#" in line or lines[number - 1].lstrip().startswith("#"), (
                "failed_when: false needs its reason beside it"
            )


@pytest.mark.parametrize("path", TASK_FILES)
def test_facts_are_read_from_ansible_facts(path):
    """Injected facts (ansible_distribution, ...) go away with ansible-core 2.24."""
    text = (ROOT / path).read_text(encoding="utf-8")
    allowed = (
        "ansible_facts",
        "ansible_check_mode",
        "ansible_diff_mode",
        "ansible_play_hosts",
        "ansible_play_hosts_all",
        "ansible_play_batch",
        "ansible_loop",
        "ansible_loop_var",
        "ansible_failed_result",
        "ansible_failed_task",
        "ansible_version",
        "ansible_host",
        "ansible_run_tags",
        "ansible_user",
        "ansible_become",
        "ansible_connection",
        "ansible_python_interpreter",
        "ansible_role_name",
        "ansible_parent_role_names",
        "ansible_collection_name",
    )
    found = set(re.findall(r"(?<![\w.'\"/-])ansible_[a-z_]+\b(?!\.)", text))
    assert sorted(found - set(allowed)) == []


def health_tasks():
    """(file, options) of every task of the collection that judges a node's health."""
    found = []

    def walk(path, entries):
        for entry in entries:
            for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
                walk(path, entry.get(key) or [])
            if "gpufleet.lifecycle.gpu_health" in entry:
                found.append((path, entry["gpufleet.lifecycle.gpu_health"]))

    for path in sorted([*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]):
        walk(path, yaml.safe_load(path.read_text(encoding="utf-8")) or [])
    return found


def test_what_hardware_a_node_should_have_is_known_wherever_its_health_is_judged():
    tasks = health_tasks()
    assert {path.parent.name for path, dummy in tasks} == {"playbooks", "tasks"}
    assert [str(path.relative_to(ROOT)) for path, options in tasks if "expect" not in options] == []


def test_repository_role_knows_the_systems_of_the_list():
    variables = ROOT / "roles/nvidia_repository/vars"
    known = yaml.safe_load((variables / "main.yml").read_text(encoding="utf-8"))["__nvidia_repository_systems"]
    names = {"%s %s" % (name.replace("rhel", "redhat"), version) for name, version in driver_tables.SYSTEMS}
    assert set(known) == names
    for system, name in known.items():
        releases = yaml.safe_load((variables / (name + ".yml")).read_text(encoding="utf-8"))
        assert system.split()[1] in releases["__nvidia_repository_releases"], system
