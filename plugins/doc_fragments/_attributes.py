# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attributes every module of the collection states. Private to the collection: it may change at any time."""

from __future__ import annotations


class ModuleDocFragment:
    # The module adds `support` (and `details`) to check_mode and diff_mode.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and return what would happen without changing the node.
  diff_mode:
    description: Returns what changed, or would change in check mode, when in diff mode.
  platform:
    description: The operating systems the module runs on.
    platforms: Debian, Ubuntu, RHEL
    support: full
"""

    # A module that only reads.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module only reads, so it does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing.
"""

    # An action that needs nothing but the controller.
    CONTROLLER_ONLY = r"""
options: {}
attributes:
  action:
    description: Part of it runs on the controller, as an action plugin.
    support: full
  bypass_host_loop:
    description: Runs once for all hosts of a task.
    support: none
"""

    # What every action of a rollout needs to find it.
    ROLLOUT = r"""
options:
  artifact_dir:
    description:
      - Directory on the controller that keeps the reports and other artifacts of the rollouts, each in a directory of its own below C(rollouts/).
    type: path
    required: true
  ledger:
    description:
      - The database of the ledgers as a URL of SQLAlchemy, such as C(sqlite:////var/lib/gpufleet-controller/ledger.sqlite) or
        C(postgresql+psycopg://gpufleet@db.example.org/gpufleet). Passwords belong into the environment or into C(~/.pgpass), not into the URL.
      - C(rollouts/ledger.sqlite) in O(artifact_dir) when empty. Several controllers that share one rollout need PostgreSQL.
    type: str
    default: ''
"""
