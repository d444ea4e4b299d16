# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of artifacts, with nothing but the standard library."""

from __future__ import annotations

import errno
import os
import zlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts

pytestmark = pytest.mark.pythons

FILES = {"a": b"", "b": b"\x00\xff" * 5000}


def test_what_is_packed_is_unpacked():
    for data in FILES.values():
        assert _artifacts.unpack(_artifacts.pack(data)) == data


@pytest.mark.parametrize("text", ["?", "\u20ac", None, _artifacts.pack(FILES["b"])[:-8], "AAAA"])
def test_what_is_not_whole_is_refused(text):
    with pytest.raises((ValueError, zlib.error)):
        _artifacts.unpack(text)


def test_no_file_unpacks_to_more_than_is_allowed(monkeypatch):
    packed = _artifacts.pack(b"x" * 1001)
    monkeypatch.setattr(_artifacts, "MAX_FILE", 1000)
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        _artifacts.unpack(packed)


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


def test_a_thousand_of_them_are_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(_artifacts, "MAX_COPIES", 2)
    for number in range(2):
        _artifacts.write(str(tmp_path / "x"), {"a": b"%d" % number})
    with pytest.raises(OSError, match="2 directories of this name already"):
        _artifacts.write(str(tmp_path / "x"), {"a": b"2"})
    assert sorted(os.listdir(str(tmp_path))) == ["x", "x-2"]
