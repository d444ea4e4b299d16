# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots of GPUs with and without MIG devices, as gpu_info reads them, and layouts as gpu_mig plans them."""

from __future__ import annotations

BOARD = "NVIDIA H100 80GB HBM3"
H100 = "nvidia_h100_80gb_hbm3"


def _minors():
    """The list of a driver: in this order, for 15 GPU instances of each GPU with 8 compute instances each."""
    number, lines = 3, ["config 1", "monitor 2"]
    for gpu in range(4):
        for instance in range(15):
            for name in ["access"] + ["ci%d/access" % compute for compute in range(8)]:
                if (gpu, instance) != (0, 9) and (gpu, instance, name) != (0, 1, "ci7/access"):
                    lines.append("gpu%d/gi%d/%s %d" % (gpu, instance, name, number))
                number += 1
    return "\n".join(lines) + "\n"


MINORS = _minors()  # without two of its lines


def value(what):
    return {"value": what, "rc": 0}


def missing(rc):
    return {"value": None, "rc": rc, "error": "CODE_%d" % rc}


def whole(index, minor=None):
    return {
        "index": index,
        "uuid": value("GPU-%d" % index),
        "name": value(BOARD),
        "minor_number": value(index if minor is None else minor),
        "mig_mode_current": value(0),
        "mig_instances": value([]),
    }


def one(index, *devices):
    """A GPU in MIG mode. DEVICES: (GPU instance, compute instance, profile)."""
    found = [
        {
            "gpu_instance": instance,
            "compute_instance": compute,
            "uuid": "MIG-%d-%d-%d" % (index, instance, compute),
            "name": "%s MIG %s" % (BOARD, profile),
        }
        for instance, compute, profile in devices
    ]
    return dict(whole(index), mig_mode_current=value(1), mig_instances=value(found))


def snapshot(*gpus):
    return {"status": "ok", "gpus": list(gpus)}


def row(index, devices, before=None):
    """What gpu_mig plans for a GPU. None: not in MIG mode."""
    layouts = [{"enabled": layout is not None, "devices": layout or {}} for layout in (before, devices)]
    return {"gpu": "GPU-%d" % index, "status": "change", "before": layouts[0], "wanted": layouts[1]}
