# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of `gpufleet-node textfile` costs a node with eight simulated GPUs, in CPU of the program and all it
starts.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.textfile [--rounds N] [--python PATH] [--layout]

NVML is the simulator's; all else is read of the machine that this runs on. The first run, which asks the package
manager, is told apart. Exits with 1 if the limit is not kept.
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

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT_S = 0.5
SERIES_LIMIT = 300
GPUS = 8
OFF = {
    "config": {"version": "v1", "mig-configs": {"off": [{"devices": "all", "mig-enabled": False}]}},
    "config_name": "off",
}


def cpu() -> float:
    """CPU seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list, environment: dict) -> float:
    """CPU seconds of a run."""
    before = cpu()
    subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)
    return cpu() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--python", default=sys.executable, help="the Python of the node")
    parser.add_argument(
        "--layout", action="store_true", help="the node wants a MIG layout, so that it is read and compared"
    )
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _node_program
    from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        node = simnode.Node(place / "root", simnode.built(), place / "templates", "h100-sxm", GPUS, "node-1").booted()
        environment = dict(node.environment)
        del environment["PYTHONPYCACHEPREFIX"]  # a node has none
        (place / "program.pyz").write_bytes(_node_program.build().data)
        (place / "out").mkdir()
        if options.layout:
            (place / "mig.json").write_text(json.dumps(OFF))
        paths = {"directory": "out", "state-dir": "state", "lock-file": "lock", "mig-config": "mig.json"}
        command = [options.python, "-I", str(place / "program.pyz"), "textfile"]
        for option, path in paths.items():
            command += ["--" + option, str(place / path)]
        first = run(command, environment)
        rounds = [run(command, environment) for dummy in range(options.rounds)]
        bare = [run([options.python, "-I", "-c", ""], environment) for dummy in range(options.rounds)]
        text = (place / "out/gpufleet.prom").read_text()
    usual, series = statistics.median(rounds), len([line for line in text.splitlines() if not line.startswith("#")])
    print("first run, with the package manager: %.3f s of CPU" % first)
    print(
        "a run: %.3f s of CPU (median of %d; %.3f to %.3f), limit %.1f s"
        % (usual, len(rounds), min(rounds), max(rounds), LIMIT_S)
    )
    print("of it Python itself: %.3f s" % statistics.median(bare))
    print("series: %d, limit %d" % (series, SERIES_LIMIT))
    return 0 if usual <= LIMIT_S and series <= SERIES_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
