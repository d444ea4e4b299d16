# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's claim: which rollout may change it, in which attempt.

Ledgers know nothing of each other; they meet on the node.

What is held as ``found`` is the claim that lies on the node, None where there is none; ``problem`` says why it cannot
be told.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import shlex
import time

from . import files

NAME = "claim.json"
# The claim of the rollout that changed the node last and is finished with it, with the time of its end.
LAST = "last-change.json"
SCHEMA = "gpufleet.claim/1"
TIME = "%Y-%m-%dT%H:%M:%SZ"
HELD, QUARANTINED = "held", "quarantined"
# Which rollout it is: its name, and the ledger that it is in. A ledger that was made again is another one, whatever
# its rollouts are called.
WHOSE = ("ledger", "rollout_id")
# Which attempt of it: a number that grows, and the run that it belongs to, since two copies of one ledger count alike.
WHICH = WHOSE + ("attempt", "run")
TEXTS = ("ledger", "rollout_id", "run", "plan", "controller", "time", "state")
# Says in a task's environment which attempt it belongs to.
FENCE = "GPUFLEET_FENCE"


class ClaimError(Exception):
    """The node is not this rollout's; the message says whose it is."""


def parse(text) -> tuple[dict | None, str]:
    """(claim, problem) of the text of a claim."""
    try:
        found = json.loads(text)
    except ValueError:
        return None, "it is not JSON"
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None, "it is not of schema %s" % SCHEMA
    wrong = [key for key in TEXTS if not isinstance(found.get(key), str)]
    wrong += [] if isinstance(found.get("node", ""), str) else ["node"]
    if not isinstance(found.get("attempt"), int) or isinstance(found.get("attempt"), bool):
        wrong.append("attempt")
    return (None, "it has no usable %s" % ", ".join(wrong)) if wrong else (found, "")


def read_claim(directory, name=NAME) -> tuple[dict | None, str]:
    """(claim, problem) of a node."""
    path = os.path.join(directory, name)
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(65536)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""  # where a file lies in the directory's place, room says so
    except (OSError, UnicodeDecodeError) as exc:
        return None, "its claim %s cannot be read: %s" % (path, exc)
    found, why = parse(text)
    return found, "its claim %s cannot be read: %s" % (path, why) if why else ""


def read_last(directory, now) -> tuple[dict | None, str]:
    """(claim, problem) of the rollout that changed the node last; its age_s is by the node's clock, at least 0."""
    found, problem = read_claim(directory, LAST)
    if found is None:
        return None, problem
    try:
        then = calendar.timegm(time.strptime(found["time"], TIME))
    except ValueError:
        return None, "its claim %s cannot be read: time is %r" % (os.path.join(directory, LAST), found["time"])
    return dict(found, age_s=max(0, int(now - then))), ""


def write(directory, claim) -> None:
    """Put a claim in the place of the one that lies there."""
    write_state_file(
        directory, NAME, json.dumps(dict(claim, schema=SCHEMA, fence=fence(claim)), indent=4, sort_keys=True) + "\n"
    )


def write_state_file(directory, name, text) -> None:
    """Write a file of the state directory; a reader finds the old one or the new one, also after a loss of
    power.
    """
    if not os.path.isdir(directory):
        os.makedirs(directory)
        os.chmod(directory, 0o755)  # whatever the umask
    files.write_atomically(os.path.join(directory, name), text)


def finish(directory, claim, now) -> None:
    """Keep the claim of a rollout that changed the node as that of its last change, and remove it."""
    text = json.dumps(dict(claim, time=time.strftime(TIME, time.gmtime(now))), indent=4, sort_keys=True) + "\n"
    write_state_file(directory, LAST, text)
    remove(directory)


def remove(directory) -> None:
    os.unlink(os.path.join(directory, NAME))
    files.sync_directory(directory)


# What a claim, a baseline and the marks of a rollout take at most.
ROOM_BYTES, ROOM_FILES = 1024 * 1024, 16


# File systems in memory: a reboot removes their files (tmpfs(5), Documentation/filesystems/ramfs-rootfs-initramfs.rst).
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "rootfs")
MOUNTS = "/proc/self/mounts"


def read_mounts(path="") -> list[tuple]:
    """Return (mount point, type, options) of each mount of the node, in the order in which they were made.

    Raises:
        OSError: The table cannot be read.
    """
    with open(path or MOUNTS, encoding="utf-8", errors="surrogateescape") as stream:
        rows = [line.split() for line in stream]
    plain = [[re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word) for word in row] for row in rows]
    return [(row[1], row[2], row[3].split(",")) for row in plain if len(row) > 3]


def find_mount(place, mounts) -> tuple[str, str, list] | None:
    """Return the mount of a directory, an entry of read_mounts; None if it is not among them."""
    place, found = os.path.realpath(place), None
    for mount in mounts:
        if place == mount[0] or place.startswith(mount[0].rstrip("/") + "/"):
            found = mount if found is None or len(mount[0]) >= len(found[0]) else found
    return found


def is_in_memory(place, mounts) -> bool:
    """Return True if a reboot removes what is in a directory: its file system, or the upper one of an overlay, is in
    memory, as on a node that boots from the network or from a live image."""
    mount = find_mount(place, mounts)
    if mount is None or mount[1] != "overlay":
        return mount is not None and mount[1] in IN_MEMORY
    uppers = [option[len("upperdir=") :] for option in mount[2] if option.startswith("upperdir=")]
    # That of a container's overlay is not to be seen in the container.
    below = [find_mount(upper, mounts) for upper in uppers if os.path.isdir(upper)]
    return any(found is not None and found[1] in IN_MEMORY for found in below)


def room(directory, statvfs=os.statvfs, mounts=None) -> str:
    """Return why nothing could be kept in the directory, or in its parent if it has to be made; empty if it could."""
    place = os.path.abspath(directory)
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return "%s is no directory%s" % (place, "" if place == directory else ", and %s would lie in it" % directory)
    try:
        found = files.ask_filesystem(place, statvfs)
    except OSError as exc:
        return "the file system of %s cannot be asked: %s" % (place, exc)
    if found["read_only"]:
        return "the file system of %s is mounted read-only" % place
    try:
        mounts = read_mounts() if mounts is None else mounts
    except OSError as exc:
        return "it cannot be told whether a reboot removes %s: %s cannot be read: %s" % (place, MOUNTS, exc.strerror)
    if is_in_memory(place, mounts):
        return "the file system of %s is in memory, and a reboot would remove what an upgrade keeps there" % place
    if found["free"] < ROOM_BYTES:
        return "the file system of %s has %d KiB left, and %d KiB are needed" % (
            place,
            found["free"] // 1024,
            ROOM_BYTES // 1024,
        )
    if found["files"] is not None and found["files"] < ROOM_FILES:
        return "the file system of %s has room for %d more files, and %d are needed" % (
            place,
            found["files"],
            ROOM_FILES,
        )
    return ""


def alike(one, other, keys=WHICH) -> bool:
    return bool(one and other) and all(one.get(key) == other.get(key) for key in keys)


def describe_owner(found) -> str:
    """Describe the owner of a node."""
    return "%s by rollout %s (attempt %d, begun on %s) since %s" % (
        found["state"],
        found["rollout_id"],
        found["attempt"],
        found["controller"],
        found["time"],
    )


def refusal(found, problem, mine, over=None) -> str:
    """Return why this attempt may not take the node; empty if it may.

    C(over) is a claim that was given up by name, or that its own ledger records as settled: only that one may be taken
    over from another rollout.
    """
    if problem:
        return problem
    if found is None or alike(found, over):
        return ""
    if not alike(found, mine, WHOSE):
        return "it is %s%s" % (
            describe_owner(found),
            ", of another ledger" if found["ledger"] != mine["ledger"] else "",
        )
    if found.get("node") and mine.get("node") and found["node"] != mine["node"]:
        return "it is %s under the name %s, so both names of the inventory are one machine" % (
            describe_owner(found),
            found["node"],
        )
    if found["attempt"] < mine["attempt"] or alike(found, mine):
        return ""
    return "it is %s: this is attempt %d, of an older copy of the ledger" % (describe_owner(found), mine["attempt"])


def changed_elsewhere(last, ledger, seconds, over=None) -> str:
    """Return which rollout of another ledger changed the node in the last SECONDS; empty if none did.

    LAST: the answer of read_last(). C(over): a claim that was given up by name.
    """
    if last is None or last["ledger"] == ledger or alike(last, over) or last["age_s"] >= seconds:
        return ""
    return "rollout %s of another ledger (attempt %d, begun on %s) changed it %d min ago" % (
        last["rollout_id"],
        last["attempt"],
        last["controller"],
        last["age_s"] // 60,
    )


def fence(claim) -> str:
    """An attempt in one word, which is in the claim too, so that one search of its text finds whether it still
    holds.
    """
    return "%s:%d:%s:%s" % (claim["run"], claim["attempt"], claim["ledger"], claim["rollout_id"])


def make_token(claim, directory) -> str:
    """The attempt that a task belongs to, and where the node keeps its claim, for the task's environment."""
    return "%s:%s" % (fence(claim), os.path.join(directory, NAME))


def from_token(text) -> tuple[dict, str] | None:
    """(attempt, path of the claim) of a token; nothing for a task that belongs to no rollout."""
    if not text:
        return None
    words = text.split(":", 4)
    if len(words) != 5 or not words[1].isdigit():
        raise ClaimError("%s is %r; expected run:attempt:ledger:rollout:path. Nothing was done." % (FENCE, text))
    return {"run": words[0], "attempt": int(words[1]), "ledger": words[2], "rollout_id": words[3]}, words[4]


def find_fence_problem(found, problem, mine) -> str:
    """Return why a call of an attempt that began with the node's claim is refused; empty if the node still has that
    claim."""
    if problem:
        return problem
    if found is None:
        return "it has given the node up"
    return "" if alike(found, mine) else "the node is %s" % describe_owner(found)


def require(text) -> None:
    """Refuse a call of an attempt that the node does not belong to any more.

    TEXT is the token of the task's environment.
    """
    known = from_token(text)
    if known is None:
        return
    mine, path = known
    found, problem = read_claim(os.path.dirname(path))
    why = find_fence_problem(found, problem, mine)
    if why:
        raise ClaimError(
            "This task belongs to attempt %d of rollout %s, and %s. Nothing was done."
            % (mine["attempt"], mine["rollout_id"], why)
        )


def of_environment(environment) -> str:
    """The token in the environment of a task, which is a list of mappings; empty where the task belongs to no
    rollout.
    """
    found = [one[FENCE] for one in environment or [] if isinstance(one, dict) and one.get(FENCE)]
    return str(found[-1]) if found else ""


GUARD_RC = 77


def guard(text) -> str:
    """Return the prefix for a shell command that only the attempt with the node's claim may run; empty for a task
    outside a rollout.
    """
    known = from_token(text)
    if known is None:
        return ""
    mine, path = known
    return (
        "grep -qsF -- %s %s || { echo 'the node does not belong to this attempt of the rollout any more' "
        ">&2; exit %d; }; " % (shlex.quote('"%s"' % fence(mine)), shlex.quote(path), GUARD_RC)
    )
