# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option that says in which job of AWX something runs."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  job:
    description:
      - The job of AWX that runs this, with C(id), C(template), C(workflow), C(workflow_name) and C(user). An empty
        C(id) means none.
      - In a job, a ledger in SQLite is refused, and so is a node whose C(gpufleet_artifact_host) is not set or is the
        controller, as the container of the job keeps nothing. The job is recorded with the plan, and named as the
        owner of the rollout.
    type: dict
    default: {}
"""
