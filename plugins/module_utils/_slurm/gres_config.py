# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files of a node that slurm.conf and gres.conf include, and what is to be done with them: pure, of what was
read.

NODE.conf has the NodeName line of the node, moved there from slurm.conf by an operator; its Gres alone is changed.
NODE.gres.conf has the lines of gres.conf for the node and nothing else.
"""

from __future__ import annotations

import os
import re

from . import records, states
from .decide import DO, NOTHING, REFUSE, Decision
from .gres import value

HEADER = "# Kept by gpufleet.lifecycle (module slurm_gres): the %s of node %s."
KEPT = "NodeName line, of which Gres is set,"
LINES = "lines of gres.conf"
CHECKED, REDUCED, PRESENT = "checked", "reduced", "present"
RECONFIGURES_GRES = (23, 11)  # scontrol reconfigure restarts the daemons (tried: 22.05 does not)
_GRES = re.compile(r"(?i)(?<!\S)Gres=(\S+)")
_INCLUDE = re.compile(r"(?i)^\s*Include\s+(\S+)")


def paths(directory, node):
    """The file for slurm.conf, and the one for gres.conf."""
    return os.path.join(directory, node + ".conf"), os.path.join(directory, node + ".gres.conf")


def included(text, base):
    """The files that a configuration includes, in its order. BASE: its directory, from which relative names count."""
    return [
        os.path.normpath(os.path.join(base, match.group(1)))
        for match in map(_INCLUDE.match, (text or "").splitlines())
        if match
    ]


def same(counts, other):
    """Tell if both are the same devices; a type with none of them is ignored."""
    return {kind: number for kind, number in counts.items() if number} == {
        kind: number for kind, number in other.items() if number
    }


def exceeds(configured, found):
    """Tell if slurmctld expects a device that the node does not have: it sets the node to INVALID when slurmd registers
    without one.

    A number without a type is of any type.
    """
    more = any(number > found.get(kind, 0) for kind, number in configured.items() if kind)
    return more or sum(configured.values()) > sum(found.values())


def controller_first(configured, kept):
    """Tell if slurmctld has to be informed before the node changes.

    KEPT: {type: number} of the devices that the change leaves as they are.
    """
    return exceeds(configured, kept)


def needs_restart(version, configured, counts):
    """Tell if slurmctld takes the GPUs only when it starts.

    Before 23.11 scontrol reconfigure leaves the number of GPUs of a node that has some with device files as it was,
    and the node becomes INVALID. A version that is not known counts as one of these.
    """
    match = re.match(r"(\d+)\.(\d+)", version or "")
    old = match is None or (int(match.group(1)), int(match.group(2))) < RECONFIGURES_GRES
    return old and any(configured.values()) and not same(configured, counts)


def with_gres(line, counts):
    """A NodeName line with these GPUs; its other generic resources stay."""
    match = _GRES.search(line)
    others = (
        [item for item in re.split(r",(?![^(]*\))", match.group(1)) if item and item.split(":")[0] != "gpu"]
        if match
        else []
    )
    wanted = ",".join(filter(None, [value(counts)] + others))
    if match:
        line = line[: match.start()] + ("Gres=" + wanted if wanted else "") + line[match.end() :]
    elif wanted:
        line = "%s Gres=%s" % (line.rstrip(), wanted)
    return re.sub(r" {2,}", " ", line).rstrip()


def node_lines(text, node):
    """The lines that define the node, each with its place."""
    pattern = re.compile(r"(?i)^\s*NodeName=%s(\s|$)" % re.escape(node))
    return [(number, line) for number, line in enumerate(_joined(text)) if pattern.match(line)]


def _joined(text):
    return re.sub(r"\\\n\s*", " ", text or "").splitlines()


def node_text(text, node, counts):
    """The file for slurm.conf with these GPUs.

    It has exactly one line of the node (``problems`` says so when it does not).
    """
    lines = _joined(text)
    place, line = node_lines(text, node)[0]
    lines[place] = with_gres(line, counts)
    header = HEADER % (KEPT, node)
    return "\n".join(([] if header in lines else [header]) + lines) + "\n"


def gres_text(node, lines):
    """The file for gres.conf."""
    return "\n".join([HEADER % (LINES, node)] + list(lines)) + "\n"


def problems(seen, node, restart=False):
    """Return why the files cannot be changed; empty if they can.

    SEEN: ``directory`` (as given, "" for none), ``writable`` (None where it is not there), ``slurm_conf`` and
    ``gres_conf`` (paths), ``includes`` (those of the node's files that are included, each by its own configuration;
    None where these cannot be read), ``node_file`` and ``gres_file`` (texts, None where not there), ``reconfigure``
    (whether scontrol reconfigure is permitted), ``restart`` (whether that of slurmctld is). RESTART: whether one is
    needed.
    """
    if not seen["directory"]:
        return [
            "no directory for the node's files is given (directory; in role gpu_scheduler gpu_scheduler_slurm_gres_dir)"
        ]
    found = []
    if seen["writable"] is not True:
        found.append(
            "%s %s" % (seen["directory"], "is not there" if seen["writable"] is None else "cannot be written to")
        )
    for path, conf in zip(paths(seen["directory"], node), (seen["slurm_conf"], seen["gres_conf"])):
        if path in (seen["slurm_conf"], seen["gres_conf"]):
            found.append("%s is Slurm's own file: choose another directory" % path)
        elif seen["includes"] is None or path not in seen["includes"]:
            # A relative name is what a configless slurmctld sends to the nodes.
            base = os.path.dirname(conf) + "/"
            found.append(
                "%s does not include its file: add the line Include %s"
                % (conf or "the configuration of Slurm", path[len(base) :] if conf and path.startswith(base) else path)
            )
    number = len(node_lines(seen["node_file"], node))
    if number != 1:
        found.append(
            "%s has %s for it: move its line there from %s, by itself"
            % (
                paths(seen["directory"], node)[0],
                "no NodeName line" if not number else "%d NodeName lines" % number,
                seen["slurm_conf"] or "slurm.conf",
            )
        )
    if not seen["reconfigure"]:
        found.append(
            "scontrol reconfigure is not permitted (reconfigure; in role gpu_scheduler gpu_scheduler_slurm_reconfigure)"
        )
    if restart and not seen["restart"]:
        found.append(
            "slurmctld %s takes another number of GPUs only when it starts, and its restart is not permitted (restart; "
            "in role gpu_scheduler gpu_scheduler_slurm_restart)" % (seen["version"] or "of a version that is not known")
        )
    return found


def decide(state, record, counts, lines, seen):
    """Return the Decision, and its reason in words.

    COUNTS and LINES: with V(checked) what the node has in the end, with V(reduced) what the change leaves as it is,
    with V(present) what it has.
    """
    node, configured = record["name"], records.gres_counts(record["gres"])
    agrees = same(configured, counts)
    stale = lines_of(seen["gres_file"]) if seen["directory"] else []
    if state == REDUCED:
        # A line of a device that goes would keep slurmd from starting; one that is missing harms no node that is
        # drained.
        if not controller_first(configured, counts) and not set(stale) - set(lines):
            return Decision(NOTHING, "Slurm has no GPU for it that goes away")
    elif agrees and (not seen["directory"] or stale == list(lines)):
        return Decision(NOTHING, "Slurm has the GPUs of the node")
    wrong = problems(seen, node, needs_restart(seen["version"], configured, counts))
    if wrong:
        return Decision(
            REFUSE,
            "Slurm has Gres=%s for it, and it has to be Gres=%s, which cannot be written: %s. %s"
            % (
                record["gres"] or "(none)",
                value(counts) or "(none)",
                "; ".join(wrong),
                by_hand(state, node, counts, lines),
            ),
        )
    if state != CHECKED and not agrees and not states.closed(record["state"]):
        return Decision(
            REFUSE,
            "it is not drained in Slurm (%s), and jobs may hold GPUs that change: drain it first"
            % states.text(record["state"]),
        )
    return Decision(DO, "")


def by_hand(state, node, counts, lines):
    """The lines for an operator who writes them."""
    told = (
        "Write in its NodeName line of slurm.conf Gres=%s" % value(counts)
        if value(counts)
        else "Take the GPUs out of Gres in its NodeName line of slurm.conf"
    )
    if lines:
        return "%s, and in gres.conf instead of its lines there:\n%s\nThen run scontrol reconfigure" % (
            told,
            "\n".join(lines),
        )
    return (
        "%s. The files of MIG devices are known once these are there: the lines of gres.conf are told then by the "
        "entry point gres of role "
        "gpu_scheduler in check mode. Then run scontrol reconfigure" % told
    )


def lines_of(text):
    """The lines of a file that are not comments."""
    return [line.strip() for line in (text or "").splitlines() if line.strip() and not line.lstrip().startswith("#")]
