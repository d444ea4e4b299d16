# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services of a node are stopped or started under its lock, one after the other, and each is read back from systemd."""

from __future__ import annotations

import time

from . import lock, units
from .runner import Runner

STARTED, STOPPED = "started", "stopped"
START, STOP, RESTART, WAIT, NOTHING = "start", "stop", "restart", "wait", ""
ARGUMENTS = dict(
    {
        "services": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "choices": [STARTED, STOPPED], "required": True},
        "restart": {"type": "list", "elements": "str", "default": []},
        "timeout_s": {"type": "int", "default": 900},
    },
    **lock.ARGUMENTS,
)
# How systemd names a unit's states (systemctl(1), "ActiveState"; systemd.exec of load states).
RUNS = ("active", "reloading", "refreshing")
RESTS = ("inactive", "failed")
UNKNOWN_UNIT, MASKED, UNREAD, NOT_STARTED, NOT_STOPPED = (
    "unknown_unit",
    "masked",
    "unread",
    "not_started",
    "not_stopped",
)
# What a unit needs after systemctl returned: a service that fails at once passes through other states first.
SETTLE_S, POLL_S = 10, 0.5


class ServicesError(Exception):
    """Nothing was changed; the message says why."""


def full(name) -> str:
    """The name of a unit as systemd tells it: without a suffix, a service is meant."""
    return name if "." in name else name + ".service"


def refusal(wanted, unit) -> tuple[str, str] | None:
    """(code, words) of why systemd cannot be told to do it; nothing when it can."""
    load = unit["load"]
    if load == "masked" and wanted == STARTED and unit["active"] not in RUNS:
        return MASKED, "it is masked: systemctl unmask"
    if load not in ("loaded", "masked"):
        return UNKNOWN_UNIT, "systemd has no usable unit of this name (LoadState %s)" % (load or "unknown")
    return None


def due(wanted, unit, again=False) -> str:
    """Decide what to do about an existing unit.

    One that is starting already is waited for, unless it has to start AGAIN.
    """
    if wanted == STOPPED:
        return NOTHING if unit["active"] in RESTS else STOP
    if again and unit["active"] not in RESTS:
        return RESTART
    if unit["active"] in RUNS:
        return NOTHING
    return WAIT if unit["active"] == "activating" else START


def has_reached(wanted, unit, rc) -> bool | None:
    """True, False, or None while it cannot be told yet, of a unit that was read after systemctl answered RC.

    A service of type oneshot has run when it is inactive and its result is a success.
    """
    active = unit["active"]
    if wanted == STOPPED:
        return active in RESTS or (None if active == "deactivating" else False)
    if active in RUNS:
        return True
    if active == "inactive" and unit["type"] == "oneshot":
        return rc == 0 and unit["result"] == "success"
    return None if active == "activating" else False


class Services:
    """One run of module node_services. ``runner`` calls commands."""

    def __init__(self, params, runner, sleep=time.sleep, clock=time.monotonic) -> None:
        self.wanted, self.timeout_s = params["state"], params["timeout_s"]
        self.names = list(dict.fromkeys(full(name) for name in params["services"]))
        self.again = [full(name) for name in params["restart"]]
        self.runner, self.sleep, self.clock = runner, sleep, clock
        self.failures = []

    def read_units(self, names) -> dict[str, dict] | None:
        """The units by their names; None when systemd does not tell all of them."""
        return units.show(self.runner, names, {"Type": "type"})

    def run(self, check=False) -> dict:
        """The result of the module."""
        before = self.read_units(self.names)
        if before is None:
            raise ServicesError(
                "systemd does not say how %s are; expected an answer for each. Nothing was changed. "
                "Next step: try systemctl show with these names on the node." % ", ".join(self.names)
            )
        rows = [self.one(name, before[name], check) for name in self.names]
        return {
            "changed": any(row["changed"] for row in rows),
            "services": rows,
            "failures": self.failures,
            "actions": ["%s %s" % (row["action"], row["name"]) for row in rows if row["action"]],
            "msg": "; ".join("%s: %s" % (failure["service"], failure["message"]) for failure in self.failures),
        }

    def one(self, name, unit, check) -> dict:
        """Bring one unit where it is to be. What fails keeps no other from its turn."""
        refused = refusal(self.wanted, unit)
        action = NOTHING if refused else due(self.wanted, unit, name in self.again)
        if refused:
            self.fail(name, *refused)
        elif action and not check:
            unit = self.act(name, action) or unit
        told = dict((key, unit[key]) for key in ("load", "active", "sub", "result"))
        return dict(told, name=name, action=action, changed=action in (START, STOP, RESTART))

    def act(self, name, action) -> dict | None:
        """Tell systemd, wait for it, and read back; the unit as it is then."""
        verb = action if action in (STOP, RESTART) else START
        rc, out, err = self.runner(["systemctl", verb, name], self.timeout_s)
        until = self.clock() + SETTLE_S
        while True:
            found = self.read_units([name])
            if found is None:
                self.fail(name, UNREAD, "systemd does not say how it is after systemctl %s" % verb)
                return None
            unit = found[name]
            there = has_reached(self.wanted, unit, rc)
            if action == RESTART and rc:
                there = False  # it may be the one that ran before
            if there is None and self.clock() < until:
                self.sleep(POLL_S)
                continue
            if not there:
                said = " ".join((err or out).split()) or "it said nothing"
                self.fail(
                    name,
                    NOT_STOPPED if action == STOP else NOT_STARTED,
                    "it is %s (%s, result %s) after systemctl %s, which answered rc %s: %s; expected %s. Next step: "
                    "journalctl -u %s"
                    % (
                        unit["active"],
                        unit["sub"],
                        unit["result"],
                        verb,
                        rc,
                        said,
                        "inactive" if action == STOP else "active",
                        name,
                    ),
                )
            return unit

    def fail(self, name, code, message) -> None:
        self.failures.append({"service": name, "code": code, "message": message})


def perform(params, check, runner_of=Runner, lock_path=lock.DEFAULT_PATH) -> dict:
    """The result of the module.

    RUNNER_OF makes what calls commands, given the descriptors that they are to keep open.
    """
    if params["timeout_s"] < 1:
        raise ServicesError("timeout_s is %d; expected seconds, 1 or more. Nothing was changed." % params["timeout_s"])
    if check:
        return Services(params, runner_of([])).run(check=True)
    lock.ignore_hangup()
    owner = {"module": "node_services", "rollout_id": params["rollout_id"], "step": params["step"]}
    with lock.NodeLock(path=lock_path, owner=owner, timeout_s=params["lock_timeout_s"]) as held:
        # What systemctl waits for keeps the lock when this process is killed.
        return Services(params, runner_of([held.fd])).run()
