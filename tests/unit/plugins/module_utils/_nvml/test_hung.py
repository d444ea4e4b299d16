# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver that did not answer is waited for once, and those who ask next wait shorter: for how long, and what ends
that.
"""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import session, snapshot

pytestmark = pytest.mark.pythons

DRIVER = ["boot-1", 4711]
NOTE = {"driver": DRIVER, "waited_s": 60, "at": 1000.0}


@pytest.mark.parametrize(
    ("note", "wanted_s", "driver", "now", "patience_s"),
    [
        (None, 60, DRIVER, 1001.0, 60),
        (NOTE, 60, DRIVER, 1001.0, snapshot.AGAIN_S),
        (NOTE, 5, DRIVER, 1001.0, 5),
        (NOTE, 61, DRIVER, 1001.0, 61),
        (NOTE, 60, DRIVER, 1000.0 + snapshot.HOLDS_S, snapshot.AGAIN_S),
        (NOTE, 60, DRIVER, 1001.0 + snapshot.HOLDS_S, 60),
        (NOTE, 60, DRIVER, 999.0, 60),
        (NOTE, 60, ["boot-2", 4711], 1001.0, 60),
        (NOTE, 60, ["boot-1", 4712], 1001.0, 60),
        (NOTE, 60, ["boot-1", None], 1001.0, 60),
        (dict(NOTE, waited_s="60"), 60, DRIVER, 1001.0, 60),
        (dict(NOTE, waited_s=True), 1, DRIVER, 1001.0, 1),
        (dict(NOTE, at=None), 60, DRIVER, 1001.0, 60),
        ([NOTE], 60, DRIVER, 1001.0, 60),
    ],
)
def test_how_long_it_is_waited_for(note, wanted_s, driver, now, patience_s):
    assert snapshot.choose_deadline(note, wanted_s, driver, now) == patience_s


class Driver:
    """Answers as told, and notes for how long each call would have waited."""

    def __init__(self, *statuses):
        self.statuses, self.waits = list(statuses), []

    def __call__(self, work, deadline_s, stuck_file):
        self.waits.append(deadline_s)
        status = self.statuses.pop(0)
        return session.Outcome(status, snapshot.blank("ok", "") if status == "ok" else None, "")


def take(driver, stuck_file, deadline_s=60):
    return snapshot.take(deadline_s, stuck_file, load=lambda: (None, None), runner=driver)["status"]


def test_a_driver_that_hangs_costs_one_deadline_and_the_first_answer_ends_that(tmp_path):
    stuck_file = str(tmp_path / "stuck")
    driver = Driver("timeout", "timeout", "timeout", "ok", "ok")
    assert [take(driver, stuck_file) for _number in range(5)] == ["timeout", "timeout", "timeout", "ok", "ok"]
    assert driver.waits == [60, snapshot.AGAIN_S, snapshot.AGAIN_S, snapshot.AGAIN_S, 60]
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("status", ["crashed", "stuck", "ok"])
def test_only_a_driver_that_did_not_answer_leaves_a_note(tmp_path, status):
    driver = Driver(status, status)
    assert take(driver, str(tmp_path / "stuck")) == take(driver, str(tmp_path / "stuck"))
    assert driver.waits == [60, 60]


def test_a_short_wait_in_vain_does_not_make_the_note_last(tmp_path):
    stuck_file = str(tmp_path / "stuck")
    driver = Driver("timeout", "timeout")
    take(driver, stuck_file)
    before = snapshot.recall_hang(stuck_file)
    take(driver, stuck_file)
    assert snapshot.recall_hang(stuck_file) == before


def test_without_a_place_for_the_note_every_wait_is_whole(tmp_path):
    driver = Driver("timeout", "timeout", "timeout", "timeout")
    for stuck_file in (None, None, str(tmp_path / "no" / "stuck"), str(tmp_path / "no" / "stuck")):
        assert take(driver, stuck_file) == "timeout"
    assert driver.waits == [60] * 4


@pytest.mark.parametrize("put", ["text", "link", "directory", "fifo"])
def test_a_note_that_is_none_is_not_believed(tmp_path, put):
    stuck_file = str(tmp_path / "stuck")
    place = snapshot.note_path(stuck_file)
    if put == "text":
        with open(place, "w") as stream:
            stream.write("{")
    elif put == "link":
        snapshot.remember_hang(str(tmp_path / "other"), 60, DRIVER, 1000.0)
        os.symlink(snapshot.note_path(str(tmp_path / "other")), place)
    elif put == "directory":
        os.mkdir(place)
    else:
        os.mkfifo(place)
    assert snapshot.recall_hang(stuck_file) is None


def test_a_module_that_is_loaded_anew_is_another_driver(tmp_path):
    assert snapshot.loaded_driver(str(tmp_path)) == [None, None]
    module = tmp_path / "sys" / "module" / "nvidia"
    module.mkdir(parents=True)
    first = snapshot.loaded_driver(str(tmp_path))
    assert first == snapshot.loaded_driver(str(tmp_path)) and first[1] is not None
    module.rename(tmp_path / "gone")
    module.mkdir()
    assert snapshot.loaded_driver(str(tmp_path)) != first
