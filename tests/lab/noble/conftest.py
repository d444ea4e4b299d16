# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests on Ubuntu share: the machine, and running a playbook as an operator would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import scenario
from tests.lab.play import play

INVENTORY = Path(__file__).with_name("hosts.yml")


@pytest.fixture(scope="session")
def node():
    return scenario.machine("ubuntu24-1")


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def run(artifacts):
    """run(playbook, check=False, **variables): one run, and how it ended; the modules were compiled before."""

    def running(playbook, check=False, **variables):
        extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": str(scenario.CACHE / "dkms")}
        return play("gpufleet.lifecycle." + playbook, INVENTORY, extra | variables, check=check)

    return running
