# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a node has what a driver needs beside its packages. Pure."""

from __future__ import annotations

from .._kernel.kernels import headers_package
from .._node.gpu_operator import NEXT_STEP
from .package_refusal import refusal


def decide(wanted: list[str], gpus: list[dict] | None, headers: dict[str, bool]) -> list[dict]:
    """Refusals of a node without what is WANTED (``gpu``, ``headers``).

    ``gpus`` are those on the bus, None when it cannot be read; ``headers`` tells by kernel that can boot whether they
    are there.
    """
    refusals = []
    if "gpu" in wanted and not gpus:
        found = "the PCI bus cannot be read" if gpus is None else "none on the PCI bus"
        refusals.append(
            refusal(
                "no_gpu",
                [],
                found,
                "an NVIDIA GPU",
                "No NVIDIA GPU was found: %s." % found,
                "look at the hardware, or leave gpu out of what is required",
            )
        )
    if "headers" in wanted and not headers:
        refusals.append(
            refusal(
                "no_kernel",
                [],
                "no kernel",
                "a kernel that can boot",
                "No kernel that can boot was found in /boot and /lib/modules.",
                "install one",
            )
        )
    missing = [kernel for kernel in headers if not headers[kernel]] if "headers" in wanted else []
    if missing:
        packages = [headers_package(kernel) for kernel in missing]
        refusals.append(
            refusal(
                "no_headers",
                packages,
                "no headers for %s" % ", ".join(missing),
                "headers for every kernel that can boot",
                "The headers are missing for kernel %s, so that no module can be built for it." % ", ".join(missing),
                "install %s, or remove the kernel" % " ".join(packages),
            )
        )
    return refusals


def decide_owner(found):
    """Refusals of a node whose driver a GPU Operator brings, ``found`` as ``gpu_operator.read`` answers."""
    if found["owner"] is False:
        return []
    signs = "; ".join(found["signs"])
    if found["owner"] is None:
        return [
            refusal(
                "operator_unknown",
                [],
                signs,
                "/run/nvidia can be read",
                "Whether a GPU Operator brings the driver cannot be read: %s." % signs,
                "look at /run/nvidia on the node as root",
            )
        ]
    step = NEXT_STEP[0].lower() + NEXT_STEP[1:].rstrip(".")
    return [
        refusal(
            "operator_owned",
            [],
            signs,
            "a driver that is the node's own",
            "A GPU Operator brings this node's driver in a container (%s): packages of the node would fight it."
            % signs,
            step,
        )
    ]
