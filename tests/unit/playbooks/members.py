# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Upgrades of a fleet of stub nodes by several controllers, with the ledger in PostgreSQL."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import NEW, Fleet

ROLLOUT = "upgrade-" + NEW


class Several:
    """Jobs of one rollout."""

    def __init__(self, fleet, url, rollout=ROLLOUT):
        self.fleet = fleet
        self.url = url
        self.rollout = rollout

    def arguments(self, who, **extra):
        extra.setdefault("gpufleet_artifact_dir", str(self.fleet.directory / ("controller-" + who)))
        return dict(extra, rollout_ledger=self.url)

    def plan(self, *arguments, playbook="plan", **extra):
        return self.fleet.run(playbook, *arguments, **self.arguments("plan", **extra))

    def join(self, who, only, *arguments, **extra):
        extra.setdefault("rollout_id", self.rollout)
        return self.fleet.start("upgrade", *arguments, only=only, **self.arguments(who, rollout_join=True, **extra))

    def end(self, process):
        """Wait for a job; (its exit status, what it said)."""
        try:
            process.wait(timeout=1800)
        finally:
            output = self.fleet.ended(process)
        return process.returncode, output

    def joined(self, who, only, *arguments, **extra):
        return self.end(self.join(who, only, *arguments, **extra))

    def report(self):
        return self.fleet.run("report", rollout_id=self.rollout, **self.arguments("report"))

    def verdict(self, who):
        """The verdict of the report on a controller."""
        path = self.fleet.directory / ("controller-" + who) / "rollouts" / self.rollout / "report.json"
        return json.loads(path.read_text())["verdict"]

    def states(self):
        return {node.name: node.state for node in self.ledger().view().nodes.list_all()}

    def ledger(self):
        return ledger.Ledger(str(self.fleet.artifacts), self.rollout, self.url)

    def most_down(self):
        """How many nodes were down at once, by the order of the ledger's events."""
        down, most = set(), 0
        for event in self.ledger().events():
            if event["event"] == "grant" and event["phase"] == "down":
                down.add(event["node"])
            elif event["event"] == "state":
                down.discard(event["node"])
            most = max(most, len(down))
        return most


class Members(Fleet):
    """A fleet of which every upgrade is a plan, two jobs that join it, each with every second node, and a report."""

    url = ""

    def parts(self):
        """The nodes of each job."""
        return self.names[0::2], self.names[1::2]

    def view(self, rollout_id=ROLLOUT, url=""):
        return super().view(rollout_id, url or self.url)

    def recorded(self, url=""):
        return super().recorded(url or self.url)

    def several(self):
        return Several(self, self.url)

    def plan(self, **variables):
        return self.several().plan(gpufleet_artifact_dir=str(self.artifacts), **variables)

    def join(self, only, **variables):
        """Start a job for these nodes. The limits are the plan's."""
        variables = {name: value for name, value in variables.items() if not name.startswith("rollout_")}
        return self.several().join("", only, gpufleet_artifact_dir=str(self.artifacts), **variables)

    def both(self, **variables):
        """The jobs of all parts side by side, to their ends: [(exit status, output), ...]"""
        jobs = [self.join(part, **variables) for part in self.parts()]
        return [self.several().end(job) for job in jobs]

    def run(self, playbook, *arguments, only=None, **extra):
        """An upgrade is one Result: the report's, with what all of them said."""
        if playbook != "upgrade":
            return super().run(playbook, *arguments, only=only, **extra)
        planned, joined, reported = self.plan(**extra), self.both(**extra), self.several().report()
        reported.output = "".join([planned.output, *(output for dummy, output in joined), reported.output])
        return reported
