# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a rollout: those that the playbook reads are those that it lets pass, and each is described."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names


def read(collection_root, *paths):
    return "\n".join((collection_root / path).read_text(encoding="utf-8") for path in paths)


def test_the_playbook_reads_what_it_lets_pass(collection_root):
    text = read(
        collection_root, "playbooks/plan.yml", "playbooks/upgrade.yml", "roles/gpu_node_upgrade/defaults/main.yml"
    )
    used = set(re.findall(r"(?<![\w.])(rollout_\w+) \| default", text))
    assert used == set(_variable_names.ROLLOUT)


def test_every_playbook_and_the_readme_name_the_page(collection_root):
    page = "docs/reference/playbook-variables.md"
    paths = sorted(path.relative_to(collection_root) for path in (collection_root / "playbooks").glob("*.yml"))
    assert paths and [str(path) for path in paths if page not in read(collection_root, path)] == []
    readme = read(collection_root, "README.md")
    assert "rollout_progress" in readme.split("## What is real", maxsplit=1)[0]
    assert (
        "Debian 12 and 13" in "\n".join(readme.splitlines()[:40])
        and "(#supported-versions)" in readme.split("\n## ", maxsplit=1)[0]
    )
    assert page in readme and [path.stem for path in paths if "gpufleet.lifecycle." + path.stem not in readme] == []
