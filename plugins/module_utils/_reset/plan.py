# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which GPUs are reset, and what stands in the way. Pure functions; nothing is done while a reason stands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._kernel import loaded
from .._node.holders import in_words
from .._node.hung import IN_DRIVER
from .._nvml.selection import Choice, choose_gpus, value
from . import gpus as gpu_facts

RESET, NONE, REFUSE = "reset", "none", "refuse"
ALL = "all"
COMMAND = "nvidia-smi"
NUMBERED = re.compile(r"^/dev/nvidia(\d+)$")
# Names as the kernel cuts them off, and the unit, since any process can take a name. The daemon lets go of a GPU when
# its persistence mode is turned off.
PERSISTENCED = ("nvidia-persiste", "nvidia-persistenced.service")
# It takes part in resets from Ampere on.
FABRIC_MANAGER = ("nv-fabricmanage", "nvidia-fabricmanager.service")
DCGM = ("nv-hostengine", "dcgm-exporter")
DCGM_STEP = (
    "stop nvidia-dcgm-exporter.service and nvidia-dcgm.service, or the pods of DCGM, which holds and leaks "
    "(NVIDIA/DCGM issue 276), and run again"
)


class WishError(ValueError):
    """The GPUs that the task names cannot be understood; the text says why."""


def make_reason(ident: str, message: str, next_step: str, gpu: str | None = None) -> dict:
    """Return one reason against a reset. GPU is None where it is about the node."""
    return {"id": ident, "gpu": gpu, "message": message, "next_step": next_step}


def make_sentence(reasons: list) -> str:
    """Return the reasons for an operator, with what to do next."""
    steps = []
    for item in reasons:
        if item["next_step"] not in steps:
            steps.append(item["next_step"])
    return "%s. Next step: %s" % ("; ".join(item["message"] for item in reasons), "; ".join(steps))


def list_wanted_gpus(everyone: list, wanted: list) -> list:
    """Return the GPUs that a task names, or all of them."""
    if ALL in wanted:
        if len(wanted) > 1:
            raise WishError("gpus has %r beside other names; name the GPUs, or %s alone" % (ALL, ALL))
        return everyone
    if not wanted:
        raise WishError("gpus is empty; name the GPUs to reset, or [%s]" % ALL)
    try:
        return choose_gpus(everyone, wanted)
    except Choice as exc:
        raise WishError(str(exc)) from exc


def decide(facts: dict, params: dict) -> dict:
    """Return what is to be done: ``{"action", "reasons", "targets", "needs", "added", "persistence", "instances"}``.

    ``targets`` are NVML's indexes, ``added`` those that NVLink joins to the wanted ones, ``persistence`` those whose
    persistence mode is turned off for the reset, and ``instances`` the MIG instances that go, by the name of their GPU.
    """
    everyone = facts["snapshot"]["gpus"]
    named = list_wanted_gpus(everyone, params["gpus"])
    needs = dict((gpu["index"], gpu_facts.list_needs(gpu)) for gpu in named)
    answer = {
        "action": NONE,
        "reasons": [],
        "targets": [],
        "needs": needs,
        "added": [],
        "persistence": [],
        "instances": {},
    }
    reasons = list(refuse_unread(named)) if params["when_needed"] else []
    # What a reset does not cure is told also where nothing else is due.
    reasons += list(refuse_beyond_reset(named))
    wanted = set(gpu["index"] for gpu in named if needs[gpu["index"]] or not params["when_needed"])
    if not wanted:
        return dict(answer, action=REFUSE if reasons else NONE, reasons=reasons)
    together = gpu_facts.find_group(everyone, wanted, facts["fabric_manager"])
    if together is None:
        reasons.append(
            make_reason(
                "nvlink_unknown",
                "it cannot be told which GPUs NVLink joins to these and have to be reset, too",
                "look at nvidia-smi nvlink -s, then name all GPUs of the node",
            )
        )
        together = wanted
    targets = [gpu for gpu in everyone if gpu["index"] in together]
    reasons += list(refuse_unusable(targets)) + list(refuse_beyond_reset([gpu for gpu in targets if gpu not in named]))
    reasons += list(refuse_mig(targets, params["destroy_mig"])) + list(list_obstacles(facts, targets))
    return dict(
        answer,
        action=REFUSE if reasons else RESET,
        reasons=reasons,
        targets=sorted(together),
        added=sorted(together - wanted),
        persistence=[gpu["index"] for gpu in targets if value(gpu, "persistence_mode")],
        instances=dict(
            (gpu_facts.name_gpu(gpu), gpu_facts.list_instances(gpu)) for gpu in targets if gpu_facts.list_instances(gpu)
        ),
    )


def refuse_unread(gpus: list) -> Iterator:
    """Yield a reason for each GPU of which it cannot be told whether it needs a reset."""
    for gpu in gpus:
        keys = gpu_facts.list_unread_keys(gpu)
        if keys and not gpu_facts.list_needs(gpu):
            yield make_reason(
                "need_unknown",
                "GPU %s does not tell whether it needs a reset: %s cannot be read"
                % (gpu_facts.name_gpu(gpu), ", ".join(keys)),
                "look at gpu_info for the GPU; reset it with when_needed: false, or reboot the node",
                gpu_facts.name_gpu(gpu),
            )


def refuse_beyond_reset(gpus: list) -> Iterator:
    """Yield a reason for each GPU whose driver asks for more than a reset."""
    for gpu in gpus:
        action = value(gpu, "recovery_action")
        if not action or action in gpu_facts.RECOVERED_BY_RESET:
            continue
        unknown = ("recovery action %s, which is not known here" % (action,), "look it up for this driver")
        what, step = gpu_facts.BEYOND_RESET.get(action, unknown)
        yield make_reason(
            "beyond_reset",
            "the driver asks for %s to recover GPU %s, and a reset does not do" % (what, gpu_facts.name_gpu(gpu)),
            step,
            gpu_facts.name_gpu(gpu),
        )


def refuse_unusable(gpus: list) -> Iterator:
    """Yield a reason for each GPU that NVML does not open; one that only waits for a reset is no such GPU."""
    for gpu in gpus:
        rc = gpu_facts.read_code(gpu, "handle")
        if rc not in (0, gpu_facts.RESET_REQUIRED):
            yield make_reason(
                "gpu_lost",
                "NVML does not open GPU %s: %s (%s)" % (gpu_facts.name_gpu(gpu), gpu["handle"].get("error"), rc),
                "reboot the node; power-cycle it if the GPU does not come back",
                gpu_facts.name_gpu(gpu),
            )


def refuse_mig(gpus: list, allowed: bool) -> Iterator:
    """Yield a reason for each GPU whose MIG instances would go, unless that is ALLOWED."""
    for gpu in gpus if not allowed else ():
        found, whose = gpu_facts.list_instances(gpu), gpu_facts.name_gpu(gpu)
        if found is None and gpu_facts.read_code(gpu, "mig_instances") != gpu_facts.RESET_REQUIRED:
            yield make_reason(
                "mig_unknown",
                "it cannot be told which MIG instances GPU %s has" % whose,
                "look at nvidia-smi -L, and set destroy_mig: true if they may go",
                whose,
            )
        elif found:
            named = ", ".join("%s (%s)" % (item["name"], item["uuid"]) for item in found)
            yield make_reason(
                "mig_instances",
                "a reset destroys the MIG instances of GPU %s: %s" % (whose, named),
                "set destroy_mig: true if they may go, and lay MIG out again afterwards",
                whose,
            )


def list_obstacles(facts: dict, targets: list) -> list:
    """Return the reasons that can come and go: processes, kernel modules, hung tasks. Asked again before the reset."""
    found = []
    if not facts["command"]:
        found.append(
            make_reason(
                "no_command",
                "%s is not installed in the host's search path, and NVML has no function that resets a GPU" % COMMAND,
                "install the driver's utilities on the host, or reboot the node",
            )
        )
    found += (
        list(refuse_hung_tasks(facts))
        + list(refuse_holders(facts["holders"], targets))
        + list(refuse_modules(facts, targets))
    )
    return found


def refuse_hung_tasks(facts: dict) -> Iterator:
    """Yield a reason for each task that hangs in the driver: a reset would hang behind it."""
    if facts["hung"] is None:
        yield make_reason(
            "hung_unknown",
            "/proc cannot be listed, so that it cannot be told whether a task hangs in the driver",
            "look at the node",
        )
    for task in facts["hung"] or []:
        if task["where"].startswith(IN_DRIVER):
            yield make_reason(
                "hung_task",
                "%s (pid %s) waits in the driver and cannot be interrupted (%s)"
                % (task["comm"], task["pid"], task["where"]),
                "reboot the node",
            )


def refuse_holders(found: list | None, targets: list) -> Iterator:
    """Yield a reason for each process that has one of the TARGETS open, or may have."""
    if found is None:
        yield make_reason(
            "holders_unknown",
            "/proc cannot be listed, so that it cannot be told which processes hold the GPUs",
            "look at the node",
        )
        return
    minors = dict((value(gpu, "minor_number"), gpu_facts.name_gpu(gpu)) for gpu in targets)
    ampere = all((value(gpu, "architecture") or 0) >= gpu_facts.AMPERE for gpu in targets)
    for item in found:
        if is_service(item, *PERSISTENCED) or ampere and is_service(item, *FABRIC_MANAGER):
            continue
        numbers = [int(NUMBERED.match(path).group(1)) for path in item["devices"] if NUMBERED.match(path)]
        if numbers and None not in minors and not set(numbers) & set(minors):
            continue  # it uses other GPUs
        used = [minors[number] for number in numbers if number in minors]
        what = "%s has %s open" % (in_words(item), ", ".join(item["devices"]))
        what += " (GPU %s)" % ", ".join(used) if used else ", and it cannot be told of which GPU"
        yield make_reason(*holder_step(item, what), used[0] if len(used) == 1 else None)


def is_service(item: dict, comm: str, unit: str) -> bool:
    """Return whether the process ITEM is the program of a unit of the system's systemd."""
    return item["comm"] == comm and item["unit"] == unit and not item["pod"]


def holder_step(item: dict, what: str) -> tuple:
    """Return (id, message, next step) for a process that holds a GPU."""
    if item["comm"] in DCGM:
        return "dcgm_holder", what, DCGM_STEP
    if item["comm"] == FABRIC_MANAGER[0]:
        return "holder", what, "stop nvidia-fabricmanager.service for the reset: it takes part from Ampere on only"
    if item["pod"]:
        return "holder", what, "drain the node, and take the operands of the GPU operator off it where the pod is one"
    if item["job"]:
        return "holder", what, "drain the node in Slurm, and wait until the job has ended"
    return "holder", what, "stop %s, and run again" % item["unit"] if item["unit"] else "end the process, and run again"


def refuse_modules(facts: dict, targets: list) -> Iterator:
    """Yield a reason for each user of the kernel module that is not known, or known to hold GPUs."""
    table = facts["references"]
    if facts["drm_modeset"] not in (None, "N"):
        yield make_reason(
            "drm_holds",
            "module nvidia_drm has the GPUs open (its parameter modeset is %s)" % facts["drm_modeset"],
            "unload it (modprobe -r nvidia_drm), run again, and load it afterwards",
        )
    if table is None:
        yield make_reason(
            "modules_unknown",
            "/sys/module cannot be listed, so that it cannot be told which modules hold the GPUs",
            "look at the node",
        )
        return
    for name in loaded.find_unknown(table):
        yield make_reason(
            "refcnt_unknown", "the reference count of module %s cannot be read" % name, "look at the node"
        )
    for name, used in loaded.find_foreign(table).items():
        yield make_reason(
            "foreign_module",
            "module %s uses %s, and it is not known whether it holds the GPUs" % (name, ", ".join(used)),
            "unload %s, or reboot the node" % name,
        )
    # Persistence mode without the daemon is such a reference, and goes before the reset.
    quiet = facts["holders"] == [] and not any(value(gpu, "persistence_mode") for gpu in targets)
    for name, count in loaded.find_unexplained(table).items() if quiet else ():
        yield make_reason(
            "unexplained_reference",
            "module %s has %d references that no process with a device file and no other module explains"
            % (name, count),
            "stop nvidia-dcgm.service, whose leaked handles are a known cause, or reboot the node",
        )
