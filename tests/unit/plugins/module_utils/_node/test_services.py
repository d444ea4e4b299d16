# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that are stopped and started under the node's lock: what is due, what counts as done, and whom it is
refused.
"""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, lock, services
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import locks

pytestmark = pytest.mark.pythons

STARTED, STOPPED = services.STARTED, services.STOPPED
A, B = "a.service", "b.service"


def unit(active="active", load="loaded", kind="simple", result="success", sub="running"):
    return {"active": active, "load": load, "type": kind, "result": result, "sub": sub}


@pytest.mark.parametrize(
    ("active", "to_start", "to_stop"),
    [
        ("active", "", "stop"),
        ("reloading", "", "stop"),
        ("refreshing", "", "stop"),
        ("activating", "wait", "stop"),
        ("inactive", "start", ""),
        ("failed", "start", ""),
        ("deactivating", "start", "stop"),
        ("maintenance", "start", "stop"),
        (None, "start", "stop"),
    ],
)
def test_what_is_due(active, to_start, to_stop):
    assert [services.due(wanted, unit(active)) for wanted in (STARTED, STOPPED)] == [to_start, to_stop]


@pytest.mark.parametrize(
    ("active", "to_start"),
    [
        ("active", "restart"),
        ("reloading", "restart"),
        ("activating", "restart"),
        ("deactivating", "restart"),
        (None, "restart"),
        ("inactive", "start"),
        ("failed", "start"),
    ],
)
def test_what_is_due_of_a_unit_that_has_to_start_again(active, to_start):
    assert [services.due(wanted, unit(active), True) for wanted in (STARTED, STOPPED)] == [
        to_start,
        services.due(STOPPED, unit(active)),
    ]


@pytest.mark.parametrize(
    ("load", "active", "to_start", "to_stop"),
    [
        ("loaded", "inactive", None, None),
        ("masked", "inactive", "masked", None),
        ("masked", "active", None, None),
        ("not-found", "inactive", "unknown_unit", "unknown_unit"),
        ("bad-setting", "inactive", "unknown_unit", "unknown_unit"),
        ("error", "inactive", "unknown_unit", "unknown_unit"),
        (None, "inactive", "unknown_unit", "unknown_unit"),
    ],
)
def test_what_systemd_is_not_told(load, active, to_start, to_stop):
    found = [services.refusal(wanted, unit(active, load)) for wanted in (STARTED, STOPPED)]
    assert [why and why[0] for why in found] == [to_start, to_stop]


@pytest.mark.parametrize(
    ("wanted", "rc", "found", "there"),
    [
        (STARTED, 0, unit(), True),
        (STARTED, 1, unit(), True),  # systemd is believed, and not systemctl
        (STARTED, 0, unit("reloading"), True),
        (STARTED, 0, unit("activating", sub="auto-restart"), None),
        (STARTED, 0, unit("failed", result="exit-code"), False),
        (STARTED, 0, unit("inactive"), False),  # it ended at once, or a condition of it did not hold
        (STARTED, 0, unit(None), False),
        (STARTED, 0, unit("inactive", kind="oneshot"), True),
        (STARTED, 1, unit("inactive", kind="oneshot"), False),
        (STARTED, 0, unit("inactive", kind="oneshot", result="exit-code"), False),
        (STARTED, 0, unit("inactive", kind="oneshot", result=None), False),
        (STARTED, 0, unit("inactive", kind=None), False),
        (STOPPED, 0, unit("inactive"), True),
        (STOPPED, 0, unit("failed", result="timeout"), True),
        (STOPPED, 124, unit("deactivating"), None),
        (STOPPED, 0, unit("active"), False),
        (STOPPED, 0, unit("activating"), False),
        (STOPPED, 0, unit(None), False),
    ],
)
def test_whether_it_is_there(wanted, rc, found, there):
    assert services.has_reached(wanted, found, rc) is there


class Systemd:
    """A stand-in for systemctl: units by name, what becomes of each that is told, and what it was asked."""

    def __init__(self, **units):
        self.units = {name + ".service": dict(found) for name, found in units.items()}
        self.becomes = {}  # (verb, name): the states that follow, the last one stays
        self.told, self.slept, self.descriptors, self.answers, self.at = [], [], None, {}, 0.0

    def of(self, descriptors):
        self.descriptors = descriptors
        return self

    def __call__(self, argv, timeout):
        words = [word for word in argv[1:] if not word.startswith("-")]
        verb, names = words[0], words[1:]
        if verb == "show":
            if self.answers.get("show"):
                return 1, "", "Failed to connect to bus"
            return 0, "\n\n".join(self.shown(name) for name in names), ""
        self.told.append((verb, names[0], timeout))
        default = [unit("inactive", sub="dead")] if verb == "stop" else [unit()]
        self.units[names[0]] = self.becomes.get((verb, names[0]), default)
        return self.answers.get(names[0], (0, "", ""))

    def shown(self, name):
        found = self.units.get(name, unit("inactive", "not-found"))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        keys = {"ActiveState": "active", "LoadState": "load", "SubState": "sub", "Type": "type", "Result": "result"}
        return "\n".join(
            ["Id=" + name, "Names=" + name] + ["%s=%s" % (theirs, found[ours] or "") for theirs, ours in keys.items()]
        )

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.at += seconds

    def clock(self):
        return self.at


def given(*names, **more):
    return dict(
        {
            "services": list(names),
            "state": STOPPED,
            "restart": [],
            "timeout_s": 60,
            "lock_timeout_s": 0,
            "rollout_id": None,
            "step": None,
        },
        **more,
    )


def run(systemd, *names, check=False, **more):
    return services.Services(given(*names, **more), systemd, systemd.sleep, systemd.clock).run(check)


def test_each_has_its_turn_and_a_second_run_changes_nothing():
    systemd = Systemd(a=unit(), b=unit())
    first = run(systemd, "b", A)
    assert systemd.told == [("stop", B, 60), ("stop", A, 60)]
    assert first["actions"] == ["stop b.service", "stop a.service"]
    assert first["changed"] and first["failures"] == []
    assert [row["active"] for row in first["services"]] == ["inactive"] * 2
    assert run(systemd, B, A) == {
        "changed": False,
        "services": [dict(row, action="", changed=False) for row in first["services"]],
        "failures": [],
        "actions": [],
        "msg": "",
    }
    back = run(systemd, A, B, state=STARTED)
    assert systemd.told[2:] == [("start", A, 60), ("start", B, 60)] and back["changed"] and systemd.slept == []


@pytest.mark.parametrize("state", [STARTED, STOPPED])
def test_check_mode_says_the_same_and_does_nothing(state):
    units = {"a": unit(), "b": unit("inactive"), "c": unit("inactive", "not-found"), "d": unit("activating")}
    names = ["a", "b", "c", "d"]
    before, then = Systemd(**units), Systemd(**units)
    said, done = run(before, *names, check=True, state=state), run(then, *names, state=state)
    assert before.told == [] and then.told != []
    for key in ("changed", "actions", "failures", "msg"):
        assert said[key] == done[key], key
    assert [row["action"] for row in said["services"]] == [row["action"] for row in done["services"]]


def test_what_fails_keeps_no_other_from_its_turn_and_is_named():
    systemd = Systemd(a=unit("inactive"), b=unit("inactive"))
    systemd.becomes["start", A] = [unit("failed", result="exit-code", sub="failed")]
    systemd.answers[A] = (1, "", "Job for a.service failed.\n")
    result = run(systemd, "gone", A, B, state=STARTED)
    assert [(failure["service"], failure["code"]) for failure in result["failures"]] == [
        ("gone.service", "unknown_unit"),
        (A, "not_started"),
    ]
    assert [word[:2] for word in systemd.told] == [("start", A), ("start", B)]
    assert result["services"][2]["active"] == "active"
    assert "Job for a.service failed." in result["msg"] and "exit-code" in result["msg"]
    assert "gone.service" in result["msg"]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([unit("activating", sub="auto-restart"), unit("activating"), unit()], None),
        ([unit("activating", sub="auto-restart")], "not_started"),
        ([unit("activating"), unit("failed")], "not_started"),
    ],
)
def test_a_service_that_fails_at_once_is_not_taken_for_one_that_runs(states, code):
    systemd = Systemd(a=unit("inactive"))
    systemd.becomes["start", A] = states
    result = run(systemd, A, state=STARTED)
    assert [failure["code"] for failure in result["failures"]] == ([code] if code else [])
    assert sum(systemd.slept) <= services.SETTLE_S


@pytest.mark.parametrize(("rc", "failures"), [(0, []), (1, ["not_started"]), (124, ["not_started"])])
def test_a_unit_is_started_again_only_where_that_is_asked_for_and_systemctl_says_so(rc, failures):
    systemd = Systemd(a=unit(), b=unit())
    systemd.answers[A] = (rc, "", "")
    result = run(systemd, "a", "b", state=STARTED, restart=["a"])
    assert [told[:2] for told in systemd.told] == [("restart", A)] and result["changed"] is True
    assert [failure["code"] for failure in result["failures"]] == failures


def test_one_that_starts_already_is_waited_for_and_is_no_change():
    systemd = Systemd(a=unit("activating"))
    result = run(systemd, A, state=STARTED)
    assert (systemd.told, result["actions"], result["changed"]) == ([("start", A, 60)], ["wait a.service"], False)


def test_a_stop_that_does_not_end_is_told_and_nothing_else_is_done_to_it():
    systemd = Systemd(a=unit())
    systemd.becomes["stop", A] = [unit("deactivating", sub="stop-sigterm")]
    systemd.answers[A] = (124, "", "systemctl: still running after 60 s, killed")
    result = run(systemd, A)
    assert [failure["code"] for failure in result["failures"]] == ["not_stopped"] and systemd.told == [("stop", A, 60)]


def test_systemd_that_does_not_answer():
    systemd = Systemd(a=unit())
    systemd.answers["show"] = True
    with pytest.raises(services.ServicesError, match="Nothing was changed"):
        run(systemd, A)
    assert systemd.told == []
    later = Systemd(a=unit())
    later.answers[A] = (0, "", "")
    real = later.shown
    later.shown = lambda name: real(name) if not later.told else ""
    assert [failure["code"] for failure in run(later, A)["failures"]] == ["unread"]


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_that_is_none(tmp_path, seconds):
    systemd = Systemd(a=unit())
    with pytest.raises(services.ServicesError, match="timeout_s"):
        services.perform(given(A, timeout_s=seconds), False, systemd.of, str(tmp_path / "lock"))
    assert systemd.told == [] and not (tmp_path / "lock").exists()


# Under the lock

MINE = {
    "ledger": "l",
    "rollout_id": "r",
    "run": "one",
    "plan": "p",
    "controller": "c",
    "time": "t",
    "state": "held",
    "attempt": 1,
}


def test_it_works_under_the_lock_and_hands_it_to_what_it_calls(tmp_path, monkeypatch):
    systemd, path, seen = Systemd(a=unit()), str(tmp_path / "lock"), []
    monkeypatch.setattr(lock, "ignore_hangup", lambda: seen.append("goes on without a terminal"))
    real = systemd.shown
    systemd.shown = lambda name: seen.append((locks.is_held(path), lock.read_json(path))) or real(name)
    services.perform(given(A, rollout_id="r", step="stop"), False, systemd.of, path)
    assert seen[0] == "goes on without a terminal" and seen[1][0] is True
    assert {key: seen[1][1][key] for key in ("module", "rollout_id", "step")} == {
        "module": "node_services",
        "rollout_id": "r",
        "step": "stop",
    }
    assert len(systemd.descriptors) == 1 and locks.is_held(path) is False
    with lock.NodeLock(path=path), pytest.raises(lock.LockTimeout):
        services.perform(given(A, state=STARTED), False, systemd.of, path)
    with lock.NodeLock(path=path):
        assert services.perform(given(A, state=STARTED), True, systemd.of, path)["actions"] == ["start a.service"], (
            "check mode needs no lock"
        )
    assert systemd.told == [("stop", A, 60)]


@pytest.mark.parametrize("state", [STARTED, STOPPED])
@pytest.mark.parametrize("then", [dict(MINE, attempt=2, run="two"), dict(MINE, rollout_id="s"), None])
def test_an_attempt_that_was_followed_by_another_does_nothing(tmp_path, monkeypatch, state, then):
    claim.write(str(tmp_path), MINE)
    monkeypatch.setenv(claim.FENCE, claim.make_token(MINE, str(tmp_path)))
    monkeypatch.setattr(lock, "ignore_hangup", lambda: None)
    systemd = Systemd(a=unit(), b=unit("inactive"))
    assert services.perform(given(A, B, state=state), False, systemd.of, str(tmp_path / "lock"))["changed"]
    told = list(systemd.told)
    if then:
        claim.write(str(tmp_path), then)
    else:
        os.unlink(str(tmp_path / claim.NAME))
    systemd.units = {A: unit(), B: unit("inactive")}
    with pytest.raises(lock.Fenced):
        services.perform(given(A, B, state=state), False, systemd.of, str(tmp_path / "lock"))
    assert systemd.told == told


def test_what_is_told_can_be_sent():
    systemd = Systemd(a=unit(), b=unit("inactive", "masked"))
    assert json.loads(json.dumps(run(systemd, A, B, state=STARTED)))["failures"][0]["code"] == "masked"
