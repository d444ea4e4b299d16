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
