# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of all scenarios share."""

from __future__ import annotations

import pytest

from tests.lab import scenario


@pytest.fixture(scope="session")
def unchanged():
    return scenario.unchanged_but


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def boot_id():
    return scenario.boot_id


@pytest.fixture(scope="module")
def kernel(host):
    return host.check_output("uname -r")
