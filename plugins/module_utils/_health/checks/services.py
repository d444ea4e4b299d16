# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units that serve GPUs: none failed, and none stopped that ran in the baseline."""

from __future__ import annotations

from ..._node.units import TIMED, WATCHED
from .. import model, nodefacts
from ..nodefacts import Checks

IDENT = "node.units"
RUNNING = ("active", "reloading")
ABSENT = ("not-found",)
OFF = ("disabled", "masked", "masked-runtime")


def check_units(ctx) -> list[dict]:
    """One check for every unit that is installed now or was in the baseline."""
    found = nodefacts.of_kind(model.item(ctx.system, "units"), dict)
    if found is None:
        return [
            Checks(IDENT).unknown(
                None, None, "The state of systemd's units cannot be read. Run systemctl --failed on the node."
            )
        ]
    old = nodefacts.read_baseline(ctx, "system", "units", kind=dict)
    if old.given and not old.known:
        return [
            Checks(IDENT).unknown(
                None,
                None,
                "The baseline does not have the state of systemd's units. %s" % (nodefacts.AGAIN,),
                "baseline",
            )
        ]
    names = sorted(set(name for name in list(WATCHED) + list(found) + list(old.value or {}) if isinstance(name, str)))
    result = [
        check
        for check in (
            check_unit(name, model.item(found, name), model.item(old.value, name), old.given) for name in names
        )
        if check
    ]
    return result or [Checks(IDENT).none("No unit that serves GPUs is installed.")]


def check_unit(name, now, old, compare) -> dict | None:
    """The check of one unit; None where it is not installed and never was."""
    checks = Checks(IDENT, name)
    look = "Look at systemctl status %s on the node." % (name,)
    was = old if isinstance(old, dict) and old.get("load") not in ABSENT else None
    if not isinstance(now, dict) or not isinstance(now.get("load"), str) or not isinstance(now.get("active"), str):
        return checks.unknown(None, model.item(was, "active"), "The state of %s cannot be read. %s" % (name, look))
    if compare and not isinstance(old, dict) and name in WATCHED:
        return checks.unknown(
            format_state(now),
            None,
            "The baseline does not have the state of %s. %s" % (name, nodefacts.AGAIN),
            "baseline",
        )
    expected = format_state(was) if was else "not failed"
    source = "baseline" if was else "policy"
    if now["load"] in ABSENT:
        if was:
            return checks.fail(
                "not installed",
                expected,
                "%s is not installed any more; in the baseline it was %s. Install it again."
                % (name, format_state(was)),
                "hold",
                source,
            )
        return None
    if now["active"] == "failed" or (now["load"] not in ("loaded", "masked")):
        return checks.fail(
            format_state(now),
            expected,
            "%s has failed (result %s). %s" % (name, now.get("result"), look),
            "restart_service",
            source,
        )
    if now["active"] == "activating" and now.get("sub") == "auto-restart":
        return checks.fail(
            format_state(now),
            expected,
            "%s keeps failing and is started again and again (result %s). %s" % (name, now.get("result"), look),
            "restart_service",
            source,
        )
    if name in TIMED and now["active"] in ("activating", "deactivating"):
        return checks.good(format_state(now), expected, source)
    if now["active"] in ("activating", "deactivating", "maintenance"):
        return checks.unknown(
            format_state(now),
            expected,
            "%s is neither up nor down yet (%s). Read the node again. %s" % (name, format_state(now), look),
            source,
        )
    if now["active"] not in RUNNING + ("inactive",):
        return checks.unknown(
            format_state(now), expected, "%s is in the unknown state %s. %s" % (name, format_state(now), look), source
        )
    if now["active"] == "inactive" and was and was.get("active") in RUNNING:
        return checks.fail(
            format_state(now),
            expected,
            "%s ran in the baseline and is %s now. Start it: systemctl start %s." % (name, format_state(now), name),
            "restart_service",
            source,
        )
    if was and was.get("enabled") not in OFF and now.get("enabled") in OFF:
        return checks.notice(
            format_state(now),
            expected,
            "%s is %s now and was %s in the baseline: it will not be there after a reboot. Enable it, or take a new "
            "baseline." % (name, now["enabled"], was.get("enabled")),
            source,
        )
    return checks.good(format_state(now), expected, source)


def format_state(unit_state) -> str:
    """active (running)"""
    return "%s (%s)" % (model.item(unit_state, "active"), model.item(unit_state, "sub"))


ROWS = (
    model.node_row(
        IDENT,
        check_units,
        "No unit that serves GPUs has failed, and what ran in the baseline runs",
        ("system.units",),
        "systemd, org.freedesktop.systemd1(5)",
    ),
)
