# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the output of Slurm's commands about nodes and jobs.

scontrol has --json since 23.02; for earlier versions its text is parsed. The --json of sinfo and squeue is older, but
always describes the whole cluster, so jobs are read in a format of our own, which every version supports.
"""

from __future__ import annotations

import itertools
import json
import re

from .._mig import names
from . import states

FIELDS = ("name", "hostname", "state", "reason", "reason_user", "gres", "gres_used", "alloc_cpus", "partitions")
FIELDS += ("version",)
JOB_FORMAT = "%i|%u|%P|%T|%L"
JOB_FIELDS = ("id", "user", "partition", "state", "time_left")
# In these a job holds no node, or not any more. Whatever else Slurm says holds it.
GONE = (
    "PENDING",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "REVOKED",
    "SPECIAL_EXIT",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
    "LAUNCH_FAILED",
    "RECONFIG_FAIL",
)
NOTHING = ("(null)", "N/A", "None", "Unknown")


class NotJson(Exception):
    """The answer is no JSON that describes nodes."""


def gres_counts(listing) -> dict[str, int]:
    """{type: count} of the GPUs in a list of generic resources such as C(gpu:a100:4(S:0-1),shard:8); those without a
    type are of type C("").
    """
    counts = {}
    for item in re.split(r",(?![^(]*\))", "" if listing in NOTHING else listing or ""):
        words = re.sub(r"(?<!:)\(.*$", "", item.strip()).split(":")
        words = [word for word in words if word not in ("no_consume", "(null)")]
        if words[0] != "gpu":
            continue
        number = re.match(r"(\d+)$", words[-1]) if len(words) > 1 else None
        kind = ":".join(words[1:-1] if number else words[1:])
        counts[kind] = counts.get(kind, 0) + (int(number.group(1)) if number else 1)
    return counts


def matches(kind, detected) -> bool:
    """Tell if a GPU of a detected type is one of KIND, as Slurm compares: a type may be a part of the detected one, and
    none is any (gres.conf(5), Type). That of a MIG device has to have its profile: other GPUs are no slices.
    """
    profile = names.find_profile(detected)
    return kind.lower() in detected.lower() and (not kind or profile in kind.lower())


def fits(configured, found) -> bool:
    """Tell if each configured GPU has one of its own among those of the node."""
    types = [kind for kind, number in configured.items() if number]
    return all(
        sum(configured[kind] for kind in some)
        <= sum(number for name, number in found.items() if any(matches(kind, name) for kind in some))
        for size in range(len(types) + 1)
        for some in itertools.combinations(types, size)
    )


def same(configured, found) -> bool:
    """Tell if Slurm has the GPUs of the node, all of them and no other."""
    return sum(configured.values()) == sum(found.values()) and fits(configured, found)


def node(*values) -> dict:
    """One node as the rest of this package knows it, of its FIELDS in order."""
    return {name: "" if value is None else value for name, value in zip(FIELDS, values)}


def from_text(text) -> list[dict]:
    """The nodes of C(scontrol show node), with or without C(--oneliner)."""
    return [_from_text(part) for part in re.split(r"(?m)^(?=NodeName=)", text) if part.startswith("NodeName=")]


def _from_text(text) -> dict:
    # Values with blanks: that of OS ends before RealMemory or with its line, the others stand behind all fields.
    head, *tail = re.split(r"\s(?=(?:Extra|Comment|Reason)=)", text, maxsplit=1)
    found = {}
    for key, value in re.findall(r"(\w+)=(\S*)", re.sub(r"\sOS=.*?(?=\sRealMemory=|\n|$)", "", head)):
        found.setdefault(key, "" if value in NOTHING else value)
    reason, user = _reason(" " + "".join(tail).rstrip())
    partitions = [name for name in found.get("Partitions", "").split(",") if name]
    return node(
        found["NodeName"],
        found.get("NodeHostName", ""),
        states.parse(found.get("State", "UNKNOWN")),
        reason,
        user,
        found.get("Gres"),
        found.get("GresUsed"),
        number(found.get("CPUAlloc")),
        partitions,
        found.get("Version"),
    )


def _reason(text) -> tuple[str, str]:
    """The reason and who set it, of what stands behind the fields of a node."""
    told = re.search(r"(?m)^\s+Reason=(.*)$", text) or re.search(r"(?s).*\sReason=(.*)$", text)
    by = re.match(r"(.*?)\s\[([^\s\]]*)@([^\]]*)\](?:\s{2,}.*)?\s*$", told.group(1)) if told else None
    return (by.group(1), by.group(2)) if by else (told.group(1).strip() if told else "", "")


def from_json(text) -> list[dict]:
    """The nodes of an answer with --json, whichever version of its format."""
    try:
        nodes = json.loads(text)["nodes"]
        # Lists since 23.02, and in some versions one more level of their own.
        nodes = nodes.get("nodes", []) if isinstance(nodes, dict) else nodes
        return [_from_json(item) for item in nodes]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise NotJson(str(exc)) from exc


def _from_json(item) -> dict:
    words = item.get("state") or ["UNKNOWN"]
    words = [words] if isinstance(words, str) else list(words)
    return node(
        item["name"],
        item.get("hostname", ""),
        states.parse(*(words + list(item.get("state_flags") or []))),
        item.get("reason"),
        item.get("reason_set_by_user"),
        item.get("gres"),
        item.get("gres_used"),
        number(item.get("alloc_cpus")),
        item.get("partitions") or [],
        item.get("version") or item.get("slurmd_version"),
    )


def number(value) -> int:
    """A number that is one, a text of one, or a dictionary that says whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else 0
    try:
        return int(value or 0)
    except ValueError:
        return 0


def jobs(text) -> list[dict]:
    """Jobs that hold the node, from squeue with JOB_FORMAT."""
    found = [
        dict(zip(JOB_FIELDS, line.split("|", len(JOB_FIELDS) - 1)))
        for line in text.splitlines()
        if line.count("|") >= len(JOB_FIELDS) - 1
    ]
    return [job for job in found if job["state"] not in GONE]
