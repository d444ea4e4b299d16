# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options for a rollout of several controllers."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  pool:
    description:
      - A name that rollouts of one ledger share, so that they share their down slots and failure domains too. A node
        goes down only while fewer than O(max_down) nodes of all of them are down, and nodes of the others count in
        O(domain_caps).
      - Nodes that are lost or in quarantine count as long as their rollout has not ended.
    type: str
    default: ""
  hand_over:
    description:
      - Make the plan for several controllers. It belongs to none of them, and each of them joins it with O(join).
      - Needs a ledger in PostgreSQL, and O(mode=window).
    type: bool
    default: false
  join:
    description:
      - Join the plan of O(rollout_id) with the hosts of O(audits) instead of making one. Limits and versions that are
        given and differ from the plan's are refused, and so is another digest than the plan's in O(approve).
      - The run becomes a member of the rollout, with a lease of 15 minutes that each gate and each step extends. A
        host of another living member is refused. Nodes that a dead one left in flight are taken over.
    type: bool
    default: false
"""
