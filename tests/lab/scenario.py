# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the scenarios share: machines, what they are asked, their disks, and one that reaches no mirror."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import testinfra

from .config import CHECKOUT
from .play import environment, play

INVENTORY = CHECKOUT / "molecule" / "inventory"
SSH_CONFIG = CHECKOUT / ".lab" / ("lab" + os.environ.get("GPUFLEET_LAB_ID", "0")) / "ssh" / "config"
CACHE = Path(
    os.environ.get("GPUFLEET_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet"
)
# No mirror, no index of one, and nothing in apt's cache.
CUT_OFF = (
    "mkdir /root/away && mv /etc/apt/sources.list.d /var/lib/apt/lists /var/cache/apt/archives /root/away && mkdir -p "
    "/etc/apt/sources.list.d /var/lib/apt/lists/partial /var/cache/apt/archives/partial && rm -f /var/cache/apt/*.bin"
)
RECONNECT = (
    "rm -rf /etc/apt/sources.list.d /var/lib/apt/lists /var/cache/apt/archives && mv /root/away/sources.list.d "
    "/etc/apt && mv /root/away/lists /var/lib/apt && mv /root/away/archives /var/cache/apt && rmdir /root/away && rm "
    "-f /var/cache/apt/*.bin"
)


def machine(name: str):
    """testinfra's view of a machine, as root."""
    return testinfra.get_host("ssh://" + name, ssh_config=str(SSH_CONFIG), sudo=True)


def boot_id(host) -> str:
    return host.check_output("cat /proc/sys/kernel/random/boot_id")


def wait_for(what, problem: str, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, problem
        time.sleep(0.5)


class Controller:
    """A playbook under way, as an operator starts it."""

    def __init__(self, process: subprocess.Popen, log: Path):
        self.process = process
        self.log = log

    def says(self, line: str, seconds: float = 300) -> str:
        """Wait until it says so; all that it said by then."""
        wait_for(
            lambda: line in self.log.read_text() or self.process.poll() is not None, f"it never said {line!r}", seconds
        )
        assert self.process.poll() is None, self.log.read_text()
        return self.log.read_text()

    def waits_for(self, what, problem: str, seconds: float = 120) -> None:
        """Wait until something is so, as long as the playbook goes on."""
        wait_for(lambda: what() or self.process.poll() is not None, problem, seconds)
        assert self.process.poll() is None, self.log.read_text()

    def ends(self, seconds: float = 600) -> str:
        """Wait until it has ended well; all that it said."""
        assert self.process.wait(timeout=seconds) == 0, self.log.read_text()
        return self.log.read_text()


@contextlib.contextmanager
def controller(log: Path, playbook: str, variables: dict, inventories=(INVENTORY,), more: dict | None = None):
    """A playbook that is started, with MORE in its environment; in the end every process of its controller is
    killed.
    """
    words = [word for path in inventories for word in ("-i", str(path))]
    with log.open("w") as out:
        process = subprocess.Popen(
            ["ansible-playbook", *words, "-e", json.dumps(variables), playbook],
            cwd=CHECKOUT,
            env={**os.environ, **environment(), **(more or {})},
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield Controller(process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(
    node: str,
    module: str,
    arguments: dict | None = None,
    become_user: str = "root",
    check: bool = False,
    extra: dict | None = None,
):
    """One task with one of the collection's modules, as an operator's: how the run ended, and what the module
    returned.
    """
    results = []

    def on_event(data):
        if data["event"] in ("runner_on_ok", "runner_on_failed"):
            results.append(data["event_data"]["res"])

    task = {"gpufleet.lifecycle." + module: arguments or {}}
    plays = [{"hosts": node, "gather_facts": False, "become": True, "become_user": become_user, "tasks": [task]}]
    outcome = play(plays, INVENTORY, extra or {}, check=check, on_event=on_event)
    assert len(results) == 1, outcome.tail()
    return outcome, results[0]


@contextlib.contextmanager
def no_mirror(host, package: str):
    """For a while apt knows of no source and has nothing in its cache, as ``package`` shows."""
    host.run_expect([0], CUT_OFF)
    try:
        assert "Candidate: (none)" in host.check_output("LC_ALL=C apt-cache policy " + package)
        yield
    finally:
        host.run_expect([0], RECONNECT)


# What is in memory (/run, /tmp) goes with a boot, and logs are there to be written to.
# The time is that of the last change of anything about the file: it cannot be set back. A directory's own time is left
# out.
DISK_LISTING = (
    r"""find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log """
    r"""\) -prune -o \
 \( -type d -printf '%p\t%y %m %u:%g\n' -o -printf '%p\t%y %m %u:%g %s %C@ %l\n' \)"""
)


def list_disk(host):
    return dict(line.split("\t", 1) for line in host.check_output(DISK_LISTING).splitlines())


# Ansible's async_wrapper looks at its module every five seconds, and removes its files from the remote temporary
# directory when it has seen the end: by then the task has long returned.
ASYNC_ENDED = "timeout 120 sh -c 'while pgrep -f [a]sync_wrapper.py; do sleep 0.2; done'"


@contextlib.contextmanager
def unchanged_but(*machines, allowed=()):
    """Nothing on the disks of the machines changes, but for paths that one of the expressions matches whole.

    Yields what did, by host.
    """
    before = [list_disk(host) for host in machines]
    changes = {}
    yield changes
    for host, old in zip(machines, before, strict=True):
        host.run_expect([0], ASYNC_ENDED)
        new = list_disk(host)
        assert len(new) > 10000, "this is no listing of a machine"
        differ = {path: (old.get(path), new.get(path)) for path in {*old, *new} if old.get(path) != new.get(path)}
        changes[host.backend.host.name] = sorted(differ)
        wrong = {
            path: was
            for path, was in differ.items()
            if not any(re.fullmatch(expression, path) for expression in allowed)
        }
        assert not wrong, "\n".join("%s: %s -> %s" % (path, *was) for path, was in sorted(wrong.items()))
