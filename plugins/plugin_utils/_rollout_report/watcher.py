# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that watches a playbook from its plan to its end.

The task that plans a rollout starts it. While the playbook is alive it writes the heartbeat of the controller
(heartbeat.py). When the playbook has ended, it closes the report if that was not done (closer.py). It ends when the run
has ended or another controller takes it over.
"""

from __future__ import annotations

import gc
import os
import signal

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import heartbeat, owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import closer

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
    output = closer.output_of(identity["pid"])
    if not heartbeat.keep_alive(ledger(PATIENCE_S), identity, run, every_s):
        return
    lines = closer.close(ledger(CLOSING_PATIENCE_S), run, identity, textfile_dir)
    if lines and output is not None:
        closer.speak(output, lines)


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
