# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that a task names, and those of a baseline."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import wanted as settings_wanted
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings import settingsnode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settings_gpu import (
    LOAD,
    LOCK,
    gpu,
    wish,
)


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({"power_limit_w": "500"}, 500000),
        ({"power_limit_w": "499.5"}, 499500),
        ({"power_limit_w": "default"}, "default"),
        ({"application_clocks_mhz": {"graphics": 1410, "memory": 2619}}, {"graphics": 1410, "mem": 2619}),
        ({"application_clocks_mhz": {"default": True}}, "default"),
        ({"locked_graphics_clocks_mhz": {"min": 1000, "max": 1500}}, LOCK),
        ({"locked_memory_clocks_mhz": {"unlocked": True}}, "unlocked"),
        ({"compute_mode": "exclusive_process"}, 3),
        ({"compute_mode": "prohibited"}, 2),
        ({"compute_mode": "default"}, 0),
        ({"persistence_mode": True}, 1),
        ({"ecc_mode": False}, 0),
    ],
)
def test_wishes_of_a_task(given, wanted):
    assert settings_wanted.of_task(settingsnode.complete(given)) == {
        list(given)[0]: {"value": wanted, "explicit": True}
    }


@pytest.mark.parametrize(
    "given, text",
    [
        ({"power_limit_w": "much"}, "power_limit_w is 'much'; expected a number of watts"),
        ({"power_limit_w": "0"}, "power_limit_w is '0'"),
        ({"power_limit_w": "nan"}, "power_limit_w is 'nan'"),
        ({"power_limit_w": "-5"}, "power_limit_w is '-5'"),
        ({"application_clocks_mhz": {}}, "application_clocks_mhz needs default: true"),
        ({"application_clocks_mhz": {"graphics": 0, "memory": 1}}, "application_"),
        ({"locked_graphics_clocks_mhz": {}}, "locked_graphics_clocks_mhz needs unlocked: true"),
        ({"locked_memory_clocks_mhz": {"min": 5, "max": 4}}, "min no higher than max"),
        ({"locked_memory_clocks_mhz": {"min": 1, "max": 4}}, "locked_memory"),
    ],
)
def test_wishes_that_cannot_be_understood(given, text):
    with pytest.raises(settings_wanted.WishError) as refused:
        settings_wanted.of_task(settingsnode.complete(given))
    assert text in str(refused.value)


def test_wishes_of_a_baseline():
    kept = {
        "locked_graphics_clocks_mhz": {"value": LOCK, "load": "other"},
        "locked_memory_clocks_mhz": {"value": "unlocked", "load": LOAD},
    }
    old = gpu(power_limit_mw=500000, ecc_mode_current=1, ecc_mode_pending=0, compute_mode=3)
    assert settings_wanted.of_baseline(old, kept) == {
        "persistence_mode": wish(1, False),
        "compute_mode": wish(3, False),
        "power_limit_w": wish(500000, False),
        "ecc_mode": wish(0, False),
        "application_clocks_mhz": wish({"graphics": 1980, "mem": 2619}, False, was_default=True),
        "locked_graphics_clocks_mhz": wish(LOCK),
    }
    assert settings_wanted.of_baseline(old, None, ["power_limit_w", "locked_graphics_clocks_mhz"]) == {
        "power_limit_w": wish(500000, False)
    }
    for entry in ((3,), (26,), {"graphics": None, "mem": 1}):
        assert settings_wanted.of_baseline(gpu(applications_clocks_mhz=entry), None, ["application_clocks_mhz"]) == {
            "application_clocks_mhz": wish(None, False)
        }
    # In MIG mode the GPU has no compute mode of its own; out of it, the same code is an error.
    assert settings_wanted.of_baseline(gpu(compute_mode=(2,), mig_mode_current=1), None, ["compute_mode"]) == {
        "compute_mode": wish(None, False)
    }
    assert "problem" in settings_wanted.of_baseline(gpu(compute_mode=(2,)), None, ["compute_mode"])["compute_mode"]
    for entry in (1, [], {"graphics": "fast", "mem": 1}):
        assert (
            "problem"
            in settings_wanted.of_baseline(gpu(applications_clocks_mhz=entry), None, ["application_clocks_mhz"])[
                "application_clocks_mhz"
            ]
        )


@pytest.mark.parametrize("entry", [(15,), (codes.UNREADABLE,), "high", True, -1, None, {"graphics": 1}])
def test_a_baseline_that_does_not_tell_is_no_wish(entry):
    problem = settings_wanted.of_baseline(gpu(power_limit_mw=entry), None, ["power_limit_w"])["power_limit_w"][
        "problem"
    ]
    assert "the baseline does not tell power_limit_mw of this GPU" in problem and "take a new baseline" in problem
    for old in (dict(gpu(), power_limit_mw=7), dict(gpu(), power_limit_mw={})):
        assert (
            "the baseline has no power_limit_mw"
            in settings_wanted.of_baseline(old, None, ["power_limit_w"])["power_limit_w"]["problem"]
        )
