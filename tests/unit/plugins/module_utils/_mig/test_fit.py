# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a layout fits: compared with every way to place it."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import fit
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig import boards

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
pytestmark = pytest.mark.pythons

BOARDS = {"a100": boards.a100(), "a30": boards.a30()}
BOARDS.update((model, boards.simulated(model)) for model in ("a100-80-sxm", "h100-sxm", "h200", "b200", "rtx-pro-6000"))
BOARDS["rtx-pro-5000"] = [
    boards.profile(0, "2g.48gb", 1, 48640, [[0, 2]], copy=4, decoder=3, encoder=3, jpeg=1, ofa=1),
    boards.profile(1, "1g.24gb", 2, 24192, [[0, 1], [1, 1]], copy=1, decoder=1, encoder=1, jpeg=0, ofa=0),
    boards.profile(2, "1g.24gb+me.all", 1, 24192, [[0, 1], [1, 1]], copy=1, decoder=3, encoder=3, jpeg=1, ofa=1),
    boards.profile(3, "1g.24gb-me", 2, 24192, [[0, 1], [1, 1]], copy=1, decoder=0, encoder=0, jpeg=0, ofa=0),
]
# An integrated GPU has no memory of its own, and three slices (NVIDIA's MIG user guide, Thor).
BOARDS["thor"] = [
    boards.profile(0, "3g.0gb", 1, 0, [[0, 4]], decoder=2, ofa=1),
    boards.profile(1, "2g.0gb", 1, 0, [[0, 2]], decoder=1, ofa=0),
    boards.profile(2, "1g.0gb", 1, 0, [[0, 1], [1, 1], [2, 1]], decoder=1, ofa=0),
    boards.profile(3, "1g.0gb+me", 1, 0, [[0, 1], [1, 1], [2, 1]], decoder=1, ofa=1),
]


def together(places, profiles):
    """Whether PLACES can exist at once, counted slice by slice."""
    by_id = {profile["id"]: profile for profile in profiles}
    taken = [number for place in places for number in range(place.start, place.start + place.size)]
    if len(taken) != len(set(taken)):
        return False
    whole = max(profiles, key=lambda profile: profile["slices"])
    for engine in whole["engines"]:
        most = max(profile["engines"][engine] * profile["count"] for profile in profiles)
        if sum(by_id[place.profile]["engines"][engine] for place in places) > most:
            return False
    counts = {ident: sum(place.profile == ident for place in places) for ident in by_id}
    return sum(by_id[place.profile]["slices"] for place in places) <= whole["slices"] and all(
        counts[ident] <= by_id[ident]["count"] for ident in by_id
    )


def every_way(wanted, profiles):
    """Every set of places for WANTED."""
    by_id = {profile["id"]: profile for profile in profiles}
    parts = [
        itertools.combinations([fit.Place(ident, start, size) for start, size in by_id[ident]["placements"]], count)
        for ident, count in wanted.items()
        if count
    ]
    for chosen in itertools.product(*[list(part) for part in parts]):
        places = [place for part in chosen for place in part]
        if together(places, profiles):
            yield places


@st.composite
def cases(draw):
    profiles = BOARDS[draw(st.sampled_from(sorted(BOARDS)))]
    idents = [profile["id"] for profile in profiles]
    wanted = draw(st.dictionaries(st.sampled_from(idents), st.integers(1, 7), max_size=4))
    existing = []
    for ident in draw(st.lists(st.sampled_from(idents), max_size=7)):
        by_id = {profile["id"]: profile for profile in profiles}
        start, size = draw(st.sampled_from([tuple(place) for place in by_id[ident]["placements"]]))
        place = fit.Place(ident, start, size)
        if together(existing + [place], profiles):
            existing.append(place)
    return profiles, wanted, existing


@hypothesis.given(cases())
def test_the_decider_agrees_with_exhaustive_search(case):
    profiles, wanted, existing = case
    ways = list(every_way(wanted, profiles))
    found = fit.find(wanted, existing, profiles)
    assert (found is None) == (not ways)
    if found is not None:
        kept = [existing[position] for position in found.keep]
        places = kept + list(found.create)
        assert together(places, profiles)
        assert {ident: sum(place.profile == ident for place in places) for ident in wanted} == wanted
        # No way to place it keeps more of what is there.
        assert len(kept) == max(len(set(existing) & set(way)) for way in ways)


@hypothesis.given(cases())
def test_what_is_suggested_fits(case):
    profiles, wanted, dummy = case
    for layout in fit.suggestions(wanted, profiles):
        assert list(every_way(layout, profiles))


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_placements_that_are_not_told_while_mig_is_off_are_derived(board):
    silent = [dict(profile, placements=None) for profile in BOARDS[board]]
    for told, untold in zip(BOARDS[board], silent):
        assert fit.placements(untold, silent) == [tuple(place) for place in told["placements"]], told["name"]


@pytest.mark.parametrize(
    ("board", "layout"), [(board, layout) for board in boards.SHIPPED for layout in boards.shipped(board)]
)
@pytest.mark.parametrize("told", [True, False])
def test_shipped_layouts_fit_whether_or_not_the_driver_tells_placements(board, layout, told):
    profiles = [dict(profile, placements=profile["placements"] if told else None) for profile in BOARDS[board]]
    names = {profile["name"]: profile["id"] for profile in profiles}
    wanted = {names[name]: count for name, count in layout.items()}
    assert fit.find(wanted, (), profiles) is not None


@pytest.mark.parametrize(
    ("board", "wanted"), [("rtx-pro-5000", {1: 1, 2: 1}), ("thor", {0: 1, 2: 1}), ("b200", {9: 3})]
)
def test_more_than_a_board_has_does_not_fit(board, wanted):
    silent = [dict(profile, placements=None) for profile in BOARDS[board]]
    assert fit.find(wanted, (), BOARDS[board]) is None and fit.find(wanted, (), silent) is None


def test_three_3g_and_a_1g_do_not_fit_and_three_2g_and_a_1g_would():
    profiles = BOARDS["a100"]
    assert fit.find({9: 3, 19: 1}, (), profiles) is None
    assert fit.suggestions({9: 3, 19: 1}, profiles)[0] == {14: 3, 19: 1}


def test_an_instance_that_is_in_use_is_kept_before_others():
    """Either of the two 1g can stay beside 4g at 0; the one that something runs in does."""
    existing = [fit.Place(19, 4, 1), fit.Place(19, 5, 1)]
    for used in (0, 1):
        found = fit.find({5: 1, 19: 1}, existing, BOARDS["a100"], fixed=[used])
        assert found.keep == (used,)


def test_what_is_in_use_does_not_keep_a_layout_from_fitting():
    found = fit.find({0: 1}, [fit.Place(19, 6, 1)], BOARDS["a100"], fixed=[0])
    assert found == fit.Fit((), (fit.Place(0, 0, 8),))


def test_an_instance_that_cannot_stay_goes():
    """3g at 0 is wanted, and 4g fits at 0 only."""
    found = fit.find({5: 1, 9: 1}, [fit.Place(9, 0, 4)], BOARDS["a100"])
    assert found.keep == () and sorted(found.create) == [fit.Place(5, 0, 4), fit.Place(9, 4, 4)]
