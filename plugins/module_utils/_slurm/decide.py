# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what to do with a node: pure functions of what Slurm reports."""

from __future__ import annotations

import collections

from . import marks, records, states

Decision = collections.namedtuple("Decision", ["action", "reason"])
DO, NOTHING, LEAVE, WAIT, REFUSE = "do", "nothing", "leave", "wait", "refuse"


def drain(record, token, recorded=marks.OPERATOR):
    """Place our drain, or find that the node is drained already, by us or by others."""
    state, mark = record["state"], marks.mark(record, token, recorded)
    if states.rebooting(state):
        return Decision(
            REFUSE,
            "Slurm has a reboot of it pending (%s), which may clear a drain: let it end, or cancel it (scontrol "
            "cancel_reboot %s)" % (states.text(state), record["name"]),
        )
    if state.base == "FUTURE":
        return Decision(REFUSE, "it is a FUTURE node, which Slurm does not use yet")
    if mark["owner"] == marks.OURS and "DRAIN" in state.flags:
        return Decision(NOTHING, "drained by an earlier run")
    if states.is_closed(state):
        return Decision(LEAVE, "was drained before (%s), and stays so" % quote_reason(record))
    if mark["owner"] == marks.OPERATOR:
        return Decision(
            REFUSE,
            "it is DOWN and not drained (%s), so that Slurm may return it by itself when it boots: drain or "
            "resume it there first" % (quote_reason(record),),
        )
    return Decision(DO, "")


def empty(record, jobs) -> tuple[str, str]:
    """("yes", ""), or ("no" or "unknown", why)."""
    work = states.work(record["state"], record["alloc_cpus"])
    if jobs:
        return "no", "%d job%s hold%s it" % (len(jobs), "" if len(jobs) == 1 else "s", "s" if len(jobs) == 1 else "")
    if work == "busy":
        return "no", "Slurm says that it is %s" % states.text(record["state"])
    if work == "unknown":
        return "unknown", "Slurm does not know what it does (%s)" % states.text(record["state"])
    return "yes", ""


def is_drained(record, jobs) -> bool:
    """Tell if no job runs on the node and none can start."""
    return states.is_closed(record["state"]) and empty(record, jobs)[0] == "yes"


def resume(record, token, expected_gpus=None, expected_gres=None, recorded=marks.UNKNOWN):
    """Lift our drain, and no other; and only when Slurm's GPUs are those of the node."""
    state, mark = record["state"], marks.mark(record, token, recorded)
    if mark["owner"] == marks.OPERATOR:
        return Decision(LEAVE, "is kept out of service by another user (%s): it stays so" % quote_reason(record))
    if mark["owner"] == marks.NONE:
        return Decision(NOTHING, "")
    if states.rebooting(state):
        return Decision(WAIT, "Slurm's reboot of it has not ended (%s)" % states.text(state))
    if "INVALID_REG" in state.flags:
        return Decision(
            REFUSE,
            "slurmd reports less than Slurm has configured for it (%s; Gres=%s): bring gres.conf and slurm.conf in "
            "step with the GPUs" % (quote_reason(record), record["gres"] or "none"),
        )
    differs = gres(record, expected_gpus, expected_gres)
    if differs:
        return Decision(REFUSE, differs)
    if mark["owner"] == marks.UNKNOWN:
        return Decision(
            REFUSE,
            "Slurm replaced the reason of its drain (%s), and no record tells whether %s%s drained it. If it did, run "
            "again with owner=ours, or resume it by hand (scontrol update nodename=%s state=resume)"
            % (quote_reason(record), marks.PREFIX, token, record["name"]),
        )
    if "NOT_RESPONDING" in state.flags:
        return Decision(WAIT, "its slurmd does not answer (%s)" % states.text(state))
    return Decision(DO, "")


def gres(record, expected_gpus=None, expected_gres=None) -> str:
    """Return how the GPUs that Slurm has configured differ from those of the node; empty if they do not."""
    found = records.gres_counts(record["gres"])
    if expected_gres is not None and not records.same(found, expected_gres):
        return (
            "Slurm has %s for it (Gres=%s), and the node has %s: change slurm.conf and gres.conf, and reconfigure "
            "(scontrol reconfigure)" % (list_counts(found), record["gres"] or "none", list_counts(expected_gres))
        )
    # A cluster that gives whole nodes away may have no GRES at all; there is nothing to keep in step then.
    if expected_gpus is not None and found and expected_gpus < 0:
        return (
            "Slurm has %s for it (Gres=%s), and how many GPUs and MIG devices the node has is not known: they could "
            "not be counted. See which GPU does not tell its MIG mode or its MIG devices (nvidia-smi -L on the node, "
            "or gpu_info with the subset mig), and run again"
        ) % (gpus(found), record["gres"])
    if expected_gpus is not None and found and sum(found.values()) != expected_gpus:
        return (
            "Slurm has %s for it (Gres=%s), and the node has %d: change slurm.conf and gres.conf, and reconfigure "
            "(scontrol reconfigure)" % (gpus(found), record["gres"], expected_gpus)
        )
    return ""


def gpus(counts) -> str:
    number = sum(counts.values())
    return "%d GPU%s" % (number, "" if number == 1 else "s")


def quote_reason(record) -> str:
    text = (
        '"%s"%s' % (record["reason"], " by %s" % record["reason_user"] if record["reason_user"] else "")
        if record["reason"]
        else "no reason given"
    )
    return "%s, %s" % (states.text(record["state"]), text)


def list_counts(counts) -> str:
    return ", ".join("%d %s" % (number, kind or "of no type") for kind, number in sorted(counts.items())) or "no GPUs"


def jobs_told(jobs, most=10) -> str:
    words = [
        "job %(id)s (user %(user)s, partition %(partition)s, %(state)s, %(time_left)s left)" % job
        for job in jobs[:most]
    ]
    return ", ".join(words) + (" and %d more" % (len(jobs) - most) if len(jobs) > most else "")
