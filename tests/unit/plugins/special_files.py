# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands under the name of a file and is none, and how long opening it may take."""

from __future__ import annotations

import os
import socket
import threading

PATIENCE_S = 20


def _socket(path):
    # The path of a socket is short.
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.basename(path))
    finally:
        os.chdir(here)


def _link_to_fifo(path):
    os.mkfifo(path + ".fifo")
    os.symlink(path + ".fifo", path)


MAKERS = {
    "fifo": os.mkfifo,
    "socket": _socket,
    "link to a fifo": _link_to_fifo,
    "link to nothing": lambda path: os.symlink(path + ".none", path),
    "link to a device": lambda path: os.symlink("/dev/zero", path),
}


def make(kind, path):
    """Make something of a KIND, one of MAKERS, at PATH, and the directory that it is in."""
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    MAKERS[kind](str(path))


def within(work):
    """Return WORK(), or raise its exception; fail if it does not end."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as exc:  # noqa: BLE001 (raised again in the test)
            outcome.append((None, exc))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert outcome, "it did not end within %d s" % PATIENCE_S
    answer, error = outcome[0]
    if error is not None:
        raise error
    return answer
