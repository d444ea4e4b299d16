# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a node as Slurm's generic resources: which there are, by type, and the lines of gres.conf for them. Pure.

A GPU that is not in MIG mode is one device. One that is has its MIG devices instead. Each of those is the GPU's device
file together with two files that stand for the right to use its GPU instance and its compute instance (gres.conf(5),
MultipleFiles; MIG User Guide, Device Nodes).
"""

from __future__ import annotations

import collections
import re

from .._mig import names

Device = collections.namedtuple("Device", ["type", "files"])  # the type in Slurm; its device files, the GPU's first
Gpu = collections.namedtuple(
    "Gpu", ["uuid", "type", "devices"]
)  # the type of the whole GPU, which the types of its MIG devices begin with

SUCCESS = 0
# NVML's answers that say that there is no MIG: INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND.
WITHOUT_MIG = (2, 3, 13)
_MINOR = re.compile(r"gpu(\d+)/gi(\d+)/(?:ci(\d+)/)?access\s+(\d+)\s*$")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TYPE = re.compile(r"[A-Za-z0-9_.-]*")


class GresError(Exception):
    """The GPUs that Slurm should have cannot be determined; the message gives the reason and the next step."""


def capabilities(text) -> dict:
    """{(minor of the GPU, GPU instance, compute instance or None): minor of the capability} of
    /proc/driver/nvidia-caps/mig-minors."""
    found = {}
    for line in (text or "").splitlines():
        match = _MINOR.match(line.strip())
        if match:
            gpu, instance, compute, minor = match.groups()
            found[int(gpu), int(instance), None if compute is None else int(compute)] = int(minor)
    return found


def type_name(model, profile="") -> str:
    """The type that Slurm's own detection gives a GPU: its name in lower case with _ for blanks, and a MIG device's
    profile behind it.

    The + of a profile such as 1g.10gb+me becomes a dot, as in the resources of NVIDIA's device plugin.
    """
    words = [
        re.sub(r"[^a-z0-9_.-]+", "_", text.strip().lower()).strip("_")
        for text in (model, profile.replace("+", "."))
        if text
    ]
    return "_".join(words)


def node_problem(node) -> str:
    """Return why a file cannot be named after the node; empty if it can."""
    return (
        "" if _NODE.fullmatch(node or "") else "%r is no name of one node: expected letters, digits and . _ -" % (node,)
    )


def of_snapshot(snapshot, minors="", renamed=None) -> list:
    """The GPUs of a snapshot of gpu_info (subsets identity and mig), in NVML's order.

    MINORS: the text of mig-minors. RENAMED: {type: the cluster's name}.
    """
    renamed = dict(renamed or {})
    wrong = sorted(str(name) for name in renamed.values() if not _TYPE.fullmatch(str(name)))
    if wrong:
        raise GresError(
            "%s cannot be a type in Slurm: expected letters, digits and . _ -" % ", ".join(map(repr, wrong))
        )
    gpus = (snapshot or {}).get("gpus") or []
    if not gpus:
        raise GresError(
            "no GPU could be read, so that nothing can be said of its generic resources. See what gpu_info says of "
            "the node, and run again"
        )
    files = capabilities(minors)
    found = [_gpu(gpu, files, renamed) for gpu in gpus]
    paths = [device.files for gpu in found for device in gpu.devices]
    if len(set(paths)) != len(paths):
        raise GresError("two GPUs have the same device file (%s): see gpu_info" % ", ".join(path[0] for path in paths))
    return found


def _gpu(gpu, files, renamed):
    model, minor = _read_value(gpu, "name"), _read_value(gpu, "minor_number")
    path, kind, mode = "/dev/nvidia%d" % minor, type_name(model), gpu.get("mig_mode_current") or {}
    uuid = (gpu.get("uuid") or {}).get("value") or ""
    if mode.get("rc") in WITHOUT_MIG or mode.get("rc") == SUCCESS and mode.get("value") == 0:
        return Gpu(uuid, kind, (Device(str(renamed.get(kind, kind)), (path,)),))
    if mode.get("rc") != SUCCESS or mode.get("value") != 1:
        raise GresError(
            "GPU %s does not tell its MIG mode. See nvidia-smi -L on the node, and run again" % gpu.get("index")
        )
    devices = []
    for device in _read_value(gpu, "mig_instances"):
        place = (device["gpu_instance"], device["compute_instance"])
        missing = [number for number in (None, place[1]) if (minor, place[0], number) not in files]
        if missing:
            raise GresError(
                "the device files of the MIG device with GPU instance %d and compute instance %d of GPU %s are not "
                "known: "
                "/proc/driver/nvidia-caps/mig-minors does not list them. See whether the driver is loaded, and run "
                "again" % (place + (gpu.get("index"),))
            )
        own = tuple("/dev/nvidia-caps/nvidia-cap%d" % files[minor, place[0], number] for number in (None, place[1]))
        profile = names.find_profile(device["name"])
        if not profile:
            raise GresError(
                "a MIG device of GPU %s is called %r, expected a name that ends with its profile, such as 1g.10gb"
                % (gpu.get("index"), device["name"])
            )
        name = type_name(model, profile)
        devices.append(Device(str(renamed.get(name, name)), (path,) + own))
    return Gpu(uuid, kind, tuple(devices))


def _read_value(gpu, key):
    if key not in gpu:
        raise GresError(
            "the %s of GPU %s was not read: gpu_info needs the subsets identity and mig" % (key, gpu.get("index"))
        )
    answer = gpu[key]
    if answer.get("rc") != SUCCESS or answer.get("value") is None:
        raise GresError(
            "GPU %s does not tell its %s (NVML: %s). See nvidia-smi -L on the node, and run again"
            % (gpu.get("index"), key, answer.get("error") or "no answer")
        )
    return answer["value"]


def staying(gpus, layout) -> list:
    """The GPUs that a layout leaves as they are, of the rows that gpu_mig returned in check mode (``gpus``)."""
    rows = _rows(gpus, layout)
    return [gpu for gpu in gpus if gpu.uuid not in rows or rows[gpu.uuid].get("before") == rows[gpu.uuid].get("wanted")]


def plan_counts(gpus, layout, renamed=None) -> dict[str, int]:
    """{type: number} that the node has with the layout. Instances without compute instances are no devices."""
    renamed, rows, found = renamed or {}, _rows(gpus, layout), counts(staying(gpus, layout))
    for gpu in gpus:
        row = rows.get(gpu.uuid) or {}
        if not row or row.get("before") == row.get("wanted"):
            continue
        wanted = row["wanted"]
        devices = wanted.get("devices") or {} if wanted.get("enabled") else {"": 1}
        for profile, number in devices.items():
            name = gpu.type + "_" + type_name(profile) if profile else gpu.type
            if not profile.startswith("0c.") and number:
                name = str(renamed.get(name, name))
                found[name] = found.get(name, 0) + int(number)
    return found


def _rows(gpus, layout) -> dict[str, dict]:
    """{UUID: row}. A row of a GPU that is not one of these, or without what is wanted, is no layout of this node."""
    known, rows = {gpu.uuid for gpu in gpus}, {}
    for row in layout or []:
        if (
            row.get("gpu") not in known
            or not isinstance(row.get("wanted"), dict)
            or not isinstance(row.get("before"), dict)
        ):
            raise GresError(
                "the layout is about GPU %s, which is not one of the node's, or it does not say what is wanted of it: "
                "give the gpus that "
                "gpu_mig returned for this node" % (row.get("gpu"),)
            )
        rows[row["gpu"]] = row
    return rows


def counts(gpus) -> dict[str, int]:
    """{type: number} of the devices."""
    return dict(collections.Counter(device.type for gpu in gpus for device in gpu.devices))


def value(found) -> str:
    """The GPUs as the value of Gres in slurm.conf, types in order; empty without any."""
    return ",".join(
        ":".join(filter(None, ("gpu", kind, str(number)))) for kind, number in sorted(found.items()) if number
    )


def lines(node, gpus) -> list[str]:
    """The lines of gres.conf for the node: one for each device.

    Detection is off, so that what NVML said here is what slurmd takes.
    """
    problem = node_problem(node)
    if problem:
        raise GresError(problem)
    found = []
    for device in (device for gpu in gpus for device in gpu.devices):
        kind = " Type=" + device.type if device.type else ""
        name = "MultipleFiles" if len(device.files) > 1 else "File"
        found.append("NodeName=%s AutoDetect=off Name=gpu%s %s=%s" % (node, kind, name, ",".join(device.files)))
    # Without any the detection would still find the GPUs themselves.
    return found or ["NodeName=%s AutoDetect=off" % node]
