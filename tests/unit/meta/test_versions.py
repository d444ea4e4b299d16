# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the collection, and other facts that stand in several places since Ansible reads them there."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.modules import rollout_plan, rollout_step
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import steps
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from tests.lab import demo

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
# Where the collection's version stands behind these words.
STANDS = {
    "README.md": r"\bVersion (\d\S*)|gpufleet-lifecycle-(\d.*?)\.tar\.gz",
    "CONTRIBUTING.md": r"gpufleet-lifecycle-(\d.*?)\.tar\.gz|git (?:tag --sign|verify-tag) (\d\S*)",
    "docs/awx.md": r"gpufleet-ee:(\d\S*)",
    "awx/execution-environment.yml": r"gpufleet-ee:(\d\S*)",
    "awx/controller/settings.yml": r"gpufleet-ee:(\d\S*)",
    "awx/project/collections/requirements.yml": r'version: "(.*)"',
}


@pytest.mark.parametrize("path", sorted(STANDS))
def test_the_version_stands_as_in_galaxy_yml(path):
    found = re.findall(STANDS[path], (ROOT / path).read_text(encoding="utf-8"))
    assert found and {"".join(one) for one in found} == {VERSION}


def test_the_changelog_begins_with_this_version():
    released = yaml.safe_load((ROOT / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))["releases"]
    assert VERSION in released
    assert "\nv%s\n" % VERSION in (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")


def test_nothing_was_added_by_a_version_to_come():
    """A release candidate is of the version that it becomes."""
    now = [int(part) for part in VERSION.partition("-")[0].split(".")]
    places = [*ROOT.glob("plugins/*/*.py"), *ROOT.glob("roles/*/meta/argument_specs.yml")]
    added = {
        (path.name, word)
        for path in places
        for word in re.findall(r"^ *version_added: ['\"]?([0-9.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(added) > 40 and [one for one in added if [int(part) for part in one[1].split(".")] > now] == []


PLAN = (ROOT / "playbooks/plan.yml").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "docs/runbooks/rollout.md").read_text(encoding="utf-8")
# `common_cause: "{{ rollout_common_cause | default(2) }}"`, and a row `| `rollout_common_cause` | `2` | ...`.
HANDED_ON = dict(re.findall(r'^ +(\w+): "\{\{ rollout_\1 \| default\((.*?)\) \}\}"$', PLAN, re.MULTILINE))
ROWS = dict(re.findall(r"^\| `rollout_(\w+)` \| `([^`]+)` \|", RUNBOOK, re.MULTILINE))
# The sizes of the waves are the module's: a rollout has none unless its mode is waves.
LIMITS = sorted((set(limits.DEFAULTS) & set(rollout_plan.ARGUMENT_SPEC)) - {"waves"})


def test_most_limits_are_seen_in_each_place():
    assert len(LIMITS) >= 15 and len(set(HANDED_ON) & set(LIMITS)) >= 10 and len(set(ROWS) & set(LIMITS)) >= 10


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_has_one_default(name):
    wanted = limits.DEFAULTS[name]
    assert rollout_plan.ARGUMENT_SPEC[name].get("default") == wanted
    if name in HANDED_ON:
        given = HANDED_ON[name].partition(", true")[0]
        assert (None if given == "omit" else yaml.safe_load(given)) == wanted
    if name in ROWS:
        assert yaml.safe_load(ROWS[name]) == wanted


def test_the_waves_are_those_of_the_page():
    assert yaml.safe_load(ROWS["waves"]) == rollout_plan.ARGUMENT_SPEC["waves"]["default"]


def test_the_module_opens_the_steps_that_the_ledger_knows():
    assert sorted(rollout_step.ARGUMENT_SPEC["name"]["choices"]) == sorted(steps.STEPS)


def test_the_demo_counts_steps_that_there_are():
    assert set(demo.OUT_OF_SERVICE) <= set(steps.STEPS)


def test_variables_that_playbooks_read_are_those_they_accept():
    places = ("playbooks/plan.yml", "playbooks/upgrade.yml", "roles/gpu_node_upgrade/defaults/main.yml")
    text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in places)
    used = set(re.findall(r"(?<![\w.])(rollout_\w+) \| default", text))
    assert used == set(_variable_names.ROLLOUT)
