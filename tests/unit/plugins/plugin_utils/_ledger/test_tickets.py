# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import ALWAYS, DRAIN, PHASES, STEPS
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import plan_event, reduce
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER, TIME, grant


@pytest.mark.parametrize("ended", state.ENDED + ("pending",))
def test_only_a_node_in_flight_may_take_a_step(ended):
    view = reduce([plan_event("a"), grant("a")])
    assert state.require_in_flight(view, "a").name == "a"
    view.nodes.get("a").state = ended
    with pytest.raises(state.StateError, match="^a is %s in .*rollout_gate.*Nothing was changed" % ended):
        state.require_in_flight(view, "a")


def test_an_orphaned_node_and_an_unknown_one_may_not_either():
    view = reduce([plan_event("a"), grant("a"), plan_event("a", run="s", a={"orphaned": True})])
    assert view.nodes.get("a").state == "draining"
    for name, words in (("a", "has no ticket"), ("stranger", "among its nodes.*Nothing was changed")):
        with pytest.raises(state.StateError, match=words):
            state.require_in_flight(view, name)


@pytest.mark.parametrize("step", sorted(STEPS))
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("late", [False, True])
def test_a_step_needs_a_live_ticket_of_its_phase(step, phase, late):
    view = reduce([plan_event("a"), grant("a", phase)])
    now = "2031-01-01T00:00:00.000Z" if late else TIME % 5
    allowed = step in ALWAYS or (STEPS[step][0] == phase and not late)
    if allowed:
        assert state.require_ticket(view, view.nodes.get("a"), step, now) is None
    else:
        words = "expired at %s" % LATER if STEPS[step][0] == phase else "its ticket is for phase %s" % phase
        with pytest.raises(state.StateError, match=words):
            state.require_ticket(view, view.nodes.get("a"), step, now)


def test_a_ticket_is_for_one_plan():
    view = reduce([plan_event("a"), grant("a")])
    view.sha256 = "another"
    with pytest.raises(state.StateError, match="follows plan another now"):
        state.require_ticket(view, view.nodes.get("a"), "evidence", TIME % 5)


@pytest.mark.parametrize(
    "until_s, uptime_s, late, expired",
    [(None, None, False, False), (None, None, True, True), (5.0, None, True, True), (None, 9.0, False, False)]
    # Where the uptime of the controller is known, no clock that was set decides.
    + [(5.0, 4.9, True, False), (5.0, 5.0, False, True)],
)
def test_a_ticket_expires_by_the_uptime_of_its_controller(until_s, uptime_s, late, expired):
    ticket = state.Ticket("t", DRAIN, TIME % 0, TIME % 5, until_s=until_s)
    assert state.has_expired(ticket, TIME % (6 if late else 4), uptime_s) is expired
