# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record which files the controller's processes use, in the file C(GPUFLEET_OPENED)."""

from __future__ import annotations

DOCUMENTATION = r"""
name: opened
type: notification
short_description: The files of the controller that a playbook uses
description:
  - Writes one line for each, with the audit event of Python, the path, and whether it is written to.
author: gpufleet contributors (@gpufleet)
options: {}
"""

import json
import os
import sys

from ansible.plugins.callback import CallbackBase

# Of the arguments of an event those that are paths: https://docs.python.org/3/library/audit_events.html
EVENTS = {
    "open": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.listdir": 1,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.scandir": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
    "sqlite3.connect": 1,
}
READING = ("open", "os.listdir", "os.scandir")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Recorder:
    """The audit hook of this process and of the workers, which are copies of it. It cannot be removed."""

    def __init__(self, path):
        self.log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.seen = set()

    def __call__(self, event, arguments):
        count = EVENTS.get(event)
        if count is None:
            return
        # A path below a directory that is open, whose descriptor is the last argument.
        above = "/proc/self/fd/%d" % arguments[-1] if event != "open" and type(arguments[-1]) is int else ""
        above = os.readlink(above) if os.path.lexists(above) else ""
        writes = event not in READING or event == "open" and bool((arguments[2] or 0) & WRITING)
        for path in arguments[:count]:
            if isinstance(path, (str, bytes)):
                path = os.path.abspath(os.path.join(above, os.fsdecode(path)))
                if (path, writes) not in self.seen:
                    self.seen.add((path, writes))
                    os.write(self.log, json.dumps([event, path, writes]).encode() + b"\n")


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpufleet.lifecycle.opened"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        sys.addaudithook(Recorder(os.environ["GPUFLEET_OPENED"]))
