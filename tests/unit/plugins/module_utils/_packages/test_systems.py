# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operating systems whose driver packages are known."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems

pytestmark = pytest.mark.pythons


@pytest.mark.parametrize(
    "os_release,supported",
    [
        ({"ID": "debian", "VERSION_ID": "12"}, True),
        ({"ID": "debian", "VERSION_ID": "13"}, True),
        ({"ID": "debian", "VERSION_ID": "11"}, False),
        ({"ID": "rocky", "VERSION_ID": "9.4"}, True),
        ({"ID": "rocky", "VERSION_ID": "8.10"}, False),
        ({}, False),
    ],
)
def test_supported_systems(os_release, supported):
    assert (systems.table_for(os_release) is not None) is supported
