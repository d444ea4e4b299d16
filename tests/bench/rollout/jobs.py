# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout over stand-in nodes in racks, by one controller or by several, its ledger in PostgreSQL."""

from __future__ import annotations

import collections

from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet

POLL_S = 1.0  # between two questions of the node that goes next: the default, since dozens of nodes wait


class Alone:
    """One controller for all nodes."""

    NAME = "alone"

    def __init__(self, place, times, options, url):
        directory = place / self.NAME
        directory.mkdir()
        self.url, self.options = url, options
        # With as many forks as the members have together: nodes that wait for a slot are ready for it.
        forks = options.down * (options.members if self.NAME == "alone" else 1)
        self.run = fleet.Run(directory, "window", times, options.down, options.scale, forks, True, url)
        self.racks = {name: "r%d" % (number // options.rack) for number, name in enumerate(self.run.names)}
        self.run.fleet.variables = {name: {"gpufleet_domains": {"rack": rack}} for name, rack in self.racks.items()}
        self.limits = {
            "rollout_max_down": options.down,
            "rollout_domain_caps": {"rack": options.rack_cap},
            "rollout_failure_budget": 1,
        }
        self.variables = {"rollout_ledger": url, "gpu_node_upgrade_gate_poll": POLL_S}
        self.processes = []

    def start(self):
        self.processes = [self.run.begin("upgrade", **self.variables, **self.limits)]

    def wait(self, timeout_s, good=True):
        """Exit status of each; GOOD: they have to end with 0."""
        for process in self.processes:
            if good:
                self.run.good_end(process, timeout_s)
            else:
                process.wait(timeout=timeout_s)
        return [process.returncode for process in self.processes]

    def running(self):
        return any(process.poll() is None for process in self.processes)

    def stop(self):
        for process in self.processes:
            fleet.kill(process)
            process.log.close()

    def most_out(self):
        """(the most nodes out of service at once, the most of one rack), by their own journals."""
        out, racks = self.run.out(), collections.defaultdict(list)
        for node, span in out.items():
            racks[self.racks[node]].append(span)
        return fleet.most_at_once(out.values()), max(map(fleet.most_at_once, racks.values()), default=0)

    def most_down(self):
        return self.run.most_down()

    def wall_s(self):
        return self.run.wall_s()

    def states(self):
        """{state: number of nodes}"""
        return dict(collections.Counter(node.state for node in self.run.view().nodes.list_all()))

    def once(self):
        """Whether every node was installed and booted once."""
        return all(
            [
                self.run.fleet.read(name)["log"].count(what)
                for what in ("installed " + fleet.NEW, "reboot into " + fleet.NEW)
            ]
            == [1, 1]
            for name in self.run.names
        )


class Several(Alone):
    """A plan of its own, and members that each have every n-th node."""

    NAME = "several"

    def __init__(self, place, times, options, url):
        super().__init__(place, times, options, url)
        self.parts = [self.run.names[number :: options.members] for number in range(options.members)]
        for name in self.parts[0][: options.failing]:
            self.run.fleet.change(name, sick_with=[fleet.NEW])

    def plan(self):
        planner = self.run.begin("plan", **self.variables, **self.limits)
        self.processes = [planner]
        self.run.good_end(planner, 1200)

    def start(self):
        self.processes += [
            self.run.begin(
                "upgrade",
                only=part,
                **self.variables,
                rollout_join=True,
                rollout_id="upgrade-" + fleet.NEW,
                gpufleet_artifact_dir=str(self.run.place / ("controller%d" % number)),
            )
            for number, part in enumerate(self.parts)
        ]

    def wait(self, timeout_s, good=True):
        return super().wait(timeout_s, good)[1:]
