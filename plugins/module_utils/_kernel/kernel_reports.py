# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports that the kernel prints about itself over many lines: BUG, Oops, panic, lockup, hung task, warning, trace."""

from __future__ import annotations

import re

MAX_TEXT = 300
# Other records that begin with the name of a process: its faults and failed allocations, the out-of-memory killer, and
# what it does that is obsolete (net/socket.c, kernel/sysctl.c, kernel/signal.c, kernel/time/itimer.c, block/blk-core.c,
# block/bsg.c, arch/arm64/kvm/mmu.c, include/linux/ratelimit.h). And with that of a network interface, which a user may
# make in a namespace of its own (net/core/dev.c, net/bridge, drivers/net/bonding and team).
OF_INTERFACE = (
    r": (?:renamed from |(?:entered|left) |port \d|[Pp]ort device |received packet on |mixed |hw csum failure|caps="
    r"|Caught |\(slave |now running |active |making |link |option |[Mm]ode |[Ss]etting |[Rr]emoving |[Aa]dding "
    r"|Changed |[Dd]evice |[Dd]ropped |mtu |topology |refused )"
)
OBSOLETE = (
    r" uses obsolete \(PF_INET| calls setitimer\(\)| wrote to \S+ when file position| using unsupported default IPA"
    r"|: attempt to access beyond end of device|: calling unsupported SCSI_IOCTL|: \d+ output lines suppressed"
    r"|/\d+[\]:] |: potentially unexpected fatal signal"
)
BY_NAME = (
    r".{0,15}(?: ?\(\d+\)| ?\[\d+\]| \((?:un)?regist\w+\):| invoked oom-killer:|: page allocation failure|: vmalloc "
    "|%s|%s)" % (OF_INTERFACE, OBSOLETE)
)
NO_NAME = "(?!%s)" % BY_NAME

# Findings of the kernel's own debugging after which it goes on (lib/smp_processor_id.c, kernel/locking/lockdep.c,
# kernel/kcsan).
DEBUGGING = r"BUG: (?:using \w+\(\) in preemptible |MAX_\w+ too low|KCSAN: )"
HUNG_TASK = re.compile(r"\s*INFO: task .{1,15}:\d+ blocked (?:in I/O wait )?for more than")
# After these the kernel is broken: its oopses, panics and lockups, and tasks that hang. die() of x86 prints "[#1]".
TROUBLE = re.compile(
    HUNG_TASK.pattern
    + r"|\s*(?:(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected|"
    + NO_NAME
    + "(?!%s)(?:BUG: " % DEBUGGING
    + r"|Oops: |general protection fault\b|kernel BUG at |Internal error: |Unable to handle kernel |Kernel panic - "
    r"|(?:invalid opcode|double fault|stack segment|divide error|int3|control protection fault|alignment check"
    r"|(?:simd|fpu|iret) exception|segment not present|invalid TSS): [0-9a-f]{4} \[#\d+\]"
    r"|(?:NMI )?watchdog: (?:BUG: soft lockup|(?:CPU\d+: )?Watchdog detected hard LOCKUP)))"
)
# After these it goes on as before: its warnings and those of its sanitizer (Documentation/dev-tools/ubsan.rst), and
# other traces, such as the driver's own dumps of its stack, which it prints beside its XIDs, by os_dump_stack of the
# open modules (kernel-open/nvidia/os-interface.c).
WARNING = re.compile(r"\s*%s(?:WARNING: |%s)" % (NO_NAME, DEBUGGING))
UBSAN = re.compile(r"\s*%sUBSAN: " % NO_NAME)
TRACE = re.compile(r"\s*%sCall [Tt]race:" % NO_NAME)
# Traces of processes that the kernel ended or gave no memory (mm/oom_kill.c, mm/page_alloc.c): it works as it should.
OF_MEMORY = re.compile(r".{0,15}(?: invoked oom-killer:|: page allocation failure)")
OWN_DUMP = re.compile(r"\bos_dump_stack\+0x")
TROUBLE_END = re.compile(r"---\[ end (?:trace|Kernel panic)")
# A frame is all that its line has (lib/dump_stack.c, kernel/kallsyms.c), with the registers of x86 and of arm64.
FRAME = re.compile(
    r"\s*(?:(?:[RE]?IP|pc|lr) ?: ?)?(?:[0-9a-f]{4}:)?(?:\[<[0-9a-f]+>\] ?)*(?:\? )?[\w.$]+\+0x[0-9a-f]+"
    r"(?:/0x[0-9a-f]+)? \[nvidia[\w-]*(?: [0-9a-f]+)?\]\s*$"
)
BROKEN = ("oops", "oops_elsewhere")
HARMLESS_END = re.compile(r"\s*(?:</TASK>|={40,})")
TROUBLE_RECORDS, TROUBLE_US = 400, 10 * 1000 * 1000


def short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


class Report:
    """The report that goes on in a log, fed line by line. A report is one event; it is the driver's as soon as a frame
    of the driver is in it.

    Attributes:
        event: The event of the report; what it is may change until the report ends. None between reports.
    """

    def __init__(self) -> None:
        self.event, self.since, self.count = None, 0, 0
        self.is_hung_task = False

    def follow(self, line: str, when: int) -> dict | None:
        """Return the event of a report that begins with this line (its kind is None for a report that is no event)."""
        if self.event is not None and self.has_ended(line, when):
            self.event = None
        if self.event is None:
            kind = find_kind(line)
            self.event = None if kind is None else {"kind": kind or None, "pci": None, "text": short(line)}
            self.since, self.count = when, 0
            self.is_hung_task = bool(HUNG_TASK.match(line))
            return self.event
        self.count += 1
        if FRAME.match(line) and self.event["kind"] in ("oops_elsewhere", "trace"):
            # A dump is no report of the kernel's: nothing but the words "Call Trace" goes before it.
            is_oops = self.event["kind"] == "oops_elsewhere"
            self.event["kind"] = "oops" if is_oops else "driver_dump" if OWN_DUMP.search(line) else "warning"
            self.event["frame"] = short(line.strip())
        if TROUBLE_END.match(line) or self.goes_on() and HARMLESS_END.match(line):
            self.event = None
        return None

    def has_ended(self, line: str, when: int) -> bool:
        """Return whether a line is beyond the report: it is too long, too old, or another report begins."""
        is_next = TROUBLE.match(line) or WARNING.match(line) or UBSAN.match(line)
        too_long = self.count >= TROUBLE_RECORDS or when - self.since > TROUBLE_US
        # Whose memory was short is no part of an oops, which may end without a mark.
        is_other = self.event["kind"] == "oops_elsewhere" and OF_MEMORY.match(line)
        return too_long or bool(is_other) or self.goes_on() and bool(is_next)

    def goes_on(self) -> bool:
        """Return whether the kernel works on beside what it reports, so that it may report other things."""
        return self.is_hung_task or self.event["kind"] not in BROKEN


def find_kind(line: str) -> str | None:
    """Return the kind of event that a report begins as: empty for one that is no event, None for no report."""
    if OF_MEMORY.match(line):
        return ""
    for kind, pattern in (("oops_elsewhere", TROUBLE), ("warning", WARNING), ("ubsan", UBSAN), ("trace", TRACE)):
        if pattern.match(line):
            return kind
    return None
