# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real playbook over the stand-in nodes of the courses (tests/unit/playbooks), which take their time."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import conftest

ROOT = pathlib.Path(__file__).resolve().parents[3]
NEW = conftest.NEW
WINDOW = "  strategy: ansible.builtin.host_pinned\n"
FAILURE = re.compile(r"^(fatal|failed|ERROR|\[ERROR\])|(failed|unreachable)=[1-9]")
# The line of the playbook that makes the window, and what stands there instead.
WAYS = {
    "window": WINDOW,
    "serial and free": "  serial: {down}\n  strategy: ansible.builtin.free\n",
    "serial and linear": "  serial: {down}\n  strategy: ansible.builtin.linear\n",
}


def takes(steps, scale):
    """Seconds of what a stand-in node does, by its name there, from those of times.typical, and of the download."""
    look, install, boot, validate, *download = [second / scale for second in steps]
    found = {"health baseline": look, "install " + NEW: install, "reboot": boot, "health post": validate}
    return dict(found, download=download[0]) if download else found


def tree(pid):
    """The process and everything that it started and that lives."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        for path in pathlib.Path("/proc/%d/task" % one).glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                left += [int(child) for child in path.read_text().split()]
    return found


def kill(process):
    """End a playbook that still runs, with its workers, which have sessions of their own."""
    if process.poll() is None:
        for pid in reversed(tree(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def out_of_service(journal):
    """(when a stand-in node stopped what it serves, when it was last seen at anything), of the lines of its journal;
    None of a node that never stopped it.
    """
    lines = [json.loads(line) for line in journal]
    stopped = [when for when, running, *dummy in lines if not running]
    return (stopped[0], lines[-1][0]) if stopped else None


def most_at_once(spans):
    """The most of SPANS, each (begin, end), that overlap; one that ends when another begins does not."""
    changes = sorted(itertools.chain.from_iterable(((began, 1), (ended, -1)) for began, ended in spans))
    return max(itertools.accumulate(change for dummy, change in changes), default=0)


class Run:
    """One rollout over a fleet of its own."""

    def __init__(self, place, way, times, down, scale, forks, cheap=False, url=""):
        """CHEAP: the controller is spared what the courses spare theirs; not where its own cost is measured. URL of the
        ledger, where it is not a file.
        """
        self.place, self.way, self.down, self.forks, self.url = place, way, down, forks, url
        self.process = None
        modules = place / "modules"
        modules.mkdir()
        self.fleet = conftest.Fleet(place, modules)
        self.collection = self.fleet.collection
        self.variables = self.fleet.install_for_real()
        self._playbook()
        for number, steps in enumerate(times):
            self.fleet.add("n%04d" % number, takes=takes(steps, scale))
        self.names, self.nodes = self.fleet.names, self.fleet.nodes
        self.fleet.environment.update(
            ANSIBLE_FORKS=str(forks), GPUFLEET_CHEAP="true" if cheap else "", PYTHONDONTWRITEBYTECODE="1"
        )

    def _playbook(self):
        text = (ROOT / "playbooks" / "upgrade.yml").read_text()
        if text.count(WINDOW) != 1:
            raise SystemExit(
                "playbooks/upgrade.yml has %d lines %r; the benchmark needs exactly one." % (text.count(WINDOW), WINDOW)
            )
        playbooks = self.collection / "playbooks"
        playbooks.unlink()
        shutil.copytree(ROOT / "playbooks", playbooks)
        (playbooks / "upgrade.yml").write_text(text.replace(WINDOW, WAYS[self.way].format(down=self.down)))

    def start(self, *arguments):
        """Begin it, with more ARGUMENTS of ansible-playbook."""
        self.process = self.begin("upgrade", *arguments, rollout_max_down=self.down)

    def begin(self, playbook, *arguments, **extra):
        """Start a playbook of the fleet; the process."""
        variables = {
            "gpu_node_upgrade_gate_poll": 0.2,
            "gpu_node_upgrade_gate_patience": 60,
            "gpu_node_upgrade_gate_patience_max": 60,
            "rollout_node_s": 60,
            # over the connection: a step ends when its time is over, and not at the next question
            "nvidia_driver_timeout": 0,
        }
        process = self.fleet.start(playbook, *arguments, **dict(self.variables, **dict(variables, **extra)))
        with contextlib.suppress(OSError):
            # For the kernel a session has a priority of its own: that of the benchmark, of which the priority of a
            # process says nothing.
            pathlib.Path("/proc/%d/autogroup" % process.pid).write_text(str(os.nice(0)))
        return process

    def output(self):
        """What the last playbook printed so far."""
        return pathlib.Path(self.process.log.name).read_text()

    def wait(self, timeout_s):
        """Wait for its end, which has to be a good one."""
        self.good_end(self.process, timeout_s)

    def good_end(self, process, timeout_s):
        try:
            process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise SystemExit(
                "%s did not come to an end within %d s:\n%s" % (self.way, timeout_s, self._end_of(process, 3000))
            ) from None
        if process.returncode != 0:
            raise SystemExit(
                "%s ended with %d. What failed:\n%s\nIts end:\n%s"
                % (self.way, process.returncode, self._failures_of(process), self._end_of(process, 3000))
            )

    @staticmethod
    def _failures_of(process):
        """The lines of its output that tell of failures, without the hosts for which all went well."""
        lines = pathlib.Path(process.log.name).read_text().splitlines()
        return "\n".join(line[:600] for line in lines if FAILURE.search(line))[-6000:]

    @staticmethod
    def _end_of(process, characters):
        return pathlib.Path(process.log.name).read_text()[-characters:]

    def stop(self):
        if self.process is not None:
            kill(self.process)
            self.process.log.close()

    def wall_s(self):
        """Seconds from the first step of a node to the last; the plan and the report are left out."""
        moments = [
            datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
            for node in self.view().nodes.list_all()
            for step in node.steps
            for text in (step.started, step.finished)
        ]
        return (max(moments) - min(moments)).total_seconds()

    def view(self):
        return self.fleet.view(url=self.url)

    def most_down(self):
        """The most nodes that were down at one time, by the ledger."""
        spans = []
        for node in self.view().nodes.list_all():
            down = [step for step in node.steps if step.name not in ("prestage", "evidence", "drain")]
            spans += [(down[0].started, down[-1].finished)] if down else []
        return most_at_once(spans)

    def out(self):
        """{node: (begin, end)} by the journals of the nodes that stopped what they serve, from then until they were
        examined for the last time.
        """
        journals = {name: self.nodes / name / "journal" for name in self.names}
        found = {
            name: out_of_service(path.read_text().splitlines()) for name, path in journals.items() if path.exists()
        }
        return {name: span for name, span in found.items() if span}

    def host_tasks(self):
        """{play: {host: [task, ...]}}"""
        return json.loads((self.place / "host-tasks.json").read_text())
