# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the scenarios share: the machines, what they are asked, and a machine that reaches no mirror."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import testinfra

from .config import CHECKOUT
from .play import play

INVENTORY = CHECKOUT / "molecule" / "inventory"
SSH_CONFIG = CHECKOUT / ".lab" / ("lab" + os.environ.get("GPUFLEET_LAB_ID", "0")) / "ssh" / "config"
CACHE = Path(os.environ.get("GPUFLEET_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet")
# No mirror, no index of one, and nothing in apt's cache.
CUT_OFF = ("mkdir /root/away && mv /etc/apt/sources.list.d /var/lib/apt/lists /var/cache/apt/archives /root/away && "
           "mkdir -p /etc/apt/sources.list.d /var/lib/apt/lists/partial /var/cache/apt/archives/partial && rm -f /var/cache/apt/*.bin")
RECONNECT = ("rm -rf /etc/apt/sources.list.d /var/lib/apt/lists /var/cache/apt/archives && mv /root/away/sources.list.d /etc/apt && "
             "mv /root/away/lists /var/lib/apt && mv /root/away/archives /var/cache/apt && rmdir /root/away && rm -f /var/cache/apt/*.bin")


def machine(name: str):
    """testinfra's view of a machine, as root."""
    return testinfra.get_host("ssh://" + name, ssh_config=str(SSH_CONFIG), sudo=True)


def boot_id(host) -> str:
    return host.check_output("cat /proc/sys/kernel/random/boot_id")


def ask(node: str, module: str, arguments: dict | None = None, become_user: str = "root", check: bool = False, extra: dict | None = None):
    """One task with one of the collection's modules, as an operator's: how the run ended, and what the module returned."""
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
