# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How close a rollout comes to the shortest time that its slots allow, and how that compares with waves.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rollout [--nodes 100] [--down 10] [--scale 4] [--seed 0]
        [--model-only] [--tasks]

First a model: the gate, the reducer and the plan as they are, driven by a clock that is only a number, for up to 10,000
nodes. Then the real playbook over nodes that answer after a SCALEth of the time, three times at once: as it is, with
serial and free, and with serial and linear. All three meet the same machine. Exits with 1 if a limit is not kept.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
EFFICIENCY, FASTER = 0.90, 1.5
# Nodes, nodes down at a time, draws, whether the efficiency is judged. With hundreds down the last straggler decides:
# no order that does not know it in advance can do better than the list itself ("at best").
SIZES = (
    (100, 10, 20, True),
    (1000, 10, 5, True),
    (1000, 50, 5, True),
    (1000, 100, 5, False),
    (10000, 100, 2, True),
    (10000, 500, 1, False),
)


def modelled(model, times):
    """(lines, whether every limit is kept)."""
    lines = [
        (
            "model: nodes/down  draws  lower bound    window  efficiency  at best  serial+free  "
            "serial+linear  CPU of the gate"
        )
    ]
    kept = True
    for number, down, draws, judged in SIZES:
        rows = []
        began = time.process_time()
        for seed in range(draws):
            drawn = times.typical(number, seed)
            one = model.Model(drawn, {"max_down": down, "failure_budget": 1})
            wall = one.run()
            if one.states() != {"done": number} or one.most_down > down:
                raise SystemExit(
                    "the model of %d nodes ended with %r and %d down at a time" % (number, one.states(), one.most_down)
                )
            bound = times.lower_bound(drawn, down)
            rows.append(
                (
                    bound,
                    wall,
                    bound / wall,
                    bound / times.window(drawn, down),
                    times.waves(drawn, down) / wall,
                    times.linear(drawn, down) / wall,
                )
            )
        bound, wall, efficiency, best, free, linear = (statistics.mean(column) for column in zip(*rows))
        good = efficiency >= (EFFICIENCY if judged else best - 0.01)
        kept = kept and good
        lines.append(
            "%18s  %5d  %9.2f h  %6.2f h  %10.3f  %7.3f  %10.2fx  %12.2fx  %12.1f s%s"
            % (
                "%d/%d" % (number, down),
                draws,
                bound / 3600,
                wall / 3600,
                efficiency,
                best,
                free,
                linear,
                (time.process_time() - began) / draws,
                "" if good else "   LIMIT NOT KEPT",
            )
        )
    return lines, kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=100, help="nodes of the real playbook (default %(default)s)")
    parser.add_argument("--down", type=int, default=10, help="nodes down at a time (default %(default)s)")
    parser.add_argument(
        "--scale", type=float, default=4.0, help="what the minutes of a real node are divided by (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw of the times (default %(default)s)")
    parser.add_argument("--ways", default="window,serial and free,serial and linear", help="which of them to run")
    parser.add_argument("--model-only", action="store_true", help="leave the real playbook out")
    parser.add_argument("--real-only", action="store_true", help="leave the model out")
    parser.add_argument("--tasks", action="store_true", help="list the host-tasks of one node")
    options = parser.parse_args()
    if options.nodes < 2 or not 1 <= options.down <= options.nodes:
        parser.error("expected at least 2 nodes, and no more of them down than there are")
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet, model, times
    from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks

    kept = True
    if not options.real_only:
        lines, kept = modelled(model, times)
        print("\n".join(lines), flush=True)
    if not options.model_only:
        lines, good = real(fleet, times, host_tasks, options)
        print("\n".join(lines))
        kept = kept and good
    print("limits kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


def real(fleet, times, host_tasks, options):
    """(lines, whether every limit is kept) of the real playbook."""
    drawn = times.typical(options.nodes, options.seed)
    scaled = [[second / options.scale for second in steps] for steps in drawn]
    bound = times.lower_bound(scaled, options.down)
    ways = [way for way in fleet.WAYS if way in options.ways.split(",")]
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-", ignore_cleanup_errors=True) as name:
        runs = []
        load, began = os.getloadavg()[0], time.monotonic()
        try:
            for way in ways:
                place = pathlib.Path(name) / way.replace(" ", "-")
                place.mkdir()
                runs.append(fleet.Run(place, way, drawn, options.down, options.scale, options.down))
                runs[-1].start()
            for run in runs:
                run.wait(900 + 12 * times.linear(scaled, options.down))
        finally:
            for run in runs:
                run.stop()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        elapsed = time.monotonic() - began
        walls = {run.way: run.wall_s() for run in runs}
        down = max(run.most_down() for run in runs)
        done = all(node.state == "done" for run in runs for node in run.view().nodes.list_all())
        counted = runs[0].host_tasks()
    names = runs[0].names
    listed = host_tasks.preflight(counted, names) + host_tasks.way(counted, names)
    cores = len(os.sched_getaffinity(0))
    busy = (spent.ru_utime + spent.ru_stime) / elapsed
    lines = [
        "real playbook: %d nodes, %d down at a time, step times 1/%g, draw %d; lower bound %.1f s"
        % (options.nodes, options.down, options.scale, options.seed, bound)
    ]
    ideal = {"window": times.window, "serial and free": times.waves, "serial and linear": times.linear}
    for way in ways:
        lines.append(
            "  %-18s %8.1f s   efficiency %.3f (at best %.3f)   %.2f times the window's time"
            % (
                way,
                walls[way],
                bound / walls[way],
                bound / ideal[way](scaled, options.down),
                walls[way] / walls[ways[0]],
            )
        )
    lines += [
        "  controller: %.2f of %d cores in use by the %d runs, load of the machine before them %.1f%s"
        % (
            busy,
            cores,
            len(ways),
            load,
            "" if busy < cores * 0.7 else "; it held the nodes up: take a smaller --scale",
        ),
        "  most nodes down at a time: %d (limit %d); all done: %s" % (down, options.down, "yes" if done else "NO"),
        "  host-tasks of a node: %d (limit %d), of which in the preflight: %d (limit %d); once for all: %d"
        % (
            len(listed),
            host_tasks.LIMIT,
            len(host_tasks.preflight(counted, names)),
            host_tasks.PREFLIGHT,
            len(host_tasks.once_for_all(counted, names)),
        ),
    ]
    if options.tasks:
        lines += ["    %2d. %s" % (number, task) for number, task in enumerate(listed, start=1)]
    kept = done and down <= options.down and not host_tasks.too_many(counted, names)
    if "window" in ways and options.nodes >= 10 * options.down:
        kept = kept and bound / walls["window"] >= EFFICIENCY
    if "window" in ways and "serial and free" in ways and (options.nodes, options.down) == (100, 10):
        kept = kept and walls["serial and free"] / walls["window"] >= FASTER
    return lines, kept


if __name__ == "__main__":
    sys.exit(main())
