# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Closes the report of a run whose playbook ended without doing so, so that it does not say C(running) for ever.

A playbook that is interrupted or killed cannot write its report. Neither can one whose hosts are all unreachable: with
--limit there is no other host to run the task. The process that watches the playbook (watcher.py) writes the report
then. It changes no state of a node: the next run examines the nodes that were left in flight.
"""

from __future__ import annotations

import contextlib
import os

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import publish, summary


def close(ledger, run, controller, textfile_dir=""):
    """Update the report of a run whose playbook has ended; return lines to print, none if the playbook closed it."""

    def left(transaction):
        if not members.has_open(transaction, controller, run):
            return None
        shared = members.shared(transaction.owner)
        # A run whose last node ended it, and whose playbook ended after that. A member leaves its hosts in any case.
        if shared or transaction.view.finished is not None:
            members.release(transaction, controller)
        return shared

    try:
        shared = ledger.transact(left) if ledger.store.exists() else None
        if shared is None:
            return []
        # Other members may continue.
        over = not shared or not ledger.controllers()[1]
        doc = publish.refresh(ledger, True, textfile_dir=textfile_dir, ended=over or None)
    except store.StoreError:
        return []  # the next run, or gpufleet.lifecycle.report, reports it
    if doc is None:
        return []
    words = (
        "Rollout %s has not finished: its playbook was interrupted, or none of its nodes could be reached any more."
        % ledger.rollout_id
    )
    lines = summary.summary(doc, ledger.path(publish.NAMES["html"]))
    return (
        lines
        if doc["finished"]
        else [words] + lines + ["To continue, run the same command again: it continues rollout %s." % ledger.rollout_id]
    )


def output_of(pid):
    """Open the standard output of a process again; None if that is not possible, as with a socket."""
    try:
        return os.open("/proc/%d/fd/1" % pid, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def speak(handle, lines):
    """Write LINES to the playbook's output, if it is still open."""
    with contextlib.suppress(OSError):
        os.write(handle, ("\n" + "\n".join(map(text.clean, lines)) + "\n").encode("utf-8", "backslashreplace"))
