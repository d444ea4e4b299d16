# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands: what they answer, and why they did not."""

from __future__ import annotations

import difflib
import os
import re
import socket

from .._node import runner as processes
from . import records

TIMEOUT_S = 60
UNKNOWN_NODE = re.compile(r"(?m)^Node \S+ not found")
NUMBER = re.compile(r"\d+\Z")
MOST_NOTICES = 10
# A line by which a client ends. Other lines, such as about an option of slurm.conf, are notices beside it.
ENDS = re.compile(r"(?im)^(?!(?:\[\S+\] )?(?:\S+: )?(?:error|warning|info|debug\d?|verbose): ).*\S.*$")
# What Slurm says, what it means, and whether it may be different in a moment. The first that fits counts.
TROUBLES = (
    (
        "auth",
        True,
        (
            "Munge encode failed",
            "Munge decode failed",
            "authentication error",
            "authentication credential",
            "Zero Bytes were transmitted",
        ),
        (
            "Slurm does not accept who asks: on {host}, or on the host of slurmctld, munge does not run, the two do "
            "not have the same /etc/munge/munge.key, or their clocks differ by minutes. Look at systemctl status munge "
            "and at the time on both; the log of slurmctld says which it is."
        ),
    ),
    (
        "config",
        False,
        (
            "Could not establish a configuration source",
            "failed to fetch config",
            "Unable to process configuration",
            "slurm.conf",
        ),
        (
            "{host} has no configuration of Slurm that can be read: give it the slurm.conf of the cluster, or delegate "
            "the task to a host that has it."
        ),
    ),
    (
        "unreachable",
        True,
        (
            "Unable to contact slurm controller",
            "Connection refused",
            "Connection timed out",
            "Socket timed out",
            "standby mode",
            "Communication connection failure",
            "Message send failure",
            "Message receive failure",
            "Transport endpoint is not connected",
            "Connection reset by peer",
            "No route to host",
            "still running after",
        ),
        "slurmctld does not answer {host}: see whether it runs (scontrol ping), and run again.",
    ),
    (
        "node",
        False,
        ("Invalid node name", "not found"),
        (
            "Slurm knows no node {node}{like}. If its name in Slurm differs from the one in the inventory, set "
            "node_name (in the roles gpu_scheduler_slurm_node)."
        ),
    ),
    (
        "permission",
        False,
        ("Invalid user id", "ccess/permission denied", "Operation not permitted"),
        (
            "{user} may not change nodes in Slurm: run it as root or as the SlurmUser (become), or give that user "
            "AdminLevel Operator (sacctmgr modify user {user} set adminlevel=operator)."
        ),
    ),
)


class SlurmError(Exception):
    """Slurm did not do what was asked; the message says why and what to do."""

    def __init__(self, kind, message, passing=False) -> None:
        super().__init__(message)
        self.kind = kind
        self.passing = passing  # whether it may be different in a moment


class Slurm:
    """One cluster, through the commands on this machine. C(run) answers C((rc, out, err)) to a list of words."""

    def __init__(self, run=None, bin_dir=None, user="this user", host=None) -> None:
        env = {"SLURM_TIME_FORMAT": "standard"}
        if bin_dir:
            env["PATH"] = bin_dir + ":" + processes.SEARCH_PATH
        self.run = run or processes.Runner(env=env)
        self.user, self.host = user, host or socket.gethostname()
        self.json = True  # until scontrol fails to write it
        self.notices = []  # what the commands printed beside a usable answer

    def call(self, words, node="") -> str:
        """Return the output of a command. Only its return code says that it failed: clients print notices beside it."""
        code, out, err = self.run(words, TIMEOUT_S)
        if code == 0:
            self.note(words[0], err)
            return out
        raise self.trouble(words, code, (err + "\n" + out).strip(), node)

    def note(self, program, text) -> None:
        """Keep what a command printed on stderr, each line once."""
        for line in filter(None, (" ".join(line.split())[:300] for line in text.splitlines())):
            told = line if line.startswith(program + ":") else "%s: %s" % (program, line)
            if told not in self.notices and len(self.notices) < MOST_NOTICES:
                self.notices.append(told)

    def trouble(self, words, code, said, node="") -> SlurmError:
        if processes.missing(code):
            return SlurmError(
                "command",
                "%s: no such command on %s. Install Slurm's commands there (slurm-client), name their directory "
                "(bin_dir), or delegate the task to a host that has them (in the roles gpu_scheduler_slurm_host)."
                % (words[0], self.host),
            )
        causes = "\n".join(ENDS.findall(said) or said.splitlines()[-1:] * bool(code))
        for kind, passing, signs, meaning in TROUBLES:
            if any(sign in causes for sign in signs):
                like = self.like(node) if kind == "node" else ""
                message = meaning.format(host=self.host, node=node, user=self.user, like=like)
                return SlurmError(kind, "%s (%s: %s)" % (message, words[0], " ".join(said.split())[:300]), passing)
        return SlurmError(
            "other", "%s answered %s: %s" % (" ".join(words[:3]), code, " ".join(said.split())[:300] or "nothing")
        )

    def like(self, node) -> str:
        """Return the node that may have been meant: the one with that host name, or similar names."""
        code, out, dummy = self.run(["sinfo", "--noheader", "--Node", "--format=%N %n"], TIMEOUT_S)
        known = dict(line.split()[:2] for line in out.splitlines() if len(line.split()) > 1) if code == 0 else {}
        same = [name for name, hostname in sorted(known.items()) if node in (hostname, hostname.split(".")[0])]
        close = same or difflib.get_close_matches(node, sorted(known), 3)
        close = close or [name for name in sorted(known) if node in name or name in node][:3]
        return "; it knows %s" % ", ".join(close) if close else ""

    def node(self, name) -> dict:
        found = [record for record in self.nodes(name) if record["name"] == name]
        if not found:
            raise self.trouble(["scontrol"], 1, "Node %s not found" % name, name)
        return found[0]

    def nodes(self, names) -> list[dict]:
        """The nodes of a list such as C(n1,n[3-5]), in one call."""
        words = ["scontrol", "show", "node", names]
        if self.json:
            code, out, err = self.run(words + ["--json"], TIMEOUT_S)
            try:
                return self.usable(words, code, out, err, names, records.from_json)
            except (SlurmError, records.NotJson) as exc:
                # A scontrol that knows no --json, or lacks its plugin, says so in many ways: its text decides.
                if getattr(exc, "passing", False) or getattr(exc, "kind", "") == "command":
                    raise
        code, out, err = self.run(words, TIMEOUT_S)
        found = self.usable(words, code, out, err, names, records.from_text)
        self.json = False
        return found

    def usable(self, words, code, out, err, names, parse) -> list[dict]:
        """The nodes of an answer, without those that Slurm does not know."""
        unknown = UNKNOWN_NODE.search(err + "\n" + out)
        if code and not unknown:
            raise self.trouble(words, code, (err + "\n" + out).strip(), names)
        found = parse(out)
        if not found and not unknown:
            raise self.trouble(words, code, (err + "\n" + out).strip(), names)
        if not unknown:
            self.note(words[0], err)
        return found

    def all_nodes(self) -> str:
        """The text of scontrol on every node, those in hidden partitions too."""
        return self.call(["scontrol", "--all", "show", "node"])

    def members(self) -> set[str]:
        """The names of all nodes that are in a partition."""
        return set(self.call(["sinfo", "--all", "--noheader", "--Node", "--format=%N"]).split())

    def jobs(self, name) -> list[dict]:
        words = ["squeue", "--noheader", "--nodelist=" + name, "--states=all", "--format=" + records.JOB_FORMAT]
        return records.jobs(self.rows(words, name))

    def rows(self, words, node="") -> str:
        """The output of a command in a format of ours. A line of another form may hide a job, and is refused."""
        out = self.call(words, node)
        if any(line.strip() and "|" not in line for line in out.splitlines()):
            raise self.trouble(words, 0, out.strip(), node)
        return out

    def update(self, name, **fields) -> None:
        """Change the node; the words are those of scontrol."""
        self.call(
            ["scontrol", "update", "nodename=" + name]
            + ["%s=%s" % item for item in sorted(fields.items(), reverse=True)],
            name,
        )

    def config_file(self) -> str:
        """Return the path of slurm.conf, as slurmctld reports it."""
        path = self.read_setting("SLURM_CONF")
        if path.startswith("/"):
            return path
        raise SlurmError("other", "scontrol show config does not tell SLURM_CONF: name slurm.conf (config_file)")

    def read_setting(self, wanted) -> str:
        """A value of slurmctld's configuration, such as SLURM_VERSION; empty if it does not tell it."""
        for line in self.call(["scontrol", "show", "config"]).splitlines():
            name, found, value = line.partition("=")
            if found and name.strip() == wanted:
                return value.strip()
        return ""

    def reconfigure(self) -> None:
        """All daemons read their configuration again."""
        self.call(["scontrol", "reconfigure"])

    def restart(self) -> None:
        """Restart slurmctld on this host; jobs go on."""
        self.call(["systemctl", "restart", "slurmctld.service"])

    def reservation(self, name) -> bool:
        """Tell if there is a reservation of that name."""
        code, out, err = self.run(["scontrol", "show", "reservation", name], TIMEOUT_S)
        if re.search(r"(?m)^Reservation \S+ not found", err + "\n" + out) or "No reservations in the system" in out:
            return False
        if code or not out.strip():
            raise self.trouble(["scontrol", "show", "reservation"], code, (err + "\n" + out).strip())
        self.note("scontrol", err)
        return True

    def reserve(self, name, node, start, minutes) -> None:
        words = [
            "ReservationName=" + name,
            "StartTime=" + start,
            "Duration=%d" % minutes,
            "Users=root",
            "Nodes=" + node,
        ]
        self.call(["scontrol", "create", "reservation", *words, "Flags=MAINT,IGNORE_JOBS"], node)

    def release(self, name) -> None:
        self.call(["scontrol", "delete", "ReservationName=" + name])

    def submit(self, name, node, minutes) -> str:
        """A job of our own that takes the whole node when it is free; its number."""
        words = "sbatch --parsable --output=/dev/null --chdir=/ --exclusive --nodes=1".split()
        words += ["--nodelist=" + node, "--job-name=" + name, "--time=%d" % minutes]
        out = self.call([*words, "--wrap=sleep %d" % (minutes * 60)], node)
        number = out.strip().split("\n")[-1].split(";")[0]
        if not NUMBER.match(number):
            raise self.trouble(["sbatch"], 0, out.strip(), node)
        return number

    def own_jobs(self, name) -> dict[str, str]:
        """{number: state} of the jobs with this name, which any user may give, of the user that submits them."""
        which = ["--name=" + name, "--user=%d" % os.geteuid(), "--states=PENDING,RUNNING,CONFIGURING,SUSPENDED"]
        out = self.rows(["squeue", "--noheader", *which, "--format=%i|%T"])
        return dict(line.strip().split("|", 1) for line in out.splitlines() if "|" in line)

    def cancel(self, number) -> None:
        self.call(["scancel", number])
