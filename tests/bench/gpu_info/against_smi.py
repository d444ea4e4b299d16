# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the NVML part of gpu_info takes on this machine's GPUs, against `nvidia-smi -q -x`.

    python3 -m tests.bench.gpu_info.against_smi [--rounds N] [--simulated]

For a machine with NVIDIA GPUs in persistence mode, nvidia-smi and nvidia-ml-py; it only reads. Exits with 1 if the
limit is not kept and with 2 if there is nothing to measure.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT = 0.5
READ = """
import json, sys
sys.path.insert(0, %r)
from _nvml import snapshot
taken = snapshot.take(deadline_s=120)
modes = [gpu["persistence_mode"]["value"] for gpu in taken["gpus"]]
print(json.dumps(dict((key, taken[key]) for key in ("status", "message", "simulated", \
"duration_s")) | {"modes": modes}))
""" % (str(ROOT / "plugins" / "module_utils"),)


def one_reading():
    done = subprocess.run(
        [sys.executable, "-c", READ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=180, check=True
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
    first = one_reading()
    if first["status"] != "ok" or not first["modes"]:
        print("nothing to measure: %s" % (first["message"] or "NVML shows no GPU",))
        return 2
    if first["simulated"] and not options.simulated:
        print("nothing to measure: this is the simulator and no GPU")
        return 2
    one_smi()
    ours, theirs = [], []
    for _turn in range(options.rounds):
        ours.append(one_reading()["duration_s"])
        theirs.append(one_smi())
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(
        "GPUs %d, persistence mode %s%s"
        % (len(first["modes"]), sorted(set(first["modes"])), ", SIMULATED" if first["simulated"] else "")
    )
    for name, times in (("gpu_info, NVML part", ours), ("nvidia-smi -q -x", theirs)):
        print(
            "%-20s median %8.1f ms   (%.1f to %.1f)"
            % (name, statistics.median(times) * 1000, min(times) * 1000, max(times) * 1000)
        )
    print("ratio %.2f (limit %.1f)" % (ratio, LIMIT))
    kept = ratio <= LIMIT
    print("limit kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
