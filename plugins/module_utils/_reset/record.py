# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a note of a reset that is under way, so that the next run finds what one that was killed left behind."""

from __future__ import annotations

import json
import os
import time

from .._node import files

SCHEMA = "gpufleet.reset/1"
NAME = "reset.json"


class RecordError(Exception):
    """The note cannot be kept; the text says why."""


def path(root="/", directory=files.OWN):
    return os.path.join(files.under(root, directory), NAME)


def read(boot_id, root="/", directory=files.OWN):
    """Return the note of a run of this boot that did not come to its end; None without one.

    A reboot ends what a reset leaves: the note of another boot is none, and so is one that is damaged.
    """
    try:
        found = json.loads(files.read_text(path(root, directory)) or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or found.get("boot_id") != boot_id:
        return None
    lists = [found.get(key) for key in ("gpus", "persistence")]
    return (
        found if all(isinstance(item, list) and all(isinstance(name, str) for name in item) for item in lists) else None
    )


def write(boot_id, gpus, persistence, phase, reason, root="/", directory=files.OWN):
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
        files.write_atomically(path(root, directory), json.dumps(note, indent=1, sort_keys=True) + "\n")
    except OSError as exc:
        raise RecordError("%s cannot be written: %s" % (path(root, directory), exc.strerror or exc)) from exc


def remove(root="/", directory=files.OWN):
    try:
        os.unlink(path(root, directory))
    except FileNotFoundError:
        return
