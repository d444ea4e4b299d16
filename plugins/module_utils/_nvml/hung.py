# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver that did not answer: how long those who ask it next wait for it.

Every task of a node reads NVML for itself. Where it hangs, each would wait for its whole deadline, and a node would
take a quarter of an hour to fail. So the first task without an answer leaves a note, and the next ones wait for AGAIN_S
only. The note is about the driver as it is loaded: it does not hold after a reboot or a reload, not for longer than
HOLDS_S, and not for who would wait longer than the first did.
"""

from __future__ import annotations

import json
import os
import time

from . import session

AGAIN_S = 10.0
HOLDS_S = 900.0


def path(stuck_file):
    """Return the path of the note, beside the one about a child that cannot be ended."""
    return stuck_file + ".hung"


def loaded_driver(root="/"):
    """Return what stays the same while the driver's kernel module is loaded: (boot id, number of its directory in
    sysfs); None if it is not loaded.
    """
    try:
        number = os.stat(os.path.join(root, "sys/module/nvidia")).st_ino
    except OSError:
        number = None
    return [session.boot_id(root), number]


def patience(note, wanted_s, driver, now):
    """Return the seconds to wait for NVML: the deadline WANTED_S, less if NOTE is about the same DRIVER and a wait at
    least as long.

    NOW is in seconds of boot.
    """
    if not isinstance(note, dict) or note.get("driver") != driver:
        return wanted_s
    waited_s, noted = note.get("waited_s"), note.get("at")
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (waited_s, noted)):
        return wanted_s
    if wanted_s > waited_s or not 0 <= now - noted <= HOLDS_S:
        return wanted_s
    return min(wanted_s, AGAIN_S)


def recall(stuck_file):
    """The note, None without one."""
    data = session.read_note(path(stuck_file))
    try:
        return None if data is None else json.loads(data.decode("utf-8"))
    except ValueError:
        return None


def remember(stuck_file, waited_s, driver, now):
    """Note that NVML did not answer within WAITED_S.

    Without the note the next one only waits for its whole deadline.
    """
    temporary = "%s.%d" % (path(stuck_file), os.getpid())
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(handle, "w") as stream:
            json.dump({"driver": driver, "waited_s": waited_s, "at": now}, stream)
        os.rename(temporary, path(stuck_file))
    except OSError:
        return


def forget(stuck_file):
    """It answered."""
    try:
        os.unlink(path(stuck_file))
    except OSError:
        pass  # there was none, or it is root's


def boot_seconds():
    """Seconds since boot, also those that the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
