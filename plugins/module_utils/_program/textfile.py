# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of `gpufleet-node textfile`: read, count, render, write, each in a file of its own. This one is their order.

What was counted is kept before the series are written: what a run has told is never counted again, nor forgotten.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pkgutil
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

from .._node import claim, files, identity, lock
from . import counts, readings, series

NAME = "gpufleet.prom"
STATE = "textfile.json"
DIRECTORY = "/var/lib/prometheus/node-exporter"
LOCK = "/run/gpufleet-textfile.lock"
DONE, NOT_WRITTEN, BUSY = 0, 1, 9
EPILOG = """exit status: 0 the series are written, whatever they say; 1 they are not, or what was counted could not be
kept; 9 another run of this command is under way"""


class Busy(Exception):
    """Another run holds the lock."""


class Outcome(NamedTuple):
    """The result of the run: the text of the series, and what could not be read or written."""

    text: str
    problems: List[str]
    failed: bool


def add_to(subjects: Any) -> None:
    """The command line of this command."""
    given = readings.Sources()
    found = subjects.add_parser("textfile", help="write this node's series for node_exporter", epilog=EPILOG)
    for name, default, text in (
        ("--directory", DIRECTORY, "where node_exporter reads *.prom"),
        ("--state-dir", given.state_dir, "where this collection keeps what it keeps on the node"),
        ("--expectation", given.expectation, "what this node should have"),
        ("--boot-result", given.boot_result, "the verdict of the check at boot"),
        ("--mig-config", given.mig_config, "the MIG layout that this node should have"),
        ("--lock-file", LOCK, "what keeps two runs apart"),
    ):
        found.add_argument(name, default=default, metavar="PATH", help=text + " (default: %(default)s)")
    found.add_argument(
        "--digests",
        action="append",
        metavar="PATH",
        help="a directory with lists of digests, *.sha256; may be given more than once (default: %s)"
        % (" and ".join(given.digests),),
    )
    found.add_argument(
        "--gpus", type=int, default=0, help="how many GPUs the node should have (default: by its expectation)"
    )
    found.add_argument(
        "--timeout",
        type=int,
        default=given.timeout_s,
        metavar="SECONDS",
        help="the longest time to wait for NVML (default: %(default)s)",
    )
    found.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """Do what the command line says; the exit status. What went wrong is on the standard error output."""
    sources = readings.Sources(
        options.state_dir,
        options.expectation,
        options.boot_result,
        options.mig_config,
        tuple(options.digests or readings.Sources().digests),
        options.gpus,
        options.timeout,
    )
    try:
        with alone(options.lock_file):
            outcome = run(sources, options.directory, tables(__package__.rpartition(".")[0]))
    except Busy as exc:
        return _say(BUSY, str(exc))
    except OSError as exc:
        return _say(NOT_WRITTEN, "the series cannot be written: %s" % (exc,))
    return _say(NOT_WRITTEN if outcome.failed else DONE, *outcome.problems)


def _say(status: int, *lines: str) -> int:
    for line in lines:
        sys.stderr.write("gpufleet-node: %s\n" % (line,))
    return status


def run(
    sources: readings.Sources,
    directory: str,
    data: Dict[str, Any],
    root: str = "/",
    clock: Callable[[], float] = time.time,
    read: Callable[..., Dict[str, Any]] = readings.read_parts,
) -> Outcome:
    """Read the node, and write its series into DIRECTORY; OSError if that fails. DATA are the collection's files."""
    kept = readings.document(readings.in_state(sources, STATE))
    before = counts.of_boot(kept, identity.read_boot_id(root))
    found = read(sources, before, clock(), root=root)
    state = counts.after(before, found, data.get("xid"))
    problems = ["%s: %s" % item for item in sorted(found["problems"].items())]
    failed = False
    if state != kept:
        try:
            claim.write_state_file(sources.state_dir, STATE, json.dumps(state, sort_keys=True) + "\n")
        except OSError as exc:
            failed = True
            problems.append("what was counted cannot be kept: %s" % (exc,))
    text = series.render(data["node_series"], series.samples(found, state))
    write(directory, text)
    return Outcome(text, problems, failed)


def tables(package: str) -> Dict[str, Any]:
    """The data files that the program carries below PACKAGE."""
    found = {}
    for name in ("node_series", "xid"):
        found[name] = json.loads((pkgutil.get_data(package, "data/%s.json" % (name,)) or b"null").decode("utf-8"))
    return found


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Only one run at a time: two would add what was logged twice. Busy where another one is under way."""
    descriptor = lock.open_file(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise Busy("another run is under way (%s)" % (path,)) from exc
        yield
    finally:
        os.close(descriptor)


def write(directory: str, text: str) -> None:
    """Put the series in the place of the older ones; node_exporter, which reads *.prom alone, finds either, whole."""
    path = os.path.join(directory, NAME)
    for name in os.listdir(directory):
        if name.startswith(NAME + ".") and name.endswith(".tmp"):
            os.unlink(os.path.join(directory, name))  # of a run that was killed: only one runs at a time
    if not files.write_atomically(path, text):
        os.utime(path)  # its age tells whether the timer runs
