# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The notes of a node about itself: small JSON documents in its state directory, each there whole or not at all."""

from __future__ import annotations

import json
import os

from . import claim, files

NAMES = ("drain", "quarantine", "recovery", "thermal_relief")
LONGEST = 1024 * 1024


def path_of(directory, name) -> str:
    return os.path.join(directory, name + ".json")


def read_note(directory, name) -> tuple[dict | None, str]:
    """(note, problem); None and no problem where there is none."""
    path = path_of(directory, name)
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(LONGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except (OSError, UnicodeDecodeError) as exc:
        return None, "%s cannot be read: %s" % (path, exc)
    if len(text) > LONGEST:
        return None, "%s is longer than %d bytes" % (path, LONGEST)
    try:
        note = json.loads(text)
    except ValueError as exc:
        return None, "%s is not JSON: %s" % (path, exc)
    return (note, "") if isinstance(note, dict) else (None, "%s holds no dictionary" % path)


def render_note(note) -> str:
    return json.dumps(note, indent=4, sort_keys=True) + "\n"


def write(directory, name, note) -> None:
    """Put a note in the place of the one that lies there; a reader finds either, also after a loss of power."""
    claim.write_state_file(directory, name + ".json", render_note(note))


def remove(directory, name) -> None:
    os.unlink(path_of(directory, name))
    files.sync_directory(directory)
