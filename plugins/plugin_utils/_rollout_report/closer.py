# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that waits for the end of the playbook and sees to it that the report does not say C(running) for ever.

A playbook that is interrupted or killed runs nothing any more, and neither does one all of whose hosts cannot be reached: with --limit there
is no other host that could report. The process that watches it (watcher.py) writes the report of a run that was not closed. It changes no node's
state: what is on a node that was left in flight is for the next run to find out.
"""

from __future__ import annotations

import contextlib
import os

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import publish, report


def close(ledger, run, controller, textfile_dir=""):
    """Bring the report of a run up to date whose playbook has ended; what is to be said, nothing when the playbook closed it."""

    def left(transaction):
        record = transaction.owner
        mine = record is not None and record["run"] == run and owner.same(record["owner"], controller) and transaction.view.run == run
        if not mine or record.get("ended"):
            return False
        if transaction.view.finished is not None:  # its last node ended it, and then nothing could be run any more
            owner.release(transaction, controller)
        return True

    try:
        if not ledger.store.exists() or not ledger.transact(left):
            return []
        doc = publish.refresh(ledger, True, textfile_dir=textfile_dir, ended=True)
    except store.StoreError:
        return []  # the next run, or gpufleet.lifecycle.report, says it
    if doc is None:
        return []
    words = (
        "Rollout %s has not come to its end: its playbook was interrupted, or none of its nodes could be reached any more."
        % ledger.rollout_id
    )
    lines = report.summary(doc, ledger.path(publish.NAMES["html"]))
    return lines if doc["finished"] else [words] + lines + [
        "To go on, run the same command again: it goes on with rollout %s." % ledger.rollout_id]


def output_of(pid):
    """Where a process writes to, opened anew; None where that cannot be, as with a socket."""
    try:
        return os.open("/proc/%d/fd/1" % pid, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def speak(handle, lines):
    """Say LINES where the playbook's output went, if anybody still reads it."""
    with contextlib.suppress(OSError):
        os.write(handle, ("\n" + "\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
