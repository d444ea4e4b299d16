# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what is asked of the node before a reset, apart from NVML, and keep a note of a reset that is under way."""

from __future__ import annotations

import json
import os
import time

from .._kernel import kernel_log, loaded
from .._node import files, holders, hung, runner, units

FABRIC_MANAGER = "nvidia-fabricmanager.service"
DRM = "nvidia_drm"


def read_obstacles(root, command) -> dict:
    """Return what can change while the module runs; asked a second time right before the reset."""
    return {
        "holders": holders.read_holders(root),
        "references": loaded.read_references(root),
        "drm_modeset": drm_modeset(root),
        "hung": hung.read_hung_tasks(root),
        "command": is_installed(root, command),
    }


def drm_modeset(root):
    """Return Y or N of the module that gives GPUs to displays; None if it is not loaded, unknown if it does not say."""
    base = files.under(root, "/sys/module", DRM)
    if not os.path.isdir(base):
        return None
    return files.read_line(os.path.join(base, "parameters", "modeset")) or "unknown"


def is_installed(root, command) -> bool:
    """Return whether a command lies in the search path that commands get."""
    return any(os.access(files.under(root, place, command), os.X_OK) for place in runner.SEARCH_PATH.split(":"))


def fabric_manager(run) -> bool | None:
    """Return whether the fabric manager runs; None when systemd does not say."""
    found = units.show(run, [FABRIC_MANAGER])
    return None if found is None else found[FABRIC_MANAGER]["active"] == "active"


def read_log(root, run, watermark=None):
    """Return the kernel log since WATERMARK, with the position up to which it was read."""
    return kernel_log.read(root, run, watermark)


SCHEMA = "gpufleet.reset/1"
NOTE = "reset.json"


class RecordError(Exception):
    """The note cannot be kept; the text says why."""


def note_path(root="/", directory=files.OWN):
    return os.path.join(files.under(root, directory), NOTE)


def read_note(boot_id, root="/", directory=files.OWN):
    """Return the note of a run of this boot that did not come to its end; None without one.

    A reboot ends what a reset leaves: the note of another boot is none, and so is one that is damaged.
    """
    try:
        found = json.loads(files.read_text(note_path(root, directory)) or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or found.get("boot_id") != boot_id:
        return None
    lists = [found.get(key) for key in ("gpus", "persistence")]
    return (
        found if all(isinstance(item, list) and all(isinstance(name, str) for name in item) for item in lists) else None
    )


def write_note(boot_id, gpus, persistence, phase, reason, root="/", directory=files.OWN) -> None:
    """Keep which GPUs are being reset, whose persistence mode has to be turned on again, and how far it has come."""
    note = {
        "schema": SCHEMA,
        "boot_id": boot_id,
        "gpus": gpus,
        "persistence": persistence,
        "phase": phase,
        "reason": reason,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    try:
        files.own_directory(root, directory)
        files.write_atomically(note_path(root, directory), json.dumps(note, indent=1, sort_keys=True) + "\n")
    except OSError as exc:
        raise RecordError("%s cannot be written: %s" % (note_path(root, directory), exc.strerror or exc)) from exc


def remove_note(root="/", directory=files.OWN) -> None:
    try:
        os.unlink(note_path(root, directory))
    except FileNotFoundError:
        return
