# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes that hold the GPU: what has /dev/nvidia* open or mapped."""

from __future__ import annotations

import os
import pwd
import re

from . import files, proc_tasks

DEVICE = re.compile(r"^/dev/nvidia[\w-]*(/.*)?$")
# kubelet writes a pod's uid with dashes (cgroupfs) or with underscores (systemd).
POD = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?=[./]|$)")
JOB = re.compile(r"/job_(\d+)(?=/|$)")
UNIT = re.compile(r"(?:/[^/]+\.slice)*/([^/]+\.(?:service|scope))(?=/|$)")
USERS = "/user.slice/"
INIT = "/init.scope"


def read_holders(root="/") -> list[dict] | None:
    """``[{pid, user, comm, unit, pod, job, devices}]``; None when /proc cannot be listed."""
    proc = files.under(root, "/proc")
    names = files.listing(proc)
    if names is None:
        return None
    found = []
    for pid in sorted(int(name) for name in names if name.isdigit()):
        devices = sorted(find_open_devices(proc, pid) | find_mapped_devices(proc, pid))
        if devices:
            found.append(dict(describe_process(proc, pid), devices=devices))
    return found


def describe_process(proc, pid) -> dict:
    """Return pid, user, comm, unit, pod and job of a process; what is not known is None."""
    comm = files.read_line("%s/%d/comm" % (proc, pid))
    return dict(owner(groups(proc, pid)), pid=pid, user=user(proc, pid), comm=comm)


def find_open_devices(proc, pid) -> set[str]:
    directory = "%s/%d/fd" % (proc, pid)
    found = set()
    for name in files.listing(directory) or []:
        try:
            target = os.readlink(os.path.join(directory, name))
        except OSError:
            continue  # closed since it was listed
        if DEVICE.match(target) and is_device(proc, os.path.join(directory, name), target):
            found.add(target)
    return found


def is_device(proc, opened_path, name) -> bool:
    """Return whether what a process has open is of the driver that the device NAME of this machine is of.

    In a mount namespace of their own, users give any file the name of a device.
    """
    try:
        numbers = [os.stat(path).st_rdev for path in (opened_path, files.under(os.path.dirname(proc), name))]
    except PermissionError:
        return False  # of a file system of its user's (FUSE), which root may not read either
    except OSError:
        return True
    return os.major(numbers[0]) == os.major(numbers[1])


def find_mapped_devices(proc, pid) -> set[str]:
    """The device files in a process's address space; none of one in state D, since reading its maps may wait for the
    lock that it holds.
    """
    if proc_tasks.waiting(proc, str(pid)):
        return set()
    content = files.read_text("%s/%d/maps" % (proc, pid)) or ""
    found = set()
    for words in (line.split(None, 5) for line in content.splitlines() if "/dev/nvidia" in line):
        if len(words) == 6 and words[5] not in found and DEVICE.match(words[5]):
            place = "-".join(number.lstrip("0") or "0" for number in words[0].split("-"))
            if is_device(proc, "%s/%d/map_files/%s" % (proc, pid, place), words[5]):
                found.add(words[5])
    return found


def user(proc, pid) -> str | None:
    found = re.search(r"^Uid:\s+(\d+)", files.read_text("%s/%d/status" % (proc, pid)) or "", re.M)
    if not found:
        return None
    try:
        return pwd.getpwuid(int(found.group(1))).pw_name
    except KeyError:
        return found.group(1)


def unit(proc, pid) -> str | None:
    """The unit of the system's systemd that a process is in, by its control group, or None."""
    return owner(groups(proc, pid))["unit"]


def groups(proc, pid) -> list[str]:
    """The paths of a process's control groups below those of the system's systemd, without the controllers."""
    ends = [path[: -len(INIT)] for path in _groups(proc, 1) if path.endswith(INIT)]
    above = ends[0] + "/" if ends else "/"
    return [path[len(above) - 1 :] if path.startswith(above) else path for path in _groups(proc, pid)]


def _groups(proc, pid) -> list[str]:
    return [line.split(":", 2)[-1] for line in (files.read_text("%s/%d/cgroup" % (proc, pid)) or "").splitlines()]


def is_of_user(path) -> bool:
    """Return whether users name the control group of PATH: below their own systemd they make groups as they like."""
    return path.startswith(USERS)


def owner(paths) -> dict:
    """Return the owner of a process by its control groups: systemd unit, Kubernetes pod (its uid) and Slurm job, each
    None if it belongs to none.

    A unit of the system's systemd is below slices alone. What lies below a unit may be named by its processes.
    """
    answer = {"unit": None, "pod": None, "job": None}
    for path in paths:
        found = UNIT.match(path)
        if found and not answer["unit"]:
            answer["unit"] = found.group(1)
        if is_of_user(path):
            continue
        pod, job = POD.search(path), JOB.search(path)
        if pod:
            answer["pod"] = pod.group(1).replace("_", "-")
        if job and "slurm" in path:
            answer["job"] = job.group(1)
    return answer


def name_holders(root="/") -> dict:
    """{pid: text} of the processes that hold the GPUs, each for an operator; empty where /proc cannot be listed."""
    return dict((holder["pid"], in_words(holder)) for holder in read_holders(root) or [])


def name_process(process) -> str:
    """Return a process of NVML for an operator; its pid where nothing else is known of it."""
    return in_words(process) if process.get("comm") else "pid %s" % (process.get("pid"),)


def in_words(holder) -> str:
    """A process for an operator: what it is, and whose."""
    whose = [
        text
        for text in (
            "user %s" % holder["user"] if holder.get("user") else "",
            "unit %s" % holder["unit"] if holder.get("unit") else "",
            "pod %s" % holder["pod"] if holder.get("pod") else "",
            "Slurm job %s" % holder["job"] if holder.get("job") else "",
        )
        if text
    ]
    return "%s (pid %s%s)" % (
        holder.get("comm") or "an unnamed process",
        holder.get("pid"),
        "".join(", " + text for text in whose),
    )
