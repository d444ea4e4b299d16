# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the NVML part of gpu_info takes on this machine's GPUs, against `nvidia-smi -q -x`.

    python3 -m tests.bench.gpu_info.against_smi [--rounds N] [--simulated]

For a machine with NVIDIA GPUs in persistence mode, nvidia-smi and nvidia-ml-py; it only reads. The code comes from an
archive whose compiled form was kept by an earlier task, as on a node. Exits with 1 if the limit is not kept and with 2
if there is nothing to measure.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
UTILS = ROOT / "plugins"
# What is gathered, and how long it may take, in times of nvidia-smi, which reads only the version of the InfoROM.
READINGS = (("all", [], None), ("all but the InfoROM", ["!inforom"], 1.0))
READ = """
import json, sys
sys.path.insert(0, %r)
from _nvml import binding, snapshot
place, gather = sys.argv[1], json.loads(sys.argv[2])
nvml = binding.Binding(place)
taken = snapshot.take(120, nvml.stuck_file, gather, nvml.load)
modes = [gpu["persistence_mode"]["value"] for gpu in taken["gpus"]]
print(json.dumps(dict((key, taken[key]) for key in ("status", "message", "simulated", \
"duration_s")) | {"modes": modes}))
""" % (str(UTILS),)


def one_reading(place, gather):
    done = subprocess.run(
        [sys.executable, "-c", READ, place, json.dumps(gather)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=180,
        check=True,
    )
    return json.loads(done.stdout)


def one_smi():
    begun = time.monotonic()
    subprocess.run(
        ["nvidia-smi", "-q", "-x"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=180, check=True
    )
    return time.monotonic() - begun


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--rounds", type=int, default=9, help="turns, after one that is not counted (default %(default)s)"
    )
    parser.add_argument(
        "--simulated", action="store_true", help="measure the simulator too, which says nothing about GPUs"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as place:
        return measure(place, options)


def measure(place, options):
    first = one_reading(place, [])
    if first["status"] != "ok" or not first["modes"]:
        print("nothing to measure: %s" % (first["message"] or "NVML shows no GPU",))
        return 2
    if first["simulated"] and not options.simulated:
        print("nothing to measure: this is the simulator and no GPU")
        return 2
    one_smi()
    ours, theirs = {name: [] for name, gather, limit in READINGS}, []
    for _turn in range(options.rounds):
        for name, gather, _limit in READINGS:
            ours[name].append(one_reading(place, gather)["duration_s"])
        theirs.append(one_smi())
    print(
        "GPUs %d, persistence mode %s%s"
        % (len(first["modes"]), sorted(set(first["modes"])), ", SIMULATED" if first["simulated"] else "")
    )
    kept = True
    print("%-32s median %8.1f ms   (%.1f to %.1f)" % ("nvidia-smi -q -x", *figures(theirs)))
    for name, _gather, limit in READINGS:
        ratio = statistics.median(ours[name]) / statistics.median(theirs)
        print(
            "%-32s median %8.1f ms   (%.1f to %.1f)   ratio %.2f%s"
            % ("gpu_info, " + name, *figures(ours[name]), ratio, "" if limit is None else " (limit %.1f)" % (limit,))
        )
        kept = kept and (limit is None or ratio <= limit)
    print("limit kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


def figures(times):
    """Median, least and most of TIMES, in ms."""
    return tuple(1000 * part for part in (statistics.median(times), min(times), max(times)))


if __name__ == "__main__":
    sys.exit(main())
