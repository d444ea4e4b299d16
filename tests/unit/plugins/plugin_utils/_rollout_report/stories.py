# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories of rollouts as events, for tests of what is told about them."""

from __future__ import annotations

import datetime

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

LATER = "2030-01-01T00:00:00.000Z"
START = datetime.datetime(2026, 3, 14, 22, 0, 0, tzinfo=datetime.timezone.utc)
WHOLE = (
    ("evidence", 10),
    ("drain", 50),
    ("stop", 10),
    ("install", 60),
    ("reboot", 200),
    ("validate", 40),
    ("return", 10),
)


class Story:
    """Events one after the other; the clock goes on by itself."""

    def __init__(self, *names, rollout_id="r1", canaries=(), domains=None, states=None, start=START, **policy):
        self.now, self.run, self.events = start, "run1", []
        self.names = names
        nodes = {
            name: {
                "state": (states or {}).get(name, "pending"),
                "from": "1.0",
                "to": "2.0",
                "canary": name in canaries,
                "domains": (domains or {}).get(name, {}),
            }
            for name in names
        }
        self.plan = dict(
            rollout_id=rollout_id,
            target="2.0",
            order=[name for name in names if nodes[name]["state"] == "pending"],
            nodes=nodes,
            policy=limits.complete_policy(policy, len(names)),
            sha256="4be1" * 16,
        )
        self.add("plan", **self.plan)

    def add(self, event, after=0.0, **fields):
        self.now += datetime.timedelta(seconds=after)
        self.events.append(dict(fields, event=event, run=self.run, time=format_time(self.now)))
        return self

    def grant(self, name, phase="drain", after=1.0):
        return self.add("grant", after, node=name, phase=phase, ticket="t", expires=LATER)

    def step(self, name, step, after=1.0):
        return self.add("step", after, node=name, step=step)

    def go(self, name, until="return"):
        """All steps of a node up to UNTIL, which is open."""
        self.grant(name)
        for step, length in WHOLE:
            if step in ("stop", "return"):
                self.grant(name, "down" if step == "stop" else "return", 0)
            self.step(name, step, 0)
            if step == until:
                break
            self.now += datetime.timedelta(seconds=length)
        return self

    def done(self, name):
        return self.go(name).add("state", 10, node=name, state="done")

    def fails(self, name, state="rolled_back", reason="GPU 3 is gone", step="validate", failure="hard", signature=""):
        self.go(name, step).add("step_failed", 5, node=name, reason=reason, failure=failure, signature=signature)
        if state == "rolled_back":
            self.step(name, "rollback_install").step(name, "rollback_validate", 60)
        return self.add(
            "state", 30, node=name, state=state, reason=reason, failure="lost" if state == "lost" else failure
        )

    def end(self):
        return self.add("end", 1)

    def write(self, ledger):
        """Into a ledger, in one transaction for each event."""
        for event in self.events:
            fields = {key: value for key, value in event.items() if key not in ("event", "time")}
            ledger.transact(
                lambda transaction, fields=fields, event=event: transaction.append(event["event"], **fields)
            )
        return self
