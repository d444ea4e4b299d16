# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events that the tests write to a ledger."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER


def plan(transaction, *names, run="r", racks=1, **states):
    nodes = {
        name: {
            "state": states.get(name, "pending"),
            "from": "1.0",
            "to": "2.0",
            "domains": {"rack": "r%d" % (number % racks)},
        }
        for number, name in enumerate(names)
    }
    order = [name for name in names if nodes[name]["state"] == "pending"]
    transaction.append(
        "plan",
        run=run,
        rollout_id="r1",
        target="2.0",
        order=order,
        nodes=nodes,
        policy=limits.complete({}, 3),
        sha256="f",
    )


def go(transaction, name, phase="drain"):
    transaction.append("grant", run="r", node=name, phase=phase, ticket="t", expires=LATER)
