# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boards as NVML tells their MIG profiles, for the tests of the deciders."""

from __future__ import annotations

import json
import pathlib
import re

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes

FIXTURE = pathlib.Path(__file__).resolve().parents[3] / "sim" / "fixtures" / "mig.json"
PROFILES = pathlib.Path(__file__).resolve().parents[4] / "sim" / "profiles"
NAMES = {
    "19": "1g.5gb",
    "20": "1g.5gb+me",
    "15": "1g.10gb",
    "14": "2g.10gb",
    "9": "3g.20gb",
    "5": "4g.20gb",
    "0": "7g.40gb",
}


def profile(ident, name, count, memory_mib, placements, **engines):
    return {
        "id": ident,
        "name": name,
        "slices": int(name[0]),
        "count": count,
        "memory_mib": memory_mib,
        "multiprocessors": 14 * int(name[0]),
        "engines": engines,
        "placements": placements,
    }


def a100():
    """A100-SXM4-40GB: NVIDIA's MIG user guide, as the simulator's fixture keeps it."""
    found = json.loads(FIXTURE.read_text())["a100-sxm"]["profiles"]
    return [
        profile(
            int(ident),
            NAMES[ident],
            row["count"],
            row["mib"],
            row["placements"],
            decoder=row["dec"],
            jpeg=row["jpeg"],
            ofa=row["ofa"],
            copy=row["ce"],
        )
        for ident, row in found.items()
    ]


def a30():
    """A30-24GB: four compute and four memory slices (NVIDIA's MIG user guide, supported profiles)."""
    return [
        profile(14, "1g.6gb", 4, 5952, [[0, 1], [1, 1], [2, 1], [3, 1]], decoder=0, jpeg=0, ofa=0, copy=1),
        profile(21, "1g.6gb+me", 1, 5952, [[0, 1], [1, 1], [2, 1], [3, 1]], decoder=1, jpeg=1, ofa=1, copy=1),
        profile(5, "2g.12gb", 2, 12032, [[0, 2], [2, 2]], decoder=2, jpeg=0, ofa=0, copy=2),
        profile(0, "4g.24gb", 1, 24096, [[0, 4]], decoder=4, jpeg=1, ofa=1, copy=4),
    ]


def simulated(model):
    """A board of the simulator: the rows mig_profile_ID of its profile (tests/sim/profiles)."""
    text = (PROFILES / (model + ".ini")).read_text(encoding="utf-8")
    found = []
    for ident, row in re.findall(r"^mig_profile_(\d+) = (.*)$", text, re.MULTILINE):
        dummy, slices, size, count, starts, mib, dummy, copy, decoder, encoder, jpeg, ofa, name = row.split()
        places = [[int(start), int(size)] for start in starts.split(",")]
        engines = {"copy": copy, "decoder": decoder, "encoder": encoder, "jpeg": jpeg, "ofa": ofa}
        made = profile(
            int(ident), name, int(count), int(mib), places, **{key: int(value) for key, value in engines.items()}
        )
        assert made["slices"] == int(slices), row
        found.append(made)
    return found


def gpu(index=0, profiles=None, mode=1, pending=None, instances=(), processes=(), **values):
    """A GPU as a snapshot has it, with its MIG layout.

    INSTANCES are (profile id, start, size, compute slices), numbered from 1.
    """
    found = {
        "index": index,
        "uuid": codes.value("GPU-%d" % index),
        "name": codes.value("NVIDIA A100-SXM4-40GB"),
        "pci_bus_id": codes.value("00000000:%02x:00.0" % (index + 1)),
        "pci_device_id": codes.value("10de:20b0"),
        "pci_subsystem_id": codes.value("10de:134f"),
        "mig_mode_current": codes.value(mode),
        "mig_mode_pending": codes.value(mode if pending is None else pending),
        "mig_layout": codes.value(
            {
                "profiles": a100() if profiles is None else profiles,
                "instances": [
                    {
                        "id": number,
                        "profile": ident,
                        "start": start,
                        "size": size,
                        "compute": [
                            {"id": place, "slices": slices, "start": place} for place, slices in enumerate(compute)
                        ],
                    }
                    for number, (ident, start, size, compute) in enumerate(instances, 1)
                ],
                "processes": [
                    {"pid": pid, "gpu_instance": instance, "compute_instance": compute}
                    for pid, instance, compute in processes
                ],
            }
        ),
    }
    found.update(values)
    return found


# The layouts of one profile, and the balanced one, that nvidia-mig-parted 0.15.0 ships for these boards.
SHIPPED = {
    "a100": "1g.5gb*7 1g.5gb+me*1 1g.10gb*4 2g.10gb*3 3g.20gb*2 4g.20gb*1 7g.40gb*1 1g.5gb*2,2g.10gb*1,3g.20gb*1",
    "a100-80-sxm": "1g.10gb*7 1g.10gb+me*1 1g.20gb*4 2g.20gb*3 3g.40gb*2 4g.40gb*1 7g.80gb*1"
    " 1g.10gb*2,2g.20gb*1,3g.40gb*1",
    "h100-sxm": "1g.10gb*7 1g.10gb+me*1 1g.20gb*4 2g.20gb*3 3g.40gb*2 4g.40gb*1 7g.80gb*1"
    " 1g.10gb*2,2g.20gb*1,3g.40gb*1",
    "h200": "1g.18gb*7 1g.18gb+me*1 1g.35gb*4 2g.35gb*3 3g.71gb*2 4g.71gb*1 7g.141gb*1 1g.18gb*2,2g.35gb*1,3g.71gb*1",
    "b200": "1g.23gb*7 1g.23gb+me*1 1g.45gb*4 2g.45gb*3 3g.90gb*2 4g.90gb*1 7g.180gb*1 1g.23gb*2,2g.45gb*1,3g.90gb*1",
    "a30": "1g.6gb*4 1g.6gb+me*1 2g.12gb*2 4g.24gb*1 1g.6gb*2,2g.12gb*1",
    "rtx-pro-6000": "1g.24gb*4 1g.24gb+me*1 1g.24gb+gfx*4 1g.24gb+me.all*1 1g.24gb-me*4 2g.48gb*2 2g.48gb+gfx*2"
    " 2g.48gb+me.all*1 2g.48gb-me*2 4g.96gb*1 4g.96gb+gfx*1 1g.24gb*2,2g.48gb*1",
    "rtx-pro-5000": "1g.24gb*2 1g.24gb-me*2 1g.24gb*1,1g.24gb-me*1 2g.48gb*1",
    "thor": "1g.0gb*1 2g.0gb*1,1g.0gb+me*1 3g.0gb*1",
}


def shipped(board):
    """These layouts: the number of devices by profile."""
    layouts = [[part.split("*") for part in layout.split(",")] for layout in SHIPPED[board].split()]
    return [{name: int(count) for name, count in layout} for layout in layouts]
