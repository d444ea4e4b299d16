# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attributes every module of the collection states."""

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
      - Directory on the controller that keeps the reports and other artifacts of the rollouts, each in a directory of
        its own below C(rollouts/).
    type: path
    required: true
  ledger:
    description:
      - The database of the ledgers as a URL of SQLAlchemy, such as
        C(sqlite:////var/lib/gpufleet-controller/ledger.sqlite) or
        C(postgresql+psycopg://gpufleet@db.example.org/gpufleet). Passwords belong into the environment or into
        C(~/.pgpass), not into the URL.
      - C(rollouts/ledger.sqlite) in O(artifact_dir) when empty. Several controllers that share one rollout need
        PostgreSQL.
    type: str
    default: ''
"""

    # What the role makes of a node, to be compared with the plan.
    PLANNED = r"""
options:
  version:
    description:
      - The version that the role installs. A version that differs from the plan is refused.
    type: str
    default: ''
  layout:
    description:
      - The MIG layout that the role makes, V({}) for none. A layout that differs from the plan is refused.
      - Not compared if not given.
    type: dict
  install:
    description:
      - Whether the role installs the driver. A value that differs from the plan is refused.
      - Not compared if not given.
    type: bool
  kernel:
    description:
      - The kernel that the role chooses for the next boot, empty for none. A kernel that differs from the plan is
        refused.
      - Not compared if not given.
    type: str
  peers:
    description:
      - How many GPUs the role expects by what other nodes have. A value that differs from the plan is refused.
      - Not compared if not given.
    type: dict
  on_failure:
    description:
      - What the role does with a node that fails. A reaction that differs from the plan's is refused.
    type: str
    default: ''
"""

    # Who is told what happens, beside the ledger.
    TELLING = r"""
options:
  textfile_dir:
    description:
      - A directory on the controller for the numbers of the rollout in the text format of Prometheus, such as the one
        that the textfile collector of its node_exporter reads. The file C(gpufleet_rollout_ID.prom) in it can be read
        by everybody.
    type: path
  webhook:
    description:
      - The webhook for the events of the rollout. A separate process posts them, with retries for up to an hour.
      - Events that could not be posted are sent by the next run of the rollout.
    type: dict
    suboptions:
      url:
        description:
          - The address. It is a secret, and is neither written to the ledger nor to a report. No webhook when empty.
        type: str
        default: ''
      kind:
        description:
          - V(slack) posts C({"text":...}), as Slack, Mattermost and others take it; V(json) posts the schema
            C(gpufleet.event/1).
        type: str
        choices: [slack, json]
        default: slack
      events:
        description:
          - The events to send. V(failed) is about a node, V(stopped) means that no further node starts, V(operator) are
            requests of M(gpufleet.lifecycle.rollout_control), V(held) is the result of
            O(gpufleet.lifecycle.rollout_gate#module:hold_queries).
        type: list
        elements: str
        choices: [started, canary, failed, stopped, operator, held, finished]
        default: [started, canary, failed, stopped, operator, held, finished]
      timeout:
        description:
          - The timeout of one post in seconds.
        type: float
        default: 10.0
"""

    # What is asked before a node may go.
    HOLDING = r"""
options:
  hold_queries:
    description:
      - Queries in PromQL that must return an empty vector before a node may drain or go down. With any other answer, an
        incomplete one, or none, the node waits. A node that is down already is not held.
      - M(gpufleet.lifecycle.rollout_plan) makes their names and texts a part of the plan.
        M(gpufleet.lifecycle.rollout_gate) grants no ticket without them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The name of the query in messages.
        type: str
        required: true
      url:
        description:
          - The base of the HTTP API of Prometheus, or of what speaks it, such as V(https://prometheus.example.org).
            Without user and password.
        type: str
        required: true
      query:
        description:
          - The query, such as C(ALERTS{alertname="FabricDegraded", alertstate="firing"}).
        type: str
        required: true
      timeout:
        description:
          - The timeout of the query in seconds.
        type: float
        default: 10.0
      headers:
        description:
          - Headers to send along, such as C(Authorization). They are secrets, and go to O(hold_queries[].url) alone;
            redirects are not followed.
        type: dict
        default: {}
  hold_deadline_s:
    description:
      - Seconds without an answer after which the reason says so and how to go on. Nodes wait on all the same.
    type: int
    default: 600
  hold_age_s:
    description:
      - Seconds for which an answer holds good for all nodes that ask.
    type: int
    default: 15
"""
