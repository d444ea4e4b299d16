# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that watches a playbook from its plan to its end.

The task that plans a rollout starts it. While the playbook is alive it writes the heartbeat of the controller
(heartbeat.py). A playbook that is interrupted or killed cannot write its report. Neither can one whose hosts are all
unreachable: with --limit there is no other host to run the task. When the playbook has ended without doing so, this
process closes the report, so that it does not say C(running) for ever. It changes no state of a node: the next run
examines the nodes that were left in flight. It ends when the run has ended or another controller takes it over.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import heartbeat, members, owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
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


PATIENCE_S = 10.0  # for the ledger: the next heartbeat follows soon
# For closing the report, while the output of the playbook stays open.
CLOSING_PATIENCE_S = 20.0


def detach():
    """Detach from the process of which this one is a fork: terminal, signal handlers and open files."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    gc.freeze()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = range(1024)
    for number in numbers:
        # Replaced instead of closed: objects that have the number must not close files that are opened later.
        if number != null:
            try:
                os.fstat(number)
                os.dup2(null, number)
            except OSError:
                continue


def watch(ledger, identity, run, textfile_dir, every_s):
    """Write heartbeats, then close the report. LEDGER(patience in seconds) returns the ledger."""
    output = output_of(identity["pid"])
    if not heartbeat.keep_alive(ledger(PATIENCE_S), identity, run, every_s):
        return
    lines = close(ledger(CLOSING_PATIENCE_S), run, identity, textfile_dir)
    if lines and output is not None:
        speak(output, lines)


def start(ledger, identity, run, textfile_dir="", every_s=owner.HEARTBEAT_S):
    """Start the process; return its pid."""
    url = ledger.store.url.render_as_string(hide_password=False)
    pid = os.fork()
    if pid:
        return pid
    try:
        detach()
        watch(
            lambda patience_s: Ledger(ledger.artifact_dir, ledger.rollout_id, url, patience_s),
            identity,
            run,
            textfile_dir,
            every_s,
        )
    finally:
        os._exit(0)
