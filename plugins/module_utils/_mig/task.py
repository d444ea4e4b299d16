# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG layout from reading to proof: read, decide, act, read again. Each call of NVML is in a child with a deadline.

All GPUs are decided before the first one is changed: one that cannot have its layout keeps all others from being
touched. What was made is read back in a session of its own; a GPU that does not have its layout then gets back the one
that it had.
"""

from __future__ import annotations

from .._nvml import binding as binding_module
from .._nvml import codes, session, snapshot
from . import act, config, documents, plan, read

GATHER = ("memory", "mig")
PRESENT, CLEARED, EXPORTED, GENERATED = "present", "cleared", "exported", "generated"


class TaskError(Exception):
    """Nothing could be decided, and nothing was changed; the text says why and what to do.

    With the snapshot if that is the reason.
    """

    def __init__(self, text, taken=None) -> None:
        super().__init__(text)
        self.snapshot = taken


class Tools:
    """Functions that reach NVML: TAKE reads a snapshot, CHILD runs work in a child, LOAD returns the binding.

    Tests pass their own.
    """

    def __init__(self, timeout_s, load=None, stuck_file=None, take=snapshot.take, child=session.run) -> None:
        self.timeout_s, self.load, self.stuck_file, self._take, self._child = timeout_s, load, stuck_file, take, child

    def look(self):
        """A snapshot with the MIG layout of each GPU."""
        return self._take(
            deadline_s=self.timeout_s,
            stuck_file=self.stuck_file,
            gather=list(GATHER),
            load=self.load,
            more=(read.read_layout,),
        )

    def do(self, steps):
        """(answers or None, message): what NVML answered to each step; None if the child told nothing."""

        def work(progress):
            progress("loading the binding")
            nvml = (self.load or binding_module.load_own)()[0]
            if nvml is None:
                raise ValueError(binding_module.NO_BINDING)
            return act.act(nvml, steps, progress)

        outcome = self._child(work, self.timeout_s, self.stuck_file)
        return (outcome.value if outcome.status == "ok" else None), outcome.message


def run(options, check_mode, tools, name_processes=None):
    """The result of the module gpu_mig for its OPTIONS. NAME_PROCESSES answers {pid: text for a person}."""
    before = tools.look()
    if before["status"] != "ok":
        raise TaskError(
            "NVML cannot be read (%s), and nothing was changed: %s" % (before["status"], before["message"]), before
        )
    if options["state"] in (EXPORTED, GENERATED):
        return _document(options, before)
    if not before["gpus"]:
        raise TaskError(
            "NVML shows no GPU, so none has its layout; look at lspci -d 10de: and for NVRM lines in the kernel log",
            before,
        )
    layouts = layouts_of(options, before["gpus"])
    named = name_processes or (lambda: {})
    plans = decide(before["gpus"], layouts, named)
    answers, rows = [], [_row(item) for item in plans]
    if not any(item.problems for item in plans):
        if check_mode:
            rows = [_row(item, _expected_layout(item)) for item in plans]
        elif any(item.steps for item in plans):
            rows, answers = _carry_out(tools, before, plans, layouts, named)
    return _result(rows, answers, before, check_mode, options.get("config"))


def decide(gpus, layouts, name_processes) -> list:
    """A plan for each of GPUS."""
    busy = any((plan.value(gpu, read.KEY) or {}).get("processes") for gpu in gpus)
    names = name_processes() if busy else {}
    return [plan.decide(gpu, layout, names) for gpu, layout in zip(gpus, layouts)]


def _document(options, before) -> dict:
    if options["state"] == GENERATED:
        document, notes = documents.generate_document(before["gpus"]), []
    else:
        document, notes = documents.export_layout(before["gpus"], options.get("config_name") or "current")
    return {
        "changed": False,
        "config": document,
        "reset_required": False,
        "nvml_writes": 0,
        "failures": [],
        "warnings": notes,
        "gpus": [],
        "simulated": before["simulated"],
        "driver_version": plan.value(before["system"], "driver_version"),
        "msg": "MIG configuration with %s" % (", ".join(sorted(document.get("mig-configs", {}))) or "nothing",),
        "diff": {"before": {}, "after": {}},
    }


def layouts_of(options, gpus) -> list:
    """The wanted layout of each of GPUS, in their order; None where no entry is about it.

    TaskError for a GPU that is named and not there.
    """
    if options["state"] == CLEARED:
        return [config.Layout((plan.value(gpu, "mig_mode_current") or 0) == 1, {}) for gpu in gpus]
    targets = [plan.target(gpu, position) for position, gpu in enumerate(gpus)]
    try:
        if options.get("layout"):
            entries = tuple(
                config.selection("layout[%d]" % (number,), entry) for number, entry in enumerate(options["layout"])
            )
        else:
            entries = config.choose(config.parse(options["config"]), options["config_name"])
    except config.ConfigError as exc:
        raise TaskError("%s; nothing was changed" % (exc,)) from exc
    strangers = config.unmatched_names(entries, targets)
    if strangers:
        raise TaskError(
            "no GPU of this node is called %s; NVML shows %s. Nothing was changed"
            % (", ".join(strangers), ", ".join(target.names[-1] for target in targets) or "none")
        )
    return [config.layout_of(entries, target) for target in targets]


def _expected_layout(item):
    """The layout that a plan leads to."""
    return item.wanted if item.status == plan.CHANGE else item.before


def _carry_out(tools, before, plans, layouts, named):
    """(rows, answers) of the plans, carried out: what needs MIG to be on comes in a second round, when the driver tells
    placements.
    """
    steps = [step for item in plans for step in item.steps]
    answers, message = tools.do(steps)
    told = list(answers or [])
    after = tools.look()
    if (
        answers is not None
        and after["status"] == "ok"
        and any(step["do"] == plan.SET_MODE and step["mode"] for step in steps)
    ):
        again = decide(after["gpus"], layouts, named)
        more = [step for item in again if not item.problems for step in item.steps if step["do"] != plan.SET_MODE]
        if more:
            answers, message = tools.do(more)
            told += list(answers or [])
            after = tools.look()
            steps = steps + more
    if after["status"] != "ok":
        problem = plan.Problem(
            "unreadable", "what was changed cannot be read back (%s): %s" % (after["status"], after["message"])
        )
        return [_row(item, None, [problem] if item.steps else []) for item in plans], told
    failed = dict(
        (step["gpu"], answer) for step, answer in reversed(list(zip(steps, told))) if answer["rc"] != codes.SUCCESS
    )
    rows = []
    for item, layout in zip(plans, layouts):
        if not item.steps:
            rows.append(_row(item, item.before))
            continue
        now = next((gpu for gpu in after["gpus"] if plan.value(gpu, "uuid") == plan.value(item.gpu, "uuid")), None)
        rows.append(_conclude_row(tools, item, layout, now, failed, message))
    return rows, told


def _conclude_row(tools, item, layout, now, failed, message):
    """The row of a GPU that was changed. One that does not have its layout gets back what it had."""
    if now is None:
        return _row(
            item,
            None,
            [plan.Problem("gpu_lost", "it is gone after the change; look for NVRM: Xid 79 in the kernel log")],
        )
    proof = plan.decide(now, layout, {})
    if proof.status in (plan.SAME, plan.PENDING):
        return _row(item, proof.before, status="changed" if proof.status == plan.SAME else plan.PENDING)
    answer = failed.get(plan.value(item.gpu, "uuid"))
    if answer is not None:
        found = "%s answered %s (%d)%s" % (
            answer["where"],
            answer["error"],
            answer["rc"],
            ": " + answer["detail"] if answer.get("detail") else "",
        )
    else:
        found = (
            message
            or "; ".join(problem.message for problem in proof.problems)
            or "it reads %s" % (describe_layout(proof.before),)
        )
    back, restored = _back(tools, item, now)
    return _row(item, restored, [plan.Problem("failed", "it did not get its layout: %s. %s" % (found, back))])


def _back(tools, item, now):
    """(sentence, layout that is there now): the layout before, made again."""
    steps = plan.undo(item.gpu, now, plan.value(item.gpu, "mig_mode_current"))
    if steps:
        tools.do(steps)
    after = tools.look()
    gpu = next((gpu for gpu in after["gpus"] if plan.value(gpu, "uuid") == plan.value(item.gpu, "uuid")), None)
    there = plan.read_layout(gpu) if gpu is not None else None
    if there == item.before:
        return "It has the layout again that it had before (%s)" % (describe_layout(there),), there
    return (
        (
            "The layout before (%s) could not be made again, it has %s; look for NVRM lines in the kernel log, "
            "and reset the GPU" % (describe_layout(item.before), describe_layout(there))
        ),
        there,
    )


def describe_layout(layout) -> str:
    """A layout for a person."""
    if layout is None:
        return "a layout that cannot be read"
    if not layout["enabled"]:
        return "MIG off"
    return (
        ", ".join("%d x %s" % (count, name) for name, count in sorted(layout["devices"].items()))
        or "MIG on and no instances"
    )


def _row(item, after=None, problems=None, status=None) -> dict:
    problems = list(item.problems if problems is None else problems)
    changed = bool(item.steps) and (item.before != after or status == plan.PENDING)
    return {
        "gpu": plan.value(item.gpu, "uuid"),
        "index": item.gpu["index"],
        "pci_bus_id": plan.value(item.gpu, "pci_bus_id"),
        "status": status or ("failed" if problems and item.status != plan.REFUSED else item.status),
        "before": item.before,
        "wanted": item.wanted,
        "after": item.before if item.status == plan.REFUSED else after if item.steps else item.before,
        "changed": changed,
        "steps": [dict((key, part) for key, part in step.items() if key != "gpu") for step in item.steps],
        "problems": [problem._asdict() for problem in problems],
    }


def together(rows) -> str:
    """The problems of all GPUs in one text, each sentence once with the GPUs that it is about."""
    found = {}
    for row in rows:
        for problem in row["problems"]:
            found.setdefault(problem["message"], []).append(
                "%s (%s)" % (row["index"], row["pci_bus_id"] or row["gpu"] or "address not known")
            )
    return "; ".join(
        "GPU%s %s: %s" % ("s" if len(about) > 1 else "", ", ".join(about), text) for text, about in found.items()
    )


def _result(rows, answers, before, check_mode, config_used):
    problems = [dict(problem, gpu=row["gpu"], index=row["index"]) for row in rows for problem in row["problems"]]
    refused = any(row["status"] == plan.REFUSED for row in rows)
    if refused:
        rows = [dict(row, after=row["before"], changed=False) for row in rows]
    pending = [row for row in rows if row["status"] == plan.PENDING]
    shown = [row for row in rows if row["changed"]]
    result = {
        "changed": bool(shown) or any(answer["writes"] for answer in answers),
        "reset_required": bool(pending),
        "gpus": rows,
        "nvml_writes": sum(answer["writes"] for answer in answers),
        "failures": problems,
        "warnings": [],
        "config": config_used,
        "simulated": before["simulated"],
        "driver_version": plan.value(before["system"], "driver_version"),
        "diff": {
            "before": dict((row["gpu"], describe_layout(row["before"])) for row in shown),
            "after": dict((row["gpu"], describe_layout(row["after"])) for row in shown),
        },
    }
    if problems:
        result["failed"] = True
        result["msg"] = "%s: %s" % (
            "Nothing was changed"
            if refused
            else "%d of %d GPUs failed" % (sum(bool(row["problems"]) for row in rows), len(rows)),
            together(rows),
        )
    else:
        result["msg"] = "MIG layout: %d GPU%s %s, %d as wanted%s" % (
            len(shown),
            "" if len(shown) == 1 else "s",
            "would change" if check_mode else "changed",
            len(rows) - len(shown) - len(pending),
            "; %d wait for a GPU reset" % (len(pending),) if pending else "",
        )
    return result
