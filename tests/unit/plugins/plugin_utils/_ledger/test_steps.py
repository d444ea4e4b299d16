# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.steps import (
    CHANGED,
    PUT_BACK,
    SERVING,
    STOPPED,
    find_resume_step,
)


@pytest.mark.parametrize(
    "steps, expected",
    [
        ((), ""),
        (("prestage",), ""),
        (("prestage", "evidence", "drain"), ""),
        (("drain", "stop"), STOPPED),
        (("drain", "stop", "install"), CHANGED),
        (("stop", "install", "validate", "return"), SERVING),
        (("stop", "install", "rollback_install"), PUT_BACK),
        # What comes after a failure changes no driver: how far the node came before it decides.
        (("drain", "stop", "rollback_start"), STOPPED),
        (("drain", "rollback_start"), ""),
        (("drain", "stop", "quarantine"), STOPPED),
        (("stop", "install", "quarantine"), CHANGED),
        (("stop", "install", "rollback_validate", "rollback_start"), PUT_BACK),
    ],
)
def test_how_far_a_dead_controller_came(steps, expected):
    assert find_resume_step(steps) == expected
