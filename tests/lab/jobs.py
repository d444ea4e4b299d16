# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWX's jobs on the lab's machines: two bare nodes are brought up, looked at, cut into MIG devices, put in quarantine
and returned, each by a job of its template, and after every job the machines themselves are asked.

The jobs are run by ansible-runner as transmit, worker and process, each with a home directory of its own that the next
one does not see. No AWX takes part, and the controllers and the host that keeps files are this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import demo, drivers, image, machines
from .common import elapsed
from .config import CHECKOUT, Lab

GPUS = {"gpu-r1-1": 8, "gpu-r2-1": 4}
CUT, SICK = NAMES = list(GPUS)
REASON = "fans are loud"
MARKER = "/var/lib/gpufleet/quarantine.json"
PROGRAM = "/usr/local/lib/gpufleet/gpufleet-node.pyz"
LAYOUT = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
MIG = {"nvidia_mig_config": "balanced", "nvidia_mig_configs": {"version": "v1", "mig-configs": {"balanced": [LAYOUT]}}}


class Jobs:
    """Starts AWX's jobs on the lab's machines, each as a controller of its own."""

    def __init__(self, lab: Lab, place: Path, url: str, progress: demo.Progress, variables: dict):
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
        self.inventory = self._inventory(awxrunner.HERE, variables)
        drivers.record(lab.trees, url)
        self.awx = Awx(
            type("Place", (), {"directory": place}), data.AWX / "project", data.named("controller_templates")
        )
        self.running = []

    def _inventory(self, here: dict, variables: dict) -> dict:
        """The lab's, as AWX has it of its source, with the fleet's variables and the host that keeps files."""
        words = ["ansible-inventory", "-i", str(machines.DEFAULT_INVENTORY), "--list", "--export"]
        inventory = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        # That of a job lies in a directory of its own.
        inventory["all"]["vars"].update(lab_ssh_dir=str(self.lab.ssh), lab_id=self.lab.number)
        inventory["all"]["vars"].update(variables)
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

    def start(self, name: str, handed=None, **more):
        found = self.awx.start(name, handed, **more)
        self.running.append(found)
        return found

    def end(self, job):
        with contextlib.redirect_stdout(self.progress.log):
            found = job.end()
        self.progress.log.flush()
        return found

    def run(self, name: str, handed=None, **more):
        return self.end(self.start(name, handed, **more))

    def stop(self) -> None:
        for job in self.running:
            job.kill()


@contextlib.contextmanager
def controllers(lab: Lab, what: str, versions: list[str], variables: dict):
    """Yield what starts jobs, with its files in the lab's directory WHAT, and the PostgreSQL that keeps their ledger;
    the jobs that still run in the end are killed. VERSIONS: of the drivers that the ledger knows compiled trees of.
    """
    image.ensure(lab)
    drivers.ensure(lab, versions)
    subprocess.run([str(CHECKOUT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(CHECKOUT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest

    place = lab.state / what
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(place / "ansible.log", "w", encoding="utf-8"))
        server = stack.enter_context(contextlib.contextmanager(conftest.postgresql.__wrapped__)())
        jobs = Jobs(lab, place, server.database(what), demo.Progress(log), variables)
        stack.callback(jobs.stop)
        yield jobs, server


def run(lab: Lab) -> int:
    """Exit status 0 only when exactly the expected happened."""
    variables = {"gpufleet_artifact_dir": str(lab.state / "jobs" / "store")}
    with controllers(lab, "jobs", [demo.OLD], variables) as (jobs, _server):
        return Life(lab, jobs).run()


class Life:
    """The jobs of two nodes, one after the other, and what the machines have to show after each."""

    def __init__(self, lab: Lab, jobs: Jobs):
        self.lab, self.jobs, self.say = lab, jobs, jobs.progress.say
        self.found: list[str] = []
        self.store = jobs.place / "store"
        inventory = jobs.inventory["_meta"]["hostvars"]
        jobs.inventory["_meta"]["hostvars"] = {name: inventory[name] for name in (*NAMES, "store")}
        self.hostvars = jobs.inventory["_meta"]["hostvars"]

    def run(self) -> int:
        self.say(f"start {' and '.join(NAMES)}")
        demo.fresh(self.lab, NAMES)
        self.bring_up()
        self.precheck()
        self.partition()
        self.put_in_quarantine()
        self.found += demo.warned((self.jobs.place / "ansible.log").read_text(encoding="utf-8"))
        for line in self.found:
            print(f"NOT AS EXPECTED: {line}")
        if not self.found:
            print(f"As expected, after {elapsed(self.jobs.progress.start)}.")
        print(f"Ansible's own output: {self.jobs.place / 'ansible.log'}")
        return 1 if self.found else 0

    def job(self, name: str, rc: int, changed: list[str] | None = None, **given):
        """One job of template NAME. RC: the status it has to end with. CHANGED: the hosts that it has to change."""
        self.say(f"job {name}" + "".join(f", {key}: {value}" for key, value in given.items() if value))
        ended = self.jobs.run("gpufleet " + name, **given)
        self.expect(f"exit status of {name}", ended.rc, rc)
        if changed is not None:
            self.expect(f"hosts that {name} changed", ended.changed(), changed)
        return ended

    def expect(self, what: str, found, wanted) -> None:
        if found != wanted:
            self.found.append(f"{what}: {found}, expected {wanted}")

    def ask(self, name: str, *words: str) -> str:
        return machines.output(self.lab, name, list(words)).strip()

    def boot(self, name: str) -> str:
        return self.ask(name, "cat", "/proc/sys/kernel/random/boot_id")

    def count(self, name: str) -> int:
        """How many GPUs a node has."""
        return len(self.ask(name, "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").splitlines())

    def bring_up(self) -> None:
        boots = {name: self.boot(name) for name in NAMES}
        self.job("bringup", 0, NAMES, nvidia_driver_version=demo.OLD)
        for name in NAMES:
            self.expect(f"driver of {name}", self.ask(name, "cat", "/sys/module/nvidia/version"), demo.OLD)
            self.expect(f"GPUs of {name}", self.count(name), GPUS[name])
            held = self.ask(name, "apt-mark", "showhold").split()
            self.expect(f"{name} holds driver and kernel", {"nvidia-kernel-dkms", "linux-image-amd64"} - {*held}, set())
            self.expect(
                f"{name} keeps its GPUs", self.ask(name, "systemctl", "is-active", "nvidia-persistenced"), "active"
            )
            if self.boot(name) == boots[name]:
                self.found.append(f"{name} was not rebooted into its driver")
        self.job("bringup", 0, [], nvidia_driver_version=demo.OLD)

    def precheck(self) -> None:
        self.job("precheck", 0, [], precheck_expected_driver_version=demo.OLD)
        self.expect("verdicts", self.verdicts(), dict.fromkeys(NAMES, "pass"))
        self.job("precheck", 2, [], precheck_expected_driver_version=demo.NEW)
        self.expect("verdicts with another version", self.verdicts(), dict.fromkeys(NAMES, "fail"))
        self.job("holds", 0, [])

    def verdicts(self) -> dict[str, str]:
        """The verdicts of the newest report of precheck that is kept where the jobs' files outlive them."""
        path = max((self.store / "precheck").glob("*/report.json"), key=lambda path: path.stat().st_mtime_ns)
        report = json.loads(path.read_text(encoding="utf-8"))
        return {name: node["verdict"] for name, node in sorted(report["nodes"].items())}

    def partition(self) -> None:
        self.hostvars[CUT].update(MIG)
        waiting = self.job("mig", 2, mig_hosts=CUT)
        self.expect("layout before its approval", self.has_layout(), False)
        approve = waiting.words.partition("rollout_approve=")[2].split(" ")[0]
        self.expect("letters of the digest", len(approve), 12)
        self.job("mig", 0, mig_hosts=CUT, rollout_approve=approve)
        self.expect("layout", self.has_layout(), True)
        told = json.loads((self.store / "reports" / "mig-balanced" / "report.json").read_text(encoding="utf-8"))
        states = {name: node["state"] for name, node in told["nodes"].items()}
        self.expect("states of the rollout", states, {CUT: "done"})
        self.job("report", 0, rollout_id="mig-balanced")

    def has_layout(self) -> bool:
        """Whether the node has the layout that it keeps, as its own program reads it from NVML."""
        return machines.execute(self.lab, CUT, ["python3", "-I", PROGRAM, "mig", "assert"]) == 0

    def put_in_quarantine(self) -> None:
        self.job("quarantine", 0, quarantine_hosts=SICK, quarantine_reason=REASON)
        marker = json.loads(self.ask(SICK, "cat", MARKER) or "{}")
        self.expect("who put it in quarantine, and why", (marker.get("user"), marker.get("reason")), ("kim", REASON))
        kept = sorted(path.name for path in (self.store / "quarantine" / SICK).glob("*"))
        self.expect("records of the quarantine", len(kept), 1)
        self.expect("place of the record", marker.get("record"), f"store:{self.store}/quarantine/{SICK}/{kept[-1]}")
        # No rollout has looked at the node yet, so that it has no baseline.
        self.job("return_to_service", 2, [], return_to_service_hosts=SICK)
        self.job("return_to_service", 0, return_to_service_hosts=SICK, return_to_service_new_baseline="true")
        self.expect("marker after the return", bool(self.ask(SICK, "cat", MARKER)), False)
        self.job("precheck", 0, [], precheck_expected_driver_version=demo.OLD)
