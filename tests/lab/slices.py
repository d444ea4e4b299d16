# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout by several controllers on the lab: the demo's nodes and fault, as AWX's jobs plan, canaries and three
slices. One job is killed while its node boots, PostgreSQL is restarted, and the job is started again.

The jobs are run by ansible-runner as transmit, worker and process, with inventories cut as AWX cuts them, and each has
a home directory of its own. No AWX takes part, and all controllers and the host that keeps files are this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import demo, drivers, machines
from .common import LabError, elapsed
from .config import CHECKOUT, Lab

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
    subprocess.run([str(CHECKOUT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(CHECKOUT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest

    place = lab.state / "slices"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(place / "ansible.log", "w", encoding="utf-8"))
        progress = demo.Progress(log)
        extra = {"gpufleet_artifact_dir": str(place / "bringup"), "nvidia_driver_tree_dir": str(lab.trees)}
        demo.bring_up(lab, progress, demo.NAMES, extra, place)
        server = stack.enter_context(contextlib.contextmanager(conftest.postgresql.__wrapped__)())
        jobs = Jobs(lab, place, server.database("slices"), progress)
        stack.callback(jobs.stop)
        return Rollout(lab, jobs, server, progress).run()


class Jobs:
    """Starts AWX's jobs on the lab's machines, each as a controller of its own."""

    def __init__(self, lab: Lab, place: Path, url: str, progress: demo.Progress):
        from ansible_collections.gpufleet.lifecycle.tests.unit.awx import data
        from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import awxrunner

        outer = self

        class Awx(awxrunner.Awx):
            JOB_TIMEOUT_S = 3600

            def inventory(self, part=None):
                return awxrunner.cut(outer.inventory, part)

            def environment(self):
                return outer.environment(self.number)

        self.lab, self.place, self.url, self.progress = lab, place, url, progress
        self.inventory = self._inventory(awxrunner.HERE)
        drivers.record(lab.trees, url)
        self.awx = Awx(
            type("Place", (), {"directory": place}), data.AWX / "project", data.named("controller_templates")
        )
        self.running = []

    def _inventory(self, here):
        """The lab's, as AWX has it of its source, with the fleet's variables and the host that keeps files."""
        words = ["ansible-inventory", "-i", str(machines.DEFAULT_INVENTORY), "--list", "--export"]
        inventory = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        # That of a job lies in a directory of its own.
        inventory["all"]["vars"].update(lab_ssh_dir=str(self.lab.ssh), lab_id=self.lab.number)
        inventory["all"]["vars"].update({name: demo.POLICY[name] for name in VARIABLES})
        inventory["all"]["vars"].update(
            rollout_ledger=self.url,
            nvidia_driver_tree_dir=str(self.lab.trees),
            gpufleet_artifact_host="store",
            gpufleet_service_hosts={"store": here},
        )
        inventory["all"]["hosts"] = [*inventory["all"].get("hosts", []), "store"]
        inventory["_meta"]["hostvars"]["store"] = here
        return inventory

    def environment(self, number: int) -> dict[str, str]:
        home = self.place / "homes" / str(number)
        home.mkdir(parents=True, exist_ok=True)
        return {
            "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".lab" / "collections"),
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
            "ANSIBLE_NOCOLOR": "true",
            "HOME": str(home),
        }

    def start(self, name: str, handed=None, part=None):
        found = self.awx.start(name, handed, part=part, workflow=ANSWERS if name != REPORT else None)
        self.running.append(found)
        return found

    def end(self, job):
        with contextlib.redirect_stdout(self.progress.log):
            found = job.end()
        self.progress.log.flush()
        return found

    def run(self, name: str, handed=None):
        return self.end(self.start(name, handed))

    def stop(self) -> None:
        for job in self.running:
            job.kill()


class Rollout:
    """The workflow, and what comes between its jobs."""

    def __init__(self, lab: Lab, jobs: Jobs, server, progress: demo.Progress):
        from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger

        self.lab, self.jobs, self.server, self.progress = lab, jobs, server, progress
        self.ledger = ledger.Ledger(str(jobs.place), "upgrade-" + demo.NEW, jobs.url)
        self.seen: set[tuple] = set()

    def run(self) -> int:
        say = self.progress.say
        say("plan, as a job of its own")
        planned = self.jobs.run(PLAN)
        if planned.rc != 0:
            raise LabError(f"the plan ended with {planned.rc}:\n{planned.output[-3000:]}")
        say("the canary, as a job of its own")
        canaries = self.jobs.run(CANARIES, planned.artifacts)
        self.tell()
        if canaries.rc != 0:
            raise LabError(f"the canary's job ended with {canaries.rc}:\n{canaries.output[-3000:]}")
        say(f"{COUNT} slices at the same time, three nodes at a time, one of a rack")
        members = [self.jobs.start(SLICES, planned.artifacts, part=(number, COUNT)) for number in range(1, COUNT + 1)]
        self.until(lambda: self.step(KILLED[0]) == KILLED_IN, members)
        say(f"kill the job of {' and '.join(KILLED)} while {KILLED[0]} boots; stop PostgreSQL for {OUTAGE_S} s")
        members[1].kill()
        self.server.stop()
        time.sleep(OUTAGE_S)
        self.server.start()
        say("start the killed job again")
        members[1] = self.jobs.start(SLICES, planned.artifacts, part=(2, COUNT))
        self.until(lambda: all(member.worker.poll() is not None for member in members), members)
        codes = [self.jobs.end(member).rc for member in members]
        report = self.jobs.run(REPORT, planned.artifacts)
        return self.conclude(codes, report.rc)

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
