# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The quarantine marker of a node, schema gpufleet.quarantine/1, and which of its GPUs were exchanged since."""

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


def describe_gpus(snapshot: Any) -> list[dict[str, Any]]:
    """The GPUs of a snapshot of NVML; what a GPU does not tell is None."""
    return [_describe_gpu(gpu) for gpu in model.gpus(snapshot)]


def _describe_gpu(gpu: Answer) -> dict[str, Any]:
    found = {key: _read_text(gpu, name) for key, name in TEXTS.items()}
    return dict(found, pci=model.address(gpu))


def _read_text(gpu: Answer, key: str) -> str | None:
    value = model.reading(gpu, key).value
    return value if isinstance(value, str) and value else None


def format_gpu(gpu: Answer) -> str:
    """A GPU for people."""
    words = [str(gpu.get("uuid") or "a GPU")]
    words += ["serial number %s" % gpu["serial"]] if gpu.get("serial") else []
    words += ["at %s" % gpu["pci"]] if gpu.get("pci") else []
    return words[0] + (" (%s)" % ", ".join(words[1:]) if words[1:] else "")


def find_exchanged(before: Sequence[Answer], now: Sequence[Answer]) -> Exchange:
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


SCHEMA = "gpufleet.quarantine/1"
# Every field, and what it is where nothing is known.
FIELDS: dict[str, Any] = {
    "node": "",  # its name in the inventory
    "time": "",  # since when, UTC
    "user": "",  # who put it there, on the controller
    "controller": "",
    "origin": "",  # upgrade, quarantine or recover_gpu
    "reason": "",
    "not_put_back": "",  # of a node whose upgrade failed: why the old state could not be proven
    "checks": [],  # ids of the health checks that did not pass
    "gpus": [],  # its GPUs by UUID, serial number, part number, name and PCI address, as far as they told
    "serials": [],
    "evidence": "",  # the bundle of evidence on the controller
    "record": "",  # the RMA record on the controller
    "rollout_id": "",
    "version": "",  # the driver that a rollout wanted, and the one before it
    "previous_version": "",
    "token": "",  # whose drain keeps it out of its schedulers
    "schedulers": [],  # those that this token drained it in
}
BY_HAND = "by-hand"
UNSAFE = ("\n", "\r")


class MarkerError(Exception):
    """The marker cannot be written so; the message says why."""


def build(given: Answer) -> dict[str, Any]:
    """A marker out of its fields, and of snapshot, health and baseline in the place of gpus and checks."""
    fields = {key: value for key, value in given.items() if key not in ("snapshot", "health", "baseline", "schema")}
    strange = sorted(set(fields) - set(FIELDS))
    if strange:
        raise MarkerError("a quarantine marker has no field %s" % ", ".join(strange))
    made = {key: fields.get(key) if fields.get(key) is not None else default for key, default in FIELDS.items()}
    for key in ("node", "time", "reason"):
        if not str(made[key]).strip():
            raise MarkerError("a quarantine marker needs %s" % key)
    made["reason"] = " ".join(str(made["reason"]).split())
    made["gpus"] = made["gpus"] or list_gpus(given.get("snapshot"), given.get("baseline"))
    made["serials"] = sorted({gpu["serial"] for gpu in made["gpus"] if gpu.get("serial")})
    made["checks"] = made["checks"] or list_failed_checks(given.get("health"))
    made["token"] = made["token"] or made["rollout_id"] or BY_HAND
    return dict(made, schema=SCHEMA)


def list_gpus(snapshot: Any, baseline: Any) -> list[dict[str, Any]]:
    """The GPUs of a node: those that answered, and those of its baseline that did not."""
    now = [gpu for gpu in describe_gpus(snapshot) if gpu["uuid"]]
    before = describe_gpus(baseline.get("snapshot")) if isinstance(baseline, Mapping) else []
    return now + [dict(gpu) for gpu in find_exchanged(before, now)["gone"]]


def list_failed_checks(health: Any) -> list[str]:
    """Ids of the checks of a verdict that did not pass."""
    checks = health.get("checks") if isinstance(health, Mapping) else None
    return sorted(
        {
            str(check.get("id"))
            for check in checks or []
            if isinstance(check, Mapping) and check.get("status") in ("fail", "unknown")
        }
    )


def read_marker(note: Any) -> dict[str, Any]:
    """Return the fields of a marker that lies on a node. A field that is missing or of another type has its default."""
    note = note if isinstance(note, Mapping) else {}
    found = {key: note[key] if isinstance(note.get(key), type(default)) else default for key, default in FIELDS.items()}
    found["gpus"] = [dict(gpu) for gpu in found["gpus"] if isinstance(gpu, Mapping)]
    found["token"] = found["token"] or found["rollout_id"] or BY_HAND
    return found


def complete(note: Any, more: Answer) -> dict[str, Any]:
    """A marker that lies on a node, with what it lacks from MORE, the fields of a new one: why and since when stay."""
    old = read_marker(note)
    kept = {key: value for key, value in old.items() if value not in ("", [])}
    if not isinstance(note, Mapping) or not note:
        kept = {}
    return build(dict(more, **kept))
