# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that users choose, and the kernel prints: names of processes, of control groups and of files.

A name of a process has at most 15 bytes (TASK_COMM_LEN in include/linux/sched.h), that of a control group or of a file
has 255. Neither of the two may have a slash, and a control group may have no line end. A network interface, which users
make in a namespace of their own, has at most 15 bytes without a slash, a colon and blanks (dev_valid_name).
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernel_lines

pytestmark = pytest.mark.pythons

COMM_BYTES = 15
SEGFAULT = "%s[4242]: segfault at 0 ip 000055c673ccd16b sp 00007ffc601eca10 error 6"
MAPPED = SEGFAULT + " in %s[116b,55c673ccd000+1000] likely on CPU 0 (core 0, socket 0)"
OOM_GROUP = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=%s,mems_allowed=0,oom_memcg=/user.slice/%s,"
    "task_memcg=/user.slice/%s,task=%s,pid=1,uid=1000"
)
NO_PAGES = "%s: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset=%s,mems_allowed=0"
# By what is filled in: the name of a process, and a longer name.
BY_PROCESS = (
    SEGFAULT,
    "traps: %s[4242] general protection fault ip:55c673ccd16b sp:7ffc601eca10 error:0",
    "%s[4242] bad frame in rt_sigreturn frame:00007ffc601eca10 ip:55c673ccd16b sp:7ffc601eca10 orax:0",
    "%s[4242]: unhandled exception: DABT (lower EL), ESR 0x92000046, level 2 translation fault",
    "%s invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=991",
    "Memory cgroup out of memory: Killed process 4242 (%s) total-vm:1kB, anon-rss:1kB, file-rss:0kB, UID:1000",
    "[   4242]  1000  4242     1000      100    65536        0           991 %s",
    "CPU: 4 PID: 4242 Comm: %s Tainted: P           OE      6.8.0-60-generic #63-Ubuntu",
    "process '%s' launched '/bin/x' with NULL argv: empty string added",
    "%s (4242) used greatest stack depth: 11000 bytes left",
    "%s uses obsolete (PF_INET,SOCK_PACKET)",
    "%s calls setitimer() with new_value NULL pointer. Misfeature support will be removed",
    "%s wrote to net.core.somaxconn when file position was not 0!",
    "%s using unsupported default IPA limit, upgrade your VMM",
    "%s: attempt to access beyond end of device\nloop0: rw=0, sector=225, nr_sectors = 1 limit=0",
    "%s: calling unsupported SCSI_IOCTL_SEND_COMMAND",
    "%s: 12 output lines suppressed due to ratelimiting",
    "%s/4242: reached RLIMIT_SIGPENDING, dropped signal 11",
    "%s/4242: potentially unexpected fatal signal 11.",
    "%s: potentially unexpected fatal signal 11.",
    "python3: %s: potentially unexpected fatal signal 11.",
    'audit: type=1701 audit(1.1:2): auid=1000 uid=1000 gid=1000 ses=1 pid=4242 comm="%s" exe="/x" sig=11 res=1',
)
BY_BOTH = (
    MAPPED,
    NO_PAGES,
    "traps: %s[4242] trap invalid opcode ip:55c673ccd16b sp:7ffc601eca10 error:0 in %s[55c673ccd000+1000]",
    "%s[4242] bad frame in rt_sigreturn frame:00007ffc601eca10 ip:1 sp:7 orax:0 in %s[55c673ccd000+1000]",
    "%s[4242]: unhandled exception: DABT (lower EL), ESR 0x92000046, level 2 translation fault in %s[aaaa+1000]",
)
BY_GROUP = (
    "Memory cgroup out of memory in /user.slice/user-1000.slice/%s",
    "memory: usage 33554432kB, limit 33554432kB, failcnt 1 of /user.slice/%s",
    "Memory cgroup stats for /user.slice/%s:",
    "Task in /user.slice/%s killed as a result of limit of /user.slice",
)
# By the name of a network interface (net/core/dev.c, net/bridge, drivers/net/bonding, drivers/net/team).
BY_INTERFACE = (
    "%s: renamed from %s",
    "%s: renamed from %s (while UP)",
    "%s (unregistering): left promiscuous mode",
    "%s: entered promiscuous mode",
    "%s: port 1(%s) entered blocking state",
    "%s: received packet on %s with own address as source address (addr:02:00:00:00:00:01, vlan:0)",
    "%s: mixed HW and IP checksum settings.",
    "%s: hw csum failure",
    "%s: caps=(0x00000000, 0x00000000)",
    "%s: Caught tx_queue_len zero misconfig",
    "%s: (slave %s): Enslaving as an active interface with an up link",
    "%s: now running without any active interface!",
    "%s: Mode changed to \"activebackup\"",
    "%s: Port device %s added",
    "device %s entered promiscuous mode",
    "IPv6: ADDRCONF(NETDEV_CHANGE): %s: link becomes ready",
)
INTERFACES = (
    "BUG",
    "WARNING",
    "Oops",
    "UBSAN",
    "NVRM",
    "nvidia",
    "BTRFS",
    "kernel",
    "watchdog",
    "mlx5_core",
    "[#1]",
    "0000",
)
# What the kernel and the driver print where it is true.
RECORDS = (
    "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:1b:00): 79",
    "NVRM: Xid (GPU-5fc0bcec-c2e1-38dc-8994-2a9f9f3b709e): 95, Uncontained",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "nv-fabricmanager[1]: detected NVSwitch fatal error 20034 on NVSwitch pci bus id 00000000:c1:00.0 port 60",
    "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
    "NVRM: GPU likely needs to be reset",
    "NVRM: GPU0 krcWatchdogCallback_IMPL: RC watchdog: GPU is probably locked!",
    "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0xffff:2393)",
    "NVRM: No NVIDIA GPU found.",
    "nvidia 0000:1b:00.0: probe with driver nvidia failed with error -1",
    "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.261.03  Fri Jun  6 04:03:03 UTC 2025",
    "NVRM: API mismatch: the client has the version 1.1, but this kernel module has the version 2.2.",
    "NVRM: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "mlx5_core 0000:5e:00.0: poll_health:756:(pid 0): Fatal error 1 detected",
    "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ)",
    "nvme nvme3: I/O 23 QID 4 timeout, aborting",
    "EXT4-fs error (device sda1): ext4_lookup:1855: inode #2",
    "EXT4-fs (sda1): Remounting filesystem read-only",
    "XFS (a): Log I/O Error Detected. Shutting down filesystem",
    "XFS (a): Metadata corruption detected",
    "BTRFS info (device a): forced readonly",
    "BTRFS (device a): forced readonly",
    "md/raid1:md0: Disk failure on sdb1, disabling device.",
    "BUG: unable to handle page fault for address: 0",
    "Oops: 0000 [#1] SMP",
    "general protection fault: 0000 [#1]",
    "Kernel panic - not syncing: x",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!",
    "INFO: task a:1 blocked for more than 120 seconds.",
    "INFO: rcu_sched self-detected stall on CPU",
    "WARNING: CPU: 1 PID: 1 at x.c:1 f+0x1/0x2 [nvidia]",
    "UBSAN: array-index-out-of-bounds in x.c:1:1",
    "Call Trace:",
    " f+0x1/0x2 [nvidia]",
)
# The beginnings of the records above that fit into the name of a process, and what was made for it.
HOSTILE = sorted(
    {record[:COMM_BYTES].strip() for record in RECORDS}
    | {"\n" + record[: COMM_BYTES - 1] for record in RECORDS}
    | set(
        """NVRM:Xid(1):79|NVRM: Xid (1)|NVRM:Xid(1b:00)|SXid (a): 10|NVRM: |NVRM: GPU0 a: |[1.0] NVRM: Xid
<3>NVRM: Xid (P|BUG: x|Oops: 0000 [#1]|Kernel panic|[1.0] BUG: x|INFO: task |UBSAN: x|WARNING: CPU: 1
a+0x1 [nvidia]|f+0x1/0 [nvidia|BTRFS|BTRFS (device a|XFS (a): |XFS (a|EDAC MC0: 1 UE|---[ end trace|command line:
a,RST: No|x, RST: Yes|RST: No|. RST: No|Contained: RST:|Contained: . R|link 1(0x0)|GPC 1, TPC 1|Ch 00000001
a, Ch 00000001|x' (pid 1) has|', has the|', '|): 79, x|pid=1, name=x|<unknown>|,|-
segfault at 0 |x[1]: segfault|traps: x[1]|oom-kill:x|audit: x""".replace("\n", "|").split("|")
    )
    | {"", "\x1b[2J", "\x85NVRM: Xid", "\u00e9" * 7}
)


def scan(*lines):
    scanner = kernel_lines.Scanner()
    return [event for number, line in enumerate(lines) for event in scanner.feed(line, number * 1000)]


@pytest.mark.parametrize("line", BY_PROCESS)
def test_name_of_a_process_is_no_event(line):
    for name in HOSTILE:
        assert scan(line % name) == [], name


@pytest.mark.parametrize("line", BY_BOTH)
def test_names_of_a_process_and_of_a_file_are_no_event(line):
    for name in HOSTILE:
        for record in RECORDS:
            for start in (0, len(name), COMM_BYTES):
                assert scan(line % (name, record[start:].replace("/", "-"))) == [], (name, record)


@pytest.mark.parametrize("line", (*BY_GROUP, OOM_GROUP.replace("%s", "{0}").replace("task={0}", "task=a")))
def test_name_of_a_control_group_is_no_event(line):
    for record in RECORDS:
        assert scan(line.replace("{0}", record) if "{0}" in line else line % record) == []


def test_name_of_a_program_is_no_event():
    """kernel/signal.c prints it, with up to 255 bytes, where kernel.print-fatal-signals is set."""
    for record in RECORDS:
        line = "%s: python3: potentially unexpected fatal signal 11." % record.replace("/", "-")
        assert scan(line) == [] and kernel_lines.parse(line) is None, record


@pytest.mark.parametrize("line", BY_INTERFACE)
def test_name_of_a_network_interface_is_no_event(line):
    for name in INTERFACES:
        for other in INTERFACES:
            assert scan(line % ((name, other) if line.count("%s") > 1 else name)) == [], (name, other)


@pytest.mark.parametrize(
    "line",
    [
        "BUG: unable to handle page fault for address: ffffffffc0000000",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "BUG: unable to handle kernel paging request at ffffffffc0000000",
        "BUG: KASAN: slab-use-after-free in f+0x1/0x2",
        "BUG: scheduling while atomic: python/4242/0x00000002",
        "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580",
        "BUG: Bad page state in process python  pfn:12345",
        "BUG: Bad rss-counter state mm:000000001234 type:MM_ANONPAGES val:1",
        "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 31s!",
        "BUG: soft lockup - CPU#3 stuck for 22s! [python:4242]",
        "BUG: spinlock bad magic on CPU#1, python/4242",
        "BUG: non-zero pgtables_bytes on freeing mm: 4096",
        "Oops: 0002 [#1] PREEMPT SMP NOPTI",
        "Oops: Oops: 0002 [#1] SMP NOPTI",
        "Oops: general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP",
        "Oops: invalid opcode: 0000 [#2] SMP",
        "Internal error: Oops: 0000000096000004 [#1] SMP",
    ],
)
def test_report_of_the_kernel_is_an_event(line):
    assert [event["kind"] for event in scan(line)] == ["oops_elsewhere"]


def test_a_record_of_a_process_has_no_second_line():
    for record in RECORDS:
        for head in ("a", "usb 1-1: Product: x", "traps: a", "NVRM: Xid (PCI:0000:1b:00): 43, pid=1, name=a"):
            kinds = [event["kind"] for event in scan("%s\n%s" % (head, record))]
            assert kinds == (["xid"] if "Xid" in head else []), record


def test_frames_of_the_driver_are_read_from_traces_alone():
    for name in HOSTILE:
        for line in BY_PROCESS:
            kinds = [event["kind"] for event in scan("BUG: unable to handle page fault", line % name)]
            assert kinds == ["oops_elsewhere"], (line, name)
        for line in BY_BOTH:
            kinds = [
                event["kind"] for event in scan("BUG: unable to handle page fault", line % (name, "f+0x1-0x2 [nvidia]"))
            ]
            assert kinds == ["oops_elsewhere"], (line, name)


# The lines in which the driver names a process.
OF_DRIVER = (
    "NVRM: Xid (PCI:0000:1b:00): 94, pid=7194, name=%s, Contained: SM (0x1). RST: Yes, D-RST: No",
    "NVRM: Xid (PCI:0000:1b:00): 94, pid=7194, name=%s, Contained: SM (0x1). RST: No, D-RST: Yes",
    "NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 95, pid=7194, name=%s, Uncontained: FBHUB. D-RST: Yes",
    "NVRM: Xid (PCI:0000:1b:00): 94, pid=7194, name=%s, Contained ECC error",
    "NVRM: Xid (PCI:0000:1b:00): 45, pid=7194, name=%s, Ch 00000001 caused by previous Xid 149",
    "NVRM: Xid (PCI:0000:1b:00): 45, pid=7194, name=%s, Ch 00000001",
    "NVRM: Xid (PCI:0000:1b:00): 13, pid=7194, name=%s, Graphics SM Warp Exception on (GPC 3, TPC 5, SM 1): x",
    "NVRM: Xid (PCI:0000:1b:00): 13, pid=7194, name=%s, Graphics Exception: ESR 0x51d730=0x20000e",
    "NVRM: Xid (PCI:0000:1b:00): 74, pid=7194, name=%s, NVLink: fatal error detected on link 14(0x100000, 0x0, 0x0)",
    "NVRM: Xid (PCI:0000:1b:00): 74, pid=7194, name=%s, NVLink: something else",
    "NVRM: Xid (PCI:0000:1b:00): 149, pid=7194, name=%s, NETIR Fatal XC0 i0 Link 01 (0x4505c6 0x0 0x0)",
    "NVRM: Xid (PCI:0000:1b:00): 154, pid=7194, name=%s, GPU recovery action changed from 0x0 (None) to 0x2 (Reboot)",
    "NVRM: Xid (PCI:0000:1b:00): 79, pid=7194, name=%s, GPU has fallen off the bus.",
)


@pytest.mark.parametrize("line", OF_DRIVER)
def test_name_of_a_process_changes_no_field_of_an_xid(line):
    def fields(name):
        (event,) = scan(line % name)
        return {key: value for key, value in event.items() if key not in ("name", "text")}

    assert {name: fields(name) for name in HOSTILE} == dict.fromkeys(HOSTILE, fields("python3"))


@pytest.mark.parametrize("line", OF_DRIVER)
def test_longer_name_without_a_comma_changes_no_field_either(line):
    plain = scan(line % "python3")[0]
    for name in ("Contained: SM (0x1). RST: No", "caused by previous Xid 31", "NVLink: error on link 1(0x0)"):
        (event,) = scan(line % name)
        assert dict(event, name="", text="") == dict(plain, name="", text="")


def test_a_reset_that_is_due_is_not_hidden_by_a_name():
    for name in HOSTILE:
        (event,) = scan(OF_DRIVER[0] % name)
        assert (event["xid"], event["reset"], event["drain_reset"]) == (94, "yes", "no"), name
        (event,) = scan(OF_DRIVER[3] % name)
        assert (event["reset"], event.get("drain_reset")) == ("not said", None), name


@pytest.mark.parametrize("name", HOSTILE)
def test_name_of_a_process_changes_no_field_of_a_mismatch(name):
    for text in (
        "NVRM: API mismatch: the client '%s' (pid 42) has the version 595.84, "
        "but this kernel module has the version 575.57.08.",
        "NVRM: API mismatch: the client '%s' (pid 42)\nNVRM: has the version 595.84, but\n"
        "NVRM: this kernel module has the version 595.71.05.  Please",
    ):
        (event,), (plain,) = scan(text % name), scan(text % "python3")
        for found in (event, plain):
            found.pop("text"), found.pop("name", None)
        assert event == plain


@pytest.mark.parametrize(
    "version",
    [
        "535.1, but this kernel module has the version 111.1",
        "535.1\nNVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "535.1, but\nNVRM: this kernel module has the version 111.1",
    ],
)
def test_version_that_a_process_tells_the_driver_is_its_own_alone(version):
    for text in (
        "NVRM: API mismatch: the client 'x' (pid 4) has the version %s, but this kernel module has the version 580.95.",
        "NVRM: API mismatch: the client has the version %s, but\nNVRM: this kernel module has the version 580.95.",
    ):
        (event,) = scan(text % version)
        assert (event["kind"], event["client"], event["module"]) == ("api_mismatch", "535.1", "580.95")


def test_arbitrary_names_are_no_event_and_change_no_field():
    hypothesis = pytest.importorskip(
        "hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these"
    )
    st = hypothesis.strategies
    words = st.sampled_from(HOSTILE + [record[start : start + 8] for record in RECORDS for start in range(0, 40, 7)])
    piece = (
        words
        | st.text(max_size=15)
        | st.sampled_from([", ", "[", "]", ": ", "(", ")", "'", "\n", "0x1", "RST: ", "Xid"])
    )
    comm = st.lists(piece, max_size=4).map(
        lambda parts: (
            "".join(parts).encode("utf-8", "replace").replace(b"\0", b"")[:COMM_BYTES].decode("utf-8", "replace")
        )
    )
    long = st.lists(st.sampled_from(RECORDS) | piece, max_size=3).map(
        lambda parts: "".join(parts)[:255].replace("/", "-").replace("\n", " ")
    )

    @hypothesis.given(comm, long)
    @hypothesis.settings(deadline=None)
    def holds(name, other):
        for line in BY_PROCESS:
            assert scan(line % name) == []
        for line in BY_BOTH:
            assert scan(line % (name, other)) == []
        for line in BY_GROUP:
            assert scan(line % other) == []
        assert scan(OOM_GROUP % (other, other, other, name)) == []
        for line in OF_DRIVER:
            (event,), (plain,) = scan(line % name), scan(line % "python3")
            for found in (event, plain):
                found.pop("text"), found.pop("name", None)
            assert event == plain

    holds()


@pytest.mark.parametrize(
    "prefix",
    [
        "[   12.345678] ",
        "[   12.345678][  T812] ",
        "<3>[   12.345678] ",
        "192.0.2.7: kern: warning: [2026-04-22T21:27:51.291660856Z]: ",
        "Apr 22 21:27:51 node-1 kernel: ",
        "Apr  2 21:27:51 node-1 kernel: [   12.345678] ",
        "2026-04-22T21:27:51.291660+00:00 node-1.example kernel: ",
        "[   12.345678] node-1 kernel: ",
        "[   12.345678] kernel: ",
        "kernel: ",
        "[Wed Apr 22 21:27:51 2026] ",
    ],
)
def test_time_stamp_of_a_console_may_stand_before_a_record(prefix):
    scanner = kernel_lines.Scanner()
    for record in RECORDS[:2]:
        assert [(event["xid"], event["pci"]) for event in scanner.feed(prefix + record)] == [(79, "0000:1b:00.0")]
    assert [event["kind"] for event in scan(prefix + RECORDS[3], prefix + RECORDS[5])] == ["sxid", "fallen_off"]
    for name in HOSTILE:
        for line in BY_PROCESS:
            assert scan(prefix + line % name) == [], (name, line)


@pytest.mark.parametrize(
    "line",
    [
        "something before NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (what ever): 79, x",
        "NVRM: Xid (PCI:): 79",
        "NVRM: Xid (GPU-5fc0bcec): 79",
        "nvidia-nvswitch0: SXid (a): 10",
        "x nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal",
        "x[1]: detected NVSwitch fatal error 20034 on NVSwitch pci bus id 00000000:c1:00.0",
        "nv-fabricmanager[1]: detected NVSwitch fatal error 20034",
    ],
)
def test_record_without_its_prefix_or_a_whole_address_is_no_event(line):
    assert scan(line) == []
