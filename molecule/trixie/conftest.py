# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this scenario share: the machines, and running a playbook as an operator would."""

from __future__ import annotations

import pytest

from tests.lab import scenario
from tests.lab.config import DRIVER_VERSIONS
from tests.lab.play import play

# Compiled modules of the two revisions of the packages: their names are the same, and their sources are not.
OLD, NEW = DRIVER_VERSIONS["trixie"]
TREES = {OLD: scenario.CACHE / "dkms", NEW: scenario.CACHE / "dkms" / NEW}


@pytest.fixture(scope="session")
def machines():
    return {name: scenario.machine(name) for name in ("deb13-1", "deb13-2")}


@pytest.fixture(scope="session")
def node(machines):
    """The machine with a network."""
    return machines["deb13-1"]


@pytest.fixture(scope="session")
def cut_off(machines):
    """The machine without one."""
    return machines["deb13-2"]


@pytest.fixture(scope="session")
def run(artifacts):
    """run(playbook, version, check=False, **variables): one run with the compiled modules of that version."""

    def running(playbook, version, check=False, **variables):
        extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": str(TREES[version]), **variables}
        return play(playbook, scenario.INVENTORY, extra, check=check)

    return running
