# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test of a node: which GPUs can be tested, each in a child of its own with a deadline (schema
gpufleet.smoke/1).
"""

from __future__ import annotations

import os
import time

from .._node import identity
from .._nvml import binding as binding_module
from .._nvml import calls, codes, selection, session, snapshot
from . import cuda, dcgm, tests

SCHEMA = "gpufleet.smoke/1"
# What is read before: identity, and whether a GPU may be tested.
GATHER = ["identity", "mig", "modes", "processes", "memory"]
# Seconds for all GPUs together, unless the task says another number; DCGM has its own.
DEADLINES = {"t0": 90, "t1": 300, "t2": 1200, "t3": 1200}
STUB_LIBRARY = 34
MODE_PROHIBITED = 2
# states of a GPU: what the judges go by. A state other than tested has a reason.
TESTED, HUNG, UNKNOWN, NOT_APPLICABLE = "tested", "hung", "unknown", "not_applicable"
Choice = selection.Choice
_value = selection.value


def make_blank(level, status, message, taken=None) -> dict:
    """A document without tests: STATUS and MESSAGE say why."""
    driver = ((taken or {}).get("system") or {}).get("driver_version") or {}
    return {
        "schema": SCHEMA,
        "level": level,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "boot_id": identity.read_boot_id(),
        "simulated": bool((taken or {}).get("simulated")),
        "status": status,
        "message": message,
        "library": {"path": None, "version": None, "cuda_version": None},
        "driver_version": driver.get("value"),
        "asked": [],
        "gpus": [],
        "dcgm": None,
        "duration_s": 0.0,
    }


def take(
    level="t0",
    wanted=(),
    together=False,
    library_path=None,
    dcgm_level=2,
    only=None,
    load=None,
    deadline_s=None,
    dcgm_deadline_s=3600,
    stuck_file=None,
    runner=None,
    read=snapshot.take,
    search="/",
) -> tuple[dict, dict]:
    """(document, snapshot): test this node's GPUs.

    WANTED are UUIDs, PCI addresses or NVML indexes, nothing for all. ONLY are names of tests, nothing for all of the
    level. TOGETHER tests the GPUs at the same time instead of one after another. LOAD answers the NVML binding, as
    snapshot.take has it. RUNNER runs commands; SEARCH is the root below which libcuda is looked for.
    """
    begun = time.monotonic()
    deadline_s = deadline_s or DEADLINES[level]
    taken = read(deadline_s=deadline_s, stuck_file=stuck_file, gather=GATHER, load=load)
    document = _run_tests(
        level,
        wanted,
        together,
        library_path,
        only,
        load,
        deadline_s - (time.monotonic() - begun),
        stuck_file,
        runner,
        taken,
        search,
    )
    if level == "t3" and taken["status"] == "ok":
        document["dcgm"] = dcgm.run_diagnostic(
            runner, dcgm_level, dcgm_deadline_s, [gpu["index"] for gpu in document["gpus"] if gpu["state"] == TESTED]
        )
    document["duration_s"] = round(time.monotonic() - begun, 3)
    return document, taken


def _run_tests(level, wanted, together, library_path, only, load, left_s, stuck_file, runner, taken, search) -> dict:
    if taken["status"] != "ok":
        return make_blank(
            level, "nvml", "The GPUs cannot be tested as NVML does not show them: %s" % (taken["message"],), taken
        )
    gpus = selection.choose_gpus(taken["gpus"], wanted)
    document = make_blank(level, "ok", "", taken)
    document.update(asked=[str(name) for name in wanted], gpus=[describe_gpu(gpu) for gpu in gpus])
    path = library_path
    if path is None:
        path = cuda.find_library(search, runner if search == "/" else None)
        path = path and os.path.join(search, path.lstrip("/"))
    if path is None or not os.path.exists(path):
        document.update(
            status="no_library",
            message="%s is not installed%s; install the driver's CUDA library (Debian: libcuda1)"
            % (cuda.LIBRARY, " at %s" % (library_path,) if library_path else ""),
        )
        return document
    document["library"].update(path=path)
    try:
        real = cuda.require_trusted(path)
        problem = cuda.loader_problem(os.environ)
    except cuda.Untrusted as exc:
        problem = "it is not loaded: %s" % (exc,)
    if problem:
        document.update(status="untrusted", message="%s: %s" % (path, problem))
        return document
    document["library"].update(version=cuda.library_version(real))
    due = [gpu for gpu in document["gpus"] if gpu["state"] == TESTED]
    if together:
        _all_at_once(due, real, level, only, load, left_s, stuck_file)
    else:
        _one_by_one(due, real, level, only, load, left_s, stuck_file)
    for gpu in due:
        cuda_version, simulated = gpu.pop("cuda_version", None), gpu.pop("simulated", False)
        document["library"]["cuda_version"] = document["library"]["cuda_version"] or cuda_version
        document["simulated"] = document["simulated"] or bool(simulated)
    if due and all((gpu["error"] or {}).get("rc") == STUB_LIBRARY for gpu in due):
        document.update(
            status="no_library",
            message="%s is a stand-in for building programs, not the driver's; install the driver's CUDA library"
            % (path,),
        )
    return document


def describe_gpu(gpu) -> dict:
    """A GPU in the document, before it is tested: its state is what to do with it, and why."""
    state, reason = judge_fitness(gpu)
    return {
        "uuid": _value(gpu, "uuid"),
        "pci_bus_id": _value(gpu, "pci_bus_id"),
        "name": _value(gpu, "name"),
        "index": gpu["index"],
        "state": state,
        "reason": reason,
        "error": None,
        "memory": None,
        "cpus": None,
        "tests": {},
        "duration_s": 0.0,
    }


def judge_fitness(gpu) -> tuple[str, str]:
    """(state, reason): whether a GPU can be tested without disturbing anybody."""
    if _value(gpu, "handle") is not True:
        return UNKNOWN, "NVML does not open it (%s)" % ((gpu.get("handle") or {}).get("error"),)
    if not _value(gpu, "uuid"):
        return UNKNOWN, "NVML does not tell its UUID"
    mig = gpu.get("mig_mode_current") or {}
    if mig.get("rc") == codes.SUCCESS and mig.get("value") != 0:
        return NOT_APPLICABLE, "it is in MIG mode, and CUDA sees its slices only"
    if mig.get("rc") not in (codes.SUCCESS, codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND):
        return UNKNOWN, "whether it is in MIG mode is not known (%s)" % (mig.get("error"),)
    mode = _value(gpu, "compute_mode")
    if mode == MODE_PROHIBITED:
        return UNKNOWN, "its compute mode prohibits CUDA programs; set it to default first"
    for key in ("compute_processes", "graphics_processes"):
        entry = gpu.get(key) or {}
        if entry.get("rc") == codes.SUCCESS and entry.get("value"):
            return UNKNOWN, "processes use it: pid %s; drain the node first" % (
                ", ".join(str(row.get("pid")) for row in entry["value"][:8]),
            )
        if entry.get("rc") != codes.SUCCESS and not (
            key == "graphics_processes" and entry.get("rc") == codes.NOT_SUPPORTED
        ):
            return UNKNOWN, "whether processes use it is not known (%s)" % (entry.get("error"),)
    return TESTED, ""


def _one_by_one(gpus, path, level, only, load, left_s, stuck_file) -> None:
    """Test one GPU after the other. Time that a GPU does not use goes to the next ones; one that hangs takes no more
    than its share.
    """
    until = time.monotonic() + left_s
    for number, gpu in enumerate(gpus):
        share = max(1.0, (until - time.monotonic()) / (len(gpus) - number))
        begun = time.monotonic()
        _enter_outcome(
            gpu, session.run(_make_work(gpu, path, level, only, load), share, stuck_file, subject="CUDA"), begun
        )


def _all_at_once(gpus, path, level, only, load, left_s, stuck_file) -> None:
    begun = time.monotonic()
    started = [
        session.start(_make_work(gpu, path, level, only, load), max(1.0, left_s), stuck_file, subject="CUDA")
        for gpu in gpus
    ]
    for gpu, one in zip(gpus, started):
        _enter_outcome(gpu, one if isinstance(one, session.Outcome) else session.finish(one), begun)


def _enter_outcome(gpu, outcome, begun) -> None:
    gpu["duration_s"] = round(time.monotonic() - begun, 3)
    if outcome.status == "ok":
        gpu.update(outcome.value)
    else:
        gpu.update(state=HUNG if outcome.status == "timeout" else UNKNOWN, reason=outcome.message)


def _make_work(gpu, path, level, only, load):
    uuid, address, index = gpu["uuid"], gpu["pci_bus_id"], gpu["index"]

    def work(progress):
        cuda.clean_environment(os.environ, uuid)
        cpus = stay_near(address)
        place = [""]

        def at(where) -> None:
            progress("%s (%s)" % (where, place[0]) if place[0] else where)

        def stage(name) -> None:
            place[0] = name

        progress("loading %s" % (path,))
        driver = cuda.Driver(path, at)
        answer = {"simulated": driver.is_simulated, "error": None, "cuda_version": None, "cpus": cpus, "tests": {}}
        try:
            driver.start()
            answer["cuda_version"] = driver.version()
            answer.update(_at_work(driver, uuid, address, level, only, make_conditions_reader(load, index), stage))
        except cuda.CudaError as exc:
            answer["error"] = exc.data()
        return answer

    return work


def _at_work(driver, uuid, address, level, only, measure, stage) -> dict:
    devices = driver.devices()
    if (
        len(devices) != 1
        or devices[0]["uuid"].lower() != uuid.lower()
        or (address and devices[0]["pci_bus_id"] != address.lower()[-12:])
    ):
        return {
            "state": UNKNOWN,
            "reason": "CUDA was to show this GPU alone and shows %s"
            % (", ".join("%s at %s" % (device["uuid"], device["pci_bus_id"]) for device in devices) or "none",),
        }
    with cuda.Gpu(driver, devices[0]["device"]) as gpu:
        free, total = gpu.free_memory()
        return {
            "memory": {"free_bytes": free, "total_bytes": total},
            "tests": tests.run(gpu, level, measure, stage, only),
        }


def stay_near(address, root="/"):
    """Keep this process on the processors beside the GPU, and so its memory too: which they are, or None where the
    kernel does not say.

    Otherwise the host-device rates would depend on where the scheduler happened to put the process.
    """
    if not address:
        return None
    place = os.path.join(root, "sys/bus/pci/devices", address.lower()[-12:], "local_cpulist")
    try:
        with open(place, encoding="ascii") as stream:
            text = stream.read().strip()
        near = set()
        for part in text.split(","):
            first, dummy, last = part.partition("-")
            near.update(range(int(first), int(last or first) + 1))
        near &= os.sched_getaffinity(0)
        if not near:
            return None
        os.sched_setaffinity(0, near)
        return text
    except (OSError, ValueError):
        return None


def make_conditions_reader(load, index):
    """A function that answers the GPU's temperature and SM clock through NVML, None for what it does not tell."""
    try:
        nvml = (load or binding_module.load_own)()[0]
    # a binding that fails here has failed before, where it is told; the test goes on without
    except Exception:  # noqa: BLE001
        nvml = None
    if nvml is None:
        return lambda: (None, None)
    reader = calls.Reader(nvml)
    handle = None
    if reader.call("nvmlInit")["rc"] == codes.SUCCESS:
        handle = reader.call("nvmlDeviceGetHandleByIndex", index)["value"]
    if handle is None:
        return lambda: (None, None)
    return lambda: (
        reader.call("nvmlDeviceGetTemperature", handle, 0)["value"],
        reader.call("nvmlDeviceGetClockInfo", handle, 1)["value"],
    )
