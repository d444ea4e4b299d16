# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook's process and its workers share."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("ansible", reason="only the controller has workers")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.lot import LINE_MAX, Lot

pytestmark = pytest.mark.cores


@pytest.fixture(name="lot")
def _lot(tmp_path):
    made = Lot(str(tmp_path))
    yield made
    os.close(made.reader)
    os.close(made.writer)


def test_a_task_finds_what_it_left_once_and_another_one_does_not(lot):
    lot.leave("n1", "task-1", 5, {"deadline": 1.5, "words": ["ü"]})
    assert lot.note("n2", "task-1") == lot.note("n1", "task-2") == {}
    assert lot.note("n1", "task-1") == {"deadline": 1.5, "words": ["ü"]}
    assert lot.note("n1", "task-1") == {}, "the same task may be begun for the same host once more, such as a turn of a loop of includes"


def test_arrivals_are_told_once_and_in_their_order(lot):
    assert lot.arrivals() == []
    lot.leave("n1", "task-1", 5, {})
    lot.leave("n2", "task-1", 2.5, {})
    assert lot.arrivals() == [("n1", "task-1", 5), ("n2", "task-1", 2.5)]
    assert lot.arrivals() == []


def test_what_arrives_in_parts_is_put_together(lot):
    os.write(lot.writer, b'["n1", "ta')
    assert lot.arrivals() == []
    os.write(lot.writer, b'sk-1", 3]\n["n2"')
    assert lot.arrivals() == [("n1", "task-1", 3)]
    os.write(lot.writer, b', "task-2", 4]\n')
    assert lot.arrivals() == [("n2", "task-2", 4)]


def test_workers_do_not_mix_their_lines(lot):
    children = []
    for number in range(4):
        pid = os.fork()
        if not pid:
            for turn in range(50):
                lot.leave("n%d" % number, "task-%d%s" % (turn, "x" * 200), 1, {"number": number})
            os._exit(0)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    found = lot.arrivals()
    assert len(found) == 200 and len(set(found)) == 200
    assert lot.note("n3", "task-49" + "x" * 200) == {"number": 3}


def test_what_would_be_mixed_is_refused(lot):
    with pytest.raises(ValueError, match="the name of host n1 and its task are"):
        lot.leave("n1", "x" * LINE_MAX, 1, {})
    assert lot.arrivals() == []


def test_nobody_else_reads_what_was_left(lot):
    lot.leave("n1", "task-1", 1, {"a": 1})
    assert os.stat(lot.place).st_mode & 0o777 == 0o700
