# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout by several controllers on the lab: the demo's nodes and fault, as AWX's jobs plan, canaries and three
slices. One job is killed while its node boots, PostgreSQL is restarted, and the job is started again.

The jobs are run by ansible-runner as transmit, worker and process, with inventories cut as AWX cuts them, and each has
a home directory of its own. No AWX takes part, and all controllers and the host that keeps files are this machine.
"""

from __future__ import annotations

import json
import time

from . import demo, jobs, machines
from .common import LabError, elapsed
from .config import Lab

PLAN, CANARIES, SLICES, REPORT = (
    "gpufleet plan for several controllers",
    "gpufleet upgrade of the canaries",
    "gpufleet upgrade in slices",
    "gpufleet report",
)
COUNT = 3
OUTAGE_S = 10
# By name every third host, "store" too: the canary and gpu-r2-2, then these two, which go at once, then the faulty node
# and gpu-r3-2. The controller of these two is killed when the first of them boots.
KILLED, KILLED_IN = ("gpu-r1-2", "gpu-r3-1"), "reboot"
# Answers to the survey of the workflow, as AWX sends them.
ANSWERS = {
    "rollout_version": demo.NEW,
    "upgrade_hosts": "",
    "rollout_max_down": str(demo.POLICY["rollout_max_down"]),
    "rollout_failure_budget": str(demo.POLICY["rollout_failure_budget"]),
    "rollout_canaries_per_stratum": 0,
    "rollout_canary_soak_s": demo.POLICY["rollout_canary_soak_s"],
    "rollout_on_failure": "rollback",
    "rollout_abandon": "",
}
# Variables of the inventory, for which no survey asks.
VARIABLES = ("rollout_canaries", "rollout_domain_caps", "gpu_node_upgrade_soak_interval")


def run(lab: Lab) -> int:
    """Exit status 0 only when exactly the expected happened."""
    variables = {name: demo.POLICY[name] for name in VARIABLES}
    with jobs.controllers(lab, "slices", [demo.OLD, demo.NEW], variables) as (awx, server):
        extra = {"gpufleet_artifact_dir": str(awx.place / "bringup"), "nvidia_driver_tree_dir": str(lab.trees)}
        demo.bring_up(lab, awx.progress, demo.NAMES, extra, awx.place)
        return Rollout(lab, awx, server).run()


class Rollout:
    """The workflow, and what comes between its jobs."""

    def __init__(self, lab: Lab, awx: jobs.Jobs, server):
        from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger

        self.lab, self.jobs, self.server, self.progress = lab, awx, server, awx.progress
        self.ledger = ledger.Ledger(str(awx.place), "upgrade-" + demo.NEW, awx.url)
        self.seen: set[tuple] = set()

    def run(self) -> int:
        say = self.progress.say
        say("plan, as a job of its own")
        planned = self.jobs.run(PLAN, workflow=ANSWERS)
        if planned.rc != 0:
            raise LabError(f"the plan ended with {planned.rc}:\n{planned.output[-3000:]}")
        say("the canary, as a job of its own")
        canaries = self.jobs.run(CANARIES, planned.artifacts, workflow=ANSWERS)
        self.tell()
        if canaries.rc != 0:
            raise LabError(f"the canary's job ended with {canaries.rc}:\n{canaries.output[-3000:]}")
        say(f"{COUNT} slices at the same time, three nodes at a time, one of a rack")
        members = [self.start(planned, number) for number in range(1, COUNT + 1)]
        self.until(lambda: self.step(KILLED[0]) == KILLED_IN, members)
        say(f"kill the job of {' and '.join(KILLED)} while {KILLED[0]} boots; stop PostgreSQL for {OUTAGE_S} s")
        members[1].kill()
        self.server.stop()
        time.sleep(OUTAGE_S)
        self.server.start()
        say("start the killed job again")
        members[1] = self.start(planned, 2)
        self.until(lambda: all(member.worker.poll() is not None for member in members), members)
        codes = [self.jobs.end(member).rc for member in members]
        report = self.jobs.run(REPORT, planned.artifacts)
        return self.conclude(codes, report.rc)

    def start(self, planned, number: int):
        return self.jobs.start(SLICES, planned.artifacts, part=(number, COUNT), workflow=ANSWERS)

    def step(self, name: str) -> str:
        open_step = self.ledger.view().nodes.get(name).open_step
        return open_step.name if open_step else ""

    def until(self, reached, members) -> None:
        """Wait, and say what each node does meanwhile."""
        while not reached():
            if all(member.worker.poll() is not None for member in members):
                if reached():
                    break
                raise LabError(f"every job has ended, but {KILLED[0]} was never seen in {KILLED_IN}: {self.jobs.place}")
            self.tell()
            time.sleep(1)
        self.tell()

    def tell(self) -> None:
        for node in self.ledger.view().nodes.list_all():
            for number, step in enumerate(node.steps):
                key = (node.name, number, step.name)
                if key not in self.seen:
                    self.seen.add(key)
                    self.progress.say(f"{node.name}: {step.name}")

    def conclude(self, codes: list[int], code: int) -> int:
        """Show the report of the last job, and judge it."""
        (path,) = self.jobs.place.glob(f"homes/{self.jobs.awx.number}/.gpufleet/rollouts/*/report.json")
        report = json.loads(path.read_text(encoding="utf-8"))
        found = demo.complaints(report, demo.NAMES, KILLED) + self.complaints(codes, code)
        if (KILLED_IN, "interrupted") not in [
            (step["name"], step["status"]) for step in report["nodes"][KILLED[0]]["steps"]
        ]:
            found.append(f"{KILLED[0]}: its step {KILLED_IN} was not interrupted")
        found += demo.warned((self.jobs.place / "ansible.log").read_text(encoding="utf-8"))
        print("\n" + "\n".join(demo.table(report)) + "\n")
        print(f"Report: {path}; Ansible's own output: {self.jobs.place / 'ansible.log'}")
        for line in found:
            print(f"NOT AS EXPECTED: {line}")
        if not found:
            print(f"As expected, after {elapsed(self.progress.start)}.")
        return 1 if found else 0

    def complaints(self, codes: list[int], code: int) -> list[str]:
        """What the jobs and the machines themselves have to say."""
        found = []
        # A job speaks of its own nodes, the report of all.
        if codes != [0, 0, 2] or code != 2:
            found.append(f"the slices ended with {codes} and the report with {code}, expected [0, 0, 2] and 2")
        for name in demo.NAMES:
            version = demo.OLD if name == demo.FAULTY else demo.NEW
            loaded = machines.output(self.lab, name, ["cat", "/sys/module/nvidia/version"]).strip()
            if loaded != version:
                found.append(f"{name} has loaded {loaded or 'no driver'}, expected {version}")
            log = machines.output(self.lab, name, ["cat", "/var/log/dpkg.log"])
            times = sum(
                1
                for line in log.splitlines()
                if line.split()[2:4] == ["status", "installed"]
                and line.split()[4].startswith("nvidia-kernel-dkms:")
                and line.split()[5].startswith(demo.NEW)
            )
            if times != 1:
                found.append(f"{name} installed {demo.NEW} {times} times, expected once")
        return found
