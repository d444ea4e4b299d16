# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of the kernel log, taken apart. golden.json holds lines as drivers write them, and what each of them says."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernel_lines

pytestmark = pytest.mark.pythons

GOLDEN = json.loads((pathlib.Path(__file__).parent / "fixtures" / "kernel" / "golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("entry", GOLDEN, ids=[entry["line"][:70] for entry in GOLDEN])
def test_a_line_says_what_it_says(entry):
    event = kernel_lines.parse(entry["line"], entry.get("driver"))
    if entry["event"] is None:
        assert event is None
        return
    text = event.pop("text")
    assert event == entry["event"]
    assert text in entry["line"] or text[:-3] in entry["line"]


def scan(lines, step_us=1000):
    scanner = kernel_lines.Scanner()
    events = []
    for number, line in enumerate(lines):
        events += scanner.feed(line, number * step_us)
    return scanner, events


def test_the_driver_of_a_line_is_the_one_that_was_loaded_before_it():
    nvlink = "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x0)"
    scanner, events = scan(
        [
            nvlink,
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri Jun  6 04:03:03 UTC 2025",
            nvlink,
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build",
            nvlink,
        ]
    )
    assert [event.get("driver") for event in events if event["kind"] == "xid"] == [None, "570.86.15", "575.57.08"]
    assert [event["nvlink5"]["layouts"] for event in events if event["kind"] == "xid"] == [[1, 2], [1], [2]]
    assert scanner.driver == "575.57.08"


@pytest.mark.parametrize(
    "text",
    [
        [
            (
                "NVRM: The NVIDIA GPU 0000:1b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
                "NVRM: fallen off the bus and is not responding to commands."
            )
        ],
        [
            "NVRM: The NVIDIA GPU 0000:1b:00.0",
            "NVRM: (PCI ID: 10de:2330) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
    ],
)
def test_a_gpu_named_in_an_earlier_line_is_the_one_that_fell_off_the_bus(text):
    events = scan(text)[1]
    assert [(event["kind"], event["pci"]) for event in events] == [("fallen_off", "0000:1b:00.0")]


def test_a_gpu_named_long_before_is_not_the_one_that_fell_off():
    events = scan(
        ["NVRM: The NVIDIA GPU 0000:1b:00.0", "NVRM: fallen off the bus and is not responding to commands."],
        step_us=5000000,
    )[1]
    assert [event["pci"] for event in events] == [None]


def test_the_versions_of_a_mismatch_may_stand_in_its_second_line():
    for text in (
        [
            (
                "NVRM: API mismatch: the client has the version 535.261.03, but\n"
                "NVRM: this kernel module has the version 580.95.05.  Please"
            )
        ],
        [
            "NVRM: API mismatch: the client 'dcgm' (pid 7)",
            "NVRM: has the version 535.261.03, but",
            "NVRM: this kernel module has the version 580.95.05.  Please",
            "NVRM: make sure that this kernel module and all NVIDIA driver",
        ],
    ):
        events = scan(text)[1]
        assert [(event["kind"], event["client"], event["module"]) for event in events] == [
            ("api_mismatch", "535.261.03", "580.95.05")
        ]


def test_the_three_lines_of_an_sxid_are_one_event():
    lines = [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 31 LTSSM Fault Up",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Data {0x10000000, 0x10000000}",
    ]
    assert [(event["pci"], event["fatal"]) for event in scan(lines)[1]] == [
        ("0000:c1:00.0", True),
        ("0000:c2:00.0", True),
    ]
    # The second line alone still says that it was fatal.
    assert [(event["part"], event["fatal"]) for event in scan(lines[2:])[1]] == [("severity", True)]
    # A severity that says otherwise than the first line is not swallowed.
    assert [event["fatal"] for event in scan([lines[0].replace("Fatal,", "Non-fatal,"), lines[2]])[1]] == [False, True]


TRACE = [
    "BUG: kernel NULL pointer dereference, address: 0000000000000010",
    "#PF: supervisor read access in kernel mode",
    "Modules linked in: nvidia_uvm(OE) nvidia_drm(OE) nvidia_modeset(OE) nvidia(OE) ext4 [last unloaded: nvidia]",
    "RIP: 0010:ext4_map_blocks+0x10/0x600 [ext4]",
    "Call Trace:",
    " ext4_getblk+0x60/0x1f0 [ext4]",
    "---[ end trace 0000000000000000 ]---",
]


def test_an_oops_is_the_drivers_only_if_one_of_its_frames_is_in_it():
    assert [event["kind"] for event in scan(TRACE)[1]] == ["oops_elsewhere"]
    ours = TRACE[:5] + [" _nv011234rm+0x1c/0x40 [nvidia]", " nvidia_ioctl+0x60/0x1f0 [nvidia]"] + TRACE[6:]
    events = scan(ours)[1]
    assert [(event["kind"], event["text"][:30], event["frame"]) for event in events] == [
        ("oops", "BUG: kernel NULL pointer deref", "_nv011234rm+0x1c/0x40 [nvidia]")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:812]",
        "NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:812]",
        "watchdog: Watchdog detected hard LOCKUP on cpu 3",
        "INFO: task jbd2/nvme0n1p2:713 blocked for more than 120 seconds.",
        "INFO: rcu_sched self-detected stall on CPU",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3",
        "INFO: task x[1]:713 blocked for more than 120 seconds.",
        "INFO: task jbd2/nvme0n1p2:713 blocked in I/O wait for more than 122 seconds.",
        "control protection fault: 0000 [#1] SMP NOPTI",
        "int3: 0000 [#1] PREEMPT SMP",
        "Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP NOPTI",
        "invalid opcode: 0000 [#1] PREEMPT SMP NOPTI",
        "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010",
        "Internal error: Oops: 0000000096000004 [#1] SMP",
        "Kernel panic - not syncing: Fatal exception",
    ],
)
def test_a_kernel_that_stalls_is_in_trouble_of_the_driver_or_elsewhere(line):
    frame = " %s+0x60/0x1f0 [%s]"
    for function, module, kind in (("ext4_getblk", "ext4", "oops_elsewhere"), ("_nv011234rm", "nvidia", "oops")):
        events = scan([line, "Call Trace:", frame % (function, module)])[1]
        assert [(event["kind"], event["text"]) for event in events] == [(kind, line)]


UBSAN = [
    "UBSAN: array-index-out-of-bounds in /var/lib/dkms/nvidia/535.171.04/build/nvidia-uvm/uvm_pmm_gpu.c:2038:44",
    "index 0 is out of range for type 'uvm_gpu_chunk_t *[*]'",
    "CPU: 24 PID: 3014 Comm: python3 Tainted: P           O       6.8.0-31-generic #31-Ubuntu",
    "Call Trace:",
    " <TASK>",
    " dump_stack_lvl+0x48/0x70",
    " __ubsan_handle_out_of_bounds+0xc6/0x110",
    " uvm_pmm_gpu_alloc+0x2f5/0x6d0 [nvidia_uvm]",
    " </TASK>",
]
DUMP = [
    "CPU: 3 PID: 99 Comm: nvidia-smi Tainted: P           OE",
    "Call Trace:",
    " <TASK>",
    " dump_stack_lvl+0x44/0x5c",
    " os_dump_stack+0xe/0x20 [nvidia]",
    " _nv011486rm+0x334/0x3c0 [nvidia]",
    " </TASK>",
]


FRAME = " nvidia_ioctl+0x60/0x1f0 [nvidia]"
HUNG = "INFO: task jbd2/nvme0n1p2:713 blocked for more than 120 seconds."
OOM = "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=991"


@pytest.mark.parametrize(
    "lines, kinds",
    [
        # What debug kernels find: they go on, and a reboot brings it back.
        (["BUG: using smp_processor_id() in preemptible [00000000] code: nvidia-smi/99", FRAME], ["warning"]),
        (["BUG: using __this_cpu_read() in preemptible [00000000] code: nvidia-smi/99", FRAME], ["warning"]),
        (["BUG: MAX_LOCKDEP_ENTRIES too low!", "Call Trace:", FRAME], ["warning"]),
        (["BUG: KCSAN: data-race in uvm_a / uvm_b", FRAME], ["warning"]),
        (["BUG: scheduling while atomic: nvidia-smi/99/0x00000002", FRAME], ["oops"]),
        # What comes after a task that hangs elsewhere is not its report.
        ([HUNG, "Call Trace:", " <TASK>", " </TASK>", "Call Trace:", FRAME], ["oops_elsewhere", "warning"]),
        ([HUNG, "Call Trace:", "WARNING: CPU: 3 PID: 99 at x.c:1", FRAME], ["oops_elsewhere", "warning"]),
        ([HUNG, "Call Trace:", OOM, "Call Trace:", FRAME], ["oops_elsewhere"]),
        ([TRACE[0], "Call Trace:", OOM, "Call Trace:", FRAME], ["oops_elsewhere"]),
        ([HUNG, "Call Trace:", HUNG.replace("jbd2/nvme0n1p2", "nvidia-smi"), FRAME], ["oops_elsewhere", "oops"]),
        (UBSAN, ["ubsan"]),
        (UBSAN[:-1] + ["---[ end trace ]---"], ["ubsan"]),
        (UBSAN[:-1] + ["=" * 80], ["ubsan"]),
        (
            ["NVRM: Xid (PCI:0000:1b:00): 119, pid=99, name=nvidia-smi, Timeout waiting for RPC from GSP0!"] + DUMP,
            ["xid", "driver_dump"],
        ),
        # What is more than that is told, before, after and within.
        (UBSAN + TRACE, ["ubsan", "oops_elsewhere"]),
        (UBSAN + ["Call Trace:", " nvidia_ioctl+0x60/0x1f0 [nvidia]"], ["ubsan", "warning"]),
        (UBSAN[:-1] + TRACE[:1] + [" nvidia_ioctl+0x60/0x1f0 [nvidia]"], ["ubsan", "oops"]),
        (DUMP + ["Call Trace:", " nvidia_ioctl+0x60/0x1f0 [nvidia]"], ["driver_dump", "warning"]),
        (DUMP[:-1] + TRACE[:1] + [" nvidia_ioctl+0x60/0x1f0 [nvidia]"], ["driver_dump", "oops"]),
        (["WARNING: CPU: 3 PID: 99 at x.c:1"] + DUMP, ["warning"]),
        (["WARNING: CPU: 3 PID: 99 at x.c:1"] + TRACE[:1] + [" nvidia_ioctl+0x60/0x1f0 [nvidia]"], ["warning", "oops"]),
        (
            ["WARNING: arch/x86/kernel/cpu/bugs.c:3776 at __warn_thunk+0x10/0x20, CPU#15: (udev-worker)/284"],
            ["warning"],
        ),
        (["Call Trace:", " uvm_va_block_find+0x1/0x2 [nvidia_uvm]"], ["warning"]),
        (["Call Trace:", " nvidia_ioctl+0x60/0x1f0 [nvidia]", " os_dump_stack+0xe/0x20 [nvidia]"], ["warning"]),
        (["Call Trace:", " os_dump_stack+0xe/0x20 [other]", " nvidia_ioctl+0x60/0x1f0 [nvidia]"], ["warning"]),
        (["Call Trace:", " ext4_getblk+0x60/0x1f0 [ext4]"], ["trace"]),
        (["python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=991"] + DUMP, []),
        (["python3: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL), nodemask=(null)"] + DUMP, []),
        (["python3 invoked oom-killer: gfp_mask=0xcc0"] + TRACE[:1] + [" nvidia_ioctl+0x1/0x2 [nvidia]"], ["oops"]),
    ],
)
def test_reports_after_which_the_kernel_goes_on_are_no_oops(lines, kinds):
    assert [event["kind"] for event in scan(lines)[1]] == kinds


def test_what_follows_an_oops_by_far_is_not_in_it():
    frame = " nvidia_ioctl+0x60/0x1f0 [nvidia]"
    assert [event["kind"] for event in scan([TRACE[0]] + ["noise"] * 500 + [frame])[1]] == ["oops_elsewhere"]
    assert [event["kind"] for event in scan(TRACE + [frame])[1]] == ["oops_elsewhere"]
    # An XID within a trace is not lost.
    assert [event["kind"] for event in scan(TRACE[:5] + ["NVRM: Xid (PCI:0000:1b:00): 79, x"])[1]] == [
        "oops_elsewhere",
        "xid",
    ]


def test_the_log_knows_the_uuids_of_gpus():
    scanner = scan(["NVRM: GPU at PCI:0000:1b:00: GPU-5fc0bcec-c2e1-38dc-8994-2a9f9f3b709e"])[0]
    assert scanner.uuids == {"0000:1b:00.0": "GPU-5fc0bcec-c2e1-38dc-8994-2a9f9f3b709e"}


def test_the_tail_has_the_drivers_lines_and_no_secrets():
    lines = [
        "Command line: root=/dev/sda1 nvidia.NVreg_X=1 token=s3cret",
        "audit: type=1309 EXECVE a0=nvidia-smi a1=--key=s3cret",
        "usb 1-1: new device",
        "nvidia-nvlink: core is up",
        "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=python3, GPU has fallen off the bus.",
        "Kernel command line: nvidia_drm.modeset=1 password=s3cret",
        "NVRM: " + "x" * 1000,
    ]
    tail = kernel_lines.tail(lines, 10)
    assert [line[:20] for line in tail] == ["nvidia-nvlink: core ", "NVRM: Xid (PCI:0000:", "NVRM: xxxxxxxxxxxxxx"]
    assert "s3cret" not in "".join(tail) and max(len(line) for line in tail) <= 300
    assert kernel_lines.tail(lines, 1) == [tail[-1]]
    assert kernel_lines.tail(lines, 0) == []


def test_arbitrary_text_never_raises():
    hypothesis = pytest.importorskip(
        "hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these"
    )
    st = hypothesis.strategies
    heads = sorted(set(entry["line"] for entry in GOLDEN))
    cut = st.sampled_from(heads).flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end]))
    text = st.text(max_size=80)
    words = st.sampled_from(["(", ")", ": ", ", ", "0x", "\n", "Fatal", "Link ", "-1", "79", "pid=", "GPU-I:", "٣"])
    mixed = st.lists(cut | text | words, max_size=8).map("".join)

    @hypothesis.given(st.lists(mixed, max_size=6), st.sampled_from([None, "", "x", "535.261.03", "575", "99999.1"]))
    def holds(lines, driver):
        for line in lines:
            event = kernel_lines.parse(line, driver)
            assert event is None or isinstance(event["kind"], str) and len(event["text"]) <= 300
            json.dumps(event)
        json.dumps(scan(lines)[1])

    holds()


def test_hostile_lines_take_no_time():
    for line in (
        "NVRM: Xid (" * 4000,
        "NVRM:" + " fallen" * 20000,
        "NVRM: Xid (PCI:" + "0:" * 50000 + "): 1",
        "SXid (" * 9000,
        "a" * 10**6,
        "NVRM: loading NVIDIA UNIX" + " " * 100000,
        "BUG: " * 10000,
        "+0x" * 40000,
        "NVRM: API mismatch" + " has the version 1" * 9000,
    ):
        scan([line])
        kernel_lines.tail([line], 5)
