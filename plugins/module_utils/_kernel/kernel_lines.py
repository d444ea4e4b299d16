# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse records of the kernel log about GPUs: text in, events out, nothing read here and nothing ever raised.

The kernel also prints texts that users choose: names of processes (at most 15 bytes), of control groups and of files. A
record is the driver's only if it begins as the driver's records do, with more than a name of a process can hold, or in
a way in which no other record goes on after such a name. A field is read by more words around it than such a name can
hold, so that the name in an XID changes nothing.

A record that begins like an XID or SXid and cannot be taken apart is an event without a number: it is judged, not
dropped.
"""

from __future__ import annotations

import collections
import re

from . import host_lines
from .kernel_reports import Report, short

MAX_LINE = 4096

# What a console, dmesg or a syslog daemon puts before a record: its priority, its sender, its time.
CONSOLE = re.compile(
    r"(?:<\d{1,3}>)?"
    r"(?:[\w.:-]{1,255}: [a-z]{1,8}: [a-z]{1,8}: \[[\d:.TZ-]{19,35}\]: "
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\] "
    r"|(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+-]{8,26}Z?) [\w.-]{1,255} kernel: )?"
    r"(?:\[ *\d{1,12}\.\d{1,9}\](?:\[ *[CT]\d+\])? (?:[\w.-]{1,255} (?=kernel: ))?)?(?:kernel: )?"
)
# The kernel's record of a signal begins with the name of a program's file, which holds any other (kernel/signal.c).
OF_PROGRAM = re.compile(r".*: potentially unexpected fatal signal \d+\.$")
WHOLE_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
WHOLE_UUID = r"(?:MIG-)?GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
XID = re.compile(r"NVRM: Xid \((?:(?:PCI:)?%s|%s)" % (WHOLE_ADDRESS, WHOLE_UUID))
XID_PARTS = re.compile(r"NVRM: Xid \(([^()]{1,160})\)\s*:\s*(\d{1,6})(?!\w)\s*,?\s*(.*)")
SXID = re.compile(r"nvidia-nvswitch\d{1,4}:? SXid \((?:PCI:)?%s" % WHOLE_ADDRESS)
SXID_PARTS = re.compile(r"nvidia-nvswitch(\d{1,4}):? SXid \((?:PCI:)?([^()]{1,80})\)\s*:\s*(\d{1,7})(?!\w)\s*,?\s*(.*)")
SXID_WORD = re.compile(r"(non-?\s?fatal|fatal)\b,?\s*(?:Link\s+(-?\d+)\b)?\s*(.*)", re.IGNORECASE)
SXID_SEVERITY = re.compile(r"Severity\s+(\d+)\b(?:\s+Engine instance\s+(\d+))?")
FABRIC_MANAGER = re.compile(
    r"(?:nv-fabricmanager\[\d+\]: )?(?:\[[A-Z][a-z]{2} \d\d \d{4} [\d:]{8}\] )?(?:\[[A-Z]+\] )?(?:\[tid \d+\] )?"
    r"detected NVSwitch (non-fatal|fatal) error (\d{1,7})(?!\w)(.*)",
    re.IGNORECASE,
)
FM_ADDRESS = re.compile(r"pci bus id\s+(%s)" % WHOLE_ADDRESS)
FM_PORT = re.compile(r"\bport\s+(\d+)")

UUID = re.compile(WHOLE_UUID)
INSTANCE = re.compile(r"GPU-(C?I):(\d+)$")
ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2,4}):([0-9a-fA-F]{2})(?:\.([0-7]))?$")
PID = re.compile(r"pid='?(?:(\d{1,10})|<unknown>|unknown)'?,?\s*")
NAME = re.compile(r"name='?([^,']*)'?,?\s*")
CAUSE = re.compile(r"caused by previous Xid (\d{1,6})")
PLACE = re.compile(r"Exception on \(GPC\s+(\d+),\s*TPC\s+(\d+)")
RESET_WORDS = re.compile(
    r"ontained\b.{1,120}?\. (?:RST:\s*(Yes|No)\b(?:,?\s*D-RST:\s*(Yes|No)\b)?|D-RST:\s*(Yes|No)\b)", re.IGNORECASE
)
LINK_REGISTERS = re.compile(r"(?:detected|error|failed) on link\s+(-?\d+)\s*\(([^()]*)\)", re.IGNORECASE)
RECOVERY = re.compile(
    r"recovery "
    r"action changed from\s+(?:0x([0-9a-fA-F]+)\s*)?(?:\(([^()]*)\)\s*)?to\s+(?:0x([0-9a-fA-F]+)\s*)?(?:\(([^()]*)\))?"
)
NVLINK5 = re.compile(r"(\S+)\s+(non-?fatal|fatal)\s+XC(\d+)\s+i(\d+)\s+Link\s+(-?\d+)\s*\(([^()]*)\)", re.IGNORECASE)
NVLINK5_CODES = frozenset(range(144, 151))

LOADING = re.compile(r"NVRM: loading NVIDIA UNIX\b.{0,120}?\s(\d{3}\.\d+(?:\.\d+)?)(?![\w.])")
GPU_AT = re.compile(r"NVRM: GPU at (?:PCI:)?(%s):? (GPU-[0-9a-fA-F-]{36})" % WHOLE_ADDRESS)
NVIDIA_GPU = re.compile(r"NVRM: The NVIDIA GPU (%s)" % WHOLE_ADDRESS)
NVRM_GPU = re.compile(r"NVRM:(?:.*\bfor)?\s*GPU\s+(?:at\s+)?(?:PCI:)?([0-9a-fA-F:.]+?):?\s")
# How the driver names a GPU and its own function before a text (NV_PRINTF, nv_printf).
WHO = r"NVRM: (?:GPU(?:\d{1,3}| (?:at )?(?:PCI:)?%s)?:? )?(?:\w{1,100}: )?" % WHOLE_ADDRESS
FALLEN = re.compile(
    WHO + r"(?:GPU )?(?:has )?fallen off the bus|NVRM: The NVIDIA GPU %s\b.{0,200}\bfallen off the bus" % WHOLE_ADDRESS
)
INIT_FAILED = re.compile(WHO + r"(?:RmInitAdapter failed|rm_init_adapter(?:\(\d*\))? failed)")
PROBE_FAILED = re.compile(
    r"NVRM: (?:The NVIDIA probe routine (?:failed|was not called)|None of the NVIDIA (?:graphics "
    r"adapters|devices) were"
    r"|No NVIDIA (?:(?:GPU|graphics adapter) found|devices probed)"
    r"|This PCI I/O region assigned to your NVIDIA device is invalid)"
)
# The kernel's own words, from 6.2 on and before (drivers/base/dd.c).
PROBED = re.compile(
    r"nvidia (\S+): probe with driver nvidia failed with error|nvidia: probe of (\S+) failed with error"
)
# What the open driver's kernel_gsp.c, kernel_rc_watchdog_callback.c and kernel_nvlink_gh100.c print beside no XID, or
# long after one.
NEEDS_RESET = re.compile(
    WHO + r"(?:(?:Rate limiting GSP RPC error prints\b.{0,120} The )?GPU likely needs to be reset"
    r"|RC watchdog: GPU is probably locked)"
)
NO_LINK_DETECT = re.compile(
    WHO + r"(?:Getting peer\d*(?:'s)? postRxDetLinkMask failed|Failed to update Rx Detect Link mask)", re.IGNORECASE
)
PEERMEM = re.compile(r"nvidia-peermem \w+:\d+ (?:ERROR )?detected invalid context")
UVM_FATAL = re.compile(WHO + r"uvm encountered global fatal error")
# What a record says whole, but for the GPU.
PLAIN = (
    ("fallen_off", FALLEN),
    ("rm_init_failed", INIT_FAILED),
    ("probe_failed", PROBE_FAILED),
    ("probe_failed", PROBED),
    ("needs_reset", NEEDS_RESET),
    ("no_link_detect", NO_LINK_DETECT),
    ("peermem_invalid", PEERMEM),
    ("uvm_fatal", UVM_FATAL),
)
MISMATCH = re.compile(r"NVRM: API mismatch\b")
MISMATCH_CLIENT = re.compile(r"\bhas the version\s+(\d{3}\.\d+(?:\.\d+)?)")
MISMATCH_MODULE = re.compile(r"kernel module has (?:NVRM: )?the version\s+(\d{3}\.\d+(?:\.\d+)?)")
MISMATCH_WHO = re.compile(r"NVRM: API mismatch: the client '(.{0,15}|.{16,64})'\s*\(pid\s+(\d+)\)")
UNSIGNED = re.compile(r"(nvidia[\w-]*): module verification failed")

INTERESTING = re.compile(r"NVRM|nvidia|nvswitch|NVLink|\bSXid\b", re.IGNORECASE)
# Lines that may hold more than the driver's own words: what the kernel was booted with, and audited commands.
SILENT = re.compile(r"command line:|^audit[:\[(]|\bproctitle=|\bEXECVE\b", re.IGNORECASE)


def address(text: str | None) -> str | None:
    """One spelling for PCI addresses: 0000:1b:00.0; None if it is none."""
    found = ADDRESS.match((text or "").strip())
    if not found:
        return None
    domain, bus, device, function = found.groups()
    if int(bus, 16) > 255:
        return None
    return "%04x:%02x:%02x.%s" % (int(domain or "0", 16), int(bus, 16), int(device, 16), function or "0")


def parse_hexadecimals(text: str) -> list[int] | None:
    """Numbers like 0x1f in a list with commas or blanks; None if something else is in it."""
    words = text.replace(",", " ").split()
    if not words or len(words) > 32 or not all(re.match(r"(?:0x)?[0-9a-fA-F]{1,16}$", word) for word in words):
        return None
    return [int(word, 16) for word in words]


def parse_branch(version: str | None) -> int | None:
    """575 of 575.57.08; None if it is no version."""
    head = str(version or "").partition(".")[0]
    return int(head) if re.match(r"\d{3,4}$", head) else None


def parse(line: str, driver: str | None = None) -> dict[str, object] | None:
    """The event that one LINE reports by itself, or None.

    DRIVER is the version of the driver that wrote it, if known.
    """
    return _parse(record(line), driver)


def _parse(line, driver) -> dict | None:
    if XID.match(line):
        return _xid(line, driver)
    if SXID.match(line):
        return _sxid(line)
    found = FABRIC_MANAGER.match(line)
    if found:
        return _fabric_manager(line, found)
    for kind, pattern in PLAIN:
        if pattern.match(line):
            return {"kind": kind, "pci": _named_gpu(line), "text": short(line)}
    found = LOADING.match(line)
    if found:
        return {"kind": "driver_loaded", "pci": None, "version": found.group(1), "text": short(line)}
    if MISMATCH.match(line):
        event = {"kind": "api_mismatch", "pci": None, "client": None, "module": None, "text": short(line)}
        _mismatch(event, line)
        return event
    found = UNSIGNED.match(line)
    if found:
        return {"kind": "module_unsigned", "pci": None, "module": found.group(1), "text": short(line)}
    event = host_lines.parse(line)
    return dict(event, pci=None, text=short(line)) if event else None


def record(text: str) -> str:
    """A record in one line, without what a console puts before it; empty where it is the name of a program.

    A name may have a line end, which begins no record of its own.
    """
    line = " ".join(text[: 4 * MAX_LINE].splitlines())[:MAX_LINE]
    return "" if OF_PROGRAM.match(line) else line[CONSOLE.match(line).end() :]


def _named_gpu(line) -> str | None:
    found = NVRM_GPU.match(line + " ") or NVIDIA_GPU.match(line) or PROBED.match(line)
    return address(next(group for group in found.groups() if group)) if found else None


def _where(text) -> dict:
    """Return the parts in the brackets of an XID: an address, a MIG instance, a UUID, in any order."""
    found = {"pci": None}
    mig = []
    for word in text.replace(",", " ").split():
        instance = INSTANCE.match(word)
        uuid = UUID.match(word)
        if instance:
            mig.append(word)
        elif uuid:
            found["uuid"] = uuid.group(0)
        else:
            found["pci"] = address(word[4:] if word.upper().startswith("PCI:") else word) or found["pci"]
    if mig:
        found["mig"] = " ".join(mig)
    return found


def _xid(line, driver) -> dict:
    event = {"kind": "xid", "xid": None, "pci": None, "text": short(line)}
    found = XID_PARTS.match(line)
    if not found:
        return event
    where, code, rest = found.groups()
    event.update(_where(where))
    event["xid"] = int(code)
    if driver:
        event["driver"] = driver
    process = PID.match(rest)
    if process and process.group(1):
        event["pid"] = int(process.group(1))
    name = NAME.match(rest, process.end() if process else 0)
    if name:
        if name.group(1) and "<unknown>" not in name.group(1):
            event["name"] = name.group(1)[:64]
        rest = rest[name.end() :]  # of a name with a comma the end is still there
    cause = CAUSE.search(rest)
    if cause:
        event["cause"] = int(cause.group(1))
    _details(event, rest, driver)
    return event


def _details(event, rest, driver) -> None:
    code = event["xid"]
    if code == 13:
        found = PLACE.search(rest)
        if found:
            event["place"] = "GPC %s TPC %s" % found.group(1, 2)
    elif code in (94, 95):
        found = RESET_WORDS.search(rest)
        reset, drained = (found.group(1), found.group(2) or found.group(3)) if found else (None, None)
        event["reset"] = reset.lower() if reset else "not said"
        if drained:
            event["drain_reset"] = drained.lower()
    elif code == 74:
        found = LINK_REGISTERS.search(rest)
        if found:
            event["link"], event["registers"] = int(found.group(1)[:9]), parse_hexadecimals(found.group(2))
    elif code == 154:
        found = RECOVERY.search(rest)
        if found:
            before, before_text, now, now_text = found.groups()
            event["recovery"] = {
                "from": _number(before),
                "from_text": before_text,
                "to": _number(now),
                "to_text": now_text,
            }
    elif code in NVLINK5_CODES:
        event["nvlink5"] = _nvlink5(rest, driver)


def _number(text) -> int | None:
    return int(text[:16], 16) if text else None


def layouts(driver: str | None) -> list[int]:
    """Return the layouts of intrInfo that a driver may have used: 1 before R575, 2 since; both if the driver is not
    known.
    """
    number = parse_branch(driver)
    return [1, 2] if number is None else [1 if number < 575 else 2]


def unit_number(intr_info: int, layout: int) -> int:
    """Return the number of the unit: bits 9 to 5 in layout 1, bits 6 to 0 in layout 2."""
    return (intr_info >> 5) & 0x1F if layout == 1 else intr_info & 0x7F


def _nvlink5(rest, driver) -> dict | None:
    found = NVLINK5.search(rest)
    if not found:
        return None
    unit, word, contained, injected, link, numbers = found.groups()
    values = parse_hexadecimals(numbers)
    if not values or len(values) < 2:
        return None
    known = layouts(driver)
    return {
        "unit": unit[:64],
        "fatal": word.lower() == "fatal",
        "contained": int(contained[:9]),
        "injected": int(injected[:9]),
        "link": int(link[:9]),
        "intr_info": values[0],
        "error_status": values[1],
        "layouts": known,
        "units": [unit_number(values[0], layout) for layout in known],
        "subcode": (values[0] >> 20) & 0x3F,
    }


def _sxid(line) -> dict:
    event = {"kind": "sxid", "sxid": None, "pci": None, "fatal": None, "text": short(line)}
    found = SXID_PARTS.match(line)
    if not found:
        return event
    switch, place, code, rest = found.groups()
    event.update(sxid=int(code), pci=address(place), switch=int(switch) if switch else None)
    word = SXID_WORD.match(rest)
    severity = SXID_SEVERITY.match(rest)
    if word:
        event["fatal"] = word.group(1).lower() == "fatal"
        if word.group(2):
            event["link"] = int(word.group(2)[:9])
    elif severity:
        event["part"] = "severity"
        event["fatal"] = {"0": False, "1": True}.get(severity.group(1))
        if severity.group(2):
            event["link"] = int(severity.group(2)[:9])
    elif rest.startswith("Data"):
        event["part"] = "data"
    return event


def _fabric_manager(line, found) -> dict | None:
    word, code, rest = found.groups()
    place, port = FM_ADDRESS.search(rest), FM_PORT.search(rest)
    if not place:
        return None
    event = {
        "kind": "sxid",
        "sxid": int(code),
        "pci": address(place.group(1)),
        "fatal": word.lower() == "fatal",
        "origin": "fabricmanager",
        "text": short(line),
    }
    if port:
        event["link"] = int(port.group(1)[:9])
    return event


def _mismatch(event, line) -> None:
    """The two versions of an API mismatch, which may stand in the lines after its first.

    The client tells its version itself, so that the module's is the last one.
    """
    who = MISMATCH_WHO.match(line)
    if who:
        event.update(name=who.group(1), pid=int(who.group(2)[:9]))
        line = line[who.end() :]
    modules = list(MISMATCH_MODULE.finditer(line))
    if modules:
        event["module"] = modules[-1].group(1)
        line = line[: modules[0].start()]
    client = MISMATCH_CLIENT.search(line)
    if client:
        event["client"] = client.group(1)


def tail(lines: list[str], limit: int) -> list[str]:
    """The last LIMIT of LINES that are about the NVIDIA driver, without those that may hold secrets."""
    kept = collections.deque(maxlen=max(0, limit))
    for line in lines:
        if is_shown(line):
            kept.append(short(line))
    return list(kept)


def is_shown(line: str) -> bool:
    return bool(INTERESTING.search(line[:MAX_LINE]) and not is_silent(line))


def is_silent(line: str) -> bool:
    """Return whether a line may hold secrets."""
    return bool(SILENT.search(line[:MAX_LINE]))


class Scanner:
    """Feeds on the records of a log in their order, and knows what one record alone does not say: the driver that wrote
    it, the GPU that an earlier one named, the second half of a message, whose code a trace runs through.
    """

    def __init__(self) -> None:
        self.driver = None
        self.uuids = {}
        self._gpu = (None, 0)
        self._mismatch = (None, 0)
        self._report = Report()
        self._switch = {}

    @property
    def followed_report(self):
        """The kernel's report that goes on; what it is may change until it ends. None between them."""
        return self._report.event

    def feed(self, text, when=0) -> list[dict]:
        """The events of a record, one at most: TEXT (it may have several lines) at WHEN (microseconds)."""
        event = self._record(record(text), when)
        return [] if event is None or event["kind"] is None else [event]

    def _record(self, line, when) -> dict | None:
        trouble = self._report.follow(line, when)
        if trouble is not None:
            return trouble
        found = GPU_AT.match(line)
        if found and len(self.uuids) < 256:
            self.uuids[address(found.group(1))] = found.group(2)
        found = NVIDIA_GPU.match(line)
        if found:
            self._gpu = (address(found.group(1)), when)
        event = _parse(line, self.driver)
        if event is None:
            pending, since = self._mismatch
            if pending is not None and line.startswith("NVRM: ") and when - since < 1000000:
                _mismatch(pending, line)
            return None
        if event["kind"] == "driver_loaded":
            self.driver = event["version"]
        elif event["kind"] == "fallen_off" and event["pci"] is None and when - self._gpu[1] < 1000000:
            event["pci"] = self._gpu[0]
        elif event["kind"] == "api_mismatch":
            self._mismatch = (event, when)
        elif event["kind"] == "sxid":
            return self._merge_lines(event, when)
        return event

    def _merge_lines(self, event, when) -> dict | None:
        """The second and third line of an SXid belong to its first."""
        key = (event["pci"], event["sxid"], event.get("origin"))
        first, since = self._switch.get(key, (None, 0))
        if (
            event.get("part")
            and first is not None
            and when - since < 1000000
            and (event["part"] == "data" or first["fatal"] == event["fatal"])
        ):
            return None
        if len(self._switch) > 1024:
            self._switch.clear()
        self._switch[key] = (event, when)
        return event
