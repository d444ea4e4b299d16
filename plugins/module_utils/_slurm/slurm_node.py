# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of one task of slurm_node: read, decide, tell Slurm, and read again."""

from __future__ import annotations

import time

from . import commands, decide, marks, records, states

# After a resume Slurm contacts the node's slurmd again; the seconds that slurmd has to answer.
SETTLE_S = 15
# The limit of our own job, in case it is never ended.
JOB_MINUTES = 15
CHUNK = 200
WHOLE = {"waited_s": 0, "owner": marks.NONE, "more": False}  # the part of the time that is all of it


class NodeError(Exception):
    """The task fails; the message says why and what to do."""


class SlurmNode:
    def __init__(self, slurm, params, check_mode=False, sleep=time.sleep, clock=time.monotonic) -> None:
        self.slurm, self.params, self.check = slurm, params, check_mode
        self.sleep, self.clock = sleep, clock
        self.name, self.token = params["node_name"], params["token"]
        self.part = dict(WHOLE, **params.get("part") or {})
        # Who drained the node, for a reason that Slurm replaced. A node that is closed before its drain is not ours.
        default = marks.OPERATOR if params["state"] == "drained" else marks.UNKNOWN
        given = [params.get("owner") or marks.UNKNOWN, default]
        self.owner = given[given[0] == marks.UNKNOWN] if self.part["owner"] == marks.NONE else self.part["owner"]
        self.began = clock()
        self.result = {
            "changed": False,
            "node": self.name,
            "drained": False,
            "blockers": [],
            "left": [],
            "waiting": False,
            "mark": {"owner": marks.NONE, "token": None, "previous": None},
        }
        self.before = None

    def run(self) -> dict:
        {"read": self.info, "drained": self.drain_node, "resumed": self.resume_node}[self.params["state"]]()
        self.result["waited_s"] = round(self.part["waited_s"] + self.clock() - self.began, 1)
        return self.result

    # Reading

    def look(self, jobs=True) -> tuple[dict, list]:
        record = self.slurm.node(self.name)
        found = self.slurm.jobs(self.name) if jobs else []
        self.tell(record, found)
        return record, found

    def tell(self, record, jobs) -> None:
        mark = marks.mark(record, self.token, self.owner)
        if mark["owner"] == marks.OURS:
            self.owner = marks.OURS
        self.result.update(
            state=states.text(record["state"]),
            hostname=record["hostname"],
            reason=record["reason"],
            work=decide.empty(record, jobs)[0],
            drained=decide.is_drained(record, jobs),
            mark=mark,
            blockers=jobs,
            gres={
                "configured": record["gres"],
                "gpus": sum(records.gres_counts(record["gres"]).values()),
                "types": records.gres_counts(record["gres"]),
            },
            slurm_version=record["version"],
        )
        self.result["work"] = {"yes": "idle", "no": "busy"}.get(self.result["work"], "unknown")
        seen = {"state": self.result["state"], "reason": self.result["reason"]}
        self.before = self.before or seen
        self.result["diff"] = {"before": self.before, "after": seen}

    def deadline(self) -> float:
        return self.began + self.params["timeout_s"]

    def over(self) -> bool:
        return self.clock() >= self.deadline()

    def only_looks(self) -> bool:
        """Tell if the task ends at once, whatever holds the node."""
        return self.params["timeout_s"] == 0 or self.part["more"] and self.over()

    def waited_s(self) -> int:
        """For how long it was waited when all the time is over."""
        return round(self.part["waited_s"] + self.params["timeout_s"])

    def pause(self, until=None) -> None:
        left = (self.deadline() if until is None else until) - self.clock()
        self.sleep(max(0.1, min(self.params["poll_s"], left)))

    def patiently(self, ask) -> dict[str, str] | tuple[dict, list]:
        """The answer; Slurm may be away for a while, but not when the time is over."""
        while True:
            try:
                return ask()
            except commands.SlurmError as exc:
                if not exc.passing or self.over():
                    raise
            self.pause()

    # info

    def info(self) -> None:
        names = self.params["node_names"]
        if not names:
            self.look()
            return
        found = {}
        for start in range(0, len(names), CHUNK):
            for record in self.slurm.nodes(",".join(names[start : start + CHUNK])):
                found[record["name"]] = record
        unknown = [name for name in names if name not in found]
        if unknown:
            raise self.slurm.trouble(["scontrol"], 1, "Node %s not found" % unknown[0], unknown[0])
        rank = {"idle": 0, "unknown": 1, "busy": 2}
        told = []
        for record in (found[name] for name in names):
            work = states.work(record["state"], record["alloc_cpus"])
            told.append(
                {
                    "node": record["name"],
                    "state": states.text(record["state"]),
                    "work": work,
                    "mark": marks.mark(record, self.token),
                }
            )
        self.result["nodes"] = sorted(told, key=lambda item: rank[item["work"]])

    # drained

    def drain_node(self) -> None:
        if self.part["owner"] == marks.NONE and not self.close():
            return
        self.cancel_own()
        self.wait_until_empty()

    def close(self) -> bool:
        """See that no job starts there any more, by us or by others. Return True if so."""
        record, jobs = self.look()
        decision = decide.drain(record, self.token, self.owner)
        if decision.action == decide.REFUSE:
            raise NodeError("%s was not drained: %s." % (self.name, decision.reason))
        if decision.action == decide.LEAVE:
            self.result["left"].append("%s %s" % (self.name, decision.reason))
        if decision.action == decide.DO:
            differs = decide.gres(record, self.params["expected_gpus"], self.params["expected_gres"])
            if differs:
                raise NodeError(
                    "%s was not drained, since it could not be resumed afterwards: %s." % (self.name, differs)
                )
        if self.check:
            self.foresee(record, jobs, decision)
            return False
        if self.params["reservation_minutes"]:
            self.reserve()
        if decision.action == decide.DO:
            if self.params["method"] == "job" and decide.empty(record, jobs)[0] != "yes" and not self.window():
                return False
            self.place()
        return True

    def foresee(self, record, jobs, decision) -> None:
        places = decision.action == decide.DO
        after = dict(record)
        if places:
            after.update(
                state=states.State(record["state"].base, record["state"].flags | {"DRAIN"}),
                reason=marks.reason(self.token, self.params["reason"]),
            )
        self.result["changed"] = places
        self.tell(after, jobs)

    def place(self) -> None:
        words = marks.reason(self.token, self.params["reason"])
        self.slurm.update(self.name, state="drain", reason=words)
        self.owner = marks.OURS
        self.result.update(changed=True, mark={"owner": marks.OURS, "token": self.token, "previous": None})
        record = self.patiently(lambda: self.look(jobs=False))[0]
        if not states.is_closed(record["state"]) or self.result["mark"]["owner"] != marks.OURS:
            raise NodeError(
                "%s was drained with the reason \"%s\", and Slurm says %s: another user changed it at the same time. "
                "Ask who works on it, and run again." % (self.name, words, decide.quote_reason(record))
            )

    def wait_until_empty(self) -> None:
        mine = marks.OURS in (self.part["owner"], self.result["mark"]["owner"])
        while True:
            record, jobs = self.patiently(self.look)
            if not states.is_closed(record["state"]):
                raise NodeError(
                    "%s is not drained any more (%s): another user resumed it during the wait for its jobs. Ask who "
                    "needs it, and run again." % (self.name, decide.quote_reason(record))
                )
            if mine and self.result["mark"]["owner"] != marks.OURS:
                mine = False
                self.result["left"].append(
                    "%s is now drained by another user (%s), and stays so" % (self.name, decide.quote_reason(record))
                )
            if self.result["drained"] or self.only_looks():
                return
            if self.over():
                self.too_long(record, jobs)
            self.pause()

    def too_long(self, record, jobs) -> None:
        """No job is ended; the policy decides if the drain stays."""
        why = decide.empty(record, jobs)[1]
        holding = why + (": " + decide.jobs_told(jobs) if jobs else "")
        kept = "It stays drained"
        self.cancel_own()
        if self.params["on_timeout"] == "lift":
            if self.result["mark"]["owner"] == marks.OURS:
                self.lift()
                self.look()
                kept = "The drain was lifted again"
            if self.params["reservation_minutes"]:
                self.unreserve()
        self.result.update(waiting=True, holding=holding)
        raise NodeError(
            "%s is not empty after %d s, %s. %s. Wait for the jobs, or have them ended, or allow more time "
            "(timeout_s), and run again." % (self.name, self.waited_s(), holding, kept)
        )

    # one job of our own that makes the window

    def job_name(self) -> str:
        return "gpufleet-%s-%s" % (self.token, self.name)

    def window(self) -> bool:
        """Wait until our own job has the whole node.

        Whether it has; without time to wait the job stays in the queue.
        """
        if not self.slurm.own_jobs(self.job_name()):
            number = self.slurm.submit(self.job_name(), self.name, JOB_MINUTES)
            self.result.update(changed=True, job=number)
        while "RUNNING" not in self.patiently(lambda: self.slurm.own_jobs(self.job_name())).values():
            record, jobs = self.patiently(self.look)
            if self.only_looks():
                return False
            if self.over():
                self.too_long(record, jobs)
            self.pause()
        return True

    def cancel_own(self) -> None:
        if self.params["method"] == "job":
            for number in self.slurm.own_jobs(self.job_name()):
                self.slurm.cancel(number)

    # a reservation for the time of the maintenance

    def reservation_name(self) -> str:
        return "gpufleet_%s_%s" % (self.token, self.name)

    def reserve(self) -> None:
        if not self.slurm.reservation(self.reservation_name()):
            self.slurm.reserve(
                self.reservation_name(), self.name, self.params["reservation_start"], self.params["reservation_minutes"]
            )
            self.result["changed"] = True
        self.result["reservation"] = self.reservation_name()

    def unreserve(self) -> None:
        if self.slurm.reservation(self.reservation_name()):
            self.result["changed"] = True
            if not self.check:
                self.slurm.release(self.reservation_name())

    # resumed

    def resume_node(self) -> None:
        while True:
            record, dummy = self.patiently(self.look)
            decision = decide.resume(
                record, self.token, self.params["expected_gpus"], self.params["expected_gres"], self.owner
            )
            if decision.action != decide.WAIT or self.over() or self.check:
                break
            self.pause()
        if decision.action in (decide.REFUSE, decide.WAIT):
            raise NodeError("%s was not resumed and stays drained: %s." % (self.name, decision.reason))
        if decision.action == decide.LEAVE:
            self.result["left"].append("%s %s" % (self.name, decision.reason))
        if decision.action == decide.DO and self.check:
            after = dict(record, state=states.State("IDLE", record["state"].flags - {"DRAIN"}), reason="")
            self.tell(after, self.result["blockers"])
            self.result["changed"] = True
        elif decision.action == decide.DO:
            self.lift()
            self.prove_in_service(record["reason"])
        if not self.check:
            self.cancel_own()
        if self.params["reservation_minutes"]:
            self.unreserve()

    def lift(self) -> None:
        self.slurm.update(self.name, state="resume")
        self.result["changed"] = True

    def prove_in_service(self, reason) -> None:
        """A node whose slurmd is dead looks well while it is drained."""
        until = max(self.deadline(), self.clock() + SETTLE_S)
        while True:
            record, dummy = self.look()
            state = record["state"]
            well = state.base in ("IDLE", "MIXED", "ALLOCATED") and not state.flags & {
                "NOT_RESPONDING",
                "INVALID_REG",
                "DRAIN",
            }
            if well:
                return
            foreign = states.is_closed(state) and self.result["mark"]["owner"] != marks.OURS
            if foreign or self.clock() >= until:
                break
            self.pause(until)
        kept = "another user keeps it out of service"
        if not foreign:
            kept = "the drain was put back"
            if marks.token_of(reason) != self.token:
                reason = marks.reason(self.token, self.params["reason"])
            self.slurm.update(self.name, state="drain", reason=reason)
            self.look()
        raise NodeError(
            "%s was resumed and does not serve (%s), so that %s: see whether slurmd runs on it (systemctl status "
            "slurmd) and what its log says." % (self.name, states.text(state), kept)
        )


def contradiction(params) -> str:
    """Return the problems of the options; empty if there are none."""
    if params["state"] != "read" and not params["token"]:
        return "state %s needs a token, which says whose drain it is" % params["state"]
    if params["token"] and not marks.valid(params["token"]):
        return (
            "token is %r: expected letters, digits and . _ + ~ -, at most 100 of them, beginning with a letter or digit"
            % params["token"]
        )
    if not params["node_name"] and not (params["state"] == "read" and params["node_names"]):
        return "node_name is missing: the name of the node in Slurm"
    for name, least in (("timeout_s", 0), ("reservation_minutes", 0), ("slice_s", 1)):
        if params.get(name) is not None and params[name] < least:
            return "%s is %d: expected %d or more" % (name, params[name], least)
    if params["poll_s"] <= 0:
        return "poll_s is %s: expected more than 0" % params["poll_s"]
    return ""
