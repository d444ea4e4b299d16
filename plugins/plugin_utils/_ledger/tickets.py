# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules on tickets: which step a node may begin now. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import IN_FLIGHT
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.steps import ALWAYS, STEPS


class StateError(Exception):
    """This is not allowed for the node now; the message says why."""


def require_in_flight(view, name):
    """Return the node if it is in flight in this run and has a ticket; refuse it otherwise."""
    node = view.nodes.get(name)
    if node is None:
        raise StateError(
            "%s is not in the plan of rollout %s. Run gpufleet.lifecycle.upgrade with it among its nodes. Nothing was "
            "changed." % (name, view.rollout_id)
        )
    if node.state not in IN_FLIGHT or node.orphaned or node.ticket is None:
        raise StateError(
            "%s is %s in rollout %s and has no ticket; expected one that rollout_gate granted. Run "
            "gpufleet.lifecycle.upgrade from its beginning, without --start-at-task, --tags or --step. Nothing was "
            "changed." % (name, node.state, view.rollout_id)
        )
    return node


def require_ticket(view, node, step, now):
    """Refuse a step without a valid ticket of its phase. NOW is a UTC time in the format of the ledger."""
    phase = STEPS[step][0]
    ticket = node.ticket
    if ticket.sha256 != view.sha256:
        raise StateError(
            "%s has a ticket of plan %s, and rollout %s follows plan %s now. Ask rollout_gate again."
            % (node.name, ticket.sha256[:12], view.rollout_id, view.sha256[:12])
        )
    if step in ALWAYS:
        return
    if phase != ticket.phase:
        raise StateError(
            "%s may not begin step %s: its ticket is for phase %s; expected one for phase %s. Ask rollout_gate with "
            "phase %s first." % (node.name, step, ticket.phase, phase, phase)
        )
    if now >= ticket.expires:
        raise StateError(
            "%s may not begin step %s: its ticket for phase %s expired at %s. Ask rollout_gate with phase %s again."
            % (node.name, step, phase, ticket.expires, phase)
        )
