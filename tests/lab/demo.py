# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on the lab: six nodes in three racks from one real driver to another, and one of them has a GPU that the
new driver does not bring up.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import time
from pathlib import Path

from . import drivers, image, machines
from .common import LabError, elapsed
from .config import Lab

OLD, NEW = "535.216.03", "535.261.03"
NAMES = ["gpu-r1-1", "gpu-r1-2", "gpu-r2-1", "gpu-r2-2", "gpu-r3-1", "gpu-r3-2"]
FEW = ["gpu-r1-1", "gpu-r1-2", "gpu-r2-1", "gpu-r3-1"]  # the canary, and of each rack one to go after it
FAULTY, FAULTY_GPU = "gpu-r2-1", 3
CANARY = "gpu-r1-1"
# The others by three, of each rack one; the canary alone before, and watched at work.
POLICY = {
    "rollout_version": NEW,
    "rollout_max_down": 3,
    "rollout_failure_budget": 2,
    "rollout_canaries": [CANARY],
    "rollout_canary_soak_s": 10,
    "rollout_domain_caps": {"rack": 1},
    "gpu_node_upgrade_soak_interval": 5,
}
OUT_OF_SERVICE = (
    "stop",
    "install",
    "prove",
    "reboot",
    "reload",
    "validate",
    "return",
    "rollback_install",
    "rollback_prove",
    "rollback_reboot",
    "rollback_reload",
    "rollback_mig",
    "rollback_validate",
    "rollback_start",
    "quarantine",
)
STAGES = {
    "kernel_hold": "hold the kernel",
    "nvidia_repository": "add the package sources",
    "nvidia_driver": "install the driver",
    "Reboot into the driver": "reboot",
    "nvidia_persistenced": "keep the GPUs initialised",
    "Prove that the node is healthy": "prove that it is healthy",
}
STEP_LINE = re.compile(r"^\[(?:\d+|-)/\d+\] \S+: .*$", re.M)
WARNING = re.compile(r"^\[WARNING\]: (.*)$", re.M)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Progress:
    """Few lines for people, everything into a log."""

    def __init__(self, log, out=print):
        self.log, self.out = log, out
        self.start = time.monotonic()
        self.seen = set()

    def say(self, text: str) -> None:
        spent = int(time.monotonic() - self.start)
        self.out(f"{spent // 60:3d}:{spent % 60:02d}  {text}", flush=True)

    def event(self, data: dict) -> None:
        text = ESCAPES.sub("", data.get("stdout") or "")
        if text:
            self.log.write(text.replace("\r\n", "\n") + "\n")
            self.log.flush()
        for line in self.lines(data, text):
            self.say(line)

    def lines(self, data: dict, text: str) -> list[str]:
        """What of an event is worth a line."""
        details = data.get("event_data") or {}
        if data["event"] == "runner_on_start":
            stage = self.stage(details)
            key = (details.get("host"), stage)
            if stage and key not in self.seen:
                self.seen.add(key)
                number = list(STAGES.values()).index(stage) + 1
                return [f"{details['host']}: {stage} ({number}/{len(STAGES)})"]
        if data["event"] == "runner_on_unreachable" and not details.get("ignore_errors"):
            return [f"{details.get('host')}: does not answer"]
        return (
            STEP_LINE.findall(text.replace("\r", ""))
            if data["event"] in ("verbose", "runner_on_ok", "runner_on_failed")
            else []
        )

    @staticmethod
    def stage(details: dict) -> str | None:
        role = (details.get("role") or "").rpartition(".")[2]
        if details.get("playbook", "").endswith("upgrade.yml") or "gpu_node_upgrade" in (
            details.get("task_path") or ""
        ):
            return None
        if not str(details.get("play", "")).startswith("Bring"):
            return None
        return STAGES.get(role) or STAGES.get(details.get("task", ""))


def complaints(report: dict, names: list[str], interrupted: tuple[str, ...] = ()) -> list[str]:
    """Everything in a report that is not exactly what the demonstration has to show. INTERRUPTED: nodes whose
    controller was killed, in one of their steps or between two.
    """
    found = []
    if report.get("schema") != "gpufleet.report/1":
        found.append(f"the schema is {report.get('schema')}, expected gpufleet.report/1")
    if report.get("target") != NEW:
        found.append(f"the target is {report.get('target')}, expected {NEW}")
    if report.get("verdict") != "failed":
        found.append(f"the verdict is {report.get('verdict')}, expected failed, since one node was rolled back")
    if not (report.get("started") and report.get("finished")):
        found.append("the rollout has no beginning or no end")
    nodes = report.get("nodes", {})
    if sorted(nodes) != sorted(names):
        found.append(f"the nodes are {', '.join(sorted(nodes)) or 'none'}, expected {', '.join(sorted(names))}")
    for name, node in nodes.items():
        expected = "rolled_back" if name == FAULTY else "done"
        if node["state"] != expected:
            found.append(
                f"{name} is {node['state']}, expected {expected}{': ' + node['reason'] if node['reason'] else ''}"
            )
        if (node["from"], node["to"]) != (OLD, NEW):
            found.append(f"{name} went from {node['from']} to {node['to']}, expected from {OLD} to {NEW}")
        bad = [step["name"] for step in node["steps"] if step["status"] != "ok"]
        if name in interrupted and [step["status"] for step in node["steps"]].count("interrupted") == 1:
            bad = [step["name"] for step in node["steps"] if step["status"] not in ("ok", "interrupted")]
        wanted = ["validate"] if name == FAULTY else []
        if bad != wanted:
            found.append(f"{name}: the steps that did not succeed are {bad}, expected {wanted}")
    return found + out_of_order(nodes)


def warned(log: str) -> list[str]:
    """Every warning of Ansible in its output, once each: a report that could not be made is one, and ends no rollout by
    itself.
    """
    return [f"Ansible warned: {words.strip()}" for words in dict.fromkeys(WARNING.findall(log))]


def rack(name: str) -> str:
    return name.rpartition("-")[0]


def out_of_order(nodes: dict) -> list[str]:
    """Where the rollout did not keep to the canary, or to one node of a rack at a time."""
    found = []
    watched = [step["finished"] for step in nodes.get(CANARY, {"steps": []})["steps"] if step["name"] == "soak"]
    if not watched:
        found.append(f"{CANARY} was not watched at work")
    spans = []
    for name, node in nodes.items():
        started = min((step["started"] for step in node["steps"]), default="")
        if watched and name != CANARY and started < watched[0]:
            found.append(f"{name} started at {started}, before the canary was watched to the end at {watched[0]}")
        out = [step for step in node["steps"] if step["name"] in OUT_OF_SERVICE]
        if out:
            spans.append((out[0]["started"], out[-1]["finished"], name))
    spans.sort()
    for number, (dummy, end, name) in enumerate(spans):
        for begin, dummy, other in spans[number + 1 :]:
            if rack(other) == rack(name) and begin < end:
                found.append(f"{name} and {other} of one rack were out of service at the same time, at {begin}")
    return found


def kept(ledger: Path, node: str, name: str) -> dict | None:
    """A document that the rollout kept in its ledger."""
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as database:
        row = database.execute(
            "SELECT body FROM gpufleet_document WHERE node = ? AND name = ?", (node, name)
        ).fetchone()
    return json.loads(row[0]) if row else None


def names_the_gpu(reason: str, gpu: dict) -> bool:
    """Whether a reason says which GPU it was: by its UUID or its PCI address."""
    marks = [gpu[key]["value"] for key in ("uuid", "pci_bus_id") if gpu.get(key, {}).get("value")]
    short = [mark[4:] for mark in marks if re.fullmatch(r"0000[0-9a-f]{4}:.*", mark)]
    return any(mark.lower() in reason.lower() for mark in marks + short)


def fresh(lab: Lab, names: list[str]) -> None:
    """The machines as they come from the image, whatever an earlier run left on them."""
    there = {entry["name"] for entry in machines.status(lab)}
    machines.up(lab, machines.DEFAULT_INVENTORY, names)
    again = [name for name in names if name in there]
    if again:
        machines.reset(lab, again)


def bring_up(lab: Lab, progress: Progress, names: list[str], extra: dict, reports: Path) -> None:
    """The nodes in service with the old driver, and one with a fault that the new driver will show."""
    from .play import play  # needs ansible-runner, which the lab's other commands do without

    progress.say("the machines' image and the drivers' kernel modules (built once, then taken from the cache)")
    image.ensure(lab)
    drivers.ensure(lab, [OLD, NEW])
    progress.say(f"start {len(names)} machines: {', '.join(names)}")
    fresh(lab, names)

    progress.say(f"bring {len(names)} nodes up with driver {OLD}")
    outcome = play(
        "gpufleet.lifecycle.bringup",
        machines.DEFAULT_INVENTORY,
        dict(extra, nvidia_driver_version=OLD),
        limit=",".join([*names, "localhost"]),
        on_event=progress.event,
    )
    ended(outcome, "bringup", reports)
    if outcome.rc != 0:
        raise LabError(f"bringup ended with {outcome.rc}:\n{outcome.tail()}\nAll of it: {reports / 'ansible.log'}")

    progress.say(f"inject a fault: driver {NEW} does not bring up GPU {FAULTY_GPU} of {FAULTY}")
    if (
        machines.execute(
            lab, FAULTY, ["gpusim", "inject", "gpu-not-brought-up", "--gpu", str(FAULTY_GPU), "--driver", NEW]
        )
        != 0
    ):
        raise LabError(f"the fault could not be injected on {FAULTY}")


def run(lab: Lab, names: list[str]) -> int:
    """Exit status 0 only when exactly the expected happened."""
    from .play import play  # needs ansible-runner, which the lab's other commands do without

    reports, artifacts = lab.state / "report", lab.state / "demo"
    for directory in (reports, artifacts):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": str(lab.trees)}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(reports / "ansible.log", "w", encoding="utf-8"))
        progress = Progress(log)
        bring_up(lab, progress, names, extra, reports)
        progress.say(
            f"roll driver {NEW} over the nodes: first the canary {CANARY}, then three at a time, one of a rack"
        )
        policy = dict(extra, rollout_report_dir=str(reports), **POLICY)
        outcome = play(
            "gpufleet.lifecycle.upgrade",
            machines.DEFAULT_INVENTORY,
            policy,
            limit=",".join([*names, "localhost"]),
            on_event=progress.event,
        )
        ended(outcome, "upgrade", reports)
        return conclude(progress, outcome, reports, artifacts, names)


def ended(outcome, what: str, reports: Path) -> None:
    """ansible-runner answers an interruption with a status of its own."""
    if outcome.rc == 254:
        raise KeyboardInterrupt(f"{what} was interrupted, see {reports / 'ansible.log'}")


def conclude(progress: Progress, outcome, reports: Path, artifacts: Path, names: list[str]) -> int:
    """Show the report, and judge it."""
    path = reports / "report.json"
    if not path.exists():
        raise LabError(
            f"the rollout left no report (exit status {outcome.rc}):\n{outcome.tail()}\n"
            f"All of it: {reports / 'ansible.log'}"
        )
    report = json.loads(path.read_text(encoding="utf-8"))
    found = complaints(report, names)
    if outcome.rc != 2:
        found.append(f"the rollout's exit status is {outcome.rc}, expected 2, since one node was rolled back")
    baseline = kept(artifacts / "rollouts" / "ledger.sqlite", FAULTY, "baseline")
    if baseline is None:
        found.append(f"there is no baseline of {FAULTY} in the ledger")
    elif not names_the_gpu(report["nodes"].get(FAULTY, {}).get("reason", ""), baseline["snapshot"]["gpus"][FAULTY_GPU]):
        found.append(f"the reason of {FAULTY} does not name GPU {FAULTY_GPU}")
    found += warned((reports / "ansible.log").read_text(encoding="utf-8"))
    print("\n" + "\n".join(table(report)) + "\n")
    print(
        f"Report, for a browser: {reports / 'report.html'}; also {path} and {reports / 'report.md'}; Ansible's own "
        f"output: {reports / 'ansible.log'}"
    )
    for line in found:
        print(f"NOT AS EXPECTED: {line}")
    if not found:
        print(
            f"As expected, after {elapsed(progress.start)}: {FAULTY} could not use the new driver and was put back; "
            f"the others run it."
        )
    return 1 if found else 0


def table(report: dict) -> list[str]:
    """The summary, a row for each node and the reasons under it."""
    rows = [("node", "state", "from", "to", "steps")]
    for name, node in report["nodes"].items():
        rows.append((name, node["state"], node["from"] or "-", node["to"] or "-", str(len(node["steps"]))))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines + [
        f"{name}: {' '.join(node['reason'].split())}" for name, node in report["nodes"].items() if node["reason"]
    ]
