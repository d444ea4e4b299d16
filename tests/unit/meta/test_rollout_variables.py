# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that the playbooks of a rollout read are those that they accept."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names


def read(collection_root, *paths):
    return "\n".join((collection_root / path).read_text(encoding="utf-8") for path in paths)


def test_variables_that_playbooks_read_are_those_they_accept(collection_root):
    text = read(
        collection_root, "playbooks/plan.yml", "playbooks/upgrade.yml", "roles/gpu_node_upgrade/defaults/main.yml"
    )
    used = set(re.findall(r"(?<![\w.])(rollout_\w+) \| default", text))
    assert used == set(_variable_names.ROLLOUT)
