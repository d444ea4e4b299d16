# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes that wait cost the database of the ledger: the time of one call of the gate with 1,000 and 10,000 planned
nodes, then 2,000 waiting nodes in ten members of one rollout in PostgreSQL.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
CALL_MS, TRANSACTIONS, CONNECTIONS = 10, 200, 50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--every", type=float, default=3, help="seconds between two slots that become free")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import waiters
    from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest

    least = waiters.requests.LONGEST_S
    if arguments.seconds <= least:  # transactions are counted from then on
        parser.error("--seconds is %g; expected more than %g" % (arguments.seconds, least))
    place, bad = tempfile.mkdtemp(prefix="gpufleet-load-"), []
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place)
        server = stack.enter_context(contextlib.contextmanager(conftest.postgresql.__wrapped__)())
        for count in (1000, 10000):
            for kind in ("sqlite", "postgresql"):
                base = os.path.join(place, "%s%d" % (kind, count))
                url = "" if kind == "sqlite" else server.database("calls%d" % count)
                found = waiters.calls(base, url, count, arguments.rounds)
                print(
                    "%-10s %6d planned: ask and go %.1f ms, ask and wait %.1f ms, look and wait %.1f ms"
                    % (kind, count, found["go"], found["wait"], found["look"]),
                    flush=True,
                )
                bad += ["%s with %d: %s" % (kind, count, what) for what in found if found[what] > CALL_MS]
        found = waiters.load(
            server,
            os.path.join(place, "load"),
            server.database("load"),
            arguments.waiting,
            arguments.members,
            arguments.processes,
            arguments.seconds,
            arguments.every,
        )
    taken = sorted(found["taken"])
    print(
        "%d waiting nodes in %d members: %.0f questions and %.0f transactions a second, at most %d connections, "
        "at most %.1f s late"
        % (
            arguments.waiting,
            arguments.members,
            found["asked"],
            found["transactions"],
            found["connections"],
            found["late"],
        )
    )
    print(
        "%d slots became free, %d were taken, after %.1f s in the median and %.1f s at most"
        % (found["freed"], len(taken), statistics.median(taken) if taken else 0, taken[-1] if taken else 0)
    )
    for name, value, most in (
        ("transactions a second", found["transactions"], TRANSACTIONS),
        ("connections", found["connections"], CONNECTIONS),
    ):
        bad += ["%.1f %s, more than %d" % (value, name, most)] if value > most else []
    for line in bad:
        print("not kept: " + line)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
