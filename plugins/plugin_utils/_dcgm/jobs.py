# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Map the files of the exporter's job mapping to GPUs, by the names that Slurm gives to GPUs and MIG devices. Pure.

The exporter looks for files named by DCGM's id of a GPU, followed by a dot and the id of the MIG instance. Slurm
identifies a GPU by the minor number of its device, and in some versions GPUs and MIG devices by UUID in
CUDA_VISIBLE_DEVICES. The minor number is not the order of the GPUs in NVML or DCGM, so they are matched by UUID.
"""

from __future__ import annotations

import typing as t

HEAD = "# Written by gpufleet.lifecycle (nvidia_dcgm_exporter): what Slurm calls a GPU, and the file of its jobs.\n"


def table(snapshot: t.Mapping[str, t.Any], ids: t.Mapping[str, int]) -> str:
    """Return a line for each name that Slurm may use; a GPU that cannot be joined has none. Empty if none can."""
    lines: t.List[str] = []
    for gpu in snapshot.get("gpus") or []:
        uuid, minor = ((gpu.get(key) or {}).get("value") for key in ("uuid", "minor_number"))
        instances = (gpu.get("mig_instances") or {}).get("value") or []
        if uuid not in ids:
            continue
        lines += ["%s %d.%d" % (one["uuid"], ids[uuid], one["gpu_instance"]) for one in instances if one.get("uuid")]
        if not instances:
            lines.append("%s %d" % (uuid, ids[uuid]))
            lines += ["minor:%d %d" % (minor, ids[uuid])] if minor is not None else []
    return HEAD + "".join(line + "\n" for line in lines) if lines else ""
