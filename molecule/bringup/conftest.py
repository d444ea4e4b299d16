# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this scenario share: the machines, running a playbook as an operator would, and a look at
everything on a disk.
"""

from __future__ import annotations

import functools

import pytest

from tests.lab import scenario
from tests.lab.play import play


@pytest.fixture(scope="session")
def machines():
    return {name: scenario.machine(name) for name in ("up-1", "up-2")}


@pytest.fixture(scope="session")
def up_1(machines):
    return machines["up-1"]


@pytest.fixture(scope="session")
def up_2(machines):
    return machines["up-2"]


@pytest.fixture(scope="session")
def run(artifacts):
    """run(playbook, check=False, **variables): one run with the compiled modules of the lab's cache."""

    def running(playbook, check=False, on_event=None, **variables):
        extra = {
            "gpufleet_artifact_dir": str(artifacts),
            "nvidia_driver_tree_dir": str(scenario.CACHE / "dkms"),
            **variables,
        }
        return play(playbook, scenario.INVENTORY, extra, check=check, on_event=on_event)

    return running


@pytest.fixture(scope="session")
def ask(artifacts):
    """ask(node, module, arguments, become_user="root"): the outcome and the module's result."""
    extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": str(scenario.CACHE / "dkms")}
    return functools.partial(scenario.ask, extra=extra)
