# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that several of the rollout's actions have."""

from __future__ import annotations

WEBHOOK_KINDS = ["slack", "json"]
WEBHOOK_EVENTS = ["started", "canary", "failed", "stopped", "operator", "held", "finished"]

# What the role makes of a node, to be compared with the plan.
PLANNED = dict(
    version=dict(type="str", default=""),
    layout=dict(type="dict"),
    install=dict(type="bool"),
    kernel=dict(type="str"),
    peers=dict(type="dict"),
    on_failure=dict(type="str", default=""),
)

# Who is told what happens, beside the ledger.
TELLING = dict(
    textfile_dir=dict(type="path"),
    webhook=dict(
        type="dict",
        options=dict(
            url=dict(type="str", default="", no_log=True),
            kind=dict(type="str", choices=WEBHOOK_KINDS, default="slack"),
            events=dict(type="list", elements="str", choices=WEBHOOK_EVENTS, default=WEBHOOK_EVENTS),
            timeout=dict(type="float", default=10.0),
        ),
    ),
)

# What is asked before a node may go.
HOLDING = dict(
    hold_queries=dict(
        type="list",
        elements="dict",
        default=[],
        options=dict(
            name=dict(type="str", required=True),
            url=dict(type="str", required=True),
            query=dict(type="str", required=True),
            timeout=dict(type="float", default=10.0),
            headers=dict(type="dict", default={}, no_log=True),
        ),
    ),
    hold_deadline_s=dict(type="int", default=600),
    hold_age_s=dict(type="int", default=15),
)
