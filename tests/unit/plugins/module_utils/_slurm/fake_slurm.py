# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of one node for tests: it answers the commands as 22.05 does, and its clock moves only while somebody
waits.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands, slurm_node

OPTIONS = {
    "node_name": "n1",
    "node_names": [],
    "state": "read",
    "token": "tok-1",
    "reason": "driver upgrade",
    "timeout_s": 0,
    "poll_s": 10.0,
    "on_timeout": "lift",
    "method": "drain",
    "reservation_minutes": 0,
    "reservation_start": "now",
    "expected_gpus": None,
    "expected_gres": None,
    "bin_dir": None,
}


class Cluster:
    def __init__(self, state="IDLE", reason="", user="root", gres="gpu:a100:4", jobs=()):
        self.state, self.reason, self.user, self.gres = state, reason, user, gres
        self.jobs = list(jobs)  # (number, user, ends at, state)
        self.now = 0.0
        self.calls = []  # what changed something
        self.later = []  # (at, what to do): whatever happens meanwhile
        self.answers = {}  # word of the command line: an answer in the place of the usual one
        self.reservations = set()
        self.own = {}

    def slurm(self):
        return commands.Slurm(run=self, user="tester", host="login")

    def do(self, state, check_mode=False, **options):
        """One task: what it returns, or the exception that it fails with, and the result that it had by then."""
        work = slurm_node.SlurmNode(
            self.slurm(), dict(OPTIONS, state=state, **options), check_mode, sleep=self.sleep, clock=lambda: self.now
        )
        self.failure = None
        try:
            work.run()
        except (commands.SlurmError, slurm_node.NodeError) as exc:
            self.failure = exc
        return work.result

    def sleep(self, seconds):
        self.now += seconds
        for entry in [entry for entry in self.later if entry[0] <= self.now]:
            self.later.remove(entry)
            entry[1](self)

    def running(self):
        return [job for job in self.jobs if job[2] > self.now]

    def text(self):
        state = self.state if not self.running() else self.state.replace("IDLE", "MIXED")
        told = (
            "NodeName=n1 CPUAlloc=%d\n   Gres=%s\n   NodeHostName=host1 Version=22.05.8\n   State=%s ThreadsPerCore=1\n"
            % (1 if self.running() else 0, self.gres, state)
        )
        return told + ("   Reason=%s [%s@2026-11-21T22:47:07]\n\n" % (self.reason, self.user) if self.reason else "\n")

    def __call__(self, words, timeout):
        line = " ".join(words)
        for word, answer in self.answers.items():
            if word in line:
                return answer(self) if callable(answer) else answer
        if "--json" in words:
            return 1, "", "scontrol: unrecognized option '--json'\n"
        if words[0] == "squeue" and "--name=" in line:
            return 0, "".join("%s|%s\n" % item for item in self.own.items()), ""
        if words[0] == "squeue":
            return (
                0,
                "".join(
                    "%s|%s|batch|%s|%d:00\n" % (number, user, state, end - self.now)
                    for number, user, end, state in self.running()
                ),
                "",
            )
        if words[:3] == ["scontrol", "show", "node"]:
            known = "n1" in words[3].split(",")
            strangers = ["Node %s not found\n" % name for name in words[3].split(",") if name != "n1"]
            return 0 if known else 1, "".join(strangers) + (self.text() if known else ""), ""
        if words[0] == "sinfo":
            return 0, "n1 host1\n", ""
        if words[:3] == ["scontrol", "show", "reservation"]:
            return (
                (0, "ReservationName=%s\n" % words[3], "")
                if words[3] in self.reservations
                else (1, "Reservation %s not found\n" % words[3], "")
            )
        self.calls.append(line)
        return getattr(self, "run_" + words[0])(words)

    def run_scontrol(self, words):
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        if words[1] == "update" and fields["state"] == "drain":
            self.state, self.reason, self.user = self.state.replace("+DRAIN", "") + "+DRAIN", fields["reason"], "root"
        elif words[1] == "update":
            self.state, self.reason = "IDLE", ""
        elif words[1] == "create":
            self.reservations.add(fields["ReservationName"])
        elif words[1] == "delete":
            self.reservations.remove(fields["ReservationName"])
        return 0, "", ""

    def run_sbatch(self, words):
        name = re.search(r"--job-name=(\S+)", " ".join(words)).group(1)
        assert name == "gpufleet-tok-1-n1"
        self.own["77"] = "RUNNING" if not self.running() else "PENDING"
        return 0, "77;cluster\n", ""

    def run_scancel(self, words):
        del self.own[words[1]]
        return 0, "", ""
