# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes shared by all modules that work on a node under its lock."""

from __future__ import annotations


class ModuleDocFragment:
    # _node.lock.ARGUMENTS
    DOCUMENTATION = r"""
options:
  lock_timeout_s:
    description: Seconds to wait for the node's lock. The task fails after them and names the holder. In check mode the
      lock is not needed.
    type: int
    default: 600
  rollout_id:
    description: Written into the lock, so that a task that waits for it can name it.
    type: str
  step:
    description: Written into the lock, so that a task that waits for it can name it.
    type: str
"""
