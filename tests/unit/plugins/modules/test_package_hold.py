# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""package_hold, and which holds it changes. The real dnf and apt are in the tests of roles nvidia_dcgm and
nvidia_container_toolkit.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.filter.package_manager import name_package_manager
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds

HELD, LOOSE = {"installed": True, "hold": True}, {"installed": True, "hold": False}
GONE = {"installed": False, "hold": True}  # dpkg knows it by its files alone
INSTALLED = {"held": HELD, "loose": LOOSE, "gone": GONE}


@pytest.mark.parametrize(
    ("names", "action", "due", "absent"),
    [
        (["held", "loose"], "hold", ["loose"], []),
        (["held", "loose"], "unhold", ["held"], []),
        (["loose", "other", "gone"], "hold", ["loose"], ["gone", "other"]),
        (["other"], "unhold", [], ["other"]),
        ([], "hold", [], []),
    ],
)
def test_holds_that_are_not_as_wanted_are_due(names, action, due, absent):
    assert holds.find_due(INSTALLED, names, action) == (due, absent)


@pytest.mark.parametrize(
    ("distribution", "manager"),
    [("Debian", "apt"), ("Ubuntu", "apt"), ("RedHat", "dnf"), ("Rocky", "dnf"), ("openSUSE Leap", ""), ("", "")],
)
def test_package_manager_follows_the_distribution_and_others_have_none(distribution, manager):
    assert name_package_manager(distribution) == manager
