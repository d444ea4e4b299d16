# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether container runtimes are told rightly how to hand over GPUs (CDI), where the policy asks for it."""

from __future__ import annotations

from .. import model, nodefacts, policy
from ..nodefacts import Checks

KIND = "nvidia.com/gpu"
AGAIN = "Run nvidia-ctk cdi generate again, with the driver loaded."


def cdi(ctx):
    """There is a specification of NVIDIA's GPUs that fits the driver and names only files that are there."""
    checks = Checks("node.cdi")
    if not policy.limit(ctx, "cdi_required"):
        return checks.none("The policy does not ask for CDI (cdi_required).")
    specs = nodefacts.of_kind(model.item(ctx.system, "cdi", "specs"), list)
    driver = nodefacts.driver(ctx)
    if specs is None:
        return checks.unknown(None, KIND, "The files in /etc/cdi and /run/cdi cannot be read. Look at nvidia-ctk cdi list on the node.")
    ours = [spec for spec in specs if model.item(spec, "kind") == KIND]
    unread = sorted(str(model.item(spec, "path")) for spec in specs if model.item(spec, "kind") is None)
    if not ours and unread:
        return checks.unknown(unread, KIND, "Files of CDI cannot be read: %s. %s" % (", ".join(unread), AGAIN))
    if not ours:
        return checks.fail([], KIND, "No file in /etc/cdi or /run/cdi describes NVIDIA's GPUs, so no container gets one. %s" % (AGAIN,), "restart_service")
    for spec in ours:
        path, versions, missing, devices = (model.item(spec, key) for key in ("path", "versions", "missing", "devices"))
        if not isinstance(versions, list) or not isinstance(missing, list) or not isinstance(devices, list):
            return checks.unknown(path, KIND, "%s cannot be read. %s" % (path, AGAIN))
        if not devices:
            return checks.fail(path, KIND, "%s names no device. %s" % (path, AGAIN), "restart_service")
        if missing:
            return checks.fail(missing[:10], [], "%s names files that are not there: %s. %s" % (path, ", ".join(map(str, missing[:3])), AGAIN),
                               "restart_service")
        if driver is None:
            return checks.unknown(versions, None, "Which driver is loaded is not known, so %s cannot be compared. Load the driver." % (path,))
        if [version for version in versions if version != driver]:
            return checks.fail(versions, driver, "%s hands over libraries of driver %s and the driver is %s. %s" % (
                path, ", ".join(map(str, versions)), driver, AGAIN), "restart_service")
    return checks.good([model.item(spec, "path") for spec in ours], KIND)


ROWS = (
    model.Row("node.cdi", "node", cdi, "CDI describes the GPUs as they are, where the policy asks for it", ("system.cdi", "audit.versions.loaded"),
              "Container Device Interface specification", (58,)),
)
