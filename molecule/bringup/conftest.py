# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this scenario share: the machines, running a playbook as an operator would, and a look at everything on a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import testinfra

from tests.lab.config import CHECKOUT
from tests.lab.disk import unchanged_but
from tests.lab.play import play

INVENTORY = CHECKOUT / "molecule" / "inventory"
SSH_CONFIG = CHECKOUT / ".lab" / ("lab" + os.environ.get("GPUFLEET_LAB_ID", "0")) / "ssh" / "config"
CACHE = Path(os.environ.get("GPUFLEET_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet")


@pytest.fixture(scope="session")
def machines():
    return {name: testinfra.get_host("ssh://" + name, ssh_config=str(SSH_CONFIG), sudo=True) for name in ("up-1", "up-2")}


@pytest.fixture(scope="session")
def up_1(machines):
    return machines["up-1"]


@pytest.fixture(scope="session")
def up_2(machines):
    return machines["up-2"]


@pytest.fixture(scope="session")
def unchanged():
    return unchanged_but


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def run(artifacts):
    """run(playbook, check=False, **variables): one run with the compiled modules of the lab's cache."""

    def running(playbook, check=False, on_event=None, **variables):
        extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": str(CACHE / "dkms"), **variables}
        return play(playbook, INVENTORY, extra, check=check, on_event=on_event)

    return running


@pytest.fixture(scope="session")
def ask(run):
    """ask(node, module, arguments, become_user="root"): the outcome and the module's result."""

    def asking(node, module, arguments=None, become_user="root"):
        results = []

        def on_event(data):
            if data["event"] in ("runner_on_ok", "runner_on_failed"):
                results.append(data["event_data"]["res"])

        task = {"gpufleet.lifecycle." + module: arguments or {}}
        outcome = run([{"hosts": node, "gather_facts": False, "become": True, "become_user": become_user, "tasks": [task]}], on_event=on_event)
        assert len(results) == 1, outcome.tail()
        return outcome, results[0]

    return asking


@pytest.fixture(scope="session")
def boot_id():
    return lambda host: host.check_output("cat /proc/sys/kernel/random/boot_id")
