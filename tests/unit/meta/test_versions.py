# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the collection, and other facts that stand in several places since Ansible reads them there."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.modules import rollout_step
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options
from tests.lab import demo

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
# Where the collection's version stands behind these words.
STANDS = {
    "README.md": r"\bVersion (\d\S*)|gpufleet-lifecycle-(\d.*?)\.tar\.gz",
    "CONTRIBUTING.md": r"gpufleet-lifecycle-(\d.*?)\.tar\.gz|git (?:tag --sign|verify-tag) (\d\S*)",
    "docs/awx.md": r"gpufleet-ee:(\d\S*)|gpufleet-lifecycle-(\d.*?)\.tar\.gz|type: git\n    version: (\d\S*)",
    "docs/commands.md": r"gpufleet-lifecycle-(\d.*?)\.tar\.gz",
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


def test_the_module_opens_the_steps_that_the_ledger_knows():
    assert sorted(rollout_step.ARGUMENT_SPEC["name"]["choices"]) == sorted(state.STEPS)


def test_the_demo_counts_steps_that_there_are():
    assert set(demo.OUT_OF_SERVICE) <= set(state.STEPS)


def test_every_variable_of_a_rollout_is_read():
    places = ("playbooks/*.yml", "plugins/action/rollout_*.py", "plugins/plugin_utils/_*_action.py")
    text = "\n".join(path.read_text(encoding="utf-8") for place in places for path in ROOT.glob(place))
    for key in set(options.SPEC) - set(options.LIMITS):
        assert '["%s"]' % key in text or "{{ rollout_%s |" % key in text or "rollout_%s | default" % key in text, key
