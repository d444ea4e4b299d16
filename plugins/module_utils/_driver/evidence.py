# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gather evidence of a node before it is changed, beside its reading: processes, kernel log, nvidia-smi.

Everything is bounded, and what cannot be had is named with its reason. Command lines and environments may hold secrets
and are not taken: of a process there are its number, user, short name and control group.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from .._kernel import kernel_log
from .._node import files, holders
from .._node.runner import Runner
from . import capture

NVIDIA_SMI = ["nvidia-smi", "-q", "-x"]
MAX_XML = 8 * 1024 * 1024
MAX_LOG = 2 * 1024 * 1024
MAX_PROCESSES = 2000

# Some drivers put the whole title of a process here, which programs set to whatever they like.
PROCESS_NAME = re.compile(r"(<process_name>)([^<]*)(</process_name>)")


def gather_parts(reading, root="/", runner=None, log_lines=500, smi_timeout_s=30, take=capture.run) -> dict:
    """{"files": {name: {"text", "truncated", "note"}}, "missing": [{"part", "reason"}]} for the node whose READING was
    just taken.
    """
    found = _Found()
    for name, collect in (
        ("processes.json", lambda: read_processes(found, root, reading.get("snapshot"))),
        ("kernel.log", lambda: read_log(found, root, runner or Runner(), log_lines)),
        ("nvidia-smi.xml", lambda: nvidia_smi(found, reading.get("snapshot"), smi_timeout_s, take)),
    ):
        try:
            collect()
        except Exception as exc:  # noqa: BLE001 (whatever it is, it costs that part alone)
            found.lacks(name, "%s: %s" % (type(exc).__name__, exc))
    list_sections(found, reading)
    return {"files": found.files, "missing": found.missing}


class _Found:
    def __init__(self) -> None:
        self.files, self.missing = {}, []

    def has(self, name, text, truncated=False, note="") -> None:
        self.files[name] = {"text": text, "truncated": truncated, "note": note}

    def lacks(self, part, reason) -> None:
        self.missing.append({"part": part, "reason": reason})


def list_sections(found, reading) -> None:
    """Add the sections that the reading lacks."""
    snapshot = reading.get("snapshot")
    status = snapshot.get("status") if isinstance(snapshot, dict) else "absent"
    if status != "ok":
        said = snapshot.get("message") if isinstance(snapshot, dict) else ""
        found.lacks("reading.json: snapshot", "NVML: %s%s" % (status, ": " + said if said else ""))
    for section, reason in sorted((reading.get("problems") or {}).items()):
        found.lacks("reading.json: %s" % (section,), reason)


def read_processes(found, root, snapshot) -> None:
    """Add the users of the GPUs: what has a device open, and what NVML says computes on which GPU."""
    proc = files.under(root, "/proc")
    rows = {}
    held = holders.read_holders(root)
    if held is None:
        found.lacks("processes.json", "%s cannot be listed, so who has the devices open is not known" % (proc,))
    elif os.geteuid() != 0:
        found.lacks(
            "processes.json",
            "not root (uid %d): what processes of other users have open cannot be seen. Use become: true."
            % (os.geteuid(),),
        )
    for holder in held or []:
        rows[holder["pid"]] = dict(_process(proc, holder["pid"]), comm=holder["comm"], devices=holder["devices"])
    for uuid, kind, answer in _of_nvml(snapshot):
        if answer.get("rc") != 0 or not isinstance(answer.get("value"), list):
            found.lacks(
                "processes.json",
                "NVML does not tell the %s processes of %s: %s" % (kind, uuid, answer.get("error") or answer.get("rc")),
            )
            continue
        for entry in answer["value"]:
            row = rows.setdefault(entry["pid"], _process(proc, entry["pid"]))
            row["gpus"].append({"gpu": uuid, "kind": kind, "used_bytes": entry.get("used_bytes")})
    kept = [rows[pid] for pid in sorted(rows)][:MAX_PROCESSES]
    cut = len(rows) - len(kept)
    found.has(
        "processes.json",
        json.dumps({"processes": kept, "left_out": cut}, indent=2, sort_keys=True) + "\n",
        bool(cut),
        "%d processes were left out" % (cut,) if cut else "",
    )


def _of_nvml(snapshot) -> Iterator:
    gpus = snapshot.get("gpus") if isinstance(snapshot, dict) else None
    for gpu in gpus or []:
        uuid = (gpu.get("uuid") or {}).get("value") or "GPU %s" % (gpu.get("index"),)
        for kind in ("compute", "graphics"):
            answer = gpu.get(kind + "_processes")
            yield uuid, kind, answer if isinstance(answer, dict) else {"rc": None, "error": "not read"}


def _process(proc, pid) -> dict:
    """A process that is gone, or of another container, has nothing but its number."""
    status = files.read_text("%s/%d/status" % (proc, pid), 64 * 1024) or ""
    uid = re.search(r"^Uid:\s+(\d+)", status, re.M)
    groups = (files.read_text("%s/%d/cgroup" % (proc, pid), 64 * 1024) or "").splitlines()
    paths = [line.split(":", 2)[2] for line in groups if line.count(":") >= 2]
    return {
        "pid": pid,
        "uid": int(uid.group(1)) if uid else None,
        "comm": files.read_line("%s/%d/comm" % (proc, pid)),
        "unit": holders.unit(proc, pid),
        "cgroup": paths[-1] if paths else None,
        "devices": [],
        "gpus": [],
    }


def read_log(found, root, runner, lines) -> None:
    said = kernel_log.evidence(root, runner, lines)
    if said["source"] == "none":
        found.lacks("kernel.log", said["problem"] or "the kernel log cannot be read")
        return
    head = "# source: %s\n# %s\n" % (said["source"], said["problem"] or "read to its end")
    text = head + "# The last %d lines about the NVIDIA driver, of at most %d.\n" % (len(said["lines"]), lines)
    text += "".join(line + "\n" for line in said["lines"])
    text += "# The last %d lines of the kernel, of at most %d; %d that may hold secrets were left out.\n" % (
        len(said["recent"]),
        lines,
        said["withheld"],
    )
    text += "".join(line + "\n" for line in said["recent"])
    data = text.encode("utf-8")
    note = said["problem"]
    if len(data) > MAX_LOG:
        # The newest lines are at the end of each part; the driver's come first, and are the ones to keep.
        text = data[:MAX_LOG].decode("utf-8", "ignore")
        note = "cut after %d bytes%s" % (MAX_LOG, "; " + note if note else "")
    found.has("kernel.log", text, len(data) > MAX_LOG, note)


def nvidia_smi(found, snapshot, timeout_s, take) -> None:
    status = snapshot.get("status") if isinstance(snapshot, dict) else None
    if status in ("timeout", "stuck"):
        found.lacks(
            "nvidia-smi.xml", "not started: NVML hangs already (%s), and nvidia-smi would hang beside it" % (status,)
        )
        return
    answer = take(NVIDIA_SMI, timeout_s, MAX_XML)
    if answer.state != "ok":
        found.lacks("nvidia-smi.xml", answer.message)
    if answer.data and (answer.state == "ok" or b"<nvidia_smi_log" in answer.data):
        text, changed = PROCESS_NAME.subn(_program, answer.data.decode("utf-8", "replace"))
        notes = [answer.message, "process names are cut to the program" if changed else ""]
        found.has(
            "nvidia-smi.xml", text, answer.truncated or answer.state != "ok", "; ".join(note for note in notes if note)
        )


def _program(match) -> str:
    words = match.group(2).split()
    return match.group(1) + (words[0].rsplit("/", 1)[-1] if words else "") + match.group(3)
