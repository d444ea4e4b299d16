# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill the controller of a rollout again and again, at random moments, and compare what the nodes say of it with what
the rollout says.

python3 -m tests.tools.kills [--rollouts 10] [--kills 6] [--nodes 20] [--down 3] [--ledger sqlite|postgresql|both]
[--controllers N] [--clocks] [--second-ledger] [--seed N]

The playbook, the role, the actions and the ledger are the real ones; nodes are the stubs of tests/unit/playbooks, each
with a journal of its own. SIGKILL goes to the playbook's process alone, to its process group, or to every process of it
and every module that runs on a node. The next controller starts at once. With --controllers N, there are N at a time,
members of one rollout, of which one or two are killed at a moment, and the PostgreSQL server is away for a while
between kills. With --clocks the clock of each controller is right, two hours ahead, or two hours behind
(clock_shift.c). With --second-ledger a controller with a ledger of its own wants another version on the same nodes
after each kill, once the first node was changed. At the end of each rollout, by the journals of the nodes:

- never more nodes were out of service at a time than allowed;
- no version was installed on a node that had it;
- every node that ended done, skipped or rolled_back passed its health checks after its last change, with the driver
  that this says;
- a node that is sick with the new driver is not done;
- the controller with a ledger of its own was refused, and its version is nowhere.

The exit status is 0 only when all of it held. The environment that runs this decides on the ansible-core:
tests/tools/nox.sh -s core218 -- python3 -m ...
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
OLD, NEW, OTHER = "1.0.1", "2.0.1", "3.0.1"
CLOCKS_S = (-7200, 0, 7200)
WAYS = ("process", "group", "everything")
# Runs after the last kill until every node has ended; one that was away when a run began is taken up by the next.
RUNS = 6
# A rollout that takes longer has stopped by a mistake, however busy the machine is.
LIMIT_S = 7200
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
        if any(OTHER in line[5] for line in lines[name]):
            found.append("%s: the controller with another ledger changed it" % name)
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


def add_nodes(fleet, draw, options):
    for number in range(options.nodes):
        fleet.add(
            "n%02d" % number, slow_s=draw.uniform(0.2, 2), reboot_s=draw.uniform(0.2, 2), **TROUBLE.get(number, {})
        )


def set_clock(fleet, draw, options):
    """Choose the clock of the controllers that start from now on; return it in words."""
    if not options.clocks:
        return ""
    ahead_s = draw.choice(CLOCKS_S)
    fleet.environment.update(LD_PRELOAD=str(options.clock_library), CLOCK_SHIFT_S=str(ahead_s))
    return ", clock %+d h" % (ahead_s // 3600)


def try_second_ledger(fleet, options):
    """Run a rollout of another version from another ledger; return its exit status, 2 if it was refused. None if it
    was not tried, because no node was changed yet.
    """
    changed = any(line[5].startswith("installed ") for name in fleet.names for line in journal(fleet.nodes / name))
    if not options.second_ledger or not changed:
        return None
    place = str(fleet.directory / "second-ledger")
    process = fleet.start("upgrade", rollout_version=OTHER, gpufleet_artifact_dir=place, rollout_max_down=options.down)
    process.wait(timeout=LIMIT_S)
    process.log.close()
    return process.returncode


def describe_second_ledger(ends):
    """Return (what the rollouts of the second ledger came to, what was wrong), by their exit statuses."""
    ends = [rc for rc in ends if rc is not None]
    wrong_ends = [rc for rc in ends if rc != 2]
    return "; the second ledger was refused %d times" % len(ends) if ends else "", [
        "a rollout of the second ledger ended with %d" % rc for rc in wrong_ends
    ]


def one_rollout(fleet, draw, options, url):
    """(lines for people, what was wrong, kills)."""
    add_nodes(fleet, draw, options)
    variables = {
        "rollout_max_down": options.down,
        "rollout_failure_budget": 99,
        "rollout_common_cause": 99,
        "gpu_node_upgrade_reconnect_timeout": 30,
    }
    if url:
        variables["rollout_ledger"] = url
    lines, kills, runs, result, ends = [], 0, 0, None, []
    while runs < options.kills + RUNS:
        clock = set_clock(fleet, draw, options)
        process, moment, way = (
            fleet.start("upgrade", **variables),
            draw.uniform(options.earliest, options.latest),
            draw.choice(WAYS),
        )
        runs += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=moment if kills < options.kills else LIMIT_S)
        if process.poll() is None:
            before = sorted(
                "%s %s" % (name, state)
                for name, state in fleet.recorded(url).items()
                if state not in ("pending", "done")
            )
            kill(fleet, process, way)
            kills += 1
            lines.append(
                "  kill %d of %s after %4.1f s%s: %s"
                % (kills, way, moment, clock, ", ".join(before) or "nothing in flight")
            )
            process.wait()
            ends.append(try_second_ledger(fleet, options))
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
    told, found = describe_second_ledger(ends)
    found += wrong(fleet, states, options.down, time.monotonic())
    if result == 0:
        found.append("the last run ended with 0, although nodes failed")
    spans = [span for name in fleet.names for span in out_of_service(journal(fleet.nodes / name), time.monotonic())]
    counts = {state: list(states.values()).count(state) for state in sorted(set(states.values()))}
    lines.append(
        "  %d runs, %d kills, at most %d of %d out of service at a time; %s%s"
        % (runs, kills, most_at_once(spans), options.down, counts, told)
    )
    return lines + ["  WRONG: " + words for words in found], found, kills


class Several:
    """The jobs of one rollout, each with its part of the nodes."""

    def __init__(self, fleet, options, url, clock):
        self.fleet = fleet
        self.clock = clock  # called before each start
        self.parts = [fleet.names[number :: options.controllers] for number in range(options.controllers)]
        self.variables = {"rollout_ledger": url, "gpu_node_upgrade_reconnect_timeout": 30}
        self.jobs, self.starts = {}, 0

    def plan(self, down):
        limits = {"rollout_max_down": down, "rollout_failure_budget": 99, "rollout_common_cause": 99}
        with contextlib.redirect_stdout(None):
            return self.fleet.run("plan", **limits, **self.variables).rc

    def start(self, number):
        place = str(self.fleet.directory / ("controller%d" % number))
        joins = {"rollout_join": True, "rollout_id": "upgrade-" + NEW, "gpufleet_artifact_dir": place}
        self.clock(self.fleet)
        self.jobs[number] = self.fleet.start("upgrade", only=self.parts[number], **joins, **self.variables)
        self.starts += 1

    def reap(self):
        """Forget the jobs that have ended; their numbers."""
        ended = [number for number, process in self.jobs.items() if process.poll() is not None]
        for number in ended:
            self.jobs.pop(number).log.close()
        return ended

    def unfinished(self, states):
        """Parts with nodes that have not come to an end, and no job."""
        open_states = {"pending", "draining", "down", "validating", "soaking", "lost"}
        return [
            number
            for number, names in enumerate(self.parts)
            if number not in self.jobs and {states.get(name) for name in names} & open_states
        ]


def several_controllers(fleet, draw, options, url, server):
    """(lines for people, what was wrong, kills)."""
    add_nodes(fleet, draw, options)
    several, lines, kills = Several(fleet, options, url, lambda fleet: set_clock(fleet, draw, options)), [], 0
    if several.plan(options.down):
        return ["  WRONG: no plan"], ["no plan"], 0
    ends = []
    for number in range(options.controllers):
        several.start(number)
    deadline = time.monotonic() + LIMIT_S
    while several.jobs and time.monotonic() < deadline:
        time.sleep(draw.uniform(options.earliest, options.latest) / 2 if kills < options.kills else 1)
        several.reap()
        chosen = draw.sample(sorted(several.jobs), min(len(several.jobs), draw.choice((1, 1, 2))))
        if kills < options.kills and chosen:
            ways = [draw.choice(WAYS[:2]) for dummy in chosen]
            for number, way in zip(chosen, ways):
                kill(fleet, several.jobs[number], way)
                several.jobs[number].wait()
            kills += len(chosen)
            ends.append(try_second_ledger(fleet, options))
            lines.append("  kill %d: %s" % (kills, ", ".join("job %d (%s)" % pair for pair in zip(chosen, ways))))
            several.reap()
            if draw.random() < 0.5:
                server.stop()
                away = draw.uniform(1, 30)
                time.sleep(away)
                server.start()
                lines.append("  PostgreSQL away for %.0f s" % away)
        if several.starts < options.controllers + options.kills + RUNS:
            for number in several.unfinished(fleet.recorded(url)):
                several.start(number)
    states = fleet.recorded(url)
    told, found = describe_second_ledger(ends)
    found += wrong(fleet, states, options.down, time.monotonic())
    if several.jobs:
        found.append("jobs still run after %d s" % LIMIT_S)
        for process in several.jobs.values():
            kill(fleet, process, "everything")
    spans = [span for name in fleet.names for span in out_of_service(journal(fleet.nodes / name), time.monotonic())]
    counts = {state: list(states.values()).count(state) for state in sorted(set(states.values()))}
    lines.append(
        "  %d controllers, %d jobs, %d kills, at most %d of %d out of service at a time; %s%s"
        % (options.controllers, several.starts, kills, most_at_once(spans), options.down, counts, told)
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
    parser.add_argument(
        "--controllers", type=int, default=1, help="at a time, of one rollout in PostgreSQL (default %(default)s)"
    )
    parser.add_argument("--clocks", action="store_true", help="controllers whose clocks are two hours apart")
    parser.add_argument("--second-ledger", action="store_true", help="a controller with a ledger of its own, too")
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
    if options.controllers > 1:
        wanted = ("postgresql",)
    server = servers(wanted)
    base = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-kills-"))
    collection.make(collection.place(base / "collections"), ["playbooks"])
    (base / "modules").mkdir()
    if options.clocks:
        options.clock_library = base / "clock_shift.so"
        source = pathlib.Path(__file__).with_name("clock_shift.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(options.clock_library), str(source)], check=True)
    print("seed %d" % options.seed, flush=True)
    bad = total = 0
    try:
        for number in range(options.rollouts):
            ledger = wanted[number % len(wanted)]
            fleet = conftest.Fleet(base / ("rollout%d" % number), base / "modules", base / "collections")
            fleet.environment["ANSIBLE_FORKS"] = str(options.nodes)
            url = server.database("k%d" % number) if ledger == "postgresql" else ""
            if options.controllers > 1:
                lines, found, kills = several_controllers(fleet, draw, options, url, server)
            else:
                lines, found, kills = one_rollout(fleet, draw, options, url)
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
