# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the boot unit of a MIG layout costs a node with eight simulated GPUs: `gpufleet-node mig apply`, as it is there.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.boot [--rounds N]

Each round is a boot: no GPU has MIG on, and the program makes seven slices on each. Then it runs again, with nothing
left to do. Counted are CPU seconds of the process, and how many bare interpreters cost as much in the same run, since a
machine that is busy with other things does less in each. Exits with 1 if the limit is not kept.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Bare interpreters of the same run: 2 s on a machine on which one takes 16 ms.
LIMIT = 125
GPUS, SLICES = 8, 7
LAYOUT = {
    "version": "v1",
    "mig-configs": {"seven": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": SLICES}}]},
}


def measure(command: list[str], environment: dict[str, str]) -> float:
    """Return the CPU seconds of a command; refuse one that fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def count_devices(node) -> int:
    """Return the number of MIG devices of all GPUs, as NVML lists them."""
    return node.ask(
        "sum(value(n.nvmlDeviceGetMigDeviceHandleByIndex, handle(gpu), one).__class__ is not str"
        " for gpu in range(%d) for one in range(%d))" % (GPUS, SLICES)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _node_program
    from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

    costs: dict[str, list[float]] = {"interpreter": [], "apply": [], "again": []}
    with tempfile.TemporaryDirectory() as base:
        place = pathlib.Path(base)
        (place / "templates").mkdir()
        program = place / "gpufleet-node.pyz"
        program.write_bytes(_node_program.build().data)
        (place / "mig.json").write_text(json.dumps({"config": LAYOUT, "config_name": "seven"}))
        apply = [sys.executable, "-I", str(program), "mig", "apply"]
        apply += ["--config", str(place / "mig.json"), "--lock-file", str(place / "lock")]
        for number in range(rounds):
            node = simnode.Node(
                place / ("node%d" % number), simnode.built(), place / "templates", "h100-sxm", GPUS, "bench"
            ).booted()
            costs["interpreter"].append(measure([sys.executable, "-I", "-c", ""], node.environment))
            for name in ("apply", "again"):
                costs[name].append(measure(apply, node.environment))
            if count_devices(node) != GPUS * SLICES:
                sys.exit("NVML lists %d MIG devices; expected %d" % (count_devices(node), GPUS * SLICES))
            node.close()
    median = {name: statistics.median(found) for name, found in costs.items()}
    for name, what in (("interpreter", "a bare interpreter"), ("apply", "mig apply"), ("again", "with nothing to do")):
        times = median[name] / median["interpreter"]
        print("%-20s %6.2f CPU seconds (median of %d), %5.1f interpreters" % (what, median[name], rounds, times))
    print("mig apply: at most %d interpreters" % LIMIT)
    sys.exit(0 if median["apply"] <= LIMIT * median["interpreter"] else 1)


if __name__ == "__main__":
    main()
