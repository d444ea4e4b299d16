# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the GPUs that NVML reads on a node with those that it had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model

Answer = Mapping[str, Any]
# What a GPU is known by, and the values of a snapshot that say it.
TEXTS = {"uuid": "uuid", "serial": "serial", "part_number": "board_part_number", "name": "name"}


class Exchange(TypedDict):
    """GPUs that are gone and new ones, by UUID."""

    gone: list[Answer]
    new: list[Answer]


def known(snapshot: Any) -> list[dict[str, Any]]:
    """The GPUs of a snapshot of NVML; what a GPU does not tell is None."""
    return [_known(gpu) for gpu in model.gpus(snapshot)]


def _known(gpu: Answer) -> dict[str, Any]:
    found = {key: _text(gpu, name) for key, name in TEXTS.items()}
    return dict(found, pci=model.address(gpu))


def _text(gpu: Answer, key: str) -> str | None:
    value = model.reading(gpu, key).value
    return value if isinstance(value, str) and value else None


def labelled(gpu: Answer) -> str:
    """A GPU for people."""
    words = [str(gpu.get("uuid") or "a GPU")]
    words += ["serial number %s" % gpu["serial"]] if gpu.get("serial") else []
    words += ["at %s" % gpu["pci"]] if gpu.get("pci") else []
    return words[0] + (" (%s)" % ", ".join(words[1:]) if words[1:] else "")


def exchange(before: Sequence[Answer], now: Sequence[Answer]) -> Exchange:
    """GPUs of BEFORE that are not there NOW, and those that are new. A GPU that tells no UUID is none of either."""
    old, new = _by_uuid(before), _by_uuid(now)
    return {
        "gone": [old[name] for name in sorted(set(old) - set(new))],
        "new": [new[name] for name in sorted(set(new) - set(old))],
    }


def _by_uuid(gpus: Sequence[Answer]) -> dict[str, Answer]:
    return {
        gpu["uuid"]: gpu
        for gpu in gpus
        if isinstance(gpu, Mapping) and isinstance(gpu.get("uuid"), str) and gpu["uuid"]
    }
