# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of gpu_settings that contradict each other."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings import settingsnode


@pytest.mark.parametrize(
    "given, text",
    [
        ({}, "no setting is named"),
        ({"state": "restored"}, "needs a baseline"),
        ({"state": "restored", "baseline": {"x": 1}, "power_limit_w": "5"}, "remove power_limit_w"),
        ({"power_limit_w": "5", "baseline_file": "/x"}, "baseline_file goes with state: restored"),
        ({"power_limit_w": "5", "settings": ["ecc_mode"]}, "settings goes"),
        ({"power_limit_w": "5", "timeout_s": 0}, "timeout_s is 0"),
        ({"power_limit_w": "5", "lock_timeout_s": -1}, "lock_timeout_s is -1"),
    ],
)
def test_options_that_contradict_each_other(given, text):
    assert text in options.contradiction(settingsnode.complete(given))
    assert options.contradiction(settingsnode.complete({"ecc_mode": True})) is None
    assert (
        options.contradiction(
            settingsnode.complete({"state": "restored", "baseline_file": "/x", "settings": ["ecc_mode"]})
        )
        is None
    )
