# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the command line and call what was asked for."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from . import config, drivers, image, layers, machines, rehearse, supervisor
from .common import LabError, say, warn
from .kube import build


def do_image(lab, arguments) -> int:
    suites = list(dict.fromkeys(arguments.suite)) or [config.SUITE]
    for suite in suites if arguments.refresh else []:
        image.refresh(lab, suite)
    ready = {suite: layers.roots(image.ensure(lab, suite), lab.images) for suite in suites}
    if arguments.prune:
        for name in image.prune(lab):
            say(f"removed {name}")
    for suite, roots in ready.items():
        say(f"the {suite} image is ready: " + ", ".join(str(root.parent) for root in roots))
    return 0


def do_layer(lab, arguments) -> int:
    layers.make(image.by_kind(arguments.kind, arguments.suite), lab.images)
    return 0


def do_up(lab, arguments) -> int:
    lab.temporary.unlink(missing_ok=True)
    found = machines.up(lab, Path(arguments.inventory).resolve(), arguments.nodes)
    say(f"up: {', '.join(f'{machine.name} ({lab.address(machine.host_number)})' for machine in found)}")
    return 0


def do_down(lab, arguments) -> int:
    machines.down(lab)
    return 0


def do_reset(lab, arguments) -> int:
    machines.reset(lab, arguments.nodes)
    return 0


def do_status(lab, arguments) -> int:
    found = machines.status(lab)
    if arguments.json:
        print(json.dumps(found, indent=2))
    elif not found:
        say("no machines")
    for entry in [] if arguments.json else found:
        print(
            f"{entry['name']:<20} {entry['address']:<15} {entry['state']:<12} {entry['suite']:<9} {entry['model']} "
            f"x{entry['gpus']}, boots: {entry['boots']}"
        )
    return 0


def do_exec(lab, arguments) -> int:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words:
        raise LabError("exec needs a command: python3 -m tests.lab exec NODE -- COMMAND")
    return machines.execute(lab, arguments.node, words)


def do_fault(lab, arguments) -> int:
    return machines.execute(lab, arguments.node, ["gpusim", *(arguments.words or ["list"])])


def do_drivers(lab, arguments) -> int:
    suites = (
        arguments.suite
        or [suite for path in arguments.inventory for suite in machines.suites(Path(path).resolve())]
        or [config.SUITE]
    )
    for suite in dict.fromkeys(suites):
        drivers.ensure(lab, arguments.versions, suite)
    return 0


def do_driver(lab, arguments) -> int:
    drivers.compile_one(lab, arguments.suite, arguments.version, arguments.kernel)
    return 0


def do_apiserver(lab, arguments) -> int:
    build.ensure(lab)
    return 0


def do_rehearse(lab, arguments) -> int:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    return rehearse.run(lab, Path(arguments.inventory).resolve(), Path(arguments.playbook).resolve(), words)


def do_demo(lab, arguments) -> int:
    from . import demo  # alone needs ansible-runner

    with machines.temporary(lab, arguments.keep):
        return demo.run(lab, demo.FEW if arguments.few else demo.NAMES)


def do_slices(lab, arguments) -> int:
    from . import slices  # alone needs ansible-runner

    return slices.run(lab)


def do_jobs(lab, arguments) -> int:
    from . import jobs  # alone needs ansible-runner

    with machines.temporary(lab, arguments.keep):
        return jobs.run(lab)


def do_supervise(lab, arguments) -> int:
    return supervisor.supervise(lab, arguments.node)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python3 -m tests.lab", description="GPU machines without GPUs, for rehearsals and tests."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("image", help="build the machines' image, or say that it is there")
    command.add_argument("--refresh", action="store_true", help="build it anew from today's packages")
    command.add_argument(
        "--suite", action="append", default=[], choices=config.SUITES, help=f"of this system (default: {config.SUITE})"
    )
    command.add_argument("--prune", action="store_true", help="remove images that are not this checkout's present ones")
    command.set_defaults(run=do_image)

    command = commands.add_parser("up", help="make and start the machines of an inventory")
    command.add_argument(
        "--inventory",
        default=str(machines.DEFAULT_INVENTORY),
        help="whose GPU hosts to make machines for (default: inventories/lab)",
    )
    command.add_argument("nodes", nargs="*", metavar="NODE", help="only these hosts")
    command.set_defaults(run=do_up)

    command = commands.add_parser("down", help="end all machines and remove every trace of them")
    command.set_defaults(run=do_down)

    command = commands.add_parser("status", help="how the machines are")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=do_status)

    command = commands.add_parser("reset", help="give machines a fresh disk and boot them")
    command.add_argument("nodes", nargs="+", metavar="NODE")
    command.set_defaults(run=do_reset)

    command = commands.add_parser("exec", help="run a command in a machine as root, not over its network")
    command.add_argument("node", metavar="NODE")
    command.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    command.set_defaults(run=do_exec)

    command = commands.add_parser(
        "fault", help="run the simulator's own command in a machine (inject, clear, list, faults)"
    )
    command.add_argument("node", metavar="NODE")
    command.add_argument("words", nargs=argparse.REMAINDER, metavar="WORD")
    command.set_defaults(run=do_fault)

    command = commands.add_parser("drivers", help="compile drivers for the image's kernel, once, into the cache")
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--suite",
        action="append",
        default=[],
        choices=config.SUITES,
        help=f"for this suite's image (default: {config.SUITE})",
    )
    which.add_argument(
        "--inventory", action="append", default=[], help="for the images of the machines that this inventory asks for"
    )
    text = "such as 535.261.03 or 535.261.03-1 (default: all the image keeps)"
    command.add_argument("versions", nargs="*", metavar="VERSION", default=[], help=text)
    command.set_defaults(run=do_drivers)

    command = commands.add_parser("apiserver", help="build kube-apiserver from Debian's source, once, into the cache")
    command.set_defaults(run=do_apiserver)

    command = commands.add_parser("rehearse", help="run your own playbook on machines made from your inventory")
    command.add_argument("--inventory", required=True)
    command.add_argument("--playbook", required=True)
    command.add_argument("words", nargs=argparse.REMAINDER, metavar="-- ANSIBLE-PLAYBOOK OPTIONS")
    command.set_defaults(run=do_rehearse)

    command = commands.add_parser("demo", help="roll six machines from one driver to another, one of them with a fault")
    command.add_argument("--keep", action="store_true", help="leave the machines running at the end")
    command.add_argument("--few", action="store_true", help="with four of the machines, as in `make test`")
    command.set_defaults(run=do_demo)
    command = commands.add_parser("slices", help="the same by several controllers, one of which is killed on the way")
    command.set_defaults(run=do_slices)
    command = commands.add_parser(
        "jobs", help="the life of two machines by AWX's jobs: bring-up, precheck, MIG, quarantine"
    )
    command.add_argument("--keep", action="store_true", help="leave the machines running at the end")
    command.set_defaults(run=do_jobs)

    command = commands.add_parser("_driver")
    command.add_argument("suite")
    command.add_argument("version")
    command.add_argument("kernel")
    command.set_defaults(run=do_driver)

    command = commands.add_parser("_supervise")
    command.add_argument("node")
    command.set_defaults(run=do_supervise)

    command = commands.add_parser("_layer")
    command.add_argument("suite")
    command.add_argument("kind")
    command.set_defaults(run=do_layer)
    return top


def main(words: list[str]) -> int:
    arguments = parser().parse_args(words)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda caught, _frame: sys.exit(128 + caught))
    try:
        return arguments.run(config.current(), arguments)
    except LabError as error:
        warn(str(error))
        return 1
    except KeyboardInterrupt:
        left = machines.existing(config.current())
        warn("interrupted" + (": 'python3 -m tests.lab down' removes the machines" if left else ""))
        return 130
