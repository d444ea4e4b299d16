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
from collections.abc import Iterator

from . import records, states
from .decide import DO, NOTHING, REFUSE, Decision
from .gres import value

HEADER = "# Kept by gpufleet.lifecycle (module slurm_gres): the %s of node %s."
KEPT = "NodeName line, of which Gres is set,"
LINES = "lines of gres.conf"
CHECKED, REDUCED, PRESENT = "checked", "reduced", "present"
RECONFIGURES_GRES = (23, 11)  # scontrol reconfigure restarts the daemons (tried: 22.05 does not)
# parse_config.c: a comment begins at a # without a backslash, whatever quotes there are, and ends with its line; an odd
# number of backslashes at the end of what is left continues the line; blanks may stand around the equals sign.
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)(#[^\n]*)")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*(\\)\s*\Z")
_OPTION = re.compile(r"(?<!\S)([\w.]+)\s*[-*+/]?=\s*(?:\"([^\"]*)\"|(\S+))")
_INCLUDE = re.compile(r"(?i)\s*Include\s+(\S+)")
_HOSTS = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")


def logical_lines(text) -> Iterator:
    """(place, code) of each line as Slurm joins them. CODE is as long as the text there, with blanks for comments and
    for what continues a line.
    """
    place, code = 0, ""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text or ""):
        line = _COMMENT.sub(lambda found: found.group(1) + " " * len(found.group(2)), line)
        goes_on = _CONTINUED.search(line)
        code += line[: goes_on.start(1)] + " " * (len(line) - goes_on.start(1)) if goes_on else line
        if not goes_on:
            yield place, code
            place, code = place + len(code), ""
    if code:
        yield place, code


def options(code) -> dict[str, tuple]:
    """{name in lower case: (value, place of the option, place behind it)} of a line; the last one of a name counts."""
    return {
        found.group(1).lower(): (
            found.group(2) if found.group(3) is None else found.group(3),
            found.start(),
            found.end(),
        )
        for found in _OPTION.finditer(code)
    }


def covers(hosts, node) -> bool:
    """Tell if a list of hosts such as C(n[01-16,20]),m1 has the node in it."""
    for word in _HOSTS.findall(hosts):
        parts = re.split(r"\[([^\]]*)\]", word)
        pattern = "".join(r"(\d+)" if number % 2 else re.escape(part) for number, part in enumerate(parts))
        found = re.fullmatch(pattern, node)
        if found and all(_in_range(each, given) for each, given in zip(found.groups(), parts[1::2])):
            return True
    return False


def _in_range(number, ranges) -> bool:
    for each in ranges.split(","):
        first, dummy, last = each.partition("-")
        # Leading zeros are part of a name.
        if first.isdigit() and (last or first).isdigit() and int(first) <= int(number) <= int(last or first):
            if number == str(int(number)).zfill(len(first)):
                return True
    return False


def paths(directory, node) -> tuple[str, str]:
    """The file for slurm.conf, and the one for gres.conf."""
    return os.path.join(directory, node + ".conf"), os.path.join(directory, node + ".gres.conf")


def cluster_of(text) -> str:
    """The name of the cluster, which %c stands for in names of files."""
    found = [options(code) for dummy, code in logical_lines(text) if re.match(r"(?i)\s*ClusterName\s*=", code)]
    return found[-1]["clustername"][0] if found else "%c"


def find_included(text, base, cluster="%c") -> list[str]:
    """The files that a configuration includes, in its order. BASE: its directory, from which relative names count."""
    return [
        os.path.normpath(os.path.join(base, match.group(1).replace("%c", cluster)))
        for match in (_INCLUDE.match(code) for dummy, code in logical_lines(text))
        if match
    ]


def names(configured, counts) -> dict[str, str]:
    """{detected type: the type that jobs ask for} of GPUs that Slurm has under a part of their detected type."""
    found = {}
    for kind in set(counts) - set(configured):
        fitting = [name for name in configured if name and records.matches(name, kind)]
        if fitting:
            found[kind] = max(fitting, key=len)
    return found


def rename_counts(counts, names_in_slurm) -> dict[str, int]:
    """{type: number} with the types that jobs ask for."""
    found = {}
    for kind, number in counts.items():
        name = names_in_slurm.get(kind, kind)
        found[name] = found.get(name, 0) + number
    return found


def exceeds(configured, found) -> bool:
    """Tell if slurmctld expects a device that the node does not have: it sets the node to INVALID when slurmd registers
    without one.

    A number without a type is of any type.
    """
    return not records.fits(configured, found)


def controller_first(configured, kept) -> bool:
    """Tell if slurmctld has to be informed before the node changes.

    KEPT: {type: number} of the devices that the change leaves as they are.
    """
    return exceeds(configured, kept)


def needs_restart(version, configured, counts) -> bool:
    """Tell if slurmctld takes the GPUs only when it starts.

    Before 23.11 scontrol reconfigure leaves the number of GPUs of a node that has some with device files as it was,
    and the node becomes INVALID. A version that is not known counts as one of these.
    """
    match = re.match(r"(\d+)\.(\d+)", version or "")
    old = match is None or (int(match.group(1)), int(match.group(2))) < RECONFIGURES_GRES
    return old and any(configured.values()) and not records.same(configured, counts)


def with_gres(line, counts) -> str:
    """A NodeName line with these GPUs. Its comments, other generic resources, and a Gres that says the same stay."""
    code = "".join(code for dummy, code in logical_lines(line))
    found = options(code)
    text, start, end = found.get("gres", ("", 0, 0))
    if records.same(records.gres_counts(text), counts):
        return line
    others = [item for item in re.split(r",(?![^(]*\))", text) if item and item.split(":")[0] != "gpu"]
    wanted = ",".join(filter(None, [value(counts)] + others))
    if not end:
        start = end = max(place for dummy, dummy2, place in found.values())
        return line[:start] + " Gres=" + wanted + line[end:]
    if not wanted:
        start = len(code[:start].rstrip())
    return line[:start] + ("Gres=" + wanted if wanted else "") + line[end:]


def node_lines(text, node) -> list[tuple]:
    """(place, code) of the lines that define the node."""
    return [
        entry
        for entry in logical_lines(text)
        if re.match(r"(?i)\s*NodeName\s*=", entry[1]) and options(entry[1]).get("nodename", ("",))[0] == node
    ]


def node_text(text, node, counts) -> str:
    """The file for slurm.conf with these GPUs.

    It has exactly one line of the node (``problems`` says so when it does not).
    """
    place, code = node_lines(text, node)[0]
    end = place + len(code)
    header = HEADER % (KEPT, node)
    text = text[:place] + with_gres(text[place:end], counts) + text[end:]
    return ("" if header in text.splitlines() else header + "\n") + text + ("" if text.endswith("\n") else "\n")


def defines(text, node) -> bool:
    """Tell if a file of Slurm has a line of the node, by itself or in a list of hosts."""
    found = [options(code) for dummy, code in logical_lines(text) if re.match(r"(?i)\s*NodeName\s*=", code)]
    return any(covers(each["nodename"][0], node) for each in found if "nodename" in each)


def gres_text(node, lines) -> str:
    """The file for gres.conf."""
    return "\n".join([HEADER % (LINES, node)] + list(lines)) + "\n"


def problems(seen, node, restart=False) -> list[str]:
    """Return why the files cannot be changed; empty if they can.

    SEEN: ``directory`` (as given, "" for none), ``writable`` (None where it is not there), ``slurm_conf`` and
    ``gres_conf`` (paths), ``includes`` (those of the node's files that are included, each by its own configuration;
    None where these cannot be read), ``node_file`` and ``gres_file`` (texts, None where not there), ``reconfigure``
    (whether scontrol reconfigure is permitted), ``restart`` (whether that of slurmctld is), ``elsewhere`` (other files
    of Slurm with lines of the node). RESTART: whether one is needed.
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
    found += ["%s has lines of it as well: take it out of them" % path for path in seen.get("elsewhere") or []]
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


def decide(state, record, counts, lines, seen) -> Decision:
    """Return the Decision, and its reason in words.

    COUNTS and LINES: with V(checked) what the node has in the end, with V(reduced) what the change leaves as it is,
    with V(present) what it has.
    """
    node, configured = record["name"], records.gres_counts(record["gres"])
    agrees = records.same(configured, counts)
    stale = lines_of(seen["gres_file"]) if seen["directory"] else []
    if state == REDUCED:
        # A line of a device that goes would keep slurmd from starting; one that is missing harms no node that is
        # drained.
        if not controller_first(configured, counts) and not set(stale) - set(lines):
            return Decision(NOTHING, "Slurm has no GPU for it that goes away")
    # Lines with other types than jobs ask for would take these away.
    elif agrees and (not seen["directory"] or stale == list(lines) or names(configured, counts)):
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
    if state != CHECKED and not agrees and not states.is_closed(record["state"]):
        return Decision(
            REFUSE,
            "it is not drained in Slurm (%s), and jobs may hold GPUs that change: drain it first"
            % states.text(record["state"]),
        )
    return Decision(DO, "")


def by_hand(state, node, counts, lines) -> str:
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


def lines_of(text) -> list[str]:
    """The lines of a file without its comments."""
    return [" ".join(code.split()) for dummy, code in logical_lines(text) if code.strip()]
