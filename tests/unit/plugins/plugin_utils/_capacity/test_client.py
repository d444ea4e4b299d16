# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer of Prometheus that cannot be used is an error with a code, whatever is in it."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("hypothesis", reason="the plain pytest run has it")

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog, client

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.just(10**400), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def answer(series, kind="matrix"):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": series}}).encode()


@pytest.mark.parametrize("time", [10**400, float("inf"), float("nan"), "x", None, []], ids=str)
def test_time_that_is_none_is_an_error(time):
    with pytest.raises(catalog.CapacityError) as caught:
        client.judge(200, answer([{"metric": {}, "values": [[time, "1"]]}]), "q")
    assert caught.value.code == "error"


@given(st.sampled_from(["vector", "matrix"]), st.lists(JSON, max_size=2))
def test_any_series_is_read_or_an_error(kind, series):
    try:
        found = client.judge(200, answer(series, kind), "q")
    except catalog.CapacityError as exc:
        assert exc.code == "error"
    else:
        assert all(math.isfinite(number) for dummy, points in found for point in points for number in point)
