# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault changes an answer and taking it away changes it back."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW

# fault, question, answer without, answer with: what no verdict shows. The others are tried on every board in
# tests/unit/scenarios/test_boards.py, through the collection's readers.
TABLE = [
    ("gpu-not-brought-up --gpu 1", "[rc(handle, 0), rc(handle, 1), n.nvmlDeviceGetCount()]", [0, 0, 8], [0, 15, 8]),
    ("gpu-lost --gpu 1", "[rc(handle, 0), rc(handle, 1)]", [0, 0], [0, 15]),
    ("gpu-missing --gpu 1", "[n.nvmlDeviceGetCount(), n.nvmlDeviceGetPciInfo(handle(1)).bus]", [8, 0x43], [7, 0x52]),
    (
        "nvlink-down --gpu 1 --link 3,11",
        "[n.nvmlDeviceGetNvLinkState(handle(1), i) for i in (1, 3, 11, 17)]",
        [1, 1, 1, 1],
        [1, 0, 0, 1],
    ),
    ("error nvmlDeviceGetSerial 4 --gpu 1", "[rc(n.nvmlDeviceGetSerial, handle(i)) for i in (0, 1)]", [0, 0], [0, 4]),
    ("error nvmlDeviceGetSerial 999", "[rc(n.nvmlDeviceGetSerial, handle(i)) for i in (0, 1)]", [0, 0], [999, 999]),
    ("error field.144 3", "[field(144), field(145)]", [0, 0], ["rc 3", 0]),
    (
        "error nvmlDeviceGetName 10 --first 2 --gpu 1",
        "[rc(n.nvmlDeviceGetName, handle(1)) for _ in range(3)]",
        [0, 0, 0],
        [10, 10, 0],
    ),
    ("missing-symbol nvmlDeviceGetRemappedRows", "rc(n.nvmlDeviceGetRemappedRows, handle())", 0, 13),
    ("set name Other --gpu 1", "text(n.nvmlDeviceGetName, handle(1))", "NVIDIA H100 80GB HBM3", "Other"),
    ("stray-process graphics --gpu 1", "len(n.nvmlDeviceGetGraphicsRunningProcesses(handle(1)))", 0, 1),
    ("p2p-broken 2 --gpu 1", "[n.nvmlDeviceGetP2PStatus(handle(1), handle(i), 0) for i in (0, 2)]", [0, 0], [0, 5]),
    ("unprivileged", "rc(n.nvmlDeviceSetComputeMode, handle(), 0)", 0, 4),
]


def test_faults_change_an_answer_and_clearing_them_changes_it_back(booted):
    for fault, question, without, present in TABLE:
        name = fault.split()[0]
        assert booted.ask(question) == without, fault
        booted.sim("inject", *shlex.split(fault))
        assert booted.ask(question) == present, fault
        assert booted.sim("list").stdout.startswith(name)
        assert "cleared" in booted.sim("clear", name).stdout
        assert booted.sim("list").stdout == ""
        assert booted.ask(question) == without, fault


def test_a_fault_of_one_driver(node):
    node.booted(OLD)
    assert "for driver %s" % NEW in node.sim("inject", "gpu-not-brought-up", "--gpu", "3", "--driver", NEW).stdout
    question = "[rc(handle, i) for i in (2, 3)]"
    assert node.ask(question) == [0, 0]
    assert "RmInitAdapter" not in node.sim("kmsg").stdout
    node.library(NEW)
    node.module(NEW)
    node.sim("boot")
    assert node.ask(question) == [0, 15]
    assert "GPU 0000:61:00.0: RmInitAdapter failed!" in node.sim("kmsg").stdout
    node.library(OLD)
    node.module(OLD)
    node.sim("boot")
    assert node.ask(question) == [0, 0]


@pytest.mark.parametrize(
    "fault, survives",
    [
        (["gpu-lost", "--gpu", "0"], False),
        (["remap-pending", "--gpu", "0"], False),
        (["remap-failed", "--gpu", "0"], True),
        (["memory-lost", "--gpu", "0"], True),
        (["memory-lost", "--gpu", "0", "--until-boot"], False),
    ],
)
def test_what_a_boot_takes_away(booted, fault, survives):
    booted.sim("inject", *fault)
    booted.sim("boot")
    assert (booted.sim("list").stdout != "") is survives


def test_faults_bound_to_the_time_since_the_load(booted):
    booted.sim("inject", "memory-lost", "--gpu", "0", "--until-s", "1000")
    booted.sim("inject", "memory-lost", "--gpu", "1", "--from-s", "1000")
    question = "[n.nvmlDeviceGetMemoryInfo(handle(i)).total >> 20 for i in (0, 1)]"
    assert booted.ask(question) == [40779, 81559]
    text = booted.read("run/gpusim/loaded")
    booted.write("run/gpusim/loaded", re.sub(r"time = \d+", "time = %d" % (time.time() - 2000), text))
    assert booted.ask(question) == [81559, 40779]


def test_a_changed_state_is_seen_by_a_running_process(booted):
    booted.sim("inject", "ecc-uncorrectable", "--gpu", "0", "--value", "5")
    assert booted.python(
        """
import os
n.nvmlInit()
answers = [n.nvmlDeviceGetTotalEccErrors(handle(), 1, 0)]
os.rename(%r, %r)
answers.append(n.nvmlDeviceGetTotalEccErrors(handle(), 1, 0))
print(json.dumps(answers))
"""
        % (str(booted.root / "etc/gpusim/faults.ini"), str(booted.root / "etc/gpusim/faults.off"))
    ) == [5, 0]


def test_a_late_answer(booted):
    booted.sim("inject", "hang", "nvmlDeviceGetTemperature", "1.5", "--gpu", "1")
    slow, quick = booted.python("""
import time
n.nvmlInit()
times = []
for index, attempts in ((1, 1), (0, 100)):  # a busy machine keeps one call waiting, and not all of them
    taken = []
    for attempt in range(attempts):
        start = time.monotonic()
        n.nvmlDeviceGetTemperature(handle(index), 0)
        taken.append(time.monotonic() - start)
    times.append(min(taken))
print(json.dumps(times))
""")
    assert slow >= 1.5 > quick


@pytest.mark.parametrize(
    "symbol, gpu",
    [("nvmlInitWithFlags", None), ("nvmlDeviceGetHandleByIndex_v2", "1"), ("nvmlDeviceGetMemoryInfo", None)],
)
def test_a_call_that_never_ends_can_only_be_killed(booted, symbol, gpu):
    booted.sim("inject", "hang", symbol, "forever", *(["--gpu", gpu] if gpu else []))
    command, environment = booted.client(
        "print('ready', flush=True)\nn.nvmlInit()\nn.nvmlDeviceGetMemoryInfo(handle(1))\nprint('done', flush=True)\n"
    )
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, universal_newlines=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        simnode.wait_for_a_hang(process.pid)
        process.send_signal(signal.SIGTERM)
        assert signal.SIGTERM in simnode.signals(process.pid, "ShdPnd") and process.poll() is None, "nobody takes it"
        process.kill()
        assert process.stdout.read() == ""
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "driver, some",
    [("470.256.02", [13, 13, 13]), (OLD, [0, 13, 13]), ("570.172.08", [0, 0, 13]), ("580.159.04", [0, 0, 0])],
)
def test_a_library_has_the_functions_of_its_branch(node, driver, some):
    symbols = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetAddressingMode")
    assert node.booted(driver).ask("[rc(n._nvmlGetFunctionPointer, name) for name in %r]" % (symbols,)) == some


def test_functions_follow_the_installed_package(booted):
    assert "nvmlDeviceGetMarginTemperature" in booted.sim("library").stdout
    booted.library("590.48.01")
    assert "nvml" not in booted.sim("library").stdout
    assert booted.sim("library", "--quiet").stdout == ""


def test_a_missing_gpu_leaves_the_bus_and_comes_back(booted):
    place = booted.root / "run/gpusim/sys/bus/pci/devices/0000:43:00.0"
    assert place.is_dir()
    booted.sim("inject", "gpu-missing", "--gpu", "1")
    assert not place.exists()
    booted.sim("clear")
    assert (place / "driver").exists()


def test_clearing_one_gpu_only(booted):
    for gpu in ("0", "1"):
        booted.sim("inject", "remap-failed", "--gpu", gpu)
    booted.sim("clear", "remap-failed", "--gpu", "0")
    assert booted.sim("list").stdout == "remap-failed gpu1\n"
    assert booted.sim("clear").stdout == "cleared remap-failed gpu1\n"
    assert booted.sim("clear").stdout == "nothing to clear\n"


REFUSED = [
    (["inject", "no-such-fault"], "unknown fault 'no-such-fault'"),
    (["inject", "gpu-lost"], "say --gpu N"),
    (["inject", "gpu-lost", "--gpu", "8"], "GPUs 0 to 7, no GPU 8"),
    (["inject", "error", "nvmlDeviceGetSerial"], "usage: gpusim inject error SYMBOL RC"),
    (["inject", "error", "nvmlDeviceGetSerial", "lost"], "needs a number"),
    (["inject", "error", "nvmlDeviceGetNothing", "3"], "no function nvmlDeviceGetNothing"),
    (["inject", "missing-symbol", "nvmlDeviceGetNothing"], "no function nvmlDeviceGetNothing"),
    (["inject", "hang", "nvmlInitWithFlags", "long"], "seconds or 'forever', not 'long'"),
    (["inject", "p2p-broken", "all", "--gpu", "0"], "numbers of GPUs with commas"),
    (["inject", "gpu-swapped", "1", "--gpu", "1"], "the number of another GPU"),
    (["inject", "gpu-hot", "--gpu", "9"], "no GPU 9"),
    (["inject", "packages-half-installed"], "has no installed package"),
    (["inject", "library-version", "new"], "'new' is no driver version"),
    (["inject", "stray-process", "idle", "--gpu", "1"], "knows compute and graphics"),
    (["mig", "--gpu", "0", "5g.1gb"], "no MIG profile 5g.1gb"),
    (["inject", "module-load-fails", "because"], "not 'because'"),
    (["clear", "no-such-fault"], "unknown fault"),
    (
        ["init", "--model", "h900", "--node", "x"],
        "unknown model 'h900': known are a100-80-sxm, a100-sxm, a30, b200, h100-sxm, h200, l4, rtx-pro-6000",
    ),
    (["init", "--model", "l4", "--node", "x", "--gpus", "5"], "0 to 4 GPUs, not 5"),
]


def test_bad_input_changes_nothing(booted):
    before = booted.read("etc/gpusim/node.ini")
    for arguments, message in REFUSED:
        done = booted.sim(*arguments, check=False)
        assert done.returncode == 2 and message in done.stderr, arguments
    assert booted.read("etc/gpusim/node.ini") == before
    assert booted.sim("list").stdout == ""
