# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verdict on a node, once it is known what other nodes have."""

from __future__ import annotations

DOCUMENTATION = r"""
name: health_with_peers
short_description: Judge a node once it is known what other nodes have
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides the check C(node.hardware) of a verdict that was made before the other nodes had been read, where nothing
    but they could tell how many GPUs the node should have. All other checks stay as they are.
positional: peers
options:
  _input:
    description: The result of M(gpufleet.lifecycle.gpu_health).
    type: dict
    required: true
  peers:
    description: What P(gpufleet.lifecycle.gpu_peers#filter) found.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Fail for a node that is not fit
  ansible.builtin.assert:
    that: health.verdict == 'pass'
  vars:
    health: "{{ checked | gpufleet.lifecycle.health_with_peers(peers) }}"
"""

RETURN = r"""
---
_value:
  description: The verdict, as RV(gpufleet.lifecycle.gpu_health#module:health), and C(reason), the message of the
    finding that explains the others or is the most severe, with its next step. Empty if the result has none.
  type: dict
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import leading


def health_with_peers(result, peers) -> dict:
    health = _peers.health_of(_answers.accept("gpu_health", result), peers)
    return dict(health, reason=leading.describe_findings(health.get("checks") or [])) if health else {}


class FilterModule:
    def filters(self) -> dict:
        return {"health_with_peers": health_with_peers}
