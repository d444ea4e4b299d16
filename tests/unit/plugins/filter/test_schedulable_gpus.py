# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.filter import schedulable_gpus
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use


def value(what):
    return {"value": what, "rc": 0}


def missing(rc):
    return {"value": None, "rc": rc}


WHOLE = {"mig_mode_current": value(0), "mig_instances": value([])}
OLD = {"mig_mode_current": missing(3), "mig_instances": missing(3)}  # NVML_ERROR_NOT_SUPPORTED: it has no MIG
SEVEN = {"mig_mode_current": value(1), "mig_instances": value([{"gpu_instance": number} for number in range(7)])}
BARE = {"mig_mode_current": value(1), "mig_instances": value([])}
UNREAD = {"mig_mode_current": missing(999), "mig_instances": missing(999)}


@pytest.mark.parametrize(
    "gpus, expected",
    [
        ([WHOLE] * 8, 8),
        ([OLD] * 4, 4),
        ([SEVEN] * 2, 14),
        ([WHOLE, SEVEN], 8),
        ([BARE] * 8, 0),  # its layout is lost: a scheduler that knows of any has too many
        ([SEVEN, BARE], 7),
        ([{"mig_mode_current": missing(13)}] * 2, 2),  # NVML_ERROR_FUNCTION_NOT_FOUND: its driver has no MIG
        # NVML_ERROR_INVALID_ARGUMENT: as everywhere, there is no such thing
        ([{"mig_mode_current": missing(2)}] * 2, 2),
        ([], -1),
        # What could not be read agrees with no number, and is not the -1 of nothing to count.
        ([WHOLE, UNREAD], -2),
        ([UNREAD, SEVEN], -2),
        ([WHOLE, {"mig_mode_current": missing(-1), "mig_instances": missing(-1)}], -2),
        ([WHOLE, {"mig_mode_current": value(1), "mig_instances": missing(15)}], -2),
        ([WHOLE, {"mig_mode_current": value(1), "mig_instances": missing(3)}], -2),
        ([WHOLE, {"mig_mode_current": value(1), "mig_instances": value(None)}], -2),
        ([WHOLE, {"mig_mode_current": value(None), "mig_instances": value([])}], -2),
        ([WHOLE, {"mig_mode_current": value(1)}], -2),
        ([WHOLE, {}], -2),
    ],
)
def test_what_a_scheduler_gives_away(gpus, expected):
    assert schedulable_gpus.FilterModule().filters()["schedulable_gpus"]({"gpus": gpus}) == expected


@pytest.mark.parametrize("snapshot", [None, {}, {"gpus": None}])
def test_nothing_to_count(snapshot):
    assert _gpu_use.schedulable(snapshot) == -1
