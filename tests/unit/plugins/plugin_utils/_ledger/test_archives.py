# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's record of the modules that builders compiled."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import LedgerError, check_id

pytestmark = pytest.mark.cores
pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

ONE, TWO = "a" * 64, "b" * 64


def test_an_archive_is_a_builders_with_its_name_and_digest_alone(url):
    database = store.Store(url)
    assert others.find_builders(database, {"x": ONE}) == {}
    others.record_archive(database, "builder-1", "x", ONE)
    others.record_archive(database, "builder-1", "x", ONE)
    assert others.find_builders(store.Store(url), {"x": ONE, "y": TWO}) == {"x": "builder-1"}
    assert others.find_builders(database, {"x": TWO}) == others.find_builders(database, {"y": ONE}) == {}
    assert others.find_builders(database, {}) == {}


def test_two_builders_may_compile_the_same(url):
    database = store.Store(url)
    others.record_archive(database, "builder-1", "x", ONE)
    others.record_archive(database, "builder-2", "x", ONE)
    assert others.find_builders(database, {"x": ONE})["x"] in ("builder-1", "builder-2")


@pytest.mark.parametrize(
    "records, agree, used",
    [
        ([("b1", ONE, "m")], 1, True),
        ([("b1", ONE, "m")], 2, False),
        ([("b1", ONE, "m"), ("b2", TWO, "m")], 2, True),
        ([("b1", ONE, "m"), ("b2", TWO, "m")], 3, False),
        ([("b1", ONE, "m"), ("b2", TWO, "other")], 2, False),
        ([("b1", ONE, "m"), ("b1", TWO, "m")], 2, False),  # one builder, twice
        ([("b1", ONE, ""), ("b2", TWO, "")], 2, False),  # what cannot be compared
        ([("b2", TWO, "m"), ("b3", TWO, "m")], 2, False),  # of another archive than this one
    ],
)
def test_builders_have_to_agree_on_the_modules_of_an_archive(url, records, agree, used):
    database = store.Store(url)
    for builder, sha256, modules in records:
        others.record_archive(database, builder, "x", sha256, modules)
    assert others.find_builders(database, {"x": ONE}, agree) == ({"x": "b1"} if used else {})


def test_a_look_makes_no_ledger(tmp_path):
    database = store.Store("sqlite:///%s/ledger.sqlite" % tmp_path)
    assert others.find_builders(database, {"x": ONE}) == {} and list(tmp_path.iterdir()) == []


def test_the_records_are_no_rollouts_and_no_rollout_can_write_them(url, ledger):
    others.record_archive(store.Store(url), "builder-1", "x", ONE)
    assert ledger.last_id() is None
    with pytest.raises(LedgerError):
        check_id(others.OF_NO_ROLLOUT)
    with pytest.raises(LedgerError):
        others.record_archive(store.Store(url), "../x", "x", ONE)
