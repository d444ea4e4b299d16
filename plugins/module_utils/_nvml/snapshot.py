# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The snapshot: everything the collection reads from NVML, in one pass, as data (schema gpufleet.snapshot/1)."""

from __future__ import annotations

import json
import os
import time

from .._node import files, holders, identity
from . import binding as binding_module
from . import calls, codes, inforom, links, running, session, subsets

SCHEMA = "gpufleet.snapshot/1"
SYSTEM_KEYS = ("driver_version", "nvml_version", "cuda_driver_version")
GPU_KEYS = subsets.KEYS


def make_blank(status, message, rc=None, binding=None) -> dict:
    """A snapshot without a reading: STATUS and MESSAGE say why, and no value pretends to be one."""
    nothing = codes.missing(codes.UNREADABLE if rc is None else rc)
    return {
        "schema": SCHEMA,
        "simulated": False,
        "status": status,
        "message": message,
        "binding": binding or {"version": None, "source": "none"},
        "nvml": {"rc": rc, "error": None if rc in (None, codes.SUCCESS) else codes.name(rc)},
        "system": dict((key, dict(nothing)) for key in SYSTEM_KEYS),
        "gpus": [],
        "count": dict(nothing),
        "subsets": [],
        "duration_s": 0.0,
    }


def read_gpu(reader, index, chosen, more=(), kept=None) -> tuple:
    """(handle or None, values): those of the CHOSEN subsets of the GPU at INDEX.

    One whose handle is refused keeps that code in every place. KEPT has the values of subset inforom by UUID that need
    not be read again.

    MORE are functions (reader, handle, gpu) of other packages that read further values after these.
    """
    answer = reader.call("nvmlDeviceGetHandleByIndex", index)
    if answer["rc"] != codes.SUCCESS:
        gpu = dict((key, dict(answer)) for subset in chosen for key in subset.keys)
        gpu.update(index=index, handle=dict(answer))
        return None, gpu
    gpu = {"index": index, "handle": codes.value(True)}
    for subset in chosen:
        known = (kept or {}).get(gpu["uuid"]["value"]) if subset.name == "inforom" else None
        if known is not None:
            gpu.update(known)
        elif subset.read is not None:
            subset.read(reader, answer["value"], gpu)
    for read in more:
        read(reader, answer["value"], gpu)
    return answer["value"], gpu


def read_gpus(reader, count, names, more=(), kept=None) -> list[dict]:
    chosen = [subset for subset in subsets.TABLE if subset.name in names]
    found = [read_gpu(reader, index, chosen, more, kept) for index in range(count)]
    if "p2p" in names:
        links.read_p2p(reader, [(handle, gpu) for handle, gpu in found if handle is not None])
    return [gpu for dummy, gpu in found]


def read_system(reader) -> dict[str, dict]:
    cuda = reader.first(
        lambda: reader.call("nvmlSystemGetCudaDriverVersion_v2"), lambda: reader.call("nvmlSystemGetCudaDriverVersion")
    )
    if cuda["rc"] == codes.SUCCESS:
        cuda = codes.value("%d.%d" % (cuda["value"] // 1000, cuda["value"] % 1000 // 10))
    return {
        "driver_version": reader.call("nvmlSystemGetDriverVersion"),
        "nvml_version": reader.call("nvmlSystemGetNVMLVersion"),
        "cuda_driver_version": cuda,
    }


def read_pass(nvml, binding, progress=None, gather=None, more=(), kept=None) -> dict:
    """One nvmlInit, one pass over all GPUs with the binding module NVML; the subsets GATHER, None for all, and what
    MORE reads. KEPT: as in read_gpu.
    """
    names = subsets.choose(gather)
    reader = calls.Reader(nvml, progress)
    started = reader.call("nvmlInit")
    if started["rc"] != codes.SUCCESS:
        taken = make_blank("nvml_error", codes.init_message(started["rc"]), started["rc"], binding)
        if started.get("detail"):
            taken["message"] += " (%s)" % (started["detail"],)
        taken["simulated"] = is_simulated(nvml)
        return taken
    try:
        taken = make_blank("ok", "", codes.SUCCESS, binding)
        taken["simulated"] = is_simulated(nvml)
        taken["system"] = read_system(reader)
        taken["count"] = reader.call("nvmlDeviceGetCount")
        if taken["count"]["rc"] != codes.SUCCESS:
            taken["status"] = "nvml_error"
            taken["message"] = (
                "NVML started but did not count the GPUs: %s (%s); look for NVRM lines in the kernel log"
                % (taken["count"]["error"], taken["count"]["rc"])
            )
        else:
            taken["gpus"] = read_gpus(reader, int(taken["count"]["value"]), names, more, kept)
            taken["subsets"] = names
        return taken
    finally:
        reader.call("nvmlShutdown")


def is_simulated(nvml) -> bool:
    """Tell if the loaded library is the simulator, which has a symbol of its own."""
    return hasattr(getattr(nvml, "nvmlLib", None), "gpusim_marker")


def take(deadline_s=60, stuck_file=None, gather=None, load=None, runner=session.run, more=(), describes=False) -> dict:
    """Read all GPUs of this machine in a child that is never waited for past DEADLINE_S seconds.

    LOAD() answers (binding module or None, description of it); by default the binding that this machine has. STUCK_FILE
    remembers a child that could not be ended, and beside it that NVML did not answer: the next ones wait shorter.
    GATHER is what subsets.choose takes, MORE what read_gpu takes. DESCRIBES: no verdict is made of the snapshot, so
    what was read of the InfoROM since the driver was loaded is not read again.
    """
    load = load or binding_module.load_own
    subsets.choose(gather)
    begun = time.monotonic()
    note, driver = recall_hang(stuck_file) if stuck_file else None, loaded_driver()
    kept = inforom.recall(stuck_file, driver) if stuck_file and describes else {}

    def work(progress):
        progress("loading the binding")
        nvml, described = load()
        if nvml is None:
            return make_blank("no_binding", binding_module.NO_BINDING)
        return read_pass(nvml, described, progress, gather, more, kept)

    patience_s = choose_deadline(note, deadline_s, driver, boot_seconds())
    outcome = runner(work, patience_s, stuck_file)
    if stuck_file and outcome.status == "timeout" and patience_s == deadline_s:
        remember_hang(stuck_file, deadline_s, driver, boot_seconds())
    elif note is not None and outcome.status == "ok":
        forget_hang(stuck_file)
    if outcome.status == "ok":
        taken = outcome.value
        name_processes(taken["gpus"])
        if stuck_file and describes and "inforom" in taken["subsets"] and inforom.choose_good(taken["gpus"]) != kept:
            inforom.remember(stuck_file, driver, taken["gpus"])
    elif outcome.status in ("timeout", "stuck"):
        taken = make_blank(outcome.status, outcome.message)
    else:
        taken = make_blank("nvml_error", outcome.message)
    taken["duration_s"] = round(time.monotonic() - begun, 3)
    return taken


def name_processes(gpus, proc="/proc") -> None:
    """Add to each process of GPUS what /proc tells of it: its name, user, unit, pod and job."""
    for gpu in gpus:
        for key in running.PROCESSES_KEYS:
            for process in gpu.get(key, {}).get("value") or []:
                process.update(holders.describe_process(proc, process["pid"]))


# Every task of a node reads NVML for itself. Where it hangs, each would wait for its whole deadline: so the first task
# without an answer leaves a note, and the next ones wait for AGAIN_S only. The note is about the driver that is loaded:
# it does not hold after a reboot or a reload, nor for who would wait longer than the first did.
AGAIN_S = 10.0
HOLDS_S = 900.0


def note_path(stuck_file) -> str:
    """Return the path of the note, beside the one about a child that cannot be ended."""
    return stuck_file + ".hung"


def loaded_driver(root="/") -> list:
    """Return what stays the same while the driver's kernel module is loaded: (boot id, number of its directory in
    sysfs); None if it is not loaded.
    """
    try:
        number = os.stat(os.path.join(root, "sys/module/nvidia")).st_ino
    except OSError:
        number = None
    return [identity.read_boot_id(root), number]


def choose_deadline(note, wanted_s, driver, now) -> float:
    """Return the seconds to wait for NVML: the deadline WANTED_S, less if NOTE is about the same DRIVER and a wait at
    least as long.

    NOW is in seconds of boot.
    """
    if not isinstance(note, dict) or note.get("driver") != driver:
        return wanted_s
    waited_s, noted = note.get("waited_s"), note.get("at")
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (waited_s, noted)):
        return wanted_s
    if wanted_s > waited_s or not 0 <= now - noted <= HOLDS_S:
        return wanted_s
    return min(wanted_s, AGAIN_S)


def recall_hang(stuck_file) -> dict | None:
    """The note, None without one."""
    data = session.read_note(note_path(stuck_file))
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return None


def remember_hang(stuck_file, waited_s, driver, now) -> None:
    """Note that NVML did not answer within WAITED_S.

    Without the note the next one only waits for its whole deadline.
    """
    try:
        files.write_atomically(note_path(stuck_file), json.dumps({"driver": driver, "waited_s": waited_s, "at": now}))
    except OSError:
        return


def forget_hang(stuck_file) -> None:
    """It answered."""
    try:
        os.unlink(note_path(stuck_file))
    except OSError:
        pass  # there was none, or it is root's


def boot_seconds() -> float:
    """Seconds since boot, also those that the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
