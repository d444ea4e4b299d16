# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The notes of a node, which are there whole or not at all; its identity; and how commands are run on it."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import (
    claim,
    identity,
    lock,
    node_state,
    notes,
    runner,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import write

pytestmark = pytest.mark.pythons

NOTE = {"reason": "XID 79", "gpus": [{"serial": "1"}]}
CLAIM = {
    "ledger": "l",
    "rollout_id": "r",
    "attempt": 1,
    "run": "a",
    "plan": "p",
    "controller": "c",
    "state": "held",
    "time": "2026-01-31T12:00:00Z",
}


def perform(directory, check=False, **params):
    given = {name: spec.get("default") for name, spec in node_state.ARGUMENTS.items()}
    given.update({"record": "quarantine", "directory": str(directory), "lock_timeout_s": 0}, **params)
    return node_state.perform(given, check, None, str(directory) + ".lock")


def test_a_note_is_kept_read_and_removed_and_a_second_time_changes_nothing(tmp_path):
    place = tmp_path / "state"
    assert perform(place)["exists"] is False and perform(place, state="absent")["changed"] is False
    foreseen = perform(place, check=True, state="present", content=NOTE)
    assert foreseen["changed"] and json.loads(foreseen["diff"]["after"]) == NOTE and not place.exists()
    kept = perform(place, state="present", content=NOTE)
    assert kept["changed"] and kept["diff"] == foreseen["diff"]
    assert perform(place)["note"] == NOTE and not perform(place, state="present", content=NOTE)["changed"]
    assert os.listdir(str(place)) == ["quarantine.json"] and (place / "quarantine.json").stat().st_mode & 0o777 == 0o644
    assert perform(place, check=True, state="absent")["changed"] and perform(place)["exists"]
    assert perform(place, state="absent")["changed"] and not perform(place)["exists"]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "\xff"])
def test_a_note_that_cannot_be_read_is_there_and_says_nothing(tmp_path, text):
    (tmp_path / "quarantine.json").write_bytes(text.encode("latin-1"))
    found = perform(tmp_path)
    assert found["exists"] and found["note"] is None and found["problem"]
    assert perform(tmp_path, state="present", content=NOTE)["changed"] and perform(tmp_path)["note"] == NOTE


def test_a_note_longer_than_any_of_ours_is_not_read(tmp_path):
    (tmp_path / "quarantine.json").write_text(json.dumps({"reason": "x" * notes.LONGEST}))
    assert perform(tmp_path)["problem"] and perform(tmp_path)["note"] is None


@pytest.mark.parametrize("found, refused", [(CLAIM, True), (dict(CLAIM, state="quarantined"), False), (None, False)])
def test_a_node_that_a_rollout_holds_keeps_its_notes(tmp_path, found, refused):
    if found:
        claim.write(str(tmp_path), found)
    for check in (True, False):
        if refused:
            with pytest.raises(node_state.TaskError, match="rollout r "):
                perform(tmp_path, check, state="present", content=NOTE, refuse_held=True)
        else:
            assert perform(tmp_path, check, state="present", content=NOTE, refuse_held=True)["changed"]
    assert perform(tmp_path)["exists"] is not refused
    assert perform(tmp_path, state="present", content=dict(NOTE, more=1))["changed"], (
        "its own rollout writes it all the same"
    )


def test_a_claim_that_cannot_be_read_counts_as_held(tmp_path):
    (tmp_path / "claim.json").write_text("{")
    with pytest.raises(node_state.TaskError, match="claim.json"):
        perform(tmp_path, state="present", content=NOTE, refuse_held=True)


def test_who_takes_the_node_at_this_moment_is_waited_for(tmp_path):
    place = tmp_path / "state"
    with lock.NodeLock(path=str(place) + ".lock", owner={"module": "node_state"}), pytest.raises(lock.LockTimeout):
        perform(place, state="present", content=NOTE, refuse_held=True)
    assert not perform(place)["exists"]


def test_a_note_of_nothing_is_refused(tmp_path):
    with pytest.raises(node_state.TaskError):
        perform(tmp_path, state="present", content={})


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_left_of_an_earlier_attempt_leaves_no_note(tmp_path, monkeypatch, state):
    """Without the lock too, which something that hangs may hold."""
    claim.write(str(tmp_path), CLAIM)
    perform(tmp_path, record="recovery", state="present", content=NOTE)
    monkeypatch.setenv(claim.FENCE, claim.make_token(CLAIM, str(tmp_path)))
    with lock.NodeLock(path=str(tmp_path) + ".lock"):
        assert perform(tmp_path, state="present", content=NOTE)["changed"]
    claim.write(str(tmp_path), dict(CLAIM, attempt=2, run="b"))
    with pytest.raises(node_state.TaskError, match="belongs to attempt 1"):
        perform(tmp_path, record="recovery", state=state, content={"reason": "late"})
    assert perform(tmp_path, record="recovery")["note"] == NOTE
    assert perform(tmp_path, check=True, record="recovery", state=state, content={"reason": "late"})["changed"], (
        "check mode changes nothing"
    )


MACHINE = "0f3c5e6a7b8c4d9e8f7a6b5c4d3e2f1a"
ONE, OTHER = "GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10", "GPU-6d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10"
TOLD = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.89.00.01\n"


def test_what_a_node_tells(tmp_path):
    write(tmp_path, "/etc/machine-id", MACHINE + "\n")
    write(tmp_path, "/sys/class/dmi/id/board_serial", " QTFCOU1234  5678 \n")
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:c1:00.0/information", TOLD % OTHER)
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:1b:00.0/information", TOLD % ONE.upper().replace("GPU", "GPU"))
    assert identity.read_identity(str(tmp_path)) == {
        "machine_id": MACHINE,
        "board_serial": "QTFCOU1234 5678",
        "gpus": [ONE, OTHER],
    }


@pytest.mark.parametrize(
    "path, text, key",
    [
        ("/etc/machine-id", "", "machine_id"),
        ("/etc/machine-id", "uninitialized\n", "machine_id"),
        ("/etc/machine-id", "0" * 32, "machine_id"),
        *(
            ("/sys/class/dmi/id/board_serial", text, "board_serial")
            for text in (
                "",
                " ",
                "None",
                "To Be Filled By O.E.M.",
                "Default string",
                "0",
                "0000000000",
                "123456789",
                "0123456789",
                "Not Specified",
                "....",
            )
        ),
        (
            "/proc/driver/nvidia/gpus/0000:1b:00.0/information",
            TOLD % "GPU-????????-????-????-????-????????????",
            "gpus",
        ),
        ("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: x\n", "gpus"),
    ],
)
def test_what_says_nothing_is_not_known(tmp_path, path, text, key):
    write(tmp_path, path, text)
    assert identity.read_identity(str(tmp_path))[key] is None


def test_gpus_are_known_only_when_all_are(tmp_path):
    assert identity.read_identity(str(tmp_path)) == {"machine_id": None, "board_serial": None, "gpus": None}
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:1b:00.0/information", TOLD % ONE)
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:c1:00.0/registry", "Binary: \"\"\n")
    assert identity.read_identity(str(tmp_path))["gpus"] is None


def test_answer_and_locale(monkeypatch):
    monkeypatch.setenv("LC_MESSAGES", "de_DE.UTF-8")
    rc, out, err = runner.Runner()(["sh", "-c", "echo $LC_ALL-$LC_MESSAGES-$DEBIAN_FRONTEND; echo problem >&2; exit 3"])
    assert (rc, out, err) == (3, "C--noninteractive\n", "problem\n")


def test_a_missing_command_is_an_answer():
    rc, out, err = runner.Runner()(["no-such-command-here"])
    assert runner.missing(rc) and out == "" and "no-such-command-here" in err


def test_a_command_that_cannot_be_started_is_an_answer(tmp_path):
    assert runner.Runner()([str(tmp_path)])[0] == 126


def test_a_command_past_its_deadline_is_killed_with_its_children(tmp_path, monkeypatch):
    mark = tmp_path / "pid"
    communicate = subprocess.Popen.communicate

    def communicate_then(process, *more, **options):
        """Its time runs once it has begun."""
        until = time.monotonic() + 600
        while not (mark.exists() and mark.read_text().endswith("\n")):
            assert time.monotonic() < until
            time.sleep(0.02)
        return communicate(process, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate_then)
    rc, out, err = runner.Runner()(["sh", "-c", "echo begun; sleep 1200 & echo $! > %s; wait" % mark], timeout=1)
    assert rc == runner.RC_TIMEOUT and out == "begun\n" and "still running after 1 s" in err
    pid = int(mark.read_text())
    for dummy in range(3000):
        if not os.path.exists("/proc/%d" % pid) or "Z" in open("/proc/%d/stat" % pid).read().split(")")[1][:3]:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the grandchild still runs")


def test_output_that_is_not_text():
    assert runner.Runner()(["printf", "a\\377b"])[1] == "a\ufffdb"
