# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a rollout: those that the playbook reads are those that it lets pass, and each is described."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_plan


def read(collection_root, *paths):
    return "\n".join((collection_root / path).read_text(encoding="utf-8") for path in paths)


def test_the_playbook_reads_what_it_lets_pass(collection_root):
    text = read(collection_root, "playbooks/upgrade.yml", "roles/gpu_node_upgrade/defaults/main.yml")
    used = set(re.findall(r"(?<![\w.])(rollout_\w+) \| default", text))
    assert used == set(rollout_plan.VARIABLES)
