# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a verdict, and reading data that may be damaged."""

from __future__ import annotations

import collections
import functools

PASS, FAIL, UNKNOWN, WAIVED, NOT_APPLICABLE = "pass", "fail", "unknown", "waived", "not_applicable"
STATUSES = (PASS, FAIL, UNKNOWN, WAIVED, NOT_APPLICABLE)
# From nothing to do to the most severe.
ACTIONS = ("none", "restore_setting", "restart_service", "reset_gpu", "reboot", "hold", "field_diag")
PHASES = ("baseline", "post", "soak", "adhoc")
NODE = "node"

READING = "gpufleet.reading/1"

# What a judge is given. reading is all that the node read; snapshot, audit, system and kernel_log are its sections,
# None where they are missing. policy is complete, see policy.find_limit(). tables are the collection's data files
# {"xid": ..., "sxid": ...}. expect is what the caller did on purpose: {"reboot": True|False|None, "changes": [...]};
# never None.
Context = collections.namedtuple(
    "Context",
    [
        "reading",
        "snapshot",
        "audit",
        "system",
        "kernel_log",
        "smoke",
        "baseline",
        "policy",
        "tables",
        "expected_driver",
        "phase",
        "expect",
    ],
)
# One kind of check: ident is the id of its checks. judge(ctx, gpu) is called for every GPU with a handle if scope is
# "gpu", judge(ctx) once if it is "node"; it answers one check or a list of them. title, signals (what it reads) and
# source (whose rule it is) are for the documentation.
Row = collections.namedtuple("Row", ["scope", "ident", "judge", "title", "signals", "source"])
node_row, gpu_row = functools.partial(Row, "node"), functools.partial(Row, "gpu")
SCOPES = ("node", "gpu")
# rc is None where there is no answer at all.
Reading = collections.namedtuple("Reading", ["known", "value", "rc", "error"])
NOTHING = Reading(False, None, None, "no such value in the reading")


def check(
    ident, entity, status, observed=None, expected=None, source="policy", action=None, message="", notice=False
) -> dict:
    """One check of the verdict. A check that does not pass asks for action; without a better one the node is held.

    A check that passes with NOTICE is worth a person's look (its message says why and what next); the policy may make
    it fail.
    """
    if action is None:
        action = "hold" if status in (FAIL, UNKNOWN) else "none"
    return {
        "id": ident,
        "entity": entity,
        "status": status,
        "observed": observed,
        "expected": expected,
        "source": source,
        "action": action,
        "message": end_sentence(message),
        "notice": bool(notice) and status == PASS,
        "since": None,
    }


def end_sentence(message) -> str:
    """MESSAGE with a stop at its end: what is read of a node, or said by another program, often has none."""
    words = (message or "").rstrip()
    return words + "." if words and words[-1] not in ".!?" else words


def item(container, *keys):
    """container[key][key]..., or None where anything on the way is missing or of another kind."""
    for key in keys:
        if not isinstance(container, dict) or not isinstance(key, str):
            return None
        container = container.get(key)
    return container


def reading(container, key):
    """The value of KEY as it was read. Anything but a well-formed value is not known."""
    value = item(container, key)
    if not isinstance(value, dict) or isinstance(value.get("rc"), bool) or not isinstance(value.get("rc"), int):
        return NOTHING
    if value["rc"] == 0:
        if value.get("value") is None:
            return Reading(False, None, None, "an empty answer")
        return Reading(True, value["value"], 0, None)
    return Reading(False, None, value["rc"], str(value.get("error") or "CODE_%d" % value["rc"]))


def number(container, key):
    """Like reading, for a value that must be a number, and none below zero: nothing that is counted is."""
    found = reading(container, key)
    if found.known and (
        isinstance(found.value, bool) or not isinstance(found.value, (int, float)) or not found.value >= 0
    ):
        return Reading(False, None, None, "%r instead of a number" % (found.value,))
    return found


def format_reading(found) -> dict | str:
    """A reading for the report: the value, or why there is none."""
    if found.known:
        return found.value
    return found.error if found.rc is None else "%s (%d)" % (found.error, found.rc)


def pci_address(text) -> str | None:
    """One spelling for the PCI addresses of NVML, of the kernel and of people: 0000:1b:00.0; None if it is none."""
    if not isinstance(text, str):
        return None
    parts = text.strip().lower().split(":")
    try:
        if len(parts) == 2:
            parts = ["0"] + parts
        domain, bus, rest = parts
        device, dot, function = rest.partition(".")
        return "%04x:%02x:%02x.%x" % (int(domain, 16), int(bus, 16), int(device, 16), int(function or "0", 16))
    except ValueError:
        return None


def gpus(snapshot) -> list[dict]:
    """The GPUs of a snapshot that are GPUs at all."""
    listed = item(snapshot, "gpus")
    return [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []


def is_opened(gpu) -> bool:
    """Tell if NVML returned a handle for the GPU."""
    return reading(gpu, "handle").known


def uuid(gpu) -> str | None:
    found = reading(gpu, "uuid")
    return found.value if found.known and isinstance(found.value, str) else None


def address(gpu) -> str | None:
    return pci_address(reading(gpu, "pci_bus_id").value)


def entity(gpu) -> str:
    """Return the name of a GPU in the verdict: its UUID, else its PCI address, else NVML's index."""
    return uuid(gpu) or address(gpu) or "gpu index %s" % (gpu.get("index"),)


def name_gpu(gpu) -> str:
    """A GPU for people: UUID and address."""
    place = address(gpu)
    return "%s at %s" % (entity(gpu), place) if place and place != entity(gpu) else entity(gpu)


def by_uuid(snapshot) -> dict[str, dict]:
    return dict((uuid(gpu), gpu) for gpu in gpus(snapshot) if uuid(gpu))


# code: (status, action, next step)
CODE_MEANINGS = {
    4: (UNKNOWN, "hold", "Read it as root (become: true)."),
    8: (FAIL, "field_diag", "Check the external power cables of the GPU."),
    9: (FAIL, "hold", "Look at dkms status, Secure Boot and nouveau for the running kernel, then load the module."),
    10: (FAIL, "reboot", "Look for NVRM lines in the kernel log and reboot."),
    11: (FAIL, "field_diag", "Look for interrupt problems of the GPU in the kernel log."),
    12: (FAIL, "hold", "Install the driver's userland packages (libnvidia-ml)."),
    14: (FAIL, "field_diag", "The InfoROM is damaged: run the field diagnostics."),
    15: (FAIL, "reboot", "Look for NVRM: Xid 79 in the kernel log, then power-cycle the node."),
    16: (FAIL, "reset_gpu", "Reset the GPU with nothing running on it."),
    17: (UNKNOWN, "hold", "Look at the permissions of /dev/nvidia* and the device cgroup."),
    18: (FAIL, "reboot", "Reload the driver or reboot: loaded module and installed userland differ."),
    28: (FAIL, "hold", "The GPU is gone: look for NVRM lines in the kernel log."),
    999: (FAIL, "reboot", "Look for NVRM lines in the kernel log."),
}

NOT_SUPPORTED = 3
INVALID_ARGUMENT = 2
FUNCTION_NOT_FOUND = 13
# Answers that say that there is no such signal, not that something is wrong with it.
ABSENT = (NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND)


def code_meaning(rc) -> tuple[str, str, str]:
    return CODE_MEANINGS.get(rc, (UNKNOWN, "hold", "Read the node again; look this NVML code up if it stays."))
