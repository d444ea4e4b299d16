# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of artifacts, with nothing but the standard library."""

from __future__ import annotations

import errno
import os
import threading
import zlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import special_files

pytestmark = pytest.mark.pythons

FILES = {"a": b"", "b": b"\x00\xff" * 5000}


def test_what_is_packed_is_unpacked():
    for data in FILES.values():
        assert _artifacts.unpack(_artifacts.pack(data)) == data


@pytest.mark.parametrize("text", ["?", "\u20ac", None, _artifacts.pack(FILES["b"])[:-8], "AAAA"])
def test_what_is_not_whole_is_refused(text):
    with pytest.raises((ValueError, zlib.error)):
        _artifacts.unpack(text)


def test_no_file_unpacks_to_more_than_is_allowed():
    packed = _artifacts.pack(b"x" * 1001)
    assert len(_artifacts.unpack(packed, 1001)) == 1001
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        _artifacts.unpack(packed, 1000)


def test_a_directory_that_failed_half_way_leaves_nothing(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(_artifacts.os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        _artifacts.write(str(tmp_path / "x" / "y"), FILES)
    assert os.listdir(str(tmp_path / "x")) == []


def test_names_are_given_once_and_found_again(tmp_path):
    path = str(tmp_path / "x")
    assert _artifacts.find(path, FILES) is None
    given = [_artifacts.write(path, dict(FILES, a=b"%d" % number)) for number in range(3)]
    assert given == [path, path + "-2", path + "-3"]
    assert [_artifacts.find(path, dict(FILES, a=b"%d" % number)) for number in range(4)] == given + [None]


def test_something_else_in_the_place_is_passed_over(tmp_path):
    path = str(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"a file")
    os.symlink("/nowhere", path + "-2")
    assert _artifacts.write(path, FILES) == path + "-3" and _artifacts.find(path, FILES) == path + "-3"


def edition(files):
    """As the module tells it: of what, and which."""
    of, number = files["a"].decode().split() if "a" in files else (None, -1)
    return of, int(number)


def report(of, number, more=b""):
    return {"a": b"%s %d" % (of, number), "b": more}


@pytest.mark.parametrize(
    "there, sent, answer, left",
    [
        (None, report(b"r", 5), (True, "x", False), {"x": (b"r", 5)}),
        (report(b"r", 4), report(b"r", 5), (True, "x", False), {"x": (b"r", 5)}),
        (report(b"r", 5), report(b"r", 5), (False, "x", False), {"x": (b"r", 5)}),
        (report(b"r", 6), report(b"r", 5), (False, "x", True), {"x": (b"r", 6)}),
        (report(b"s", 6), report(b"r", 5), (True, "x-2", False), {"x": (b"s", 6), "x-2": (b"r", 5)}),
        ({"b": b""}, report(b"r", 5), (True, "x-2", False), {"x": None, "x-2": (b"r", 5)}),
    ],
)
def test_an_older_edition_is_replaced_and_a_newer_or_another_one_stays(tmp_path, there, sent, answer, left):
    path = str(tmp_path / "d" / "x")
    if there is not None:
        _artifacts.write(path, there)
        os.rename(path, str(tmp_path / "d" / "first"))
        os.symlink("first", path)
    before = {name: _artifacts.present(str(tmp_path / "d" / name)) for name in ("x", "x-2")}
    changed, place, newer = _artifacts.replace(path, sent, edition, True)
    assert (changed, newer) == (answer[0], answer[2]) and place == ("" if changed else str(tmp_path / "d" / answer[1]))
    assert {name: _artifacts.present(str(tmp_path / "d" / name)) for name in before} == before, "check mode"
    changed, place, newer = _artifacts.replace(path, sent, edition)
    assert (changed, os.path.basename(place), newer) == answer
    names = [name for name in os.listdir(str(tmp_path / "d")) if not name.startswith(".") and name != "first"]
    found = {name: _artifacts.read(str(tmp_path / "d" / name)) for name in names}
    assert {name: tuple(files["a"].split()) if "a" in files else None for name, files in found.items()} == {
        name: one if one is None else (one[0], b"%d" % one[1]) for name, one in left.items()
    }


def test_the_same_edition_with_other_words_replaces_what_is_there(tmp_path):
    path = str(tmp_path / "x")
    _artifacts.replace(path, report(b"r", 5, b"running"), edition)
    assert _artifacts.replace(path, report(b"r", 5, b"failed"), edition) == (True, path, False)
    assert _artifacts.read(path) == report(b"r", 5, b"failed")


def test_all_files_are_replaced_at_once_and_nothing_of_the_old_is_left(tmp_path, monkeypatch):
    path = str(tmp_path / "x")
    _artifacts.replace(path, dict(report(b"r", 1), old=b""), edition)
    hidden = str(tmp_path / ".x")
    os.mkdir(os.path.join(hidden, ".new-left-by-one-that-was-killed"))
    os.symlink("nowhere", os.path.join(hidden, ".link"))
    seen, rename = [], os.rename

    def watched(source, target):
        seen.append((sorted(_artifacts.read(path)), os.path.basename(target)))
        rename(source, target)
        seen.append((sorted(_artifacts.read(path)), os.path.basename(target)))

    monkeypatch.setattr(_artifacts.os, "rename", watched)
    _artifacts.replace(path, dict(report(b"r", 2), new=b""), edition)
    old, new = ["a", "b", "old"], ["a", "b", "new"]
    assert [files for files, target in seen if target == "x"] == [old, new]
    assert {tuple(files) for files, dummy in seen} == {tuple(old), tuple(new)}
    assert sorted(os.listdir(hidden)) == [".lock", "files-2"] and os.readlink(path) == os.path.join(".x", "files-2")


def test_a_replacement_that_cannot_be_made_leaves_what_is_there(tmp_path, monkeypatch):
    path = str(tmp_path / "x")
    _artifacts.replace(path, report(b"r", 1), edition)

    def full(source, target):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(_artifacts.os, "symlink", full)
    with pytest.raises(OSError, match="full"):
        _artifacts.replace(path, report(b"r", 2), edition)
    assert _artifacts.read(path) == report(b"r", 1)
    monkeypatch.undo()
    assert _artifacts.replace(path, report(b"r", 3), edition)[0] and _artifacts.read(path) == report(b"r", 3)
    assert len(os.listdir(str(tmp_path / ".x"))) == 2


def test_writers_at_the_same_time_leave_the_newest(tmp_path):
    path = str(tmp_path / "x")
    numbers = [3, 9, 1, 7, 5, 8, 2, 6, 4, 0]
    writers = [
        threading.Thread(target=_artifacts.replace, args=(path, report(b"r", number), edition)) for number in numbers
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert _artifacts.read(path) == report(b"r", 9) and len(os.listdir(str(tmp_path / ".x"))) == 2


def test_some_files_of_a_directory(tmp_path):
    _artifacts.write(str(tmp_path / "x"), FILES)
    (tmp_path / "x" / "directory").mkdir()
    assert _artifacts.read(str(tmp_path / "x"), ["b"]) == {"b": FILES["b"]}
    with pytest.raises(FileNotFoundError):
        _artifacts.read(str(tmp_path / "x"), ["b", "c"])


def test_a_thousand_of_them_are_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(_artifacts, "MAX_COPIES", 2)
    for number in range(2):
        _artifacts.write(str(tmp_path / "x"), {"a": b"%d" % number})
    with pytest.raises(OSError, match="2 directories of this name already"):
        _artifacts.write(str(tmp_path / "x"), {"a": b"2"})
    assert sorted(os.listdir(str(tmp_path))) == ["x", "x-2"]


@pytest.mark.parametrize("kind", sorted(special_files.MAKERS))
def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path, kind):
    special_files.make(kind, tmp_path / "d" / "a")
    with pytest.raises(OSError):
        special_files.within(lambda: _artifacts.read(str(tmp_path / "d")))
    with pytest.raises(OSError):
        special_files.within(lambda: _artifacts.read_file(str(tmp_path / "d" / "a")))


@pytest.mark.parametrize("kind", sorted(special_files.MAKERS))
def test_lock_that_is_no_file_is_an_error(tmp_path, kind):
    special_files.make(kind, tmp_path / ".report" / ".lock")
    with pytest.raises(OSError):
        special_files.within(lambda: _artifacts.replace(str(tmp_path / "report"), {"a": b"1"}, lambda files: ("x", 1)))
    assert not (tmp_path / "report").exists()


def test_lock_that_another_process_keeps_is_an_error_and_no_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(_artifacts, "PATIENCE_S", 0.2)
    with _artifacts.hold_directory_lock(str(tmp_path / ".report")), pytest.raises(OSError):
        special_files.within(lambda: _artifacts.replace(str(tmp_path / "report"), {"a": b"1"}, lambda files: ("x", 1)))


def test_hidden_directory_that_is_a_link_is_not_followed(tmp_path):
    """What is in it and no edition is removed."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "mine").write_text("mine")
    (tmp_path / ".report").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        _artifacts.replace(str(tmp_path / "report"), {"a": b"1"}, lambda files: ("x", 1))
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["mine"]


def test_hidden_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    (tmp_path / ".report").mkdir()
    monkeypatch.setattr(_artifacts.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OSError):
        _artifacts.replace(str(tmp_path / "report"), {"a": b"1"}, lambda files: ("x", 1))
    assert not (tmp_path / "report").exists()
