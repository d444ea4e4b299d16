# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the kernel, and what is said where it does not merge."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import subprocess
import sys
import time

import pytest

pytest.importorskip("ansible", reason="a callback lives in Ansible; nodes have none")

from ansible_collections.gpufleet.lifecycle.plugins.callback import many_nodes


@pytest.mark.parametrize(
    "refused, switch, words",
    [
        (0, "1", ""),
        (errno.EINVAL, "1", "the kernel merges no memory of a process as a whole (prctl: Invalid argument), expected Linux 6.4"),
        (errno.EINVAL, "0", "the kernel merges no memory of a process as a whole"),
        (0, "0", "the kernel merges nothing now (/sys/kernel/mm/ksm/run is 0, expected 1): as root, echo 1 > /sys/kernel/mm/ksm/run"),
        (0, "2", "/sys/kernel/mm/ksm/run is 2, expected 1"),
        (0, "", "/sys/kernel/mm/ksm/run is not there, expected 1"),
    ],
)
def test_why_nothing_is_merged(monkeypatch, refused, switch, words):
    assert many_nodes.complaint(refused, switch) == words or words and words in many_nodes.complaint(refused, switch)
    said = []
    monkeypatch.setattr(many_nodes, "ask", lambda: refused)
    monkeypatch.setattr(many_nodes, "running", lambda: switch)
    monkeypatch.setattr(many_nodes.CallbackBase, "__init__", lambda self: None)
    monkeypatch.setattr(many_nodes.os, "sched_getaffinity", lambda pid: {0, 1})
    callback = many_nodes.CallbackModule()
    assert callback.cores == 2
    callback._display = type("Display", (), {"display": staticmethod(lambda text, stderr: said.append((text, stderr)))})
    callback.v2_playbook_on_start(None)
    assert said == ([("many_nodes: %s. Workers take the memory that they take without it." % many_nodes.complaint(refused, switch), True)] if words else [])


def test_the_switch_of_the_kernel_is_read(tmp_path):
    assert many_nodes.running(str(tmp_path / "run")) == ""
    (tmp_path / "run").write_text("1\n")
    assert many_nodes.running(str(tmp_path / "run")) == "1"


def test_the_kernel_is_asked_for_this_process_and_those_that_it_starts():
    """In a process of its own, whose memory may be merged afterwards: asked with PR_GET_MEMORY_MERGE, in a fork."""
    program = (
        "import ctypes, os, runpy, sys\n"
        "refused = runpy.run_path(sys.argv[1])['ask']()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    zero = ctypes.c_ulong(0)\n"
        "    os._exit(ctypes.CDLL(None).prctl(68, zero, zero, zero, zero) & 255)\n"
        "print(refused, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    process = subprocess.run([sys.executable, "-c", program, many_nodes.__file__], check=True, stdout=subprocess.PIPE, text=True)
    refused, merged = process.stdout.split()
    assert (refused, merged) in (("0", "1"), (str(errno.EINVAL), "255")), "it is merged, or the kernel has no such thing and says so"


@pytest.mark.parametrize(
    "busy, looks",
    [
        ([0], 1),
        ([1, 0], 1),
        ([2, 1], 2),
        ([5, 3, 2, 2, 1], 5),
    ],
)
def test_no_worker_starts_while_as_many_compute_as_there_are_cores(busy, looks):
    asked, slept = itertools.count(), []
    many_nodes.wait_for_a_core(2, lambda: busy[next(asked)], lambda: 0.01 * len(slept), slept.append)
    assert next(asked) == looks and len(slept) == looks - 1


def test_nobody_waits_for_ever():
    slept = []
    took = many_nodes.wait_for_a_core(2, lambda: 9, lambda: 0.01 * len(slept), slept.append)
    assert many_nodes.LONGEST_S <= took < many_nodes.LONGEST_S + 0.1


def test_those_that_compute_are_counted_and_those_that_wait_are_not():
    context = multiprocessing.get_context("fork")
    over = context.Event()
    waiting, running = context.Process(target=over.wait), context.Process(target=compute, args=(over,))
    before = set(many_nodes.workers())
    for process in (waiting, running):
        process.start()
    try:
        found = set(many_nodes.workers()) - before
        assert {str(waiting.pid), str(running.pid)} <= found
        deadline = time.monotonic() + 60
        while many_nodes.computing([running.pid]) != 1 or many_nodes.computing([waiting.pid]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert many_nodes.computing([running.pid, waiting.pid, 2 ** 22 + 1]) <= 1
    finally:
        over.set()
        for process in (waiting, running):
            process.join()


def compute(over):
    while not over.is_set():
        sum(range(1000))


def test_a_callback_waits_before_each_worker(monkeypatch):
    waited = []
    monkeypatch.setattr(many_nodes.CallbackBase, "__init__", lambda self: None)
    monkeypatch.setattr(many_nodes, "wait_for_a_core", waited.append)
    monkeypatch.setattr(many_nodes, "wait_for_memory", lambda left, say: waited.append(left))
    monkeypatch.setattr(many_nodes.CallbackModule, "get_option", lambda self, name: {"memory_left": 1.5}[name])
    callback = many_nodes.CallbackModule()
    for alive, expected in (([], [callback.cores]), (["12"], [callback.cores, 1.5 * 10 ** 9])):
        monkeypatch.setattr(many_nodes, "workers", lambda alive=alive: alive)
        waited.clear()
        callback.v2_runner_on_start(None, None)
        assert waited == expected and callback.cores >= 1


@pytest.mark.parametrize(
    "left, available, looks, said",
    [
        (0, [10], 1, []),
        (0, [9, 9, 10], 3, ["0.9 GB of memory are left, expected 1.0 GB: the next worker waits, for a minute at most"]),
        (30, [29, 31], 2, ["2.9 GB of memory are left, expected 3.0 GB: the next worker waits, for a minute at most"]),
        (5, [9], 1, []),
    ],
)
def test_no_worker_starts_while_little_memory_is_left(left, available, looks, said):
    """Of 10 GB that the machine has, in tenths."""
    asked, slept, told = itertools.count(), [], []
    many_nodes.wait_for_memory(
        left * 10 ** 8, lambda: (100 * 10 ** 8, available[next(asked)] * 10 ** 8), lambda: 0.01 * len(slept), slept.append, told.append)
    assert next(asked) == looks and len(slept) == looks - 1 and told == said


def test_memory_that_never_comes_or_is_not_told_stops_nobody_for_good(tmp_path):
    slept = []
    took = many_nodes.wait_for_memory(0, lambda: (100, 1), lambda: many_nodes.MEMORY_LOOK_S * len(slept), slept.append)
    assert took == many_nodes.MEMORY_LONGEST_S
    assert many_nodes.wait_for_memory(10 ** 18, lambda: None) < 1 and many_nodes.memory(str(tmp_path / "none")) is None
    (tmp_path / "meminfo").write_text("MemTotal:       24684056 kB\nMemAvailable:   22000000 kB\nHugePages_Total:       0\n")
    assert many_nodes.memory(str(tmp_path / "meminfo")) == (24684056 * 1024, 22000000 * 1024)
