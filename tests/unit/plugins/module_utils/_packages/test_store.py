# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's store of packages after a run that was killed or had no room."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import store

pytestmark = pytest.mark.pythons


def across_devices(path, target):
    raise OSError(errno.EXDEV, "another file system")


@pytest.fixture(name="archive")
def _archive(tmp_path):
    (tmp_path / "archive").write_bytes(b"whole")
    return tmp_path / "archive"


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("links", [True, False])
def test_leftover_of_a_killed_run_is_replaced(archive, tmp_path, monkeypatch, links):
    """The leftover of a process with the same number may be a second name of the archive."""
    os.link(str(archive), str(tmp_path / ("kept.%d.tmp" % os.getpid())))
    if not links:
        monkeypatch.setattr(os, "link", across_devices)
    store.take_archive(str(archive), str(tmp_path / "kept"))
    assert names(tmp_path) == ["archive", "kept"] and (tmp_path / "kept").read_bytes() == b"whole"


def test_copy_without_room_leaves_nothing(archive, tmp_path, monkeypatch):
    def fill(path, target):
        with open(target, "wb") as stream:
            stream.write(b"wh")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "link", across_devices)
    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(OSError):
        store.take_archive(str(archive), str(tmp_path / "kept"))
    assert names(tmp_path) == ["archive"]


def test_archive_that_is_kept_already_under_its_name_stays_whole(archive, tmp_path):
    store.take_archive(str(archive), str(tmp_path / "kept"))
    store.take_archive(str(archive), str(tmp_path / "kept"))
    assert names(tmp_path) == ["archive", "kept"] and (tmp_path / "kept").read_bytes() == b"whole"
