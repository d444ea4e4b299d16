# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a playbook through ansible-runner, as AWX does, and says what became of every host."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import ansible_runner

from . import processes
from .config import CHECKOUT

INTERRUPTED = 254  # ansible-runner's status for a run that was ended from outside


@dataclasses.dataclass
class Outcome:
    """How a run ended.

    ``failed`` and ``unreachable``: host -> messages; ``changed``: host -> number of changed tasks.
    """

    rc: int
    failed: dict[str, list[str]]
    unreachable: dict[str, list[str]]
    changed: dict[str, int]
    output: str

    def why(self, host: str) -> str:
        return "\n".join(self.failed.get(host, []) + self.unreachable.get(host, []))

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.output.splitlines()[-lines:])


def environment() -> dict[str, str]:
    return {
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        # The checkout, or an installed release (tests/tools/released.sh).
        "ANSIBLE_COLLECTIONS_PATH": os.environ.get("GPUFLEET_COLLECTIONS") or str(CHECKOUT / ".lab" / "collections"),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_NOCOLOR": "true",
        # ansible-playbook is the one of this environment, activated or not.
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath),
    }


@dataclasses.dataclass
class Run:
    mark: str
    over: bool = False


@contextlib.contextmanager
def signals_held():
    """Yield a list that SIGINT and SIGTERM are added to, and deliver the first when the block has ended.

    ansible-runner would install handlers of its own for good, so that its caller sees no signal any more.
    """
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda number, _frame: caught.append(number)) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])


@contextlib.contextmanager
def marked(directory: str):
    """A run whose processes can be found: Ansible's workers outlive the ansible-playbook that an interruption ends."""
    run = Run("play:" + directory)
    try:
        yield run
    finally:
        if not run.over:
            processes.kill(run.mark, whole=True)


def play(playbook, inventory, extra=None, limit=None, check=False, on_event=None) -> Outcome:
    """One run. ``playbook`` is a path, a name such as gpufleet.lifecycle.bringup, or a list of plays."""
    place = tempfile.TemporaryDirectory(prefix="gpufleet-play-")
    with place as directory, signals_held() as caught, marked(directory) as run:
        failed: dict[str, list[str]] = {}
        unreachable: dict[str, list[str]] = {}

        def event(data):
            result = data.get("event_data", {}).get("res") or {}
            host = data.get("event_data", {}).get("host")
            if data["event"] == "runner_on_failed" and not data["event_data"].get("ignore_errors"):
                parts = [str(result.get("msg", result))]
                parts += [str(item.get("msg", "")) for item in result.get("results", []) if item.get("failed")]
                failed.setdefault(host, []).append("\n".join(parts))
            elif data["event"] == "runner_on_unreachable":
                unreachable.setdefault(host, []).append(str(result.get("msg", result)))
            if on_event:
                on_event(data)
            return True

        runner = ansible_runner.run(
            private_data_dir=directory,
            project_dir=str(CHECKOUT),
            playbook=[dict(item) for item in playbook] if isinstance(playbook, list) else os.fspath(playbook),
            inventory=[os.fspath(item) for item in inventory]
            if isinstance(inventory, (list, tuple))
            else os.fspath(inventory),
            extravars=dict(extra or {}),
            limit=limit,
            cmdline="--check --diff" if check else None,
            envvars={**environment(), processes.MARK: run.mark},
            event_handler=event,
            cancel_callback=lambda: bool(caught),
            quiet=True,
        )
        run.over = runner.rc != INTERRUPTED
        stats = runner.stats or {}
        output = Path(runner.config.artifact_dir, "stdout")
        return Outcome(
            runner.rc,
            failed,
            unreachable,
            dict(stats.get("changed", {})),
            output.read_text() if output.exists() else "",
        )
