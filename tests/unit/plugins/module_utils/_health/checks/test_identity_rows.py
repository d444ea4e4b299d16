# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of the rows about what a GPU is: numbers, firmware, MIG; and that every row has been seen in every
colour.
"""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import policy, registry
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import (
    clocks,
    ecc,
    fabric,
    gpus,
    identity,
    mig,
    nvlink,
    pcie,
    power,
    processes,
    remap,
    thermal,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import cases
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.cases import (
    ABSENT,
    FAIL,
    GONE,
    NO_BASELINE,
    NOTICE,
    PASS,
    SKIP,
    UNKNOWN,
    absences,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.checks import (
    test_link_rows,
    test_memory_rows,
    test_running_rows,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed

FAMILIES = (clocks, ecc, fabric, gpus, identity, mig, nvlink, pcie, power, processes, remap, thermal)
GSP = "gsp_firmware_version"
MODE = "gsp_firmware_mode"
ON = {"mig_mode_current": 1, "mig_mode_pending": 1}


def instance(number, profile="1g.10gb", slices=1, uuid=None):
    return {
        "gpu_instance": number,
        "compute_instance": 0,
        "uuid": uuid or "MIG-%d" % number,
        "name": "NVIDIA H100 80GB HBM3 MIG %s" % profile,
        "slices": slices,
        "memory_bytes": 10 << 30,
    }


def hardware(key, other):
    """A number that belongs to the hardware."""
    return [
        ({}, {}, PASS),
        ({key: other}, {}, FAIL, "hold", "is %s; expected" % (other,)),
        ({key: other}, NO_BASELINE, SKIP),
        ({}, {key: GONE}, UNKNOWN, "hold"),
        ({}, {key: ABSENT}, SKIP),
        *absences(key),
    ]


def firmware(key, other):
    """A version that may change, and that somebody should know of."""
    return [
        ({}, {}, PASS),
        ({key: other}, {}, NOTICE, "none", "flashed"),
        ({key: other}, NO_BASELINE, SKIP),
        ({}, {key: GONE}, UNKNOWN, "hold"),
        *absences(key),
    ]


CASES = cases.table(
    {
        "gpu.serial": [*hardware("serial", "9"), ({"serial": 9}, {}, FAIL, "hold", "answered in the baseline")],
        "gpu.board_part_number": [*hardware("board_part_number", "x")],
        "gpu.pci_device": [*hardware("pci_device_id", "10de:0000")],
        "gpu.pci_subsystem": [*hardware("pci_subsystem_id", "10de:0000")],
        "gpu.gsp_version": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            ({GSP: "535.261.03"}, NO_BASELINE, FAIL, "reboot", "is 535.261.03; expected 535.216.03"),
            ({GSP: ABSENT, MODE: {"enabled": False, "default": False}}, {}, SKIP, "none", "without GSP firmware"),
            ({GSP: failed(13)}, NO_BASELINE, SKIP, "none", "before 510", dict(driver="470.57.02")),
            ({GSP: failed(13)}, NO_BASELINE, UNKNOWN, "hold"),
            *absences(GSP, "reboot"),
        ],
        "gpu.gsp_mode": [
            ({}, {}, PASS),
            ({MODE: {"enabled": False, "default": True}}, {}, FAIL, "hold", "NVreg_EnableGpuFirmware"),
            ({}, {MODE: {"enabled": False, "default": False}}, NOTICE, "none", "is on; expected off"),
            ({MODE: {}}, {}, UNKNOWN, "hold"),
            ({}, {MODE: {"enabled": None}}, UNKNOWN, "hold"),
            ({}, NO_BASELINE, SKIP),
            *absences(MODE),
        ],
        "gpu.inforom": [
            ({}, {}, PASS),
            ({"inforom_valid": failed(14)}, NO_BASELINE, FAIL, "field_diag"),
            ({"inforom_valid": failed(14)}, {"inforom_valid": failed(14)}, FAIL, "field_diag"),
            ({"inforom_valid": False}, {}, FAIL, "field_diag", "not valid"),
            ({"inforom_valid": 1}, NO_BASELINE, UNKNOWN, "hold"),
            *absences("inforom_valid", "field_diag"),
        ],
        "gpu.inforom_checksum": [*firmware("inforom_config_checksum", 1)],
        "gpu.inforom_version": [*firmware("inforom_image_version", "G520.0200.00.06")],
        "gpu.vbios": [*firmware("vbios_version", "96.00.99.00.01")],
        "gpu.mig_pending": [
            ({}, {}, PASS),
            ({"mig_mode_pending": 1}, NO_BASELINE, FAIL, "reset_gpu", "at 0000:1b:00.0 is 0 and becomes 1"),
            *absences("mig_mode_pending"),
            *absences("mig_mode_current"),
        ],
        "gpu.mig_mode": [
            ({}, {}, PASS),
            ({"mig_mode_current": 0}, ON, FAIL, "restore_setting", "is 0; expected 1"),
            (ON, NO_BASELINE, SKIP),
            ({}, {"mig_mode_current": GONE}, UNKNOWN, "hold"),
            *absences("mig_mode_current", "restore_setting"),
        ],
        "gpu.mig_layout": [
            ({}, {}, PASS),
            ({"mig_instances": [instance(7), instance(8)]}, {"mig_instances": [instance(8), instance(7)]}, PASS),
            ({"mig_instances": []}, {"mig_instances": [instance(7)]}, FAIL, "restore_setting", "expected 1g.10gb (1"),
            ({"mig_instances": [instance(7)]}, {}, FAIL, "restore_setting", "expected none"),
            ({"mig_instances": [instance(7)]}, {"mig_instances": [instance(7), instance(8)]}, FAIL, "restore_setting"),
            (
                {"mig_instances": [instance(7, "2g.20gb", 2)]},
                {"mig_instances": [instance(7)]},
                FAIL,
                "restore_setting",
                "2g.20gb",
            ),
            (
                {"mig_instances": [instance(7, uuid="MIG-x")]},
                {"mig_instances": [instance(7)]},
                NOTICE,
                "none",
                "found MIG-x; expected MIG-7",
            ),
            ({"mig_instances": [{}]}, {}, UNKNOWN, "hold"),
            ({"mig_instances": [None]}, NO_BASELINE, UNKNOWN, "hold"),
            ({}, {"mig_instances": [{}]}, UNKNOWN, "hold"),
            ({}, {"mig_instances": GONE}, UNKNOWN, "hold"),
            ({}, NO_BASELINE, SKIP),
            (ON, NO_BASELINE, NOTICE, "none", "has no instances"),
            (dict(ON, mig_instances=[instance(7)]), NO_BASELINE, SKIP),
            ({"mig_mode_current": GONE}, NO_BASELINE, UNKNOWN, "hold"),
            *absences("mig_instances", "restore_setting"),
        ],
    }
)


@pytest.mark.parametrize("one", CASES, ids=cases.name)
def test_the_truth_table(one):
    cases.holds(one)


ALL = CASES + test_link_rows.CASES + test_memory_rows.CASES + test_running_rows.CASES
ROWS = [row for family in FAMILIES for row in family.ROWS if row.scope == "gpu"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.ident)
def test_every_row_was_seen_to_pass_to_stop_a_node_to_be_unknown_and_not_to_apply(row):
    outcomes = cases.outcomes(ALL)[row.ident]
    assert outcomes >= {PASS, UNKNOWN, SKIP}
    assert outcomes & {FAIL, NOTICE}
    with_baseline = set(one.outcome for one in ALL if one.ident == row.ident and one.then != NO_BASELINE)
    without = set(one.outcome for one in ALL if one.ident == row.ident and one.then == NO_BASELINE)
    assert len(with_baseline) >= 2 and without, "with a baseline and without one"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.ident)
def test_every_row_is_registered_and_explains_itself(row):
    assert row in registry.TABLE
    assert row.title and row.source
    for signal in row.signals:
        section, dot, key = signal.partition(".")
        assert dot and section in ("gpu", "snapshot", "reading", "system", "audit")
        if section == "gpu":
            assert key in cases.readings.gpus(2)[0], "%s reads %s, which no reading has" % (row.ident, key)


def test_every_threshold_of_these_rows_is_explained_and_the_strictest_is_at_least_as_strict():
    text = "".join(pathlib.Path(family.__file__).read_text() for family in FAMILIES)
    mine = [key for key in policy.STRICTEST if '"%s"' % key in text] + [
        "bank_%s_max" % name for name in ("partial", "low", "none")
    ]
    assert len(mine) >= 30
    for key in mine:
        content, strictest = cases.POLICY[key], policy.STRICTEST[key]
        assert content["unit"] and content["text"].endswith(".") and content["source"]
        assert (
            strictest >= content["value"] if "_min" in key.replace("_minute", "") else strictest <= content["value"]
        ), key
