# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real playbook over nodes that only take time, in one of three ways to go through them."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection

ROOT = pathlib.Path(__file__).resolve().parents[3]
OWN = pathlib.Path(__file__).resolve().parent / "stub"
OLD, NEW = "1.0.1", "2.0.1"
WINDOW = "  strategy: ansible.builtin.host_pinned\n"
# The line of the playbook that makes the window, and what stands there instead.
WAYS = {
    "window": WINDOW,
    "serial and free": "  serial: {down}\n  strategy: ansible.builtin.free\n",
    "serial and linear": "  serial: {down}\n  strategy: ansible.builtin.linear\n",
}


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


class Run:
    """One rollout over a fleet of its own."""

    def __init__(self, place, way, times, down, scale, forks):
        self.place, self.way, self.times, self.down = place, way, times, down
        self.nodes = place / "nodes"
        self.collection = place / "collections" / "ansible_collections" / "gpufleet" / "lifecycle"
        self.process = None
        self._collection()
        self.names = ["n%04d" % number for number in range(len(times))]
        for name, steps in zip(self.names, times):
            node = {
                "loaded": OLD,
                "disk": OLD,
                "boots": 0,
                "enabled": [],
                "running": ["nvidia-persistenced.service"],
                "log": [],
                "times": dict(
                    {"download": 0.0},
                    **dict(
                        zip(("look", "install", "boot", "validate", "download"), (second / scale for second in steps))
                    ),
                ),
            }
            (self.nodes / name).mkdir(parents=True)
            (self.nodes / name / "node.json").write_text(json.dumps(node))
        self.forks = forks

    def _collection(self):
        # The roles are the real ones.
        real = ["roles/nvidia_driver"]
        collection.make(self.collection, real, (OWN, collection.STUB), without=("roles",))
        text = (ROOT / "playbooks" / "upgrade.yml").read_text()
        if text.count(WINDOW) != 1:
            raise SystemExit(
                "playbooks/upgrade.yml has %d lines %r; the benchmark needs exactly one." % (text.count(WINDOW), WINDOW)
            )
        (self.collection / "playbooks").mkdir()
        (self.collection / "playbooks" / "upgrade.yml").write_text(
            text.replace(WINDOW, WAYS[self.way].format(down=self.down))
        )

    def start(self, *arguments):
        """Begin it, with more ARGUMENTS of ansible-playbook."""
        hosts = {
            name: {
                "ansible_connection": "gpufleet.lifecycle.benchnode",
                "ansible_python_interpreter": sys.executable,
                "ansible_become": False,
            }
            for name in self.names
        }
        variables = {
            "gpufleet_artifact_dir": str(self.place / "artifacts"),
            "rollout_version": NEW,
            "rollout_max_down": self.down,
            "nvidia_driver_flavour": "open",
            "gpu_node_upgrade_gate_poll": 0.2,
            "gpu_node_upgrade_gate_patience": 60,
            "rollout_node_s": 60,
            # over the connection: a step ends when its time is over, and not at the next question
            "nvidia_driver_timeout": 0,
        }
        inventory = self.place / "inventory.json"
        inventory.write_text(json.dumps({"all": {"children": {"gpu_nodes": {"hosts": hosts}}, "vars": variables}}))
        # What docs/runbooks tell of large rollouts: the playbook's main process looks for results every millisecond
        # otherwise.
        (self.place / "ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.01\n")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        environment.update(
            ANSIBLE_COLLECTIONS_PATH=str(self.place / "collections"),
            ANSIBLE_CONFIG=str(self.place / "ansible.cfg"),
            ANSIBLE_FORKS=str(self.forks),
            ANSIBLE_PIPELINING="true",
            ANSIBLE_INJECT_FACT_VARS="false",
            ANSIBLE_NOCOLOR="true",
            ANSIBLE_LOCALHOST_WARNING="false",
            ANSIBLE_CALLBACKS_ENABLED="gpufleet.lifecycle.hosttasks",
            GPUFLEET_HOST_TASKS=str(self.place / "tasks.json"),
            GPUFLEET_MODULES=str(self.place / "modules"),
            GPUFLEET_STUB_NODES=str(self.nodes),
            HOME=str(self.place),
            PYTHONDONTWRITEBYTECODE="1",
        )
        command = [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "-i",
            str(inventory),
            str(self.collection / "playbooks" / "upgrade.yml"),
            *arguments,
        ]
        with open(self.place / "output", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=str(self.place),
                start_new_session=True,
            )
        with contextlib.suppress(OSError):
            # For the kernel a session has a priority of its own: that of the benchmark, of which the priority of a
            # process says nothing.
            pathlib.Path("/proc/%d/autogroup" % self.process.pid).write_text(str(os.nice(0)))

    def wait(self, timeout_s):
        """Wait for its end, which has to be a good one."""
        try:
            self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            text = (self.place / "output").read_text()
            raise SystemExit(
                "%s did not come to an end within %d s:\n%s" % (self.way, timeout_s, text[-3000:])
            ) from None
        if self.process.returncode != 0:
            text = (self.place / "output").read_text()
            raise SystemExit("%s ended with %d:\n%s" % (self.way, self.process.returncode, text[-6000:]))

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            for pid in reversed(tree(self.process.pid)):  # its workers have sessions of their own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()

    def wall_s(self):
        """Seconds from the first step of a node to the last; the plan and the report are left out."""
        steps = [step for node in self.view().nodes.everything() for step in node.steps]
        moments = [
            datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
            for step in steps
            for text in (step.started, step.finished)
        ]
        return (max(moments) - min(moments)).total_seconds()

    def view(self):
        return ledger.Ledger(str(self.place / "artifacts"), "upgrade-" + NEW).view()

    def most_down(self):
        """The most nodes that were down at one time."""
        changes = []
        for node in self.view().nodes.everything():
            down = [step for step in node.steps if step.name not in ("prestage", "evidence", "drain")]
            changes += [(down[0].started, 1), (down[-1].finished, -1)]
        most = now = 0
        for dummy, change in sorted(changes):
            now += change
            most = max(most, now)
        return most

    def host_tasks(self):
        """{play: {host: [task, ...]}}"""
        return json.loads((self.place / "tasks.json").read_text())
