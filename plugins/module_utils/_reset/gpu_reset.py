# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset GPUs: read, decide (``plan``), turn persistence mode off, reset by nvidia-smi, and prove it (``proof``).

No session of NVML is open here at any time: each reading is in a child that has ended before the next step.
"""

from __future__ import annotations

from .._driver import capture
from .._node import identity
from .._node.runner import Runner
from .._nvml.selection import value
from . import gpus as gpu_facts
from . import plan as decider
from . import proof, reading

OUTPUT = 64 * 1024
MODE_S = 60


class ResetError(Exception):
    """Nothing could be decided, and nothing was done; the text says why. With the snapshot if that is the reason."""

    def __init__(self, text, taken=None) -> None:
        super().__init__(text)
        self.snapshot = taken


def commands(pass_fds=()):
    """Return the way to run nvidia-smi: bounded, and left behind where nothing can end it.

    It keeps the node's lock, should this process be killed.
    """

    def command(argv, timeout_s):
        return capture.run(argv, timeout_s, OUTPUT, pass_fds=pass_fds)

    return command


class GpuReset:
    """One run of module gpu_reset. TAKE(gather) answers a snapshot, COMMAND(argv, timeout) what capture.run does."""

    def __init__(self, params, take, command=None, run=None, root="/") -> None:
        self.params, self.take, self.root = params, take, root
        self.command = command or commands()
        self.run_command = run or Runner()
        self.actions, self.problems, self.warnings = [], [], []
        self.outcome, self.stuck = None, False

    # ---- reading and deciding ----

    def look(self):
        snapshot = self.take(list(gpu_facts.GATHER))
        if snapshot["status"] != "ok":
            raise ResetError(
                "NVML cannot be read (%s), and nothing was reset: %s" % (snapshot["status"], snapshot["message"]),
                snapshot,
            )
        boot_id = identity.read_boot_id(self.root)
        facts = dict(
            reading.read_obstacles(self.root, decider.COMMAND),
            snapshot=snapshot,
            fabric_manager=reading.fabric_manager(self.run_command),
            boot_id=boot_id,
            interrupted=reading.read_note(boot_id, self.root),
        )
        try:
            return facts, decider.decide(facts, self.params)
        except decider.WishError as exc:
            raise ResetError("%s; nothing was reset" % exc) from exc

    def preview(self):
        """Return what would be done; nothing is."""
        facts, plan = self.look()
        everyone = facts["snapshot"]["gpus"]
        if plan["action"] == decider.REFUSE:
            return self.answer(facts, plan, proof.make_planned_rows(everyone, plan, proof.UNCHANGED), False)
        if plan["action"] == decider.NONE:
            self.actions = ["turn persistence mode of %s on" % name for name in self.find_left(facts)]
            return self.answer(facts, plan, [], bool(self.actions))
        names = [gpu_facts.name_gpu(gpu) for gpu in self.of(everyone, plan["targets"])]
        self.actions = ["turn persistence mode of %s off" % name for name in self.names(everyone, plan["persistence"])]
        self.actions += ["reset %s" % ", ".join(names)]
        self.actions += ["turn persistence mode of %s on" % name for name in self.find_owed(facts, plan)]
        return self.answer(facts, plan, proof.make_planned_rows(everyone, plan, proof.PLANNED), True)

    # ---- acting ----

    def run(self):
        facts, plan = self.look()
        everyone = facts["snapshot"]["gpus"]
        if plan["action"] == decider.REFUSE:
            return self.answer(facts, plan, proof.make_planned_rows(everyone, plan, proof.UNCHANGED), False)
        if plan["action"] == decider.NONE:
            self.restore(self.find_left(facts))
            self.close()
            return self.answer(facts, plan, [], bool(self.actions))
        owed = self.find_owed(facts, plan)
        targets = self.of(everyone, plan["targets"])
        try:
            self.note(facts, targets, owed, "begun")
        except reading.RecordError as exc:
            raise ResetError("%s; nothing was reset" % exc) from exc
        watermark = reading.read_log(self.root, self.run_command)["position"]
        self.persistence(self.names(everyone, plan["persistence"]), False)
        # What came since the first look: a job that began, or a daemon that was started again.
        again = decider.list_obstacles(
            reading.read_obstacles(self.root, decider.COMMAND), [dict(gpu, persistence_mode=None) for gpu in targets]
        )
        if again or self.problems:
            plan = dict(plan, action=decider.REFUSE, reasons=again)
            self.restore(owed)
            self.close()
            return self.answer(facts, plan, proof.make_planned_rows(everyone, plan, proof.UNCHANGED), bool(self.off()))
        try:
            self.note(facts, targets, owed, "resetting")
        except reading.RecordError as exc:
            self.warnings.append("%s: the note says less than it should" % exc)
        self.reset(targets)
        self.restore(owed)
        rows, changed = self.prove(everyone, plan, watermark, owed)
        self.close()
        return self.answer(facts, plan, rows, changed or bool(self.off()))

    def reset(self, targets) -> None:
        argv = [decider.COMMAND, "--gpu-reset", "-i", ",".join(gpu_facts.name_gpu(gpu) for gpu in targets)]
        done = self.command(argv, self.params["reset_timeout_s"])
        said = done.data.decode("utf-8", "replace").strip()
        self.outcome = {"argv": argv, "rc": done.rc, "said": said, "state": done.state, "left_behind": done.left_behind}
        self.actions.append("reset %s" % ", ".join(gpu_facts.name_gpu(gpu) for gpu in targets))
        self.stuck = done.left_behind is not None
        if done.state == "timeout":
            self.problems.append(
                proof.make_problem(
                    "command_timeout",
                    "%s; whether the GPUs were reset has to be read" % done.message,
                    None,
                    "no end after %s s" % self.params["reset_timeout_s"],
                    "its end",
                    "reboot the node" if self.stuck else proof.HEALTH,
                )
            )
        elif done.state != "ok":
            words = " ".join(said.split())
            self.problems.append(
                proof.make_problem(
                    "command_failed",
                    "%s answered %s: %s" % (" ".join(argv[:2]), done.rc, words or done.message or "nothing"),
                    None,
                    done.rc,
                    0,
                    "look at what it says; stop what holds the GPUs, or reboot the node",
                )
            )

    def prove(self, everyone, plan, watermark, owed):
        """Return (rows, whether anything changed): GPUs are read by NVML opened again, in a child with a deadline."""
        targets = self.of(everyone, plan["targets"])
        after = self.take(list(gpu_facts.GATHER))
        now = after["gpus"]
        if after["status"] != "ok":
            self.problems.append(
                proof.make_problem(
                    "nvml_unreadable",
                    "after the reset NVML cannot be read (%s): %s" % (after["status"], after["message"]),
                    None,
                    after["status"],
                    "ok",
                )
            )
            now = []
        else:
            self.problems += proof.missing(everyone, now)
            self.problems += [] if self.stuck else proof.not_persistent(everyone, now, owed)
            for gpu in targets:
                if proof.find_same_gpu(gpu, now) is not None:
                    self.problems += proof.check_remains(gpu, proof.find_same_gpu(gpu, now))
        log = reading.read_log(self.root, self.run_command, watermark) if watermark else None
        problems, warnings = proof.check_kernel_log(log, targets)
        self.problems += problems
        self.warnings += warnings
        rows = proof.make_rows(everyone, plan, now, self.problems)
        for row in rows:
            if row["status"] == proof.UNPROVEN:
                self.warnings.append(
                    "nothing had to change on GPU %s, so that only %s says that it was reset"
                    % (row["gpu"], decider.COMMAND)
                )
        # One that was refused changes nothing; of all others it cannot be told.
        untouched = self.outcome["state"] in ("absent", "failed") and all(row["before"] == row["after"] for row in rows)
        return rows, not untouched

    # ---- persistence mode, which counts as a client of the GPU ----

    def persistence(self, names, on) -> None:
        """Turn the mode of GPUs on or off, one command each; stops at the first that does not work."""
        word, flag = ("on", "1") if on else ("off", "0")
        for name in names:
            argv = [decider.COMMAND, "-pm", flag, "-i", name]
            answer = self.command(argv, MODE_S)
            if answer.state != "ok":
                self.stuck = answer.left_behind is not None
                said = " ".join(answer.data.decode("utf-8", "replace").split())
                self.problems.append(
                    proof.make_problem(
                        "persistence_" + word,
                        "persistence mode of GPU %s could not be turned %s: %s" % (name, word, said or answer.message),
                        name,
                        answer.rc,
                        0,
                        "look at nvidia-persistenced.service, and run %s" % " ".join(argv),
                    )
                )
                return
            self.actions.append("turn persistence mode of %s %s" % (name, word))

    def restore(self, names) -> None:
        """Turn persistence mode on again where it was.

        The other GPUs are tried also if one fails, but nothing behind a command that hangs.
        """
        for name in names:
            if not self.stuck:
                self.persistence([name], True)

    def off(self) -> list:
        """Return the GPUs whose persistence mode should be on again and is not."""
        return [item["gpu"] for item in self.problems if item["id"] == "persistence_on"]

    def find_owed(self, facts, plan) -> list:
        """Return the GPUs whose persistence mode has to be on at the end: it was, or an earlier run turned it off."""
        was = self.names(facts["snapshot"]["gpus"], plan["persistence"])
        return was + [name for name in self.find_left(facts) if name not in was]

    @staticmethod
    def find_left(facts) -> list:
        """Return the GPUs of which an interrupted run turned persistence mode off, and where it still is."""
        note = facts["interrupted"]
        off = [gpu_facts.name_gpu(gpu) for gpu in facts["snapshot"]["gpus"] if value(gpu, "persistence_mode") == 0]
        return [name for name in note["persistence"] if name in off] if note else []

    def note(self, facts, targets, owed, phase) -> None:
        reading.write_note(
            facts["boot_id"],
            [gpu_facts.name_gpu(gpu) for gpu in targets],
            owed,
            phase,
            self.params.get("reason"),
            self.root,
        )

    def close(self) -> None:
        """Remove the note once nothing is left to put back."""
        if not self.off() and not self.stuck:
            reading.remove_note(self.root)

    # ---- the result ----

    @staticmethod
    def of(everyone, indexes) -> list:
        return [gpu for gpu in everyone if gpu["index"] in indexes]

    def names(self, everyone, indexes) -> list:
        return [gpu_facts.name_gpu(gpu) for gpu in self.of(everyone, indexes)]

    def answer(self, facts, plan, rows, changed):
        """Return the result of the module."""
        reasons, added = plan["reasons"], [row["gpu"] for row in rows if row["added"]]
        failed = bool(reasons or self.problems)
        result = {
            "changed": changed,
            "action": plan["action"],
            "gpus": rows,
            "joined_by_nvlink": added,
            "reasons": reasons,
            "problems": self.problems,
            "actions": self.actions,
            "command": self.outcome,
            "interrupted": facts["interrupted"],
            "reason": self.params.get("reason"),
            "holders": facts["holders"],
            "simulated": facts["snapshot"]["simulated"],
            "driver_version": value(facts["snapshot"]["system"], "driver_version"),
            "warnings": self.warnings,
            "diff": {"before": make_diff_side(rows, "before"), "after": make_diff_side(rows, "after")},
        }
        result["msg"] = make_message(result)
        if failed:
            result["failed"] = True
        return result


def make_diff_side(rows, key):
    """Return one side of the difference: of each GPU what is not the same on both."""
    found = {}
    for row in rows:
        other = row["after"] or {}
        changed = dict(
            (name, (row[key] or {}).get(name)) for name in row["before"] if row["before"][name] != other.get(name)
        )
        if changed:
            found[row["gpu"]] = changed
    return found


def make_message(result) -> str:
    """Return the result for an operator."""
    done = "Done: %s." % ", ".join(result["actions"]) if result["actions"] else "Nothing was changed."
    note = result["interrupted"]
    if note:
        done += " An earlier run that began at %s was interrupted (phase %s, GPUs %s)." % (
            note.get("time"),
            note.get("phase"),
            ", ".join(note["gpus"]),
        )
    if result["reasons"]:
        return "GPUs are not reset: %s. %s" % (decider.make_sentence(result["reasons"]), done)
    if result["problems"]:
        return "The reset of GPUs failed: %s. %s" % (decider.make_sentence(result["problems"]), done)
    if result["action"] == decider.NONE:
        return "No GPU needs a reset. %s" % done
    names = ", ".join("%s%s" % (row["gpu"], " (joined by NVLink)" if row["added"] else "") for row in result["gpus"])
    one = len(result["gpus"]) == 1
    words = "would be" if result["gpus"][0]["status"] == proof.PLANNED else ("was" if one else "were")
    return "%d GPU%s %s reset: %s" % (len(result["gpus"]), "" if one else "s", words, names)
