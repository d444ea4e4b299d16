# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA on the node: the driver's libcuda, and whether the installed toolkits fit the driver."""

from __future__ import annotations

import re

from .. import model, nodefacts
from ..nodefacts import Checks

VERSION = re.compile(r"^(\d+)\.(\d+)")


def libcuda(ctx):
    """The driver's libcuda is installed and of the driver's version."""
    checks = Checks("driver.libcuda")
    found = nodefacts.of_kind(model.item(ctx.system, "libcuda"), dict)
    expected = nodefacts.driver(ctx)
    if found is None or not isinstance(found.get("candidates"), list):
        return checks.unknown(None, expected, "Which libcuda is installed cannot be read. Run ldconfig -p on the node.")
    version = nodefacts.upstream(found.get("version"))
    if version is None and not found["candidates"]:
        return checks.fail(
            None,
            expected,
            "libcuda.so.1 is not installed: no CUDA program starts. Install the driver's CUDA library (libcuda1).",
        )
    if version is None:
        return checks.unknown(
            found["candidates"],
            expected,
            "Several versions of libcuda are on disk and no link says which one is used. "
            "Remove the one that no package owns.",
        )
    if expected is None:
        return checks.unknown(
            version,
            None,
            "Which driver is loaded is not known, so libcuda %s cannot be compared. Load the driver." % (version,),
        )
    if version != expected:
        return checks.fail(
            version,
            expected,
            "libcuda is %s and the driver is %s: CUDA programs fail to start. Install one version of both, then reload "
            "the driver or reboot." % (version, expected),
        )
    return checks.good(version, expected)


def cuda_version(value):
    """(12, 2) out of "12.2" or 12020; None if it is neither."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value // 1000, value % 1000 // 10
    found = VERSION.match(value) if isinstance(value, str) else None
    return (int(found.group(1)), int(found.group(2))) if found else None


def toolkit(ctx):
    """The driver runs what the installed toolkits build. A notice: programs may bring their own CUDA."""
    checks = Checks("node.cuda_toolkit", source="hardware")
    found = nodefacts.of_kind(model.item(ctx.system, "toolkit"), list)
    old = nodefacts.before(ctx, "system", "toolkit", kind=list)
    if found is None:
        return checks.unknown(
            None, None, "The installed CUDA toolkits cannot be listed. Look at /usr/local on the node."
        )
    if old.given and not old.known:
        return checks.unknown(
            None, None, "The baseline does not have the installed CUDA toolkits. %s" % (nodefacts.AGAIN,), "baseline"
        )
    paths = [model.item(entry, "path") for entry in found]
    lost = sorted(str(model.item(entry, "path")) for entry in old.value or [] if model.item(entry, "path") not in paths)
    if lost:
        return checks.fail(
            paths,
            [model.item(entry, "path") for entry in old.value],
            "CUDA toolkits of the baseline are gone: %s. Install them again." % (", ".join(lost),),
            "hold",
            "baseline",
        )
    if not found:
        return checks.none("No CUDA toolkit is installed.")
    driver = cuda_version(model.reading(model.item(ctx.snapshot, "system"), "cuda_driver_version").value)
    versions = [
        (str(model.item(entry, "path")), cuda_version(model.item(entry, "version")), model.item(entry, "compat"))
        for entry in found
    ]
    unread = sorted(path for path, version, compat in versions if version is None)
    shown = ["%s %s" % (path, "%d.%d" % version if version else "?") for path, version, compat in versions]
    if driver is None or unread:
        what, where = (", ".join(unread), "version.json there") if unread else ("the driver", "nvidia-smi on the node")
        return checks.unknown(shown, None, "The CUDA version of %s cannot be read. Look at %s." % (what, where))
    limit = "%d.%d" % driver
    newer = sorted(
        "%s (%d.%d)" % (path, version[0], version[1])
        for path, version, compat in versions
        if version > driver and not compat
    )
    other = sorted(entry for entry in newer if cuda_version(entry.rpartition("(")[2])[0] > driver[0])
    if other:
        return checks.notice(
            shown,
            limit,
            "The driver runs CUDA up to %s, so programs built with %s do not start. Install a newer driver or the "
            "toolkit's forward compatibility package (cuda-compat)." % (limit, ", ".join(other)),
        )
    if newer:
        return checks.notice(
            shown,
            limit,
            "The driver runs CUDA up to %s; programs built with %s run only as far as CUDA's minor version "
            "compatibility goes (no PTX)." % (limit, ", ".join(newer)),
        )
    return checks.good(shown, limit)


ROWS = (
    model.Row(
        "driver.libcuda",
        "node",
        libcuda,
        "libcuda is installed and of the driver's version",
        ("system.libcuda", "audit.versions.loaded"),
        "NVIDIA CUDA Compatibility guide",
        (55,),
    ),
    model.Row(
        "node.cuda_toolkit",
        "node",
        toolkit,
        "The driver runs what the installed CUDA toolkits build (a notice)",
        ("system.toolkit", "snapshot.system.cuda_driver_version"),
        "NVIDIA CUDA Compatibility guide",
        (56,),
    ),
)
