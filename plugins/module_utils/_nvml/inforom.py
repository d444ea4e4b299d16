# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was read of the InfoROM since the driver was loaded, kept for who only describes the GPUs.

Two of its calls take longer than all others together. A verdict never takes what is kept here, and only good answers
are kept: one that is missing or bad is read again each time.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from .._node import files
from . import codes, identity, session

# The answers of a few dozen GPUs.
LIMIT = 65536

Answers = Dict[str, Dict[str, Any]]  # by key of a GPU, as codes.value answers


def path_of(stuck_file: str) -> str:
    """Return the path of the note, beside the one about a child that cannot be ended."""
    return stuck_file + ".inforom"


def is_good(key: str, answer: Any) -> bool:
    """Return True if a value was read, and does not say that the InfoROM is damaged."""
    if not isinstance(answer, dict) or set(answer) != {"value", "rc"} or answer["rc"] != codes.SUCCESS:
        return False
    value = answer["value"]
    if key == "inforom_valid":
        return value is True
    if key == "inforom_config_checksum":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)


def choose_good(gpus: Any) -> Dict[str, Answers]:
    """Return {UUID: answers} of those of GPUS, as a snapshot has them, all of whose answers are good."""
    found = {}
    for gpu in gpus:
        answers = dict((key, gpu.get(key)) for key in identity.INFOROM_KEYS)
        uuid = (gpu.get("uuid") or {}).get("value")
        if uuid and all(is_good(key, answer) for key, answer in answers.items()):
            found[uuid] = answers
    return found


def recall(stuck_file: str, driver: List[Any]) -> Dict[str, Answers]:
    """Return {UUID: answers} that were kept since the DRIVER was loaded, as snapshot.loaded_driver has it."""
    data = session.read_note(path_of(stuck_file), LIMIT)
    try:
        note = json.loads(data) if data else None
        if None in driver or note["driver"] != driver:
            return {}
        return choose_good(dict(answers, uuid={"value": uuid}) for uuid, answers in note["gpus"].items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def remember(stuck_file: str, driver: List[Any], gpus: List[Dict[str, Any]]) -> Optional[str]:
    """Keep the good answers of GPUS; return why they cannot be kept, which costs time alone."""
    if None in driver:
        return "the driver's kernel module is not loaded"
    try:
        files.write_atomically(path_of(stuck_file), json.dumps({"driver": driver, "gpus": choose_good(gpus)}))
    except OSError as exc:
        return exc.strerror
    return None
