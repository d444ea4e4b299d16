# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a real GPU answers, as a fixture the simulator is compared with.

Read-only: calls only NVML getters (``nvmlSystemGet*``, ``nvmlDeviceGet*`` with a handle and, for a few, plain
arguments). Serial numbers and UUIDs are replaced by values of the same shape; nothing else identifies the machine.

Usage: ``python3 -m tests.sim.record OUT.json [short]`` (needs nvidia-ml-py and a loaded driver). SHORT leaves out times
and messages, and writes a line for each call and for each answer that fields gave, as in
tests/unit/sim/fixtures/recordings.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import sys
import time

# Field ids of nvmlDeviceGetFieldValues, by number: names move between releases of the binding, numbers do not. nvml.h
# of driver 590 ends below 300.
FIELD_IDS = range(1, 300)
# The kinds of GPU instances that nvml.h numbers (NVML_GPU_INSTANCE_PROFILE_*).
INSTANCE_PROFILES = range(18)

# Getters that need more than a handle: name -> argument tuples to record.
WITH_ARGUMENTS = {
    "nvmlDeviceGetClockInfo": [(0,), (1,), (2,), (3,)],
    "nvmlDeviceGetMaxClockInfo": [(0,), (1,), (2,), (3,)],
    "nvmlDeviceGetApplicationsClock": [(0,), (1,), (2,)],
    "nvmlDeviceGetDefaultApplicationsClock": [(0,), (1,), (2,)],
    "nvmlDeviceGetTemperature": [(0,)],
    "nvmlDeviceGetTemperatureThreshold": [(0,), (1,), (2,), (3,)],
    "nvmlDeviceGetTotalEccErrors": [(0, 0), (0, 1), (1, 0), (1, 1)],
    "nvmlDeviceGetMemoryErrorCounter": [(t, c, loc) for t in (0, 1) for c in (0, 1) for loc in (0, 1, 2, 3, 7)],
    "nvmlDeviceGetRetiredPages": [(0,), (1,)],
    "nvmlDeviceGetNvLinkState": [(link,) for link in range(18)],
    "nvmlDeviceGetNvLinkVersion": [(0,)],
    "nvmlDeviceGetNvLinkErrorCounter": [(0, counter) for counter in range(5)],
    "nvmlDeviceGetNvLinkRemotePciInfo": [(link,) for link in range(18)],
    "nvmlDeviceGetNvLinkRemoteDeviceType": [(link,) for link in range(18)],
    "nvmlDeviceGetGpuInstanceProfileInfo": [(profile,) for profile in INSTANCE_PROFILES],
    "nvmlDeviceGetViolationStatus": [(policy,) for policy in range(8)],
}

SKIP = {
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleBySerial",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId",
}


def plain(value):
    """A JSON value for whatever the binding returned: numbers, text, structures, arrays."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, ctypes.Array):
        return [plain(item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {
            "_sizeof": ctypes.sizeof(value),
            **{field[0]: plain(getattr(value, field[0])) for field in value._fields_},
        }
    if isinstance(value, ctypes.Union):
        return {"_sizeof": ctypes.sizeof(value), "_bytes": bytes(value).hex()}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "__dict__"):
        return {key: plain(item) for key, item in vars(value).items()}
    return repr(type(value))


def ask(nvml, name, *args):
    """One call of the binding by its name, which this binding may not have."""

    def call(*arguments):
        return getattr(nvml, name)(*arguments)

    return answered(nvml, call, *args)


def answered(nvml, function, *args):
    """One call: value and NVML return code, and how long it took."""
    started = time.perf_counter()
    try:
        answer = {"rc": 0, "value": plain(function(*args))}
    except nvml.NVMLError as error:
        answer = {"rc": error.value, "error": str(error)}
    # the binding raises TypeError, UnicodeDecodeError and its own families; record which
    except Exception as error:  # noqa: BLE001
        answer = {"rc": None, "error": "%s: %s" % (type(error).__name__, error)}
    answer["ms"] = round((time.perf_counter() - started) * 1000, 3)
    return answer


def takes_only_a_handle(function):
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    required = [
        item
        for item in parameters
        if item.default is inspect.Parameter.empty and item.kind == item.POSITIONAL_OR_KEYWORD
    ]
    return len(required) == 1 and required[0].name in ("handle", "device")


def placements(nvml, handle, number):
    """Where instances of profile NUMBER can start, as [start, size] each."""
    count = ctypes.c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, number, None, ctypes.byref(count))
    places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, number, places, ctypes.byref(count))
    return [[places[index].start, places[index].size] for index in range(count.value)]


def record_placements(nvml, handle, profiles):
    """The places of the PROFILES (the recorded answers to their indices)."""
    numbers = [answer["value"]["id"] for answer in profiles if answer["rc"] == 0]
    return [{"args": [number], **answered(nvml, placements, nvml, handle, number)} for number in numbers]


def record_device(nvml, handle):
    calls = {}
    for name in sorted(dir(nvml)):
        if not name.startswith("nvmlDeviceGet") or name in SKIP:
            continue
        function = getattr(nvml, name)
        if name in WITH_ARGUMENTS:
            calls[name] = [{"args": list(args), **ask(nvml, name, handle, *args)} for args in WITH_ARGUMENTS[name]]
        elif callable(function) and takes_only_a_handle(function):
            calls[name] = ask(nvml, name, handle)
    calls["nvmlDeviceGetGpuInstancePossiblePlacements"] = record_placements(
        nvml, handle, calls["nvmlDeviceGetGpuInstanceProfileInfo"]
    )
    calls["nvmlDeviceGetMemoryInfo_v2"] = ask(nvml, "nvmlDeviceGetMemoryInfo", handle, nvml.nvmlMemory_v2)
    fields = {}
    for field in FIELD_IDS:
        try:
            item = nvml.nvmlDeviceGetFieldValues(handle, [field])[0]
            fields[str(field)] = {"rc": item.nvmlReturn, "type": item.valueType, "bytes": bytes(item.value).hex()}
        except nvml.NVMLError as error:
            fields[str(field)] = {"rc": error.value, "call_failed": True}
    return {"calls": calls, "fields": fields}


def masked(text):
    """Identity replaced by the same shape: hexadecimal of UUIDs and digits of serials become zero."""
    text = re.sub(
        r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        lambda m: m.group(0)[:4] + re.sub("[0-9a-f]", "0", m.group(0)[4:]),
        text,
    )
    return text


def fixture(document):
    """A recording as text, without times and messages: a line for each call, and one for each answer to fields."""

    def kept(answers):
        if isinstance(answers, list):
            return [kept(answer) for answer in answers]
        return {key: part for key, part in answers.items() if key not in ("ms", "error")}

    def block(calls):
        return "{\n%s\n}" % ",\n".join(
            "%s: %s" % (json.dumps(name), json.dumps(kept(calls[name]), sort_keys=True)) for name in calls
        )

    def groups(fields):
        found = {}
        for number in sorted(fields, key=int):
            found.setdefault(json.dumps(fields[number], sort_keys=True), []).append(int(number))
        return ",\n".join('{"fields": %s, %s' % (numbers, answer[1:]) for answer, numbers in found.items())

    return '{"schema": "%s", "system": %s, "devices": [%s]}\n' % (
        document["schema"],
        block(document["system"]),
        ", ".join(
            '{"calls": %s, "fields": [\n%s\n]}' % (block(device["calls"]), groups(device["fields"]))
            for device in document["devices"]
        ),
    )


def main(out, short=False):
    """Write a recording; SHORT: as a fixture."""
    import pynvml as nvml

    nvml.nvmlInit()
    document = {
        "schema": "gpufleet.recording/1",
        "binding": getattr(nvml, "__version__", None),
        "system": {},
        "devices": [],
    }
    for name in sorted(dir(nvml)):
        if name.startswith("nvmlSystemGet") and callable(getattr(nvml, name)):
            try:
                if any(
                    p.default is inspect.Parameter.empty
                    for p in inspect.signature(getattr(nvml, name)).parameters.values()
                ):
                    continue
            except (TypeError, ValueError):
                continue
            document["system"][name] = ask(nvml, name)
    for index in range(nvml.nvmlDeviceGetCount()):
        device = record_device(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        for name in ("nvmlDeviceGetSerial", "nvmlDeviceGetBoardId", "nvmlDeviceGetModuleId", "nvmlDeviceGetPdi"):
            answer = device["calls"].get(name)
            if answer and answer["rc"] == 0:
                answer["value"] = re.sub("[0-9]", "0", answer["value"]) if isinstance(answer["value"], str) else 0
        document["devices"].append(device)
    nvml.nvmlShutdown()
    text = json.dumps(document, indent=1, sort_keys=True, default=repr) + "\n"
    if short:
        text = fixture(json.loads(text))
    with open(out, "w", encoding="utf-8") as stream:
        stream.write(masked(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], short=sys.argv[2:] == ["short"]))
