# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill the controller of a rollout again and again, at random moments, and compare what the nodes say of it with what
the rollout says.

python3 -m tests.tools.kills [--rollouts 10] [--kills 6] [--nodes 20] [--down 3] [--ledger sqlite|postgresql|both]
[--seed N]

The playbook, the role, the actions and the ledger are the real ones; nodes are the stubs of tests/unit/playbooks, each
with a journal of its own. SIGKILL goes to the playbook's process alone, to its process group, or to every process of it
and every module that runs on a node. The next controller starts at once. At the end of each rollout, by the journals of
the nodes:

- never more nodes were out of service at a time than allowed;
- no version was installed on a node that had it;
- every node that ended done, skipped or rolled_back passed its health checks after its last change, with the driver
  that this says;
- a node that is sick with the new driver is not done.

The exit status is 0 only when all of it held. The environment that runs this decides on the ansible-core:
tests/tools/with.sh core218 python3 -m ...
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLD, NEW = "1.0.1", "2.0.1"
WAYS = ("process", "group", "everything")
# Runs after the last kill until every node has ended; one that was away when a run began is taken up by the next.
RUNS = 6
# What is so on some nodes: sick with the new driver, or not to be installed.
TROUBLE = {3: {"sick_with": [NEW]}, 11: {"cannot_install": [NEW]}}


def journal(path):
    """The lines of a node's journal, in order of time: (time, services, driver loaded, driver on disk, boots, what was
    done).
    """
    with contextlib.suppress(FileNotFoundError):
        return sorted(json.loads(line) for line in (path / "journal").read_text().splitlines())
    return []


def out_of_service(lines, until):
    """(from, to) of each time in which none of the node's services ran."""
    spans, since = [], None
    for line in lines:
        if not line[1] and since is None:
            since = line[0]
        if line[1] and since is not None:
            spans.append((since, line[0]))
            since = None
    return spans + ([(since, until)] if since is not None else [])


def most_at_once(spans):
    """How many of the spans there were at a time, at most. One that ends when another begins is before it."""
    count = most = 0
    for dummy, step in sorted([(begin, 1) for begin, end in spans] + [(end, -1) for begin, end in spans]):
        count += step
        most = max(most, count)
    return most


def installed_twice(lines):
    """Versions that were installed where they were on disk already."""
    done = [line[5].split()[1] for line in lines if line[5].startswith("installed ")]
    return [version for before, version in zip(done, done[1:]) if before == version]


def proven(lines, version):
    """Whether the last look after the last change passed, with this driver loaded."""
    changes = [
        number
        for number, line in enumerate(lines)
        if line[5].startswith(("installed ", "reboot into ", "failed to install "))
    ]
    looks = [line for line in lines[changes[-1] + 1 if changes else 0 :] if line[5].startswith("health ")]
    return bool(looks) and looks[-1][5].endswith(" pass") and looks[-1][2] == version


def wrong(fleet, states, down, until):
    """What the journals of the nodes say against the states that the rollout ended with."""
    lines = {name: journal(fleet.nodes / name) for name in fleet.names}
    spans = [span for name in fleet.names for span in out_of_service(lines[name], until)]
    found = (
        ["%d nodes were out of service at a time, at most %d may be" % (most_at_once(spans), down)]
        if most_at_once(spans) > down
        else []
    )
    for number, name in enumerate(fleet.names):
        state, expected = states.get(name), {"done": NEW, "skipped": NEW, "rolled_back": OLD}
        found += [
            "%s: %s was installed although it was there" % (name, version) for version in installed_twice(lines[name])
        ]
        if number in TROUBLE and state == "done":
            found.append("%s is done, and cannot run %s" % (name, NEW))
        if state not in ("done", "skipped", "rolled_back", "quarantined", "failed"):
            found.append("%s ended as %s" % (name, state))
        if state in expected and not proven(lines[name], expected[state]):
            found.append("%s is %s, and was not proven after its last change" % (name, state))
    return found


def kill(fleet, process, way):
    """SIGKILL; what a dead playbook leaves on its own goes on, except where everything is killed."""
    if way == "process":
        process.kill()
    elif way == "group":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        for pid in [process.pid] + fleet.controllers() + fleet.at_work():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def one_rollout(fleet, draw, options, url):
    """(lines for people, what was wrong, kills)."""
    for number in range(options.nodes):
        fleet.add(
            "n%02d" % number, slow_s=draw.uniform(0.2, 2), reboot_s=draw.uniform(0.2, 2), **TROUBLE.get(number, {})
        )
    variables = {
        "rollout_max_down": options.down,
        "rollout_failure_budget": 99,
        "rollout_common_cause": 99,
        "gpu_node_upgrade_reconnect_timeout": 30,
    }
    if url:
        variables["rollout_ledger"] = url
    lines, kills, runs, result = [], 0, 0, None
    while runs < options.kills + RUNS:
        process, moment, way = (
            fleet.start("upgrade", **variables),
            draw.uniform(options.earliest, options.latest),
            draw.choice(WAYS),
        )
        runs += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=moment if kills < options.kills else 1800)
        if process.poll() is None:
            before = sorted(
                "%s %s" % (name, state)
                for name, state in fleet.recorded(url).items()
                if state not in ("pending", "done")
            )
            kill(fleet, process, way)
            kills += 1
            lines.append(
                "  kill %d of %s after %4.1f s: %s" % (kills, way, moment, ", ".join(before) or "nothing in flight")
            )
        process.wait()
        process.log.close()
        states = fleet.recorded(url)
        result = process.returncode
        # A run that came to its end before its moment: whatever is left is for the next.
        if (
            result in (0, 2, 4)
            and states
            and not set(states.values()) & {"pending", "draining", "down", "validating", "soaking", "lost"}
        ):
            break
    found = wrong(fleet, states, options.down, time.time())
    if result == 0:
        found.append("the last run ended with 0, although nodes failed")
    spans = [span for name in fleet.names for span in out_of_service(journal(fleet.nodes / name), time.time())]
    counts = {state: list(states.values()).count(state) for state in sorted(set(states.values()))}
    lines.append(
        "  %d runs, %d kills, at most %d of %d out of service at a time; %s"
        % (runs, kills, most_at_once(spans), options.down, counts)
    )
    return lines + ["  WRONG: " + words for words in found], found, kills


def servers(wanted):
    """A PostgreSQL server of its own, started, where one is wanted."""
    if "postgresql" not in wanted:
        return None
    from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest as databases

    binaries = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    server = databases.Server(str(binaries), tempfile.mkdtemp(prefix="gpufleet-pg-"))
    server.start()
    return server


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rollouts", type=int, default=10, help="how many (default %(default)s)")
    parser.add_argument("--kills", type=int, default=6, help="of each rollout, at most (default %(default)s)")
    parser.add_argument("--nodes", type=int, default=20, help="of each rollout (default %(default)s)")
    parser.add_argument(
        "--down", type=int, default=3, help="that may be out of service at a time (default %(default)s)"
    )
    parser.add_argument(
        "--earliest",
        type=float,
        default=2,
        help="seconds after its start in which a run is killed (default %(default)s)",
    )
    parser.add_argument("--latest", type=float, default=30, help="and the latest (default %(default)s)")
    parser.add_argument(
        "--ledger",
        choices=("sqlite", "postgresql", "both"),
        default="both",
        help="both take turns (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the moments, ways and times")
    parser.add_argument(
        "--keep", action="store_true", help="keep the directories of rollouts with which something was wrong"
    )
    options = parser.parse_args()
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, conftest

    draw = random.Random(options.seed)
    wanted = ("sqlite", "postgresql") if options.ledger == "both" else (options.ledger,)
    server = servers(wanted)
    base = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-kills-"))
    collection.make(collection.place(base / "collections"), ["playbooks"])
    (base / "modules").mkdir()
    print("seed %d" % options.seed, flush=True)
    bad = total = 0
    try:
        for number in range(options.rollouts):
            ledger = wanted[number % len(wanted)]
            fleet = conftest.Fleet(base / ("rollout%d" % number), base / "modules", base / "collections")
            fleet.environment["ANSIBLE_FORKS"] = str(options.nodes)
            lines, found, kills = one_rollout(
                fleet, draw, options, server.database("k%d" % number) if ledger == "postgresql" else ""
            )
            total, bad = total + kills, bad + bool(found)
            print(
                "rollout %d (%s)%s\n%s"
                % (number + 1, ledger, ", in %s" % fleet.directory if found and options.keep else "", "\n".join(lines)),
                flush=True,
            )
            if not (found and options.keep):
                shutil.rmtree(fleet.directory)
    finally:
        if server:
            server.stop()
            shutil.rmtree(server.base)
        if not (bad and options.keep):
            shutil.rmtree(base, ignore_errors=True)
    print("%d rollouts, %d kills, %d with something wrong" % (options.rollouts, total, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
