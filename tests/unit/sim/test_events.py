# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XIDs arrive as events of NVML, as DCGM, device plugins and exporters wait for them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernel_log, kmsg

XID = 8
LONG_MS = 600000
PROGRAM = """
import sys
n.nvmlInit()
events = n.nvmlEventSetCreate()
for index in (1, 2):
    n.nvmlDeviceRegisterEvents(handle(index), n.nvmlEventTypeXidCriticalError, events)
print("ready", flush=True)
for line in sys.stdin:
    try:
        data = n.nvmlEventSetWait_v2(events, int(line))
        print(json.dumps([value(n.nvmlDeviceGetIndex, data.device), data.eventType, data.eventData, \
data.gpuInstanceId, data.computeInstanceId]), flush=True)
    except n.NVMLError as error:
        print(json.dumps("rc %d" % error.value), flush=True)
"""


@contextlib.contextmanager
def watching(node):
    """A program that watches GPUs 1 and 2: each call waits for an event at most so many milliseconds."""
    command, environment = node.client(PROGRAM)
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
    )

    def asked(milliseconds):
        process.stdin.write("%d\n" % milliseconds)
        process.stdin.flush()

    def answer():
        return json.loads(process.stdout.readline())

    try:
        assert process.stdout.readline() == "ready\n"
        yield asked, answer
    finally:
        process.stdin.close()
        process.wait()


def test_an_xid_arrives_with_its_gpu_and_its_number(booted):
    booted.sim("inject", "xid", "31", "--gpu", "1")
    with watching(booted) as (ask, answer):
        # What was logged before it watched is none of its events.
        ask(0)
        assert answer() == "rc 10"
        ask(LONG_MS)
        booted.sim("log", "NVRM: GPU {pci}.0: not an Xid", "--gpu", "1")
        booted.sim("inject", "xid", "48", "--gpu", "0")
        booted.sim("inject", "xid", "79", "--gpu", "2")
        assert answer() == [2, XID, 79, 0xFFFFFFFF, 0xFFFFFFFF]
        # Two that have come before it asks again are told one after the other.
        booted.sim("inject", "xid", "94", "--gpu", "1", "--mig", "5")
        booted.sim("log", "NVRM: Xid (PCI:{pci}): 63, pid='<unknown>', name=<unknown>, Row Remapper", "--gpu", "1")
        for expected in ([1, XID, 94, 5, 0xFFFFFFFF], [1, XID, 63, 0xFFFFFFFF, 0xFFFFFFFF], "rc 10"):
            ask(0)
            assert answer() == expected


def test_faults_that_log_an_xid_are_events(booted):
    with watching(booted) as (ask, answer):
        for fault, code in (("ecc-uncorrectable", 95), ("remap-pending", 63), ("gpu-lost", 79)):
            booted.sim("inject", fault, "--gpu", "2")
            ask(LONG_MS)
            # A lost GPU tells nothing about itself any more, but the event names it.
            assert answer() == ["rc 15" if fault == "gpu-lost" else 2, XID, code, 0xFFFFFFFF, 0xFFFFFFFF]


def test_the_first_version_of_the_wait_writes_no_instances(booted):
    assert booted.python("""
import os
lib = ctypes.CDLL("libnvidia-ml.so.1")
n.nvmlInit()
created, data = ctypes.c_void_p(), (ctypes.c_ulonglong * 4)(0, 0, 0, 7)
lib.nvmlEventSetCreate(ctypes.byref(created))
lib.nvmlDeviceRegisterEvents(handle(3), ctypes.c_ulonglong(8), created)
with open(os.environ["GPUSIM_ROOT"] + "/dev/kmsg", "a") as log:
    log.write("3,100000,1,-;NVRM: Xid (PCI:0000:61:00): 119, pid=1, name=x, Timeout\\\\n")
index = ctypes.c_uint()
answers = [lib.nvmlEventSetWait(created, data, 1000), lib.nvmlDeviceGetIndex(ctypes.c_void_p(data[0]), \
ctypes.byref(index)), index.value]
print(json.dumps(answers + list(data)[1:]))
""") == [0, 0, 3, XID, 119, 7]


# ---- the kernel log, read by the collection's own reader, too ----

RECORD = re.compile(r"^(\d+),(\d+),(\d+),-;(.*)$")


def records(node):
    return [RECORD.match(line).groups() for line in node.read("dev/kmsg").splitlines()]


def reading(node, watermark=None):
    return kernel_log.read(str(node.root), watermark=watermark)


def test_a_boot_begins_a_log(booted):
    found = records(booted)
    assert [int(sequence) for _level, sequence, _moment, _text in found] == list(range(len(found)))
    moments = [int(moment) for _level, _sequence, moment, _text in found]
    assert moments == sorted(moments)
    assert "Linux version 6.1.0-50-amd64" in found[0][3]
    assert any(
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.216.03" in text
        for _level, _sequence, _moment, text in found
    )
    assert not (booted.root / "run/gpusim/kmsg").exists()


def test_loads_and_faults_append(booted):
    before = len(records(booted))
    booted.sim("inject", "xid", "94", "--gpu", "0")
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    booted.tool("modprobe", "nvidia")
    texts = [text for _level, _sequence, _moment, text in records(booted)[before:]]
    assert "Xid (PCI:0000:1b:00): 94" in texts[0]
    assert "unloading" in texts[1]
    assert "loading NVIDIA UNIX" in texts[-1]
    assert records(booted)[before][0] == "3" and records(booted)[-1][0] == "6"


def test_any_line_can_be_written(booted):
    booted.sim(
        "log", "--gpu", "1", "--level", "4", "NVRM: GPU at PCI:{pci}: odd \x1b bytes \\ and \u00e9", "two\nlines"
    )
    assert [(level, text) for level, _sequence, _moment, text in records(booted)[-3:]] == [
        ("4", "NVRM: GPU at PCI:0000:43:00: odd \\x1b bytes \\x5c and \u00e9"),
        ("4", "two"),
        ("4", "lines"),
    ]
    assert booted.sim("kmsg").stdout.endswith(
        "] NVRM: GPU at PCI:0000:43:00: odd \x1b bytes \\ and \u00e9\n"
        + "".join(
            "[%5d.%06d] %s\n" % (int(moment) // 1000000, int(moment) % 1000000, text)
            for _level, _sequence, moment, text in records(booted)[-2:]
        )
    )
    ring = kmsg.read(str(booted.root / "dev/kmsg"))
    assert ring.state == "ok"
    assert ring.records[-3].text == "NVRM: GPU at PCI:0000:43:00: odd \x1b bytes \\ and \u00e9"


def test_the_collections_reader_understands_it(booted):
    before = reading(booted)
    assert (before["source"], before["complete"], before["events"]) == ("kmsg", True, before["events"])
    booted.sim("inject", "xid", "79", "--gpu", "2")
    after = reading(booted, before["position"])
    assert after["complete"] is True
    assert [(event["kind"], event["xid"], event["pci"]) for event in after["events"] if event["kind"] == "xid"] == [
        ("xid", 79, "0000:52:00.0")
    ]
    assert reading(booted, after["position"])["events"] == []


def test_a_ring_that_wrapped(booted):
    position = reading(booted)["position"]
    booted.sim("log", *["filler %d" % number for number in range(5)])
    left = int(booted.sim("log", "--forget", str(position["seq"] + 3)).stdout.split()[0])
    assert left == len(records(booted)) == 3
    assert reading(booted, position)["complete"] is not True
    booted.sim("log", "the numbers go on")
    assert int(records(booted)[-1][1]) == position["seq"] + 6


def test_a_device_is_not_written_over(node):
    node.kernel()
    (node.root / "dev").mkdir()
    (node.root / "dev/kmsg").symlink_to("/dev/null")
    done = node.sim("boot", check=False)
    assert done.returncode == 2 and "no regular file" in done.stderr
