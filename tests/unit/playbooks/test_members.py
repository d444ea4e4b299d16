# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout and several controllers: a plan of its own, and jobs that join it, each with a slice of the nodes, a
directory of its own for its files, and the ledger in PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_failure_matrix import NEW, wait_for

ROLLOUT = "upgrade-" + NEW
NAMES = ["a%d" % number for number in range(1, 8)]
CANARY, SLICES = NAMES[0], (NAMES[1::2], NAMES[2::2])


class Several:
    """Jobs of one rollout."""

    def __init__(self, fleet, url):
        self.fleet = fleet
        self.url = url

    def arguments(self, who, **extra):
        extra.setdefault("gpufleet_artifact_dir", str(self.fleet.directory / ("controller-" + who)))
        return dict(extra, rollout_ledger=self.url)

    def plan(self, *arguments, **extra):
        return self.fleet.run("plan", *arguments, **self.arguments("plan", **extra))

    def join(self, who, only, *arguments, **extra):
        extra.setdefault("rollout_id", ROLLOUT)
        return self.fleet.start(
            "upgrade", *arguments, only=only, **self.arguments(who, rollout_join=True, **extra)
        )

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
        return self.fleet.run("report", rollout_id=ROLLOUT, **self.arguments("report"))

    def states(self):
        return self.fleet.recorded(self.url)

    def ledger(self):
        return ledger.Ledger(str(self.fleet.artifacts), ROLLOUT, self.url)

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


@pytest.fixture
def several(fleet, postgresql):
    for name in NAMES:
        fleet.add(name)
    return Several(fleet, postgresql.database("several%d" % time.monotonic_ns()))


def test_two_jobs_work_on_one_plan_within_one_budget(several):
    planned = several.plan(rollout_max_down=2, rollout_canaries=[CANARY])
    assert planned.rc == 0 and several.fleet.touched() == []
    digest = re.search(r"\(plan ([0-9a-f]+)\)", planned.output).group(1)
    first = several.join("one", SLICES[0], rollout_approve=digest)
    wait_for(lambda: "canaries go first, and no running job has a1" in (several.fleet.directory / "output1").read_text())
    assert several.fleet.touched() == []
    rc, output = several.joined("canary", [CANARY], rollout_approve=digest)
    assert rc == 0, output
    second = several.join("two", SLICES[1], rollout_approve=digest)
    assert [several.end(process)[0] for process in (first, second)] == [0, 0]
    assert several.states() == dict.fromkeys(NAMES, "done")
    assert several.most_down() == 2
    assert [several.fleet.read(name)["log"].count("installed " + NEW) for name in NAMES] == [1] * 7
    assert several.report().rc == 0
