# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the GPUs of a DCGM host engine with those of NVML, and map the files of the exporter's jobs to them. Pure.

dcgmi needs --host: without it, dcgmi starts an engine of its own if none is running, which proves nothing about the
service.
"""

from __future__ import annotations

import re
import typing as t

COUNT = re.compile(r"^\s*(\d+) GPUs? found\b", re.MULTILINE)
ROW = re.compile(r"^\|\s*(\d+)\s*\|", re.MULTILINE)
UUID = re.compile(r"Device UUID:\s*(GPU-[0-9a-fA-F-]+)")
LIMIT = 200
JOBS_HEAD = (
    "# Written by gpufleet.lifecycle (nvidia_dcgm_exporter): what Slurm calls a GPU, and the file of its jobs.\n"
)


def parse_discovery(text: str) -> t.Optional[t.Dict[str, int]]:
    """Return the GPUs of the output of dcgmi discovery -l, their DCGM ids by UUID; None unless the output is whole."""
    count = COUNT.search(text)
    if not count:
        return None
    # Other tables, such as those of switches and CPUs, follow after another "found".
    table = text[count.end() :]
    following = re.search(r"^\s*\d+ \w+ found", table, re.MULTILINE)
    table = table[: following.start()] if following else table
    found: t.Dict[str, int] = {}
    rows = list(ROW.finditer(table))
    for position, row in enumerate(rows):
        end = rows[position + 1].start() if position + 1 < len(rows) else len(table)
        uuid = UUID.search(table, row.start(), end)
        if uuid:
            found[uuid.group(1)] = int(row.group(1))
    return found if len(found) == len(rows) == int(count.group(1)) else None


def list_gpus(snapshot: t.Mapping[str, t.Any]) -> t.Optional[t.List[str]]:
    """Return the UUIDs of the GPUs that NVML has; None unless it tells all of them."""
    found = [(gpu.get("uuid") or {}).get("value") for gpu in snapshot.get("gpus") or []]
    count = (snapshot.get("count") or {}).get("value")
    return found if snapshot.get("status") == "ok" and found and all(found) and count == len(found) else None


def decide(snapshot: t.Mapping[str, t.Any], text: str, rc: int, error: str = "") -> t.Dict[str, t.Any]:
    """Return whether the engine has exactly the GPUs that NVML has; what is not known is not proven."""
    known, found = list_gpus(snapshot), parse_discovery(text)
    answer: t.Dict[str, t.Any] = {
        "proven": False,
        "expected": len(known) if known else None,
        "found": None if found is None else len(found),
        "ids": found or {},
        "missing": [],
        "message": "",
    }
    if known is None:
        told = str(snapshot.get("message") or "it does not tell the UUIDs of all GPUs")
        return dict(
            answer,
            message="NVML is not known to have GPUs, so that the engine cannot be compared: %s." % told.rstrip("."),
        )
    if found is None:
        said = " ".join((error.strip() or text.strip()).split())[:LIMIT]
        return dict(
            answer,
            message="The engine does not answer with its GPUs (dcgmi ended with %s): %s."
            % (rc, said.rstrip(".") or "it said nothing"),
        )
    missing, more = sorted(set(known) - set(found)), sorted(set(found) - set(known))
    answer.update(missing=missing, proven=not missing and not more)
    parts = ["missing: " + ", ".join(missing)] if missing else []
    parts += ["not in NVML: " + ", ".join(more)] if more else []
    if parts:
        answer["message"] = "The engine has %d GPUs and NVML has %d; %s." % (len(found), len(known), "; ".join(parts))
    return answer


def render_job_table(snapshot: t.Mapping[str, t.Any], ids: t.Mapping[str, int]) -> str:
    """Return a line for each name that Slurm may use and the file of its jobs; a GPU that cannot be joined has none.

    The exporter looks for files named by DCGM's id of a GPU, followed by a dot and the id of the MIG instance. Slurm
    identifies a GPU by the minor number of its device, and in some versions GPUs and MIG devices by UUID in
    CUDA_VISIBLE_DEVICES. The minor number is not the order of the GPUs in NVML or DCGM: they are matched by UUID.
    """
    lines: t.List[str] = []
    for gpu in snapshot.get("gpus") or []:
        uuid, minor = ((gpu.get(key) or {}).get("value") for key in ("uuid", "minor_number"))
        instances = (gpu.get("mig_instances") or {}).get("value") or []
        if uuid not in ids:
            continue
        lines += ["%s %d.%d" % (one["uuid"], ids[uuid], one["gpu_instance"]) for one in instances if one.get("uuid")]
        if not instances:
            lines.append("%s %d" % (uuid, ids[uuid]))
            lines += ["minor:%d %d" % (minor, ids[uuid])] if minor is not None else []
    return JOBS_HEAD + "".join(line + "\n" for line in lines) if lines else ""
