# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of a test run went: sums, the longest path, the slowest tests, and what grew since the times that were
kept.

Everything here is pure but `load` and `keep`. The document, `gpufleet.test_times/1`:

    {schema, cores, wall_s, sum_s, cpu_s, machine: {busy_s, stolen_s}, longest_path: {stages: [name], seconds},
     stages: {name: {wall_s, cpu_s, started_s, after: [name]}},
     slowest: [{seconds, phase: setup|call|teardown, stage, test}]}

All times are in seconds. `wall_s` of a stage is from its start to its end, `cpu_s` is the user and system time of its
processes. The lab's machines are no children of a stage: what they and everybody else here took is in `machine` only,
from the first line of /proc/stat (proc_stat(5)): all its processors together, at work and taken away by a hypervisor.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t

from tests.tools.outcome import PASSED, Outcome

SCHEMA = "gpufleet.test_times/1"
SLOWEST = 60
# Stages whose wall time differs by less than this are as they were: machines are shared and noisy.
GREW_S = 20.0
# "67.22s call     tests/unit/test_a.py::test_b", from pytest's option --durations.
DURATION = re.compile(r"^\s*(\d+\.\d+)s (setup|call|teardown)\s+(\S.*)$", re.MULTILINE)

Document = t.Dict[str, t.Any]


def slowest(logs: t.Mapping[str, str]) -> t.List[Document]:
    """The slowest tests and fixtures in the outputs of the stages, the slowest first."""
    found = [
        {"seconds": float(seconds), "phase": phase, "stage": stage, "test": test.strip()}
        for stage, text in logs.items()
        for seconds, phase, test in DURATION.findall(text)
    ]
    return sorted(found, key=lambda one: (-t.cast(float, one["seconds"]), str(one["stage"]), str(one["test"])))[
        :SLOWEST
    ]


def longest_path(seconds: t.Mapping[str, float], after: t.Mapping[str, t.Sequence[str]]) -> t.Tuple[t.List[str], float]:
    """The chain of stages that wait for each other and take longest together: no number of lanes makes a run shorter
    than it.
    """
    best: t.Dict[str, t.Tuple[float, t.List[str]]] = {}

    def reach(name: str) -> t.Tuple[float, t.List[str]]:
        if name not in best:
            before = max((reach(other) for other in after.get(name, ()) if other in seconds), default=(0.0, []))
            best[name] = (before[0] + seconds[name], before[1] + [name])
        return best[name]

    total, path = max((reach(name) for name in seconds), default=(0.0, []))
    return path, total


def machine(stat: str, ticks_per_s: int) -> Document:
    """{busy_s, stolen_s} since the machine started, from the text of /proc/stat (proc_stat(5)).

    Guests' time is part of user time there.
    """
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(word) for word in stat.split("\n", 1)[0].split()[1:9]
    )
    return {"busy_s": (user + nice + system + irq + softirq) / ticks_per_s, "stolen_s": steal / ticks_per_s}


def document(
    outcomes: t.Sequence[Outcome],
    after: t.Mapping[str, t.Sequence[str]],
    wall_s: float,
    logs: t.Mapping[str, str],
    machine_s: t.Mapping[str, float],
) -> Document:
    """What is kept of a run. `machine_s` is what `machine` grew by in its course."""
    path, seconds = longest_path({one.name: one.seconds for one in outcomes}, after)
    return {
        "schema": SCHEMA,
        "cores": os.cpu_count(),
        "wall_s": round(wall_s, 1),
        "sum_s": round(sum(one.seconds for one in outcomes), 1),
        "cpu_s": round(sum(one.cpu_s for one in outcomes), 1),
        "machine": {name: round(seconds, 1) for name, seconds in machine_s.items()},
        "longest_path": {"stages": path, "seconds": round(seconds, 1)},
        "stages": {
            one.name: {
                "wall_s": round(one.seconds, 1),
                "cpu_s": round(one.cpu_s, 1),
                "started_s": round(one.started_s, 1),
                "after": sorted(after.get(one.name, ())),
            }
            for one in outcomes
            if one.verdict == PASSED
        },
        "slowest": slowest(logs),
    }


def grew_most(before: t.Optional[Document], now: Document) -> t.Optional[t.Tuple[str, float, float]]:
    """(stage, seconds before, seconds now) of the stage whose wall time grew most, if one grew by more than noise."""
    known = (before or {}).get("stages", {})
    both = [(name, known[name]["wall_s"], one["wall_s"]) for name, one in now["stages"].items() if name in known]
    most = max(both, key=lambda one: one[2] - one[1], default=None)
    return most if most is not None and most[2] - most[1] > GREW_S else None


def _at_work(now: Document) -> str:
    there = max(now["wall_s"] * now["cores"], 1e-9)
    return "{0} processors: {1:.0%} of the time at work, {2:.0%} taken away by the machine's host".format(
        now["cores"], now["machine"]["busy_s"] / there, now["machine"]["stolen_s"] / there
    )


def summary(before: t.Optional[Document], now: Document) -> str:
    """The lines at the end of a run."""
    path = now["longest_path"]
    lines = [
        "all stages together {0:.0f} s of wall time and {1:.0f} s of CPU time, in {2:.0f} s".format(
            now["sum_s"], now["cpu_s"], now["wall_s"]
        ),
        "longest path {0:.0f} s: {1}".format(path["seconds"], " > ".join(path["stages"])),
        _at_work(now),
    ]
    grew = grew_most(before, now)
    if grew:
        lines.append("grew most since the kept times: {0}, from {1:.0f} s to {2:.0f} s".format(*grew))
    elif before is not None:
        lines.append("no stage grew by more than {0:.0f} s since the kept times".format(GREW_S))
    return "\n".join(lines)


def load(paths: t.Iterable[pathlib.Path]) -> t.Optional[Document]:
    """The first of these documents that is there and whole."""
    for path in paths:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and found.get("schema") == SCHEMA:
            return found
    return None


def keep(path: pathlib.Path, now: Document, before: t.Optional[Document]) -> None:
    """Write the times of this run; of stages that it did not have, those of the run before stay."""
    merged = dict(now, stages=dict((before or {}).get("stages", {}), **now["stages"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(".{0}.{1}".format(path.name, os.getpid()))
    new.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    new.replace(path)
