# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault changes an answer and taking it away changes it back."""

from __future__ import annotations

import hashlib
import re
import shlex
import signal
import subprocess
import time
import uuid

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW
ECC = "value(n.nvmlDeviceGetTotalEccErrors, handle(1), 1, 0)"
REMAP = "n.nvmlDeviceGetRemappedRows(handle(1))"
PCIE = (
    "[n.nvmlDeviceGetCurrPcieLinkGeneration(handle(1)), n.nvmlDeviceGetCurrPcieLinkWidth(handle(1)), "
    "n.nvmlDeviceGetMaxPcieLinkGeneration(handle(1))]"
)

UUIDS = ["GPU-%s" % uuid.UUID(bytes=hashlib.sha256(b"gpusim/node-1/%d" % index).digest()[:16]) for index in (1, 2)]
IDENTITY = "[n.nvmlDeviceGetUUID(handle(i)) == %r[j] for i in (1, 2) for j in (0, 1)]" % (UUIDS,)
REASONS = "n.nvmlDeviceGetCurrentClocksThrottleReasons(handle(1))"
BANKS = "[getattr(n.nvmlDeviceGetRowRemapperHistogram(handle(1)), key) for key in ('max', 'partial', 'low', 'none')]"
FABRIC = "value(lambda: n.nvmlDeviceGetGpuFabricInfo(handle(1), ctypes.byref(fabric)) and 0 or fabric.state)"
GSP = "[text(n.nvmlDeviceGetGspFirmwareVersion, handle(1)), n.nvmlDeviceGetGspFirmwareMode(handle(1))]"

# fault, question, answer without, answer with
TABLE = [
    ("gpu-not-brought-up --gpu 1", "[rc(handle, 0), rc(handle, 1), n.nvmlDeviceGetCount()]", [0, 0, 8], [0, 15, 8]),
    ("gpu-lost --gpu 1", "[rc(handle, 0), rc(handle, 1)]", [0, 0], [0, 15]),
    (
        "reset-required --gpu 1",
        "[rc(handle, 1), rc(n.nvmlDeviceGetName, handle(1)), rc(n.nvmlDeviceGetTemperature, handle(0), 0)]",
        [0, 0, 0],
        [0, 16, 0],
    ),
    ("gpu-missing --gpu 1", "[n.nvmlDeviceGetCount(), n.nvmlDeviceGetPciInfo(handle(1)).bus]", [8, 0x43], [7, 0x52]),
    ("ecc-uncorrectable --gpu 1 --value 3", ECC, 0, 3),
    ("remap-pending --gpu 1", "[%s, field(230, 1), field(230, 0)]" % REMAP, [[0, 0, 0, 0], 0, 0], [[0, 1, 1, 0], 4, 0]),
    ("remap-failed --gpu 1", REMAP, [0, 0, 0, 0], [0, 8, 0, 1]),
    ("recovery-action --gpu 1", "field(230, 1)", 0, 2),
    (
        "nvlink-down --gpu 1 --link 3,11",
        "[n.nvmlDeviceGetNvLinkState(handle(1), i) for i in (1, 3, 11, 17)]",
        [1, 1, 1, 1],
        [1, 0, 0, 1],
    ),
    ("pcie-downtrain --gpu 1", PCIE, [5, 16, 5], [4, 8, 5]),
    ("power-limit-lost --gpu 1", "n.nvmlDeviceGetPowerManagementLimit(handle(1))", 700000, 200000),
    ("mig-pending --gpu 1", "n.nvmlDeviceGetMigMode(handle(1))", [0, 0], [0, 1]),
    ("clocks-slowed --gpu 1", "n.nvmlDeviceGetCurrentClocksThrottleReasons(handle(1))", 1, 0x48),
    (
        "fabric-converging --gpu 1",
        "value(lambda: n.nvmlDeviceGetGpuFabricInfo(handle(1), ctypes.byref(fabric)) and 0 or fabric.state)",
        3,
        2,
    ),
    ("memory-lost --gpu 1", "n.nvmlDeviceGetMemoryInfo(handle(1)).total >> 20", 81559, 40779),
    ("inforom-corrupt --gpu 1", "rc(n.nvmlDeviceValidateInforom, handle(1))", 0, 14),
    ("error nvmlDeviceGetSerial 4 --gpu 1", "[rc(n.nvmlDeviceGetSerial, handle(i)) for i in (0, 1)]", [0, 0], [0, 4]),
    ("error nvmlDeviceGetSerial 999", "[rc(n.nvmlDeviceGetSerial, handle(i)) for i in (0, 1)]", [0, 0], [999, 999]),
    ("error nvmlSystemGetDriverVersion 17", "rc(n.nvmlSystemGetDriverVersion)", 0, 17),
    ("error field.144 3", "[field(144), field(145)]", [0, 0], ["rc 3", 0]),
    ("missing-symbol nvmlDeviceGetRemappedRows", "rc(n.nvmlDeviceGetRemappedRows, handle())", 0, 13),
    (
        "set name 'NVIDIA Other' --gpu 1",
        "text(n.nvmlDeviceGetName, handle(1))",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA Other",
    ),
    ("stray-process --gpu 1", "len(n.nvmlDeviceGetComputeRunningProcesses(handle(1)))", 0, 1),
    (
        "stray-process graphics --gpu 1",
        "[len(n.nvmlDeviceGet%sRunningProcesses(handle(1))) for _ in (0,)]" % "Graphics",
        [0],
        [1],
    ),
    ("gpu-swapped 2 --gpu 1", IDENTITY, [True, False, False, True], [False, True, True, False]),
    ("gpu-replaced --gpu 1", "text(n.nvmlDeviceGetSerial, handle(1)) == '9990000000001'", False, True),
    ("vbios-changed --gpu 1", "text(n.nvmlDeviceGetVbiosVersion, handle(1))", "96.00.99.00.01", "99.99.99.99.99"),
    ("inforom-changed --gpu 1", "n.nvmlDeviceGetInforomConfigurationChecksum(handle(1)) == 1", False, True),
    (
        "ecc-correctable --gpu 1 --value 7",
        "[n.nvmlDeviceGetTotalEccErrors(handle(1), 0, i) for i in (0, 1)]",
        [0, 0],
        [7, 7],
    ),
    (
        "ecc-rising aggregate --gpu 1 --value 4",
        "[n.nvmlDeviceGetTotalEccErrors(handle(1), 0, 1) for _ in (0, 1)]",
        [0, 0],
        [4, 8],
    ),
    (
        "sram-threshold --gpu 1",
        (
            "value(lambda: n.nvmlDeviceGetSramEccErrorStatus(handle(1), ctypes.byref(sram)) and 0 or "
            "sram.bThresholdExceeded)"
        ),
        0,
        1,
    ),
    ("remap-many --gpu 1", REMAP, [0, 0, 0, 0], [0, 512, 0, 0]),
    ("bank-availability --gpu 1", BANKS, [2560, 0, 0, 0], [2559, 0, 1, 0]),
    ("bank-availability none --gpu 1 --value 2", BANKS, [2560, 0, 0, 0], [2558, 0, 0, 2]),
    ("bar1-shrunk --gpu 1", "n.nvmlDeviceGetBAR1MemoryInfo(handle(1)).bar1Total >> 20", 131072, 256),
    (
        "nvlink-errors --gpu 1 --link 3,4 --value 2",
        "[n.nvmlDeviceGetNvLinkErrorCounter(handle(1), i, 1) for i in (3, 4, 5)]",
        [0, 0, 0],
        [2, 4, 0],
    ),
    ("p2p-broken --gpu 1", "[n.nvmlDeviceGetP2PStatus(handle(1), handle(i), 0) for i in (0, 2)]", [0, 0], [5, 5]),
    ("p2p-broken 2 --gpu 1", "[n.nvmlDeviceGetP2PStatus(handle(1), handle(i), 0) for i in (0, 2)]", [0, 0], [0, 5]),
    ("fabric-stuck --gpu 1", FABRIC, 3, 2),
    (
        "fabric-unhealthy --gpu 1",
        "value(lambda: n.nvmlDeviceGetGpuFabricInfoV(handle(1), ctypes.byref(fabric3)) and 0 or fabric3.healthMask)",
        0,
        1,
    ),
    ("pcie-generation --gpu 1", PCIE, [5, 16, 5], [4, 16, 5]),
    ("pcie-width --gpu 1", PCIE, [5, 16, 5], [5, 8, 5]),
    ("pcie-replay --gpu 1", "[n.nvmlDeviceGetPcieReplayCounter(handle(1)) for _ in (0, 1)]", [0, 0], [50, 100]),
    ("pcie-errors fatal --gpu 1", "[field(180, 1), field(179, 1)]", [0, 0], [5, 0]),
    ("hw-slowdown --gpu 1", REASONS, 1, 0x8),
    ("hw-thermal --gpu 1", REASONS, 1, 0x48),
    ("power-brake --gpu 1", REASONS, 1, 0x88),
    ("sw-thermal --gpu 1", REASONS, 1, 0x20),
    ("sw-power-cap --gpu 1", REASONS, 1, 0x4),
    (
        "violation power --gpu 1 --value 5",
        "[n.nvmlDeviceGetViolationStatus(handle(1), 0).violationTime for _ in (0, 1)]",
        [0, 0],
        [5, 10],
    ),
    ("gpu-hot --gpu 1", "n.nvmlDeviceGetTemperature(handle(1), 0)", 31, 89),
    ("memory-hot --gpu 1", "field(82, 1)", 42, 95),
    (
        "clocks-capped --gpu 1",
        "[n.nvmlDeviceGetMaxClockInfo(handle(1), 1), n.nvmlDeviceGetClockInfo(handle(1), 1)]",
        [1980, 345],
        [1188, 345],
    ),
    ("application-clocks-changed --gpu 1", "n.nvmlDeviceGetApplicationsClock(handle(1), 1)", 1980, 1188),
    ("ecc-pending --gpu 1", "n.nvmlDeviceGetEccMode(handle(1))", [1, 1], [1, 0]),
    (
        "ecc-off --gpu 1",
        "[n.nvmlDeviceGetEccMode(handle(1)), [field(i, 1) for i in (3, 4, 5, 6)]]",
        [[1, 1], [0] * 4],
        [[0, 0], ["rc 3"] * 4],
    ),
    ("mig-on --gpu 1", "n.nvmlDeviceGetMigMode(handle(1))", [0, 0], [1, 1]),
    ("compute-mode-changed --gpu 1", "n.nvmlDeviceGetComputeMode(handle(1))", 0, 3),
    ("gsp-version --gpu 1", GSP, ["570.172.08", [1, 1]], ["1.2.3", [1, 1]]),
    ("gsp-off --gpu 1", GSP, ["570.172.08", [1, 1]], ["rc 3", [0, 1]]),
    ("nvml-code nvmlDeviceGetUUID 15 --gpu 1", "[rc(n.nvmlDeviceGetUUID, handle(i)) for i in (0, 1)]", [0, 0], [0, 15]),
    (
        "error nvmlDeviceGetName 10 --first 2 --gpu 1",
        "[rc(n.nvmlDeviceGetName, handle(1)) for _ in range(3)]",
        [0, 0, 0],
        [10, 10, 0],
    ),
    ("permission-denied", "[rc(handle, 0), n.nvmlDeviceGetCount()]", [0, 8], [4, 8]),
    ("unprivileged", "rc(n.nvmlDeviceSetComputeMode, handle(), 0)", 0, 4),
    ("fabric-converging --gpu 1 --value 2", "[%s for _ in range(3)]" % FABRIC, [3, 3, 3], [2, 2, 3]),
]
# Faults with a test of their own, as they are not an answer of NVML that changes.
ELSEWHERE = {
    "hang",
    "xid",
    "sxid",
    "module-load-fails",
    "module-unsigned",
    "nouveau",
    "persistence-lost",
    "retired-pages",
    "retired-pages-pending",
    "channel-repair-pending",
    "mig-layout-lost",
    "library-missing",
    "library-version",
    "packages-half-installed",
    "module-not-built",
    "module-wrong-kernel",
    "ignored",
    "settings-forgotten",
    "reset-outcome",
    "reset-unsupported",
}
DRIVER = "570.172.08"
SETUP = """
fabric = n.c_nvmlGpuFabricInfo_t()
fabric3 = n.c_nvmlGpuFabricInfo_v3_t()
fabric3.version = 0x3000028
sram = n.c_nvmlEccSramErrorStatus_v1_t()
sram.version = 0x1000068
"""


def ask(node, question):
    return node.python(SETUP + "n.nvmlInit()\nprint(json.dumps(%s))" % question)


@pytest.mark.parametrize("fault, question, without, present", TABLE, ids=[row[0] for row in TABLE])
def test_fault(node, fault, question, without, present):
    name = fault.split()[0]
    if name.startswith("gsp"):
        node.firmware(DRIVER)
    node.booted(DRIVER)
    assert ask(node, question) == without
    node.sim("inject", *shlex.split(fault))
    assert ask(node, question) == present
    listed, status = node.sim("list").stdout, node.sim("status").stdout
    assert listed.startswith(name)
    assert all("fault: " + line in status for line in listed.splitlines())
    assert "cleared" in node.sim("clear", name).stdout
    assert node.sim("list").stdout == ""
    assert ask(node, question) == without


def test_every_fault_is_tested(node):
    # Faults of GPUs at work are tested where they are used, with the active test.
    known = {line.split()[0] for line in node.sim("faults").stdout.splitlines() if not line.startswith("cuda-")}
    assert known == {row[0].split()[0] for row in TABLE} | ELSEWHERE
    assert all(len(line.split(None, 1)[1]) > 20 for line in node.sim("faults").stdout.splitlines())


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


def test_a_pending_remap_is_applied_by_a_reload(booted):
    booted.sim("inject", "remap-pending", "--gpu", "0")
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    booted.tool("modprobe", "nvidia")
    assert booted.ask("n.nvmlDeviceGetRemappedRows(handle())[2]") == 0


def test_an_error_after_some_calls(booted):
    booted.sim("inject", "error", "nvmlDeviceGetTemperature", "15", "--gpu", "2", "--after", "2")
    question = "[[rc(n.nvmlDeviceGetTemperature, handle(gpu), 0) for _ in range(4)] for gpu in (2, 0)]"
    assert booted.ask(question) == [[0, 0, 15, 15], [0, 0, 0, 0]]


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


# How many functions the libraries of these branches have, counted in NVIDIA's own; of 590 one more, which 580.159.04
# has and 590.48.01 has not.
@pytest.mark.parametrize(
    "driver, number, some",
    [
        ("470.256.02", 255, [0, 13, 13, 13, 13]),
        (OLD, 332, [13, 0, 13, 13, 13]),
        ("550.90.07", 350, [13, 0, 0, 0, 13]),
        ("580.159.04", 404, [13, 0, 0, 0, 0]),
        ("590.48.01", 406, [13, 0, 0, 0, 0]),
    ],
)
def test_a_library_has_the_functions_of_its_branch(node, driver, number, some):
    known = re.findall(r"^SYMBOL\((\w+), ", (simnode.SIM / "src" / "symbols.h").read_text(), re.MULTILINE)
    assert len(known) == len(set(known)) == 407
    node.booted(driver)
    there = node.python(
        """
n.nvmlInit()
def has(name):
    try:
        n._nvmlGetFunctionPointer(name)
    except n.NVMLError as error:
        return error.value
    return 0
print(json.dumps({name: has(name) for name in %r}))
"""
        % (known,)
    )
    assert list(there.values()).count(0) == number
    assert [
        there[name]
        for name in (
            "nvmlRetry_NvRmControl",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetPciInfoExt",
            "nvmlDeviceGetNumaNodeId",
            "nvmlDeviceGetMarginTemperature",
        )
    ] == some


def test_what_the_simulator_does_not_do_is_not_supported(booted):
    assert booted.python("""
lib = ctypes.CDLL('libnvidia-ml.so.1')
gpm = [lib.nvmlGpmSampleAlloc(None)]
n.nvmlInit()
print(json.dumps(gpm + [lib.nvmlGpmSampleAlloc(None), lib.nvmlDeviceGetVgpuMetadata(None, None, None)]))
""") == [1, 3, 3]
    booted.sim("inject", "error", "nvmlGpmSampleAlloc", "999")
    assert (
        booted.python("lib = ctypes.CDLL('libnvidia-ml.so.1')\nn.nvmlInit()\nprint(lib.nvmlGpmSampleAlloc(None))")
        == 999
    )


def test_functions_follow_the_installed_package(booted):
    assert "nvmlDeviceGetMarginTemperature" in booted.sim("library").stdout
    booted.library("590.48.01")
    assert booted.sim("library").stdout.split()[-1] == "nvmlRetry_NvRmControl", "which 470 was the last to have"
    assert booted.sim("library", "--quiet").stdout == ""


def test_persistence_lost(booted):
    booted.persistenced()
    assert booted.ask("n.nvmlDeviceGetPersistenceMode(handle())") == 1
    booted.sim("inject", "persistence-lost")
    assert booted.ask("n.nvmlDeviceGetPersistenceMode(handle())") == 0


def test_xid(booted):
    booted.sim("inject", "xid", "94", "--gpu", "0")
    assert re.search(
        r"^\[ *\d+\.\d{6}\] NVRM: Xid \(PCI:0000:1b:00\): 94, pid=", booted.sim("kmsg").stdout, re.MULTILINE
    )
    assert booted.sim("list").stdout == ""


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


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["inject", "no-such-fault"], "unknown fault 'no-such-fault'"),
        (["inject", "gpu-lost"], "say --gpu N"),
        (["inject", "gpu-lost", "--gpu", "8"], "GPUs 0 to 7, no GPU 8"),
        (["inject", "error", "nvmlDeviceGetSerial"], "usage: gpusim inject error SYMBOL RC"),
        (["inject", "error", "nvmlDeviceGetSerial", "lost"], "needs a number"),
        (["inject", "error", "nvmlDeviceGetNothing", "3"], "no function nvmlDeviceGetNothing"),
        (["inject", "missing-symbol", "nvmlDeviceGetNothing"], "no function nvmlDeviceGetNothing"),
        (["inject", "hang", "nvmlInitWithFlags", "long"], "'forever' or 'frozen', not 'long'"),
        (["inject", "ecc-rising", "sometimes", "--gpu", "0"], "knows volatile, aggregate, not 'sometimes'"),
        (["inject", "p2p-broken", "all", "--gpu", "0"], "numbers of GPUs with commas"),
        (["inject", "gpu-swapped", "1", "--gpu", "1"], "the number of another GPU"),
        (["inject", "gpu-hot", "--gpu", "9"], "no GPU 9"),
        (["inject", "packages-half-installed"], "has no installed package"),
        (["inject", "library-version", "new"], "'new' is no driver version"),
        (["inject", "stray-process", "idle", "--gpu", "1"], "knows compute and graphics"),
        (["scenario", "no-such-scenario"], "unknown scenario 'no-such-scenario': known are steady"),
        (["mig", "--gpu", "0", "5g.1gb"], "no MIG profile 5g.1gb"),
        (["inject", "module-load-fails", "because"], "not 'because'"),
        (["clear", "no-such-fault"], "unknown fault"),
        (
            ["init", "--model", "h900", "--node", "x"],
            "unknown model 'h900': known are a100-80-sxm, a100-sxm, a30, b200, h100-sxm, h200, l4, rtx-pro-6000",
        ),
        (["init", "--model", "l4", "--node", "x", "--gpus", "5"], "0 to 4 GPUs, not 5"),
    ],
)
def test_bad_input_changes_nothing(node, arguments, message):
    node.booted()
    before = node.read("etc/gpusim/node.ini")
    done = node.sim(*arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert node.read("etc/gpusim/node.ini") == before
    assert node.sim("list").stdout == ""
