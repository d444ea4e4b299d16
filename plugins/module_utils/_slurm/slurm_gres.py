# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of one task of slurm_gres: read Slurm and its configuration, decide, write the node's files, reconfigure,
and read back."""

from __future__ import annotations

import os
import re
import time

from .._node import files
from . import commands, decide, gres, gres_config, records

MOST_FILES = 2000  # that a configuration includes


class SlurmGres:
    def __init__(self, slurm, params, check_mode=False, sleep=time.sleep, clock=time.monotonic) -> None:
        self.slurm, self.params, self.check = slurm, params, check_mode
        self.sleep, self.clock = sleep, clock
        self.node = params["node_name"]
        self.counts, self.lines = params_counts(params["gres"]), list(params["lines"])
        self.result = {
            "changed": False,
            "node": self.node,
            "controller_first": False,
            "reconfigured": False,
            "restarted": False,
            "files": [],
            "gres": {"configured": "", "wanted": gres.value(self.counts)},
            "lines": self.lines,
        }

    def run(self) -> dict:
        problem = gres.node_problem(self.node)
        if problem:
            raise gres.GresError(problem)
        record = self.look()
        configured = records.gres_counts(record["gres"])
        self.rename(gres_config.names(configured, self.counts))
        seen = self.see()
        kept = params_counts(self.params["kept"]) if self.params["kept"] is not None else self.counts
        self.result["controller_first"] = gres_config.controller_first(configured, kept)
        decision = gres_config.decide(self.params["state"], record, self.counts, self.lines, seen)
        if decision.action == decide.REFUSE:
            raise gres.GresError("%s: %s." % (self.node, decision.reason))
        if decision.action == decide.DO and self.params["state"] != gres_config.CHECKED:
            self.write(seen, gres_config.needs_restart(seen["version"], configured, self.counts))
        return self.result

    def rename(self, names) -> None:
        """Keep the types that jobs ask for."""
        self.counts = gres_config.rename_counts(self.counts, names)
        for kind, name in names.items():
            self.lines = [re.sub(r"(?<= Type=)%s(?= )" % re.escape(kind), name, line) for line in self.lines]
        self.result["gres"]["wanted"] = gres.value(self.counts)
        self.result["lines"] = self.lines

    def look(self) -> dict:
        record = self.slurm.node(self.node)
        self.result["gres"]["configured"] = record["gres"]
        return record

    # Reading

    def see(self) -> dict:
        """Return the input of gres_config.problems."""
        directory = self.params["directory"] or ""
        seen = {
            "directory": directory,
            "reconfigure": self.params["reconfigure"],
            "restart": self.params["restart"],
            "version": "",
            "writable": None,
            "slurm_conf": "",
            "gres_conf": "",
            "includes": None,
            "node_file": None,
            "gres_file": None,
        }
        if not directory:
            return seen
        if os.path.isdir(directory):
            seen["writable"] = os.access(directory, os.W_OK)
        seen["node_file"], seen["gres_file"] = map(files.read_text, gres_config.paths(directory, self.node))
        seen["slurm_conf"] = self.params["config_file"] or self.slurm.config_file()
        seen["gres_conf"] = os.path.join(os.path.dirname(seen["slurm_conf"]), "gres.conf")
        seen["version"] = self.slurm.read_setting("SLURM_VERSION")
        cluster = gres_config.cluster_of(files.read_text(seen["slurm_conf"]))
        read = [read_included(seen[name], cluster) for name in ("slurm_conf", "gres_conf")]
        # Each has to include its own file: one that stood in the other would be a mistake that slurmctld does not start
        # with.
        wanted = gres_config.paths(directory, self.node)
        seen["includes"] = [path for path, found in zip(wanted, read) if path in found]
        texts = {path: text for found in read for path, text in found.items() if path not in wanted}
        seen["elsewhere"] = sorted(path for path, text in texts.items() if gres_config.defines(text, self.node))
        return seen

    # Writing

    def write(self, seen, restart) -> None:
        texts = (
            gres_config.node_text(seen["node_file"], self.node, self.counts),
            gres_config.gres_text(self.node, self.lines),
        )
        before = (seen["node_file"], seen["gres_file"])
        changes = [
            entry
            for entry in zip(gres_config.paths(seen["directory"], self.node), before, texts)
            if entry[1] != entry[2]
        ]
        self.result["files"] = [path for path, dummy, dummy2 in changes]
        self.result["diff"] = [
            {"before_header": path, "after_header": path, "before": old or "", "after": new}
            for path, old, new in changes
        ]
        self.result["changed"] = True
        if self.check:
            return
        try:
            for path, dummy, text in changes:
                files.write_atomically(path, text)
            self.tell(restart)
        except (commands.SlurmError, OSError) as exc:
            put_back(changes)
            if self.result["restarted"]:
                self.undo()
            raise gres.GresError(
                "%s: the GPUs of the node could not be given to Slurm, and %s as before: %s"
                % (self.node, " and ".join(self.result["files"]) + (" is" if len(changes) == 1 else " are"), exc)
            ) from exc
        self.result["reconfigured"] = True
        self.prove()

    def tell(self, restart):
        """slurmctld is told first, and by it the nodes."""
        if restart:
            self.result["restarted"] = True
            self.slurm.restart()
        until = self.clock() + self.params["timeout_s"]
        while True:
            try:
                return self.slurm.reconfigure()
            except commands.SlurmError as exc:
                # It answers a moment after it was started.
                if not (restart and exc.passing) or self.clock() >= until:
                    raise
            self.sleep(self.params["poll_s"])

    def undo(self) -> None:
        """slurmctld with the files as they were. What it says is not more than what is told already."""
        try:
            self.slurm.restart()
        except commands.SlurmError:
            pass

    def prove(self) -> None:
        """That scontrol reconfigure returned says little: Slurm has to tell the GPUs."""
        until = self.clock() + self.params["timeout_s"]
        while True:
            record = self.look()
            if records.same(records.gres_counts(record["gres"]), self.counts):
                return
            if self.clock() >= until:
                raise gres.GresError(
                    "%s: slurmctld was reconfigured and has Gres=%s for it, expected Gres=%s: see the log of "
                    "slurmctld. Versions that do not change the Gres "
                    "of a node without a restart need one (systemctl restart slurmctld)."
                    % (self.node, record["gres"] or "(none)", gres.value(self.counts) or "(none)")
                )
            self.sleep(max(0.1, min(self.params["poll_s"], until - self.clock())))


def put_back(changes) -> None:
    """The files as they were. One that was not there is taken away."""
    for path, text, dummy in changes:
        if text is not None:
            files.write_atomically(path, text)
        elif os.path.lexists(path):
            os.unlink(path)


def params_counts(given) -> dict[str, int]:
    return dict((kind, int(number)) for kind, number in given.items())


def read_included(path, cluster) -> dict:
    """{path: text} of a configuration and every file that it includes, and those that these include."""
    base, waiting, found = os.path.dirname(path), [path], {}
    while waiting and len(found) < MOST_FILES:
        name = waiting.pop(0)
        if name not in found:
            found[name] = files.read_text(name)
            waiting += gres_config.find_included(found[name], base, cluster)
    return found


def contradiction(params) -> str:
    """Return the problems of the options; empty if there are none."""
    for name in ("gres", "kept"):
        for kind, number in (params[name] or {}).items():
            if not re.fullmatch(r"-?\d+", str(number)) or int(number) < 0:
                return "%s has %r of %r: expected a number of devices" % (name, number, kind)
    if any(not line.startswith("NodeName=%s " % params["node_name"]) or "\n" in line for line in params["lines"]):
        return "lines has one that is not of %s: each begins with NodeName=%s and a blank" % (
            params["node_name"],
            params["node_name"],
        )
    if params["timeout_s"] < 0:
        return "timeout_s is %d: expected 0 or more" % params["timeout_s"]
    return "" if params["poll_s"] > 0 else "poll_s is %s: expected more than 0" % params["poll_s"]
