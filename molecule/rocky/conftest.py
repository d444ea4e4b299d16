# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this scenario share: the machines, and running a playbook as an operator would."""

from __future__ import annotations

import pytest

from tests.lab import scenario
from tests.lab.play import play


@pytest.fixture(scope="session")
def el9_1():
    return scenario.machine("el9-1")


@pytest.fixture(scope="session")
def el9_2():
    return scenario.machine("el9-2")


@pytest.fixture(scope="session")
def run(artifacts):
    """run(playbook, check=False, **variables)"""

    def running(playbook, check=False, **variables):
        return play(playbook, scenario.INVENTORY, {"gpufleet_artifact_dir": str(artifacts), **variables}, check=check)

    return running
