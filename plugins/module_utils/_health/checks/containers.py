# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that container runtimes are configured to give GPUs to containers (CDI), where the policy asks for it."""

from __future__ import annotations

import re

from .. import compare, model, nodefacts, policy
from ..nodefacts import Checks

KIND = "nvidia.com/gpu"
# Names that nvidia-ctk gives: the UUID, 0 or 1:0, gpu0 or mig1:0; and one for all of them.
UUIDS, INDEX, ALL = ("GPU-", "MIG-"), re.compile(r"^(gpu|mig)?\d+(:\d+)?$"), frozenset(("all",))
AGAIN = "Run nvidia-ctk cdi generate again, with the driver loaded."
MADE = "/run/cdi/nvidia.yaml"


def check_cdi(ctx) -> dict:
    """There is a specification of NVIDIA's GPUs that fits the driver, names only files that are there, and has the
    devices that NVML has.
    """
    checks = Checks("node.cdi")
    if not policy.find_limit(ctx, "cdi_required"):
        return checks.none("The policy does not ask for CDI (cdi_required).")
    specs = nodefacts.of_kind(model.item(ctx.system, "cdi", "specs"), list)
    driver = nodefacts.find_driver_version(ctx)
    if specs is None:
        return checks.unknown(
            None, KIND, "The files in /etc/cdi and /run/cdi cannot be read. Look at nvidia-ctk cdi list on the node."
        )
    ours = [spec for spec in specs if model.item(spec, "kind") == KIND]
    unread = sorted(str(model.item(spec, "path")) for spec in specs if model.item(spec, "kind") is None)
    if not ours and unread:
        return checks.unknown(unread, KIND, "Files of CDI cannot be read: %s. %s" % (", ".join(unread), AGAIN))
    if not ours:
        return checks.fail(
            [],
            KIND,
            "No file in /etc/cdi or /run/cdi describes NVIDIA's GPUs, so no container gets one. %s" % (AGAIN,),
            "restart_service",
        )
    found = [find_spec_problem(checks, spec, ours, driver) for spec in ours]
    return next((item for item in found if item is not None), None) or check_device_count(ctx, checks, ours)


def find_spec_problem(checks, spec, ours, driver) -> dict | None:
    """What is wrong with one file, SPEC of OURS; None if nothing is."""
    path, versions, missing, devices = (model.item(spec, key) for key in ("path", "versions", "missing", "devices"))
    conflicts, again = model.item(spec, "conflicts"), next_step([path], ours)
    if not isinstance(versions, list) or not isinstance(missing, list) or not isinstance(devices, list):
        return checks.unknown(path, KIND, "%s cannot be read. %s" % (path, again))
    if conflicts:
        return checks.fail(
            [path] + conflicts,
            [path],
            "%s and %s name the same devices, so no container gets them. Remove one of the files."
            % (path, ", ".join(map(str, conflicts))),
            "hold",
        )
    if not devices and model.item(spec, "overridden"):
        return None
    if not devices:
        return checks.fail(path, KIND, "%s names no device. %s" % (path, again), "restart_service")
    if missing:
        return checks.fail(
            missing[:10],
            [],
            "%s names files that are not there: %s. %s" % (path, ", ".join(map(str, missing[:3])), again),
            "restart_service",
        )
    if driver is None:
        return checks.unknown(
            versions, None, "Which driver is loaded is not known, so %s cannot be compared. Load the driver." % (path,)
        )
    if [version for version in versions if version != driver]:
        return checks.fail(
            versions,
            driver,
            "%s hands over libraries of driver %s and the driver is %s. %s"
            % (path, ", ".join(map(str, versions)), driver, again),
            "restart_service",
        )
    return None


def next_step(paths, specs) -> str:
    """What mends the files PATHS of SPECS: what nvidia-ctk makes again is one of them."""
    if len(specs) == 1:
        return AGAIN
    return "Remove %s, or make it again with nvidia-ctk cdi generate --output." % (", ".join(map(str, paths)),)


def check_device_count(ctx, checks, specs) -> dict:
    """As many devices as NVML has: GPUs that are not in MIG mode, and MIG devices."""
    wanted = list_container_devices(ctx)
    names = set(str(name) for spec in specs for name in spec["devices"]) - ALL
    paths = ", ".join(str(model.item(spec, "path")) for spec in specs)
    if wanted is None:
        return checks.unknown(
            sorted(names),
            None,
            "Which GPUs and MIG devices there are is not known, so %s cannot be compared. See nvml.answers." % (paths,),
        )
    uuids = set(name for name in names if name.startswith(UUIDS))
    if uuids:
        if uuids == wanted:
            return checks.good(sorted(uuids), sorted(wanted))
        missing, stale = sorted(wanted - uuids), sorted(uuids - wanted)
        old = [model.item(spec, "path") for spec in specs if set(stale) & set(spec["devices"])]
        return checks.fail(
            sorted(uuids),
            sorted(wanted),
            "%s does not describe the GPUs and MIG devices as they are: %s. %s"
            % (
                paths,
                "; ".join(
                    "%s %s" % (word, ", ".join(found))
                    for word, found in (("not there is", missing), ("no longer valid is", stale))
                    if found
                ),
                next_step(old, specs) if old else AGAIN,
            ),
            "restart_service",
        )
    numbered = {}
    for name in names:
        found = INDEX.match(name)
        if found:
            numbered.setdefault(bool(found.group(1)), set()).add(name)
    if not numbered:
        return checks.unknown(
            sorted(names),
            len(wanted),
            "The devices of %s have names that tell nothing: %s; expected those of nvidia-ctk. %s"
            % (paths, ", ".join(sorted(names)) or "none but all", AGAIN),
        )
    wrong = [sorted(group) for group in numbered.values() if len(group) != len(wanted)]
    if wrong:
        return checks.fail(
            wrong[0],
            len(wanted),
            "%s describes %d GPUs and MIG devices, and NVML has %d. %s" % (paths, len(wrong[0]), len(wanted), AGAIN),
            "restart_service",
        )
    return checks.good(sorted(names), len(wanted))


def list_container_devices(ctx) -> set[str] | None:
    """The UUIDs of the GPUs and MIG devices that a container can get; None if they are not all known."""
    gpus = nodefacts.of_kind(model.item(ctx.snapshot, "gpus"), list) or []
    if not gpus or model.number(ctx.snapshot, "count").value != len(gpus):
        return None
    found = []
    for gpu in gpus:
        mode = model.number(gpu, "mig_mode_current")
        if mode.known and mode.value == 1:
            instances = compare.read_typed(gpu, "mig_instances", list)
            if not instances.known:
                return None
            found += [model.item(instance, "uuid") for instance in instances.value]
        elif (mode.known and mode.value == 0) or mode.rc in model.ABSENT:
            found.append(model.reading(gpu, "uuid").value)
        else:
            return None
    return set(found) if all(isinstance(uuid, str) for uuid in found) else None


ROWS = (
    model.node_row(
        "node.cdi",
        check_cdi,
        "CDI describes the GPUs and MIG devices as they are, where the policy asks for it",
        (
            "system.cdi",
            "audit.versions.loaded",
            "snapshot.count",
            "snapshot.gpus.uuid",
            "snapshot.gpus.mig_mode_current",
            "snapshot.gpus.mig_instances",
        ),
        "Container Device Interface specification",
    ),
)
