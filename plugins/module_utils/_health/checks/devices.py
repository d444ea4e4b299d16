# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's device files: there, of the right numbers, and open to those that the driver says."""

from __future__ import annotations

import re

from .. import model, nodefacts, signals
from ..nodefacts import Checks

CONTROL, CONTROL_MINOR = "/dev/nvidiactl", 255
GPU_NODE = re.compile(r"^/dev/nvidia\d+$")
UVM = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
# These come with the first program that needs them.
ON_DEMAND = re.compile(r"^/dev/nvidia-(uvm|uvm-tools|modeset|caps/.*)$")
# Names that the driver registers its numbers under, from older and newer branches.
MAJORS = (
    (re.compile(r"^/dev/nvidia(\d+|ctl)$"), ("nvidiactl", "nvidia", "nvidia-frontend")),
    (re.compile(r"^/dev/nvidia-uvm(-tools)?$"), ("nvidia-uvm",)),
    (re.compile(r"^/dev/nvidia-caps/"), ("nvidia-caps",)),
)
REPAIR = "Remove it and run nvidia-modprobe -c0 -u, or reload the driver."


def list_device_files(section) -> dict[str, dict] | None:
    """Device files by path; None if they could not be listed."""
    nodes = nodefacts.of_kind(model.item(section, "device_nodes"), list)
    return (
        None
        if nodes is None
        else dict((node["path"], node) for node in nodes if isinstance(model.item(node, "path"), str))
    )


def gpu_node(ctx, gpu) -> dict:
    """The GPU's own file."""
    checks = Checks("gpu.device_node", model.entity(gpu), "hardware")
    minor = model.number(gpu, "minor_number")
    if not minor.known:
        return signals.check_absent_signal(ctx, checks.ident, gpu, "minor_number", minor)
    path = "/dev/nvidia%d" % (minor.value,)
    nodes = list_device_files(ctx.system)
    if nodes is None:
        return checks.unknown(
            None,
            path,
            "The files in /dev cannot be listed, so it is not known whether %s is there. Look at ls -l "
            "/dev on the node." % (path,),
        )
    if path not in nodes:
        return checks.fail(
            None,
            path,
            "%s, the device file of %s, is missing: no program can use the GPU. Run nvidia-modprobe -c%d."
            % (path, model.name_gpu(gpu), minor.value),
            "restart_service",
        )
    return make_verdict(checks, path, find_file_problem(ctx, nodes[path], minor.value))


def check_shared_files(ctx) -> dict:
    """The files that are not one GPU's, and none that stayed from a GPU or a driver that is gone."""
    checks = Checks("node.device_nodes", source="hardware")
    nodes = list_device_files(ctx.system)
    old = nodefacts.read_baseline(ctx, "system", "device_nodes", kind=list)
    modules = nodefacts.of_kind(model.item(ctx.system, "modules"), list)
    if nodes is None or modules is None:
        return checks.unknown(
            None,
            CONTROL,
            "The files in /dev or the loaded modules cannot be listed. Look at ls -l /dev/nvidia* on the node.",
        )
    if old.given and not old.known:
        return checks.unknown(
            None, None, "The baseline does not have the files in /dev. %s" % (nodefacts.AGAIN,), "baseline"
        )
    wanted = [CONTROL] + ([UVM[0]] if "nvidia_uvm" in modules else [])
    before = set(list_device_files(model.item(ctx.baseline, "system")) or {})
    missing = sorted(
        path for path in set(wanted) | set(path for path in before if not ON_DEMAND.match(path)) if path not in nodes
    )
    if missing:
        return checks.fail(
            sorted(nodes),
            sorted(set(wanted) | before),
            "Device files are missing: %s. Run nvidia-modprobe -c0 -u, or start the service that "
            "makes them." % (", ".join(missing),),
            "restart_service",
            "baseline" if set(missing) - set(wanted) else "hardware",
        )
    found = [
        find_file_problem(ctx, nodes[path], CONTROL_MINOR if path == CONTROL else None)
        for path in sorted(nodes)
        if not GPU_NODE.match(path)
    ]
    for status in ("fail", "unknown"):
        for answer in found:
            if answer and answer[0] == status:
                return make_verdict(checks, sorted(nodes), answer)
    late = sorted(path for path in before if path not in nodes)
    if late:
        return checks.notice(
            sorted(nodes),
            sorted(before),
            "Device files of the baseline are not there yet: %s. The first CUDA program makes them; "
            "containers that are given them by name do not start before." % (", ".join(late),),
            "baseline",
        )
    return checks.good(sorted(nodes), sorted(wanted))


def find_file_problem(ctx, node, minor) -> tuple[str, str] | None:
    """Return the problem of a device file as (status, message), or None."""
    path, kind, mode = node["path"], node.get("kind"), node.get("mode")
    if kind is None or mode is None:
        return "unknown", "%s is there and cannot be looked at. Look at ls -l %s on the node." % (path, path)
    if kind != "char" and not (nodefacts.is_simulated(ctx) and kind == "file"):
        return "fail", "%s is a %s, not a character device. %s" % (path, kind, REPAIR)
    if not nodefacts.is_simulated(ctx):
        found = check_numbers(ctx, node, minor)
        if found:
            return found
    return check_permissions(ctx, node)


def check_numbers(ctx, node, minor) -> tuple[str, str] | None:
    """A file that stayed from an earlier load of the driver may lead to nothing, or to another driver."""
    path = node["path"]
    names = [names for pattern, names in MAJORS if pattern.match(path)]
    known = nodefacts.of_kind(model.item(ctx.system, "device_numbers"), dict)
    if names and known is None:
        return (
            "unknown",
            "The driver's device numbers cannot be read, so %s cannot be compared with them. Look at /proc/devices."
            % (path,),
        )
    if names:
        majors = [known[name] for name in names[0] if name in known]
        if node.get("major") not in majors:
            return "fail", "%s has device number %s and the driver has %s: it leads nowhere. %s" % (
                path,
                node.get("major"),
                ", ".join(map(str, sorted(set(majors)))) or "none",
                REPAIR,
            )
    if minor is not None and node.get("minor") != minor:
        return "fail", "%s has minor number %s, expected %s. %s" % (path, node.get("minor"), minor, REPAIR)
    return None


def check_permissions(ctx, node) -> tuple[str, str] | None:
    """Check that every user whom the driver admits can open the file.

    More than that is the administrator's choice, and no other owner matters then.
    """
    path, mode = node["path"], node["mode"]
    params = nodefacts.of_kind(model.item(ctx.system, "device_params"), dict)
    if re.match(r"^/dev/nvidia-(caps/|nvswitch|nvlink|fs)", path) or (
        params is not None and params.get("modify") is False
    ):
        return None
    wanted = model.item(params, "mode")
    if not isinstance(wanted, str):
        return (
            "unknown",
            (
                "What the driver's device files should be like cannot be read, so %s cannot be judged. Look at "
                "/proc/driver/nvidia/params." % (path,)
            ),
        )
    try:
        lacking = int(wanted, 8) & ~int(mode, 8)
    except (TypeError, ValueError):
        return "unknown", "The permissions of %s cannot be read: %s. Look at ls -l %s." % (path, mode, path)
    step = "Set them back: nvidia-modprobe -c0 -u, or the udev rule that changed them."
    if lacking:
        return "fail", "%s has permissions %s, and the driver asks for %s. %s" % (path, mode, wanted, step)
    if not int(mode, 8) & 0o006 == 0o006 and (node.get("uid"), node.get("gid")) != (
        params.get("uid"),
        params.get("gid"),
    ):
        return "fail", "%s belongs to %s:%s, and the driver asks for %s:%s. %s" % (
            path,
            node.get("uid"),
            node.get("gid"),
            params.get("uid"),
            params.get("gid"),
            step,
        )
    return None


def make_verdict(checks, observed, answer) -> dict:
    if answer is None:
        return checks.good(observed, observed)
    status, message = answer
    expected = "as the driver makes it"
    return (
        checks.fail(observed, expected, message, "restart_service")
        if status == "fail"
        else checks.unknown(observed, expected, message)
    )


ROWS = (
    model.gpu_row(
        "gpu.device_node",
        gpu_node,
        "The GPU's device file is there, of the right number, and open to those that the driver says",
        ("snapshot.gpus.minor_number", "system.device_nodes", "system.device_numbers", "system.device_params"),
        "NVIDIA driver README, nvidia-modprobe(1)",
    ),
    model.node_row(
        "node.device_nodes",
        check_shared_files,
        "The driver's other device files are there, of the right number, and open to those that the driver says",
        ("system.device_nodes", "system.device_numbers", "system.device_params", "system.modules"),
        "NVIDIA driver README, nvidia-modprobe(1)",
    ),
)
