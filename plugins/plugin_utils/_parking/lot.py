# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook's process and its workers share: where tasks leave what they know, and a pipe by which they say when to begin them anew.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile

LINE_MAX = 4096  # PIPE_BUF of Linux, pipe(7): a write of no more is never mixed with another one


class Lot:
    """Made once, before the first worker: those that fork later have it, too."""

    def __init__(self, place):
        self.place = tempfile.mkdtemp(prefix="gpufleet-parked-", dir=place)  # for its owner alone
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.open = False  # whether the play that runs now may use it
        self._rest = b""

    # In a worker

    def path(self, host, task):
        """The file of what one task of one host left, by the host's name and the task's id."""
        return os.path.join(self.place, hashlib.sha256(("%s %s" % (host, task)).encode("utf-8")).hexdigest())

    def note(self, host, task):
        """What the task left when it was given up last, and has back by this; nothing for one that has just begun."""
        path = self.path(host, task)
        try:
            with open(path, encoding="utf-8") as stream:
                found = json.load(stream)
        except FileNotFoundError:
            return {}
        os.unlink(path)
        return found

    def leave(self, host, task, seconds, note):
        """Have the task begun anew in so many seconds, with what it knows by then; whoever calls this ends its process next."""
        path = self.path(host, task)
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump(note, stream)
        os.replace(path + ".new", path)
        line = json.dumps([host, task, seconds]).encode("ascii") + b"\n"
        if len(line) > LINE_MAX:
            raise ValueError("the name of host %s and its task are %d bytes, expected at most %d" % (host, len(line), LINE_MAX))
        os.write(self.writer, line)

    # In the playbook's process

    def arrivals(self):
        """[(host, task, seconds)] of what was left since the last call."""
        while True:
            try:
                found = os.read(self.reader, 65536)
            except BlockingIOError:
                break
            self._rest += found
        *lines, self._rest = self._rest.split(b"\n")
        return [tuple(json.loads(line)) for line in lines]


CURRENT = None  # of this process and of all that it forks; the callback many_nodes makes it
