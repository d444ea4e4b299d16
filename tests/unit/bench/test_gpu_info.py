# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of gpu_info: what it counts, and that it says so when a limit is not kept."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.bench.gpu_info import __main__ as bench
from ansible_collections.gpufleet.lifecycle.tests.bench.gpu_info import against_smi


def notes(ratio=1.5, sent=180000, rounds=4):
    """The first turn sends the binding and costs more."""
    lines = [("ping", 0.9, 9), ("gpu_info", 9, 190000), ("gpu_info", 9, 900000)]
    for _round in range(rounds):
        lines += [("ping", 0.1, 160000), ("gpu_info", 0.1 * ratio, sent)]
    return [{"module": module, "cpu_s": cpu, "bytes": size} for module, cpu, size in lines]


def snapshot(**changes):
    taken = {
        "status": "ok",
        "gpus": [{}] * 8,
        "simulated": True,
        "system": {"driver_version": {"value": "1"}},
        "binding": {"source": "shipped", "version": "1"},
    }
    taken.update(changes)
    return taken


@pytest.mark.parametrize(
    "lines, taken, kept",
    [
        (notes(), snapshot(), True),
        (notes(ratio=2.1), snapshot(), False),
        (notes(sent=200000), snapshot(), False),
        # One call in between was larger: the binding went a second time.
        (notes() + notes(rounds=0)[:1] + [{"module": "gpu_info", "cpu_s": 0.1, "bytes": 300000}], snapshot(), False),
        (notes(), snapshot(gpus=[{}] * 7), False),
        (notes(), snapshot(status="nvml_error"), False),
        (notes(), snapshot(simulated=False), False),
        # Somewhere gpu_info took more than one call a turn.
        (notes() + [{"module": "gpu_info", "cpu_s": 0.1, "bytes": 180000}], snapshot(), False),
    ],
)
def test_the_limits(lines, taken, kept):
    report, answer = bench.judge(lines, taken)
    assert answer is kept
    assert any("gpu_info / ping" in line for line in report) and any("limit 200000" in line for line in report)


def test_the_interpreter_counts_the_children_and_what_arrives(tmp_path):
    program = (
        "# modules.gpu_info\n"
        "import os, sys, time\n"
        "def burn():\n"
        "    begun = time.process_time()\n"
        "    while time.process_time() - begun < 0.2:\n"
        "        pass\n"
        "child = os.fork()\n"
        "burn()\n"
        "if not child:\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print('answer')\n"
        "sys.exit(3)\n"
    )
    wrapper = pathlib.Path(bench.__file__).with_name("interpreter.py")
    done = subprocess.run(
        [sys.executable, str(wrapper), str(tmp_path / "notes"), sys.executable],
        input=program.encode(),
        stdout=subprocess.PIPE,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, b"answer\n")
    note = json.loads((tmp_path / "notes").read_text())
    assert (note["module"], note["bytes"]) == ("gpu_info", len(program))
    assert 0.35 < note["cpu_s"] < 5


def reading(seconds, **changes):
    return dict({"status": "ok", "message": "", "simulated": False, "duration_s": seconds, "modes": [1, 1]}, **changes)


@pytest.mark.parametrize(
    "ours, theirs, code, text",
    [
        ((0.5, 0.05), 0.2, 0, "ratio 2.50\n.* ratio 0.25 .limit 1.0.\nlimit kept"),
        ((0.5, 0.25), 0.2, 1, "ratio 2.50\n.* ratio 1.25 .limit 1.0.\nLIMIT NOT KEPT"),
        ({"simulated": True}, 0.2, 2, "this is the simulator and no GPU"),
        ({"modes": []}, 0.2, 2, "NVML shows no GPU"),
        ({"status": "nvml_error", "message": "NVML did not start"}, 0.2, 2, "nothing to measure: NVML did not start"),
    ],
)
def test_the_limit_against_nvidia_smi(monkeypatch, capsys, ours, theirs, code, text):
    """It is of what nvidia-smi reads as well; all of a GPU has none."""

    def one_reading(_place, _digest, gather):
        return reading(ours[bool(gather)]) if isinstance(ours, tuple) else reading(0.05, **ours)

    monkeypatch.setattr(against_smi, "one_reading", one_reading)
    monkeypatch.setattr(against_smi, "one_smi", lambda: theirs)
    assert against_smi.main(["--rounds", "3"]) == code
    assert re.search(text, capsys.readouterr().out)


def test_a_reading_is_taken_of_this_machine(tmp_path):
    """Here or elsewhere, GPUs or none: what is measured is the reading itself, in a process of its own."""
    content = against_smi.archive()
    (tmp_path / "archive").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    for gather in ([], ["!inforom"]):
        taken = against_smi.one_reading(str(tmp_path), digest, gather)
        assert taken["status"] in ("ok", "nvml_error") and taken["duration_s"] > 0 and isinstance(taken["modes"], list)
