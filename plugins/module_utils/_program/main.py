# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of gpufleet-node, and their exit statuses."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, List, Optional, TextIO

from .._node import boot_expectation, lock
from . import readings, textfile

# What another command needs is imported where that begins: Python compiles what it imports from the program each time.

# Exit statuses, beside argparse's own 2 for a command line that cannot be read.
DONE, FAILED, UNUSABLE, RESET_REQUIRED = 0, 1, 2, 3
# Of boot-check, beside 0 for pass and 1 for fail.
NOT_KNOWN = 4
PROBLEMS = {
    boot_expectation.MISSING: 5,
    boot_expectation.MALFORMED: 6,
    boot_expectation.OTHER_SCHEMA: 7,
    boot_expectation.UNTRUSTED: 8,
    boot_expectation.UNUSABLE_LAYOUT: UNUSABLE,
}
MIG_EPILOG = """exit status: 0 the layout is there; 1 it is not; 2 the configuration cannot be used; \
3 a GPU reset or reboot is
required"""
BOOT_EPILOG = """exit status: 0 pass; 1 fail; 4 unknown. Without a usable expectation the verdict is unknown as well, \
and the
status says why: 2 its MIG configuration cannot be used, 5 it is not there, 6 it is malformed, \
7 it is of another schema, 8
others than root can change it"""
CONFIG = readings.MIG_CONFIG


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="gpufleet-node", description="What a GPU node does by itself.")
    subjects = found.add_subparsers(dest="subject", metavar="SUBJECT")
    subjects.required = True
    about_mig = subjects.add_parser("mig", help="the MIG layout of this node", epilog=MIG_EPILOG)
    verbs = about_mig.add_subparsers(dest="verb", metavar="VERB")
    verbs.required = True
    for verb, text in (
        ("apply", "make the layout, and read it back"),
        ("assert", "see whether the layout is there; change nothing"),
    ):
        item = verbs.add_parser(verb, help=text, epilog=MIG_EPILOG)
        item.add_argument("--config", default=CONFIG, help="the configuration of this node (default: %(default)s)")
        _add_timeout(item)
        item.add_argument(
            "--lock-timeout",
            type=int,
            default=60,
            metavar="SECONDS",
            help="the longest time to wait for the node's lock (default: %(default)s)",
        )
        item.add_argument(
            "--lock-file", default=lock.DEFAULT_PATH, metavar="PATH", help="the node's lock (default: %(default)s)"
        )
        item.set_defaults(run=run_mig)
    check = subjects.add_parser(
        "boot-check", help="see whether this node has what it should have; change nothing", epilog=BOOT_EPILOG
    )
    check.add_argument(
        "--expectation",
        default=boot_expectation.PATH,
        metavar="PATH",
        help="what this node should have (default: %(default)s)",
    )
    check.add_argument(
        "--result",
        default=boot_expectation.RESULT,
        metavar="PATH",
        help="where the whole verdict is written (default: %(default)s)",
    )
    _add_timeout(check)
    check.add_argument(
        "--fabric-timeout",
        type=int,
        default=0,
        metavar="SECONDS",
        help="the longest time to read again while GPUs join their NVLink fabric (default: %(default)s)",
    )
    check.set_defaults(run=run_boot_check)
    textfile.add_to(subjects)
    return found


def _add_timeout(item: argparse.ArgumentParser) -> None:
    item.add_argument(
        "--timeout",
        type=int,
        default=120,
        metavar="SECONDS",
        help="the longest time to wait for NVML (default: %(default)s)",
    )


def run(arguments: Optional[List[str]] = None) -> int:
    """Do what the command line says; the exit status. What went wrong is on the standard error output."""
    options = parser().parse_args(arguments)
    return options.run(options)


def run_boot_check(options: argparse.Namespace) -> int:
    """Print the verdict without what passed as one line of JSON, and for a person on the standard error output."""
    from .. import _health
    from . import boot_check

    try:
        boot_check.forget(options.result)
        outcome = boot_check.run(
            options.expectation,
            lambda: boot_check.look(options.timeout),
            boot_check.tables_of(__package__.rpartition(".")[0]),
            os.uname().nodename,
            options.fabric_timeout,
        )
        boot_check.keep(options.result, outcome.health)
    except OSError as exc:
        return _fail(NOT_KNOWN, "the verdict cannot be written: %s" % (exc,))
    sys.stdout.write(json.dumps(_health.compact(outcome.health), sort_keys=True) + "\n")
    sys.stdout.flush()
    for line in _health.summary(outcome.health).splitlines():
        _say(sys.stderr, line)
    return status_of(outcome)


def status_of(outcome: Any) -> int:
    """The exit status for the OUTCOME of boot_check: 0 for pass alone."""
    if outcome.problem is not None:
        return PROBLEMS.get(outcome.problem, NOT_KNOWN)
    return {"pass": DONE, "fail": FAILED}.get(outcome.health["verdict"], NOT_KNOWN)


def run_mig(options: argparse.Namespace) -> int:
    """Make the layout, or look at it."""
    from . import mig

    try:
        result = mig.run(
            options.config,
            options.verb == "assert",
            options.timeout,
            lock.NodeLock(
                options.lock_file, {"module": "gpufleet-node", "step": "MIG %s" % (options.verb,)}, options.lock_timeout
            ),
        )
    except mig.Unusable as exc:
        return _fail(UNUSABLE, exc)
    except (mig.NotDone, lock.LockTimeout) as exc:
        return _fail(FAILED, exc)
    except PermissionError as exc:
        return _fail(FAILED, "MIG needs root: %s" % (exc,))
    for warning in result["warnings"]:
        _say(sys.stderr, warning)
    if result.get("failed"):
        return _fail(FAILED, result["msg"])
    if options.verb == "assert" and result["changed"]:
        return _fail(FAILED, "the layout is not there: %s" % (mig.difference(result),))
    if result["reset_required"]:
        return _fail(RESET_REQUIRED, result["msg"])
    _say(sys.stdout, result["msg"] + (" (simulated GPUs)" if result["simulated"] else ""))
    return DONE


def _say(stream: TextIO, text: object) -> None:
    stream.write("gpufleet-node: %s\n" % (text,))


def _fail(status: int, why: object) -> int:
    _say(sys.stderr, why)
    return status
