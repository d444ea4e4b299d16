# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this scenario share: the machines, and running a playbook as an operator would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import testinfra

from tests.lab.config import CHECKOUT, DRIVER_VERSIONS
from tests.lab.disk import unchanged_but
from tests.lab.play import play

INVENTORY = CHECKOUT / "molecule" / "inventory"
SSH_CONFIG = CHECKOUT / ".lab" / ("lab" + os.environ.get("GPUFLEET_LAB_ID", "0")) / "ssh" / "config"
CACHE = Path(os.environ.get("GPUFLEET_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet")
# Compiled modules of the two revisions of the packages: their names are the same, and their sources are not.
OLD, NEW = DRIVER_VERSIONS["trixie"]
TREES = {OLD: CACHE / "dkms", NEW: CACHE / "dkms" / NEW}


@pytest.fixture(scope="session")
def machines():
    return {name: testinfra.get_host("ssh://" + name, ssh_config=str(SSH_CONFIG), sudo=True) for name in ("deb13-1", "deb13-2")}


@pytest.fixture(scope="session")
def node(machines):
    """The machine with a network."""
    return machines["deb13-1"]


@pytest.fixture(scope="session")
def cut_off(machines):
    """The machine without one."""
    return machines["deb13-2"]


@pytest.fixture(scope="session")
def unchanged():
    return unchanged_but


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def run(artifacts):
    """run(playbook, version, check=False, **variables): one run with the compiled modules of that version."""

    def running(playbook, version, check=False, **variables):
        extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": str(TREES[version]), **variables}
        return play(playbook, INVENTORY, extra, check=check)

    return running


@pytest.fixture(scope="session")
def boot_id():
    return lambda host: host.check_output("cat /proc/sys/kernel/random/boot_id")
