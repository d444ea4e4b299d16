# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a node is out of service with the work before the drain, and without it: one machine of the lab, from the
report's step times.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.prestage [--archive]

The same upgrade twice, each on a fresh machine: the real packages, the real DKMS, a real reboot. What counts is the
time from the step "stop" to the end of the step "return". The kernel module is compiled, as on the first node of a
fleet; with --archive the controller has it, as for every further node.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.lab import config, demo, drivers, machines
from tests.lab.common import run
from tests.lab.play import play

NODE = "gpu-r1-1"
OUT_OF_SERVICE = demo.OUT_OF_SERVICE


def seconds(step):
    """What a step of the report took."""
    started, finished = (
        datetime.datetime.fromisoformat(step[key].replace("Z", "+00:00")) for key in ("started", "finished")
    )
    return (finished - started).total_seconds()


def times(report):
    """``{step: seconds}`` of the node, for a report of a rollout that ended well."""
    node = report["nodes"][NODE]
    if node["state"] != "done":
        raise SystemExit("%s is %s: %s" % (NODE, node["state"], node["reason"]))
    found = {}
    for step in node["steps"]:
        found[step["name"]] = found.get(step["name"], 0.0) + seconds(step)
    return found


def slot(found):
    """Seconds out of service."""
    return sum(took for name, took in found.items() if name in OUT_OF_SERVICE)


def trees(lab, place, versions):
    """A directory with the archives of the versions, as an artifact directory of a controller has them."""
    place.mkdir()
    for path in Path(lab.trees).iterdir():
        if path.is_file() and any("_%s_" % version in path.name for version in versions):
            shutil.copy(path, place / path.name)  # a link would not be sent
    drivers.record(place)
    return place


def upgrade(lab, prestage, archived, place):
    """The step times of one upgrade of a fresh machine."""
    inventory = config.CHECKOUT / "inventories" / "lab"
    machines.reset(lab, [NODE])
    extra = {
        "gpufleet_artifact_dir": str(place / "artifacts"),
        "nvidia_driver_tree_dir": str(trees(lab, place / "trees", archived)),
    }
    limit = "%s,localhost" % NODE
    for playbook, more in (
        ("bringup", {"nvidia_driver_version": demo.OLD}),
        (
            "upgrade",
            {
                "rollout_version": demo.NEW,
                "gpu_node_upgrade_prestage": prestage,
                "rollout_report_dir": str(place / "report"),
            },
        ),
    ):
        outcome = play("gpufleet.lifecycle." + playbook, inventory, dict(extra, **more), limit=limit)
        if outcome.rc != 0:
            raise SystemExit("%s failed:\n%s" % (playbook, outcome.tail()))
    return times(json.loads((place / "report" / "report.json").read_text(encoding="utf-8")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--archive", action="store_true", help="the controller has the compiled module, as for every node but the first"
    )
    arguments = parser.parse_args()
    run(str(config.CHECKOUT / "tests/tools/collections.sh"))
    lab = config.current()
    drivers.ensure(lab, [demo.OLD, demo.NEW])
    archived = [demo.OLD] + ([demo.NEW] if arguments.archive else [])
    found = {}
    try:
        machines.up(lab, config.CHECKOUT / "inventories" / "lab", [NODE])
        for prestage in (True, False):
            with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as name:
                found[prestage] = upgrade(lab, prestage, archived, Path(name))
    finally:
        machines.down(lab)
    print(
        "driver %s -> %s on %s, seconds of each step (report.json); the module %s:"
        % (demo.OLD, demo.NEW, NODE, "is on the controller" if arguments.archive else "is compiled")
    )
    print("  %-12s %10s %10s" % ("step", "prestage", "without"))
    for step in sorted(set(found[True]) | set(found[False]), key=(list(found[True]) + list(found[False])).index):
        print(
            "  %-12s %10s %10s"
            % (step, *("%.1f" % found[way][step] if step in found[way] else "-" for way in (True, False)))
        )
    with_it, without = slot(found[True]), slot(found[False])
    print(
        "out of service: %.1f s with prestage, %.1f s without, %.2f times as long"
        % (with_it, without, without / with_it)
    )
    kept = with_it < without
    print("limit kept" if kept else "LIMIT NOT KEPT: the work before the drain saved nothing")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
