# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the answers of nodes where they enter the controller. Pure.

Root on a node, or a broken Python there, can answer anything. An answer that has not the shape of its module's results,
or that is larger than any of them, becomes a failed result that names the place: that node is unknown, and no task that
reads the answers of all nodes sees it.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import ROLLOUT_ID

# What Ansible acts on for the whole run, and no module of this collection returns: facts become variables, statistics
# become variables of the next job of an AWX workflow, and hosts are added to the inventory.
REMOVED = ("ansible_facts", "ansible_stats", "add_host", "add_group")
INTERNAL = "_ansible_"
# A node's JSON makes objects of Ansible from ansible-core 2.19 on, which are for these alone.
MESSAGES = ("deprecations", "exception", "warnings")
# Far more than a node with 16 GPUs answers.
DEPTH_LIMIT = 40
VALUE_LIMIT = 400_000  # values, keys included
TEXT_LIMIT = 16 * 1024 * 1024  # characters of all texts
NUMBER_LIMIT = 2**64
PLACE_LIMIT = 120
# ansible-core 2.18 marks the values of an answer as no templates, and loses track of its keys.
TEMPLATE = re.compile(r"\{[{%#]")


class Text(t.NamedTuple):
    """A text of at most LENGTH characters; on one line and without control characters if PRINTABLE; of a FORM."""

    length: int = TEXT_LIMIT
    printable: bool = False
    form: t.Optional[t.Pattern[str]] = None


class Number(t.NamedTuple):
    """A whole number from LEAST to MOST."""

    least: int = 0
    most: int = 2**53


class Record(t.NamedTuple):
    """A dictionary in which the keys NEEDED are neither missing nor null."""

    needed: tuple[str, ...]
    shape: dict[str, t.Any]


# A shape: a type, Text, Number, Record, [shape] for a list, {key: shape} for a dictionary, in which "*" stands for all
# other keys. Keys that are not named may have any value. Null is accepted for a key that is not needed, and in no list.
ANY = object
LINE, WORD, TEXT, COUNT = Text(4096, True), Text(256, True), Text(), Number()
# A message has it in a command for the operator.
ROLLOUT = Text(256, True, ROLLOUT_ID)

IDENTITY = {"machine_id": WORD, "board_serial": WORD, "gpus": [WORD]}
AUDIT = {
    "schema": WORD,
    "kernel": {"running": WORD, "installed": [WORD], "next_boot": WORD, "next_boot_source": TEXT},
    "versions": {
        "wanted": WORD,
        "loaded": WORD,
        "library": WORD,
        "package": WORD,
        "gsp_firmware": [WORD],
        "packages": {"*": WORD},
        "driver_packages": {"*": WORD},
        "modules": {"*": {"*": TEXT}},
    },
    "dkms": [{"name": WORD, "version": WORD, "kernel": WORD, "arch": WORD, "state": WORD, "note": TEXT}],
    "headers": {"*": ANY},
    "flavour": WORD,
    "compute_users": COUNT,
    "secure_boot": WORD,
    "pci": [{"address": WORD, "device": WORD, "class": WORD}],
    "identity": IDENTITY,
    "findings": [{"id": WORD, "entity": TEXT, "status": WORD, "message": TEXT, "next_step": TEXT}],
    "verdict": WORD,
    "reboot_safe": bool,
    "reboot_safe_reason": TEXT,
    "reboot_required": bool,
    "reboot_required_reason": TEXT,
}
CLAIM = {
    "ledger": WORD,
    "rollout_id": ROLLOUT,
    "attempt": COUNT,
    "run": WORD,
    "plan": WORD,
    "controller": WORD,
    "time": WORD,
    "state": WORD,
}
MARKER = {"exists": bool, "path": LINE}
HOLD = {"package": WORD, "version": WORD, "age_days": COUNT, "security": [WORD], "newer": [WORD]}
VALUE = {"value": WORD}  # with NVML's return code beside it
GPUS = {
    "gpus": [
        {"index": COUNT, "uuid": VALUE, "name": VALUE, "serial": VALUE, "board_part_number": VALUE, "pci_bus_id": VALUE}
    ]
}
KERNEL_LOG = {
    "boot_id": WORD,
    "events": [{"kind": WORD, "xid": COUNT, "pci": WORD, "text": TEXT}],
    "suppressed": [{"kind": WORD, "code": COUNT, "pci": WORD, "count": COUNT}],
}
READING = {"audit": AUDIT, "snapshot": GPUS, "kernel_log": KERNEL_LOG, "boot_id": WORD, "time": WORD}
CHANGES = [ANY]
LOCK = {"lock": {"*": ANY}}
# The shape of what each module returns, as far as the controller works with it.
SHAPES: dict[str, dict[str, t.Any]] = {
    "driver_audit": {"audit": AUDIT},
    "node_state": {
        "claim": Record(tuple(CLAIM), dict(CLAIM, node=WORD)),
        "last_change": Record((*CLAIM, "age_s"), dict(CLAIM, node=WORD, age_s=COUNT)),
        "problem": TEXT,
        "no_room": TEXT,
        "quarantine": MARKER,
        "stat": MARKER,
        "going_down": bool,
        "boot_id": WORD,
        "note": dict,
        "exists": bool,
        "path": LINE,
        **LOCK,
    },
    "hold_info": {"holds": {"*": [Record(("package", "version"), HOLD)]}},
    "driver_packages": {
        "resolvable": bool,
        "resolved": {"packages": {"*": WORD}},
        "transaction": {
            "install": CHANGES,
            "upgrade": CHANGES,
            "downgrade": CHANGES,
            "reinstall": CHANGES,
            "remove": CHANGES,
        },
    },
    "gpu_mig": {"gpus": [{"status": WORD}], "failures": [{"code": WORD}], "reset_required": bool, **LOCK},
    "gpu_info": {"snapshot": GPUS, "holders": [dict], "needs_binding": bool},
    "gpu_health": {"facts": READING, "baseline": READING, "health": dict, "needs_binding": bool},
    "gpu_smoke": {
        "facts": Record(("smoke", "snapshot"), {"smoke": {"gpus": [dict], "boot_id": WORD}, "snapshot": GPUS}),
        "needs_binding": bool,
    },
    "gpu_evidence": {
        "facts": {"snapshot": GPUS, "boot_id": WORD},
        # A file that did not arrive whole is missing in the bundle.
        "files": dict,
        "missing": [{"part": TEXT, "reason": TEXT}],
        "needs_binding": bool,
    },
    "gpu_settings": {"settings": [dict], "reset_required": bool, "snapshot": GPUS, "needs_binding": bool, **LOCK},
    "gpu_reset": {
        "action": WORD,
        "gpus": [dict],
        "reasons": [{"id": WORD}],
        "problems": [{"id": WORD}],
        "actions": [TEXT],
        "command": dict,
        "holders": [dict],
        "snapshot": GPUS,
        **LOCK,
    },
    "driver_reload": {
        "action": WORD,
        "why": TEXT,
        "reboot_required": bool,
        "reboot_reason": TEXT,
        "rebooted": bool,
        "reasons": [{"id": WORD}],
        "holders": [dict],
        "services": [WORD],
        "kernel_modules": [WORD],
        "actions": [TEXT],
        "problems": [TEXT],
        **LOCK,
    },
    "boot_kernel": {"kernels": dict, "reboot_required": bool, **LOCK},
    "kernel_packages": {"actions": [TEXT], "kernels": dict, "holds": [dict], "held_days": COUNT, **LOCK},
    "package_hold": {"actions": [TEXT], **LOCK},
    "dkms_module": {"kernels": dict, "steps": [dict], "stale": [dict], "unfit": [TEXT], **LOCK},
    "node_services": {"services": [dict], "actions": [TEXT], "failures": [{"code": WORD}], **LOCK},
    "slurm_node": {
        "drained": bool,
        "mark": {"owner": WORD, "token": TEXT},
        "blockers": [dict],
        "left": [TEXT],
        "waiting": bool,
        "nodes": [dict],
    },
}
# What every result may have beside it.
COMMON = {
    "changed": bool,
    "failed": bool,
    "skipped": bool,
    "unreachable": bool,
    "msg": TEXT,
    "warnings": [ANY],  # texts of the node, and objects of Ansible
}


def accept(module: str, answer: t.Any) -> dict[str, t.Any]:
    """Return the ANSWER of a module of a node, or a failed result if it cannot be used.

    Args:
        module: The name of the module, without its collection.
        answer: What Ansible has from the node; nothing for a node that was not asked.

    Returns:
        A result whose texts can be written as UTF-8, without what Ansible would act on. A failed one has C(problem_at),
        the place of what is wrong: a path such as C(audit.pci[0]), or C(answer), C(depth), C(number), C(size), C(type).
    """
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        return _make_refusal(module, "answer", "is %s; expected a dictionary" % _kind(answer))
    kept = {
        key: value
        for key, value in answer.items()
        if isinstance(key, str) and key not in REMOVED and not key.startswith(INTERNAL)
    }
    messages = {key: kept.pop(key) for key in MESSAGES if key in kept}
    exceeded = _find_exceeded_limit(kept) or _find_exceeded_limit(messages, True)
    kept.update(messages)
    if exceeded:
        return _make_refusal(module, *exceeded)
    kept = _usable(kept)
    found = _mismatch(kept, dict(COMMON, **SHAPES.get(module, {})), "")
    return _make_refusal(module, *found) if found else kept


def accept_all(module: str, answers: t.Optional[t.Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
    """Return accept() of the answers by node."""
    return {name: accept(module, answer) for name, answer in (answers or {}).items()}


def _make_refusal(module: str, place: str, why: str) -> dict[str, t.Any]:
    # Keys of the node are part of a path.
    place = "".join(letter if letter.isprintable() else "?" for letter in place[:PLACE_LIMIT])
    return {
        "failed": True,
        "changed": False,
        "problem_at": place,
        "msg": "The answer to %s cannot be used: %s %s. Check the Python of the node, and who is root there."
        % (module, place, why),
    }


def _find_exceeded_limit(answer: t.Any, has_objects: bool = False) -> t.Optional[tuple[str, str]]:
    """Return which limit an answer exceeds, and how; None if it exceeds none. Not recursive, whatever the depth.

    HAS_OBJECTS: objects of Ansible may be in it; they count by their fields.
    """
    values, characters = 0, 0
    level: list[t.Any] = [answer]
    for dummy in range(DEPTH_LIMIT):
        following: list[t.Any] = []
        for value in level:
            if isinstance(value, dict):
                following.extend(value.keys())
                following.extend(value.values())
            elif isinstance(value, (list, tuple)):
                following.extend(value)
            elif isinstance(value, str):
                characters += len(value)
            elif isinstance(value, float) and not math.isfinite(value):
                return "number", "is not finite"
            elif isinstance(value, int) and abs(value) > NUMBER_LIMIT:
                return "number", "has more than 64 bits"
            elif dataclasses.is_dataclass(value) and has_objects:
                following.extend(getattr(value, field.name) for field in dataclasses.fields(value))
            elif value is not None and not isinstance(value, (float, int)) and not has_objects:
                return "type", "is %s; expected a type of JSON" % type(value).__name__
        values += len(level)
        if values > VALUE_LIMIT or characters > TEXT_LIMIT:
            return "size", "is above %d values or %d characters" % (VALUE_LIMIT, TEXT_LIMIT)
        if not following:
            return None
        level = following
    return "depth", "is above %d levels" % DEPTH_LIMIT


def _usable(value: t.Any) -> t.Any:
    """Return VALUE with what UTF-8 does not have replaced by a question mark, and without keys that are templates."""
    if isinstance(value, str):
        return value if value.isascii() else _encode_text(value)
    if isinstance(value, dict):
        return {_usable(key): _usable(inner) for key, inner in value.items() if not TEMPLATE.search(key)}
    if isinstance(value, (list, tuple)):
        return [_usable(inner) for inner in value]
    return value


def _encode_text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _mismatch(value: t.Any, shape: t.Any, path: str) -> t.Optional[tuple[str, str]]:
    """Return the place in VALUE that is not of the SHAPE, and what is wrong there; None if there is none."""
    if value is None or shape is ANY:
        return None
    if isinstance(shape, Record):
        found = _mismatch(value, shape.shape, path)
        missing = [] if found else [key for key in shape.needed if value.get(key) is None]
        return found or (("%s.%s" % (path, missing[0]), "is missing") if missing else None)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return path, "is %s; expected a dictionary" % _kind(value)
        inner = [(key, value[key], shape.get(key, shape.get("*", ANY)), "%s.%s") for key in value]
    elif isinstance(shape, list):
        if not isinstance(value, (list, tuple)):
            return path, "is %s; expected a list" % _kind(value)
        inner = [(number, one, shape[0], "%s[%s]") for number, one in enumerate(value)]
    else:
        why = _unfit(value, shape)
        return (path, why) if why else None
    for key, one, part, form in inner:
        place = (form % (path, key)).lstrip(".")
        if one is None and isinstance(shape, list):
            return place, "is null"
        found = _mismatch(one, part, place)
        if found:
            return found
    return None


def _unfit(value: t.Any, shape: t.Any) -> str:
    """Return why a value without parts is not of the SHAPE, or empty."""
    if isinstance(shape, Text):
        if not isinstance(value, str):
            return "is %s; expected a text" % _kind(value)
        if len(value) > shape.length:
            return "has %d characters; expected at most %d" % (len(value), shape.length)
        if shape.printable and not value.isprintable():
            return "has control characters"
        return "is not of the form %s" % shape.form.pattern if shape.form and not shape.form.fullmatch(value) else ""
    if isinstance(shape, Number):
        if isinstance(value, bool) or not isinstance(value, int):
            return "is %s; expected a whole number" % _kind(value)
        return "" if shape.least <= value <= shape.most else "is not between %d and %d" % shape
    return "" if isinstance(value, shape) else "is %s; expected %s" % (_kind(value), KINDS.get(shape, shape.__name__))


KINDS = {bool: "true or false", dict: "a dictionary", list: "a list", str: "a text", int: "a number", float: "a number"}


def _kind(value: t.Any) -> str:
    return next((words for kind, words in KINDS.items() if isinstance(value, kind)), "something else")
