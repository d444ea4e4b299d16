# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XIDs arrive as events of NVML, as DCGM, device plugins and exporters wait for them."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

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


def test_a_wait_for_nothing_lasts_as_long_as_it_was_given(booted):
    assert booted.python("""
import time
n.nvmlInit()
events = n.nvmlEventSetCreate()
begin = time.monotonic()
code = rc(n.nvmlEventSetWait_v2, events, 300)
print(json.dumps([code, 0.3 <= time.monotonic() - begin]))
""") == [10, True]


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_what_events_refuse(booted, wheel):
    assert booted.python(
        """
lib = ctypes.CDLL("libnvidia-ml.so.1")
created, data = ctypes.c_void_p(), ctypes.create_string_buffer(64)
answers = [lib.nvmlEventSetCreate(ctypes.byref(created))]
n.nvmlInit()
answers += [lib.nvmlEventSetCreate(None), lib.nvmlEventSetCreate(ctypes.byref(created)), \
lib.nvmlEventSetWait_v2(created, None, 0),
            lib.nvmlEventSetWait_v2(data, data, 0), lib.nvmlEventSetWait_v2(created, data, 0),
            lib.nvmlDeviceRegisterEvents(handle(), ctypes.c_ulonglong(1 << 40), created),
            lib.nvmlDeviceRegisterEvents(handle(), ctypes.c_ulonglong(8), None), lib.nvmlDeviceRegisterEvents(None, \
ctypes.c_ulonglong(8), created),
            lib.nvmlEventSetFree(created), lib.nvmlEventSetFree(created), lib.nvmlEventSetWait_v2(created, data, 0)]
print(json.dumps(answers))
""",
        wheel,
    ) == [1, 2, 0, 2, 2, 10, 3, 2, 2, 0, 2, 2]
    assert booted.ask("n.nvmlDeviceGetSupportedEventTypes(handle())", wheel) & XID


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
