# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long several controllers take for one rollout, against one controller with the same slots.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rollout.members [--nodes 200] [--members 4] [--down 10]
        [--rack 20] [--rack-cap 2] [--scale 8] [--failing 0]

The real playbooks over stand-in nodes, both rollouts at the same time. The nodes are cut as AWX cuts its slices: every
fourth by name, so that every member has nodes of every rack. What was out of service when is read from the nodes' own
journals. With --outage the ledger's server is stopped for so many seconds on the way. With --failing so many nodes of
the first member fail, and only the several controllers run: the rollout has to stop at its failure budget of one.
Exits with 1 if a limit is not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
LONGER = 1.1  # times one controller's wall time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=200, help="nodes of the rollout (default %(default)s)")
    parser.add_argument("--members", type=int, default=4, help="controllers of it (default %(default)s)")
    parser.add_argument("--down", type=int, default=10, help="nodes down at a time (default %(default)s)")
    parser.add_argument("--rack", type=int, default=20, help="nodes in a rack (default %(default)s)")
    parser.add_argument("--rack-cap", type=int, default=2, help="nodes down in a rack (default %(default)s)")
    parser.add_argument(
        "--scale", type=float, default=8.0, help="what the minutes of a real node are divided by (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw of the times (default %(default)s)")
    parser.add_argument(
        "--outage", type=float, default=0.0, help="seconds without PostgreSQL when a quarter of the nodes is done"
    )
    parser.add_argument("--failing", type=int, default=0, help="nodes of the first member that fail")
    options = parser.parse_args()
    if not 1 <= options.failing + 1 <= options.nodes // options.members:
        parser.error("expected fewer failing nodes than a member has")
    return options


def main():
    options = arguments()
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import jobs, times
    from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest

    drawn = times.typical(options.nodes, options.seed)
    with contextlib.ExitStack() as stack:
        place = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="gpufleet-bench-", ignore_cleanup_errors=True))
        )
        server = stack.enter_context(contextlib.contextmanager(conftest.postgresql.__wrapped__)())
        several = jobs.Several(place, drawn, options, server.database("members"))
        if options.failing:
            lines, kept = failing(several, options, stack)
        else:
            alone = jobs.Alone(place, drawn, options, server.database("alone"))
            lines, kept = together(alone, several, times, drawn, options, server, stack)
    print("\n".join(lines))
    print("limits kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


def limits(one, name, options):
    """(line, whether no more nodes were out of service than may be) of a rollout, by its nodes' journals."""
    most, rack = one.most_out()
    line = "  %-22s %3d nodes out of service at once (limit %d), %d of one rack (limit %d), ledger: %d down" % (
        name,
        most,
        options.down,
        rack,
        options.rack_cap,
        one.most_down(),
    )
    return line, most <= options.down and rack <= options.rack_cap and one.most_down() <= options.down


def together(alone, several, times, drawn, options, server, stack):
    """(lines, whether every limit is kept) of both rollouts side by side."""
    scaled = [[second / options.scale for second in steps] for steps in drawn]
    bound = times.lower_bound(scaled, options.down)
    stack.callback(alone.stop)
    stack.callback(several.stop)
    began = time.monotonic()
    several.plan()
    planned = time.monotonic() - began
    alone.start()
    several.start()
    if options.outage:
        outage(several, server, options)
    alone.wait(1200 + 6 * bound)
    several.wait(1200 + 6 * bound)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    elapsed = time.monotonic() - began
    walls = alone.wall_s(), several.wall_s()
    cores = len(os.sched_getaffinity(0))
    busy = (spent.ru_utime + spent.ru_stime) / elapsed
    lines = [
        "%d nodes, %d down at a time, racks of %d with %d down, step times 1/%g, draw %d; lower bound %.1f s"
        % (options.nodes, options.down, options.rack, options.rack_cap, options.scale, options.seed, bound),
        "  one controller         %8.1f s   efficiency %.3f" % (walls[0], bound / walls[0]),
        "  %d controllers          %8.1f s   efficiency %.3f   %.3f times one controller's (limit %g); plan %.1f s"
        % (options.members, walls[1], bound / walls[1], walls[1] / walls[0], LONGER, planned),
        "  %.2f of %d cores in use by both%s"
        % (busy, cores, "" if busy < cores * 0.7 else "; they held the nodes up: take a smaller --scale"),
    ]
    kept = walls[1] <= LONGER * walls[0]
    for name, one in (("one controller:", alone), ("%d controllers:" % options.members, several)):
        line, good = limits(one, name, options)
        states = one.states()
        lines.append(line)
        lines.append("  %-22s %s" % ("", states))
        kept = kept and good and states == {"done": options.nodes} and one.once()
    return lines, kept


def outage(several, server, options):
    """Stop the server for a while when a quarter of the nodes is done."""
    while several.states().get("done", 0) < options.nodes / 4 and several.running():
        time.sleep(2)
    server.stop()
    time.sleep(options.outage)
    server.start()


def failing(several, options, stack):
    """(lines, whether every limit is kept) when nodes of one member fail."""
    stack.callback(several.stop)
    several.plan()
    several.start()
    codes = several.wait(3600, good=False)
    line, good = limits(several, "%d controllers:" % options.members, options)
    states = several.states()
    went = len(several.run.out())
    lines = [
        "%d of %d nodes fail, all of the first of %d members; failure budget 1"
        % (options.failing, options.nodes, options.members),
        "  states %s; %d nodes went out of service; the members ended with %s" % (states, went, codes),
        line,
    ]
    kept = good and states.get("pending", 0) > 0 and states.get("down", 0) == 0 and all(code == 2 for code in codes)
    return lines, kept and 1 <= states.get("rolled_back", 0) <= options.down


if __name__ == "__main__":
    sys.exit(main())
