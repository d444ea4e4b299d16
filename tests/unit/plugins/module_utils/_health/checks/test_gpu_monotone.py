# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No signal that is taken away opens the way: for every case of the truth tables that stops a node, with every notice
made strict.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import registry
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import cases, readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.cases import (
    FAIL,
    GONE,
    NO_BASELINE,
    NOTICE,
    UNKNOWN,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.checks import test_identity_rows

STOPS = (FAIL, UNKNOWN)
WAYS = [
    GONE,
    {"value": 1, "rc": "0"},
    {"value": None, "rc": 0},
    readings.failed(4),
    readings.failed(13),
    readings.failed(999),
    readings.failed(-1),
]
# With a baseline, also what a GPU says of itself: that it has no such signal.
DENIED = [readings.failed(2), readings.failed(3)]
SIGNALS = dict(
    (row.ident, [signal.partition(".")[2] for signal in row.signals if signal.startswith("gpu.")])
    for row in registry.TABLE
)
# Cases where all that is wrong is that a signal is missing say nothing new here.
STOPPING = [one for one in test_identity_rows.ALL if one.outcome in STOPS + (NOTICE,) and one not in cases.MISSING]
# A newer driver, whose lack of a call is never explained by its age.
DRIVER = "580.95.05"


def stops(ident, ctx):
    check = cases.JUDGES[ident](ctx, ctx.snapshot["gpus"][1])
    return check["status"] in STOPS or check["notice"]


def context(one, **options):
    return cases.context(one.now, one.then, **dict({"driver": DRIVER}, **dict(one.options, **options)))[2]


IDENTS = sorted(set(one.ident for one in STOPPING))
# Those that read more of the documents than the GPUs.
WIDE = sorted(
    row.ident
    for row in registry.TABLE
    if row.ident in IDENTS and any(signal.startswith(("reading.", "system.")) for signal in row.signals)
)


def of(ident):
    """The cases of IDENT that stop a node with the newer driver, each with what a judge is given."""
    found = [(one, context(one)) for one in STOPPING if one.ident == ident]
    found = [(one, ctx) for one, ctx in found if stops(ident, ctx)]
    assert found
    return found


def take_away(one, ctx, gpu, key, ways):
    """Take KEY of GPU away in all WAYS; it is put back afterwards."""
    kept = gpu.pop(key, None)
    assert kept is not None or one.now.get(key) == GONE or one.then != NO_BASELINE and one.then.get(key) == GONE
    for way in ways:
        if way != GONE:
            gpu[key] = way
        assert stops(one.ident, ctx), (one, key, way)
        gpu.pop(key, None)
    if kept is not None:
        gpu[key] = kept


@pytest.mark.parametrize("ident", IDENTS)
def test_of_the_reading(ident):
    for one, ctx in of(ident):
        for key in SIGNALS[ident]:
            known = readings.gpus(2)[0][key]["rc"] == 0
            take_away(one, ctx, ctx.snapshot["gpus"][1], key, WAYS + (DENIED if one.then == {} and known else []))


@pytest.mark.parametrize("ident", IDENTS)
def test_of_the_baseline(ident):
    for one, ctx in of(ident):
        if ctx.baseline is not None:
            for key in SIGNALS[ident]:
                take_away(one, ctx, ctx.baseline["snapshot"]["gpus"][1], key, WAYS[:2] + WAYS[-1:])


@pytest.mark.parametrize("ident", WIDE)
@pytest.mark.parametrize("key", ["boot_id", "uptime_s", "system"])
@pytest.mark.parametrize("side", ["reading", "baseline"])
def test_of_the_documents(ident, side, key):
    for one, ctx in of(ident):
        if side == "reading" or ctx.baseline is not None:
            change = dict(one.options.get(side, {}), **{key: None})
            assert stops(ident, context(one, **{side: change})), (one, side, key)
