# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the settings that only the node knows: the locked clocks that NVML does not report, this load of the driver, and
its persistence daemon.
"""

from __future__ import annotations

import json
import os
import re

from ..._node import files, identity

SCHEMA = "gpufleet.settings/1"
DIRECTORY = "/var/lib/gpufleet"
NAME = "settings.json"
DAEMON_PID = "run/nvidia-persistenced/nvidia-persistenced.pid"
# As the kernel cuts it off.
DAEMON = "nvidia-persiste"
SIZE_LIMIT = 1024 * 1024


class StateError(Exception):
    """The file cannot be used; the text names it and says why."""


def load_mark(root="/") -> str | None:
    """This load of the driver, as a text that is another after a reboot and after the module was loaded again; None if
    it cannot be told.

    The kernel gives the directory of every module that it loads a new number.
    """
    boot = identity.read_boot_id(root)
    try:
        number = os.stat(os.path.join(root, "sys/module/nvidia")).st_ino
    except OSError:
        return None
    return "%s/%d" % (boot, number) if boot else None


def daemon_runs(root="/", proc="/proc") -> bool:
    """Tell if nvidia-persistenced is running; its pid file alone proves nothing, and neither does the name of a
    process of another user than root and the daemon's own.
    """
    try:
        with open(os.path.join(root, DAEMON_PID), encoding="ascii") as stream:
            pid = int(stream.read(32))
        own = os.stat(os.path.dirname(os.path.join(root, DAEMON_PID))).st_uid
        with open(os.path.join(proc, str(pid), "status"), encoding="utf-8", errors="replace") as stream:
            users = re.search(r"^Uid:\s+(\d+)\s+(\d+)", stream.read(), re.M)
        if not users or not set(int(user) for user in users.groups()) <= {0, own}:
            return False
        with open(os.path.join(proc, str(pid), "comm"), encoding="utf-8") as stream:
            return stream.read().strip() == DAEMON
    except (OSError, ValueError):
        return False


def read_state(directory=DIRECTORY) -> dict[str, dict]:
    """{uuid: {setting: {"value", "load"}}}: what was set last on this node.

    Nothing was if there is no file; a damaged one is an error.
    """
    path = os.path.join(directory, NAME)
    try:
        document = json.loads(files.read_owned(path, SIZE_LIMIT))
        found = document["gpus"] if document["schema"] == SCHEMA else None
        if not all(
            isinstance(entry["value"], (dict, str)) and "load" in entry
            for gpu in found.values()
            for entry in gpu.values()
        ):
            raise ValueError("an entry without value or load")
    except FileNotFoundError:
        return {}
    except files.NotOwned as exc:
        raise StateError("%s is not used: %s" % (path, exc)) from exc
    except OSError as exc:
        raise StateError("%s cannot be read: %s" % (path, exc.strerror)) from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise StateError("%s is damaged: it holds no locked clocks (schema %s)" % (path, SCHEMA)) from exc
    return found


def write(gpus, directory=DIRECTORY) -> None:
    """Keep GPUS, as READ answers them, in one step."""
    path = os.path.join(directory, NAME)
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        files.write_atomically(path, json.dumps({"schema": SCHEMA, "gpus": gpus}, indent=1, sort_keys=True) + "\n")
    except OSError as exc:
        raise StateError("%s cannot be written: %s" % (path, exc.strerror)) from exc
