# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cached binding: only bytes whose digest was compared are imported, whatever lies in the cache."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

pytestmark = pytest.mark.pythons

DATA = wheels.archive()
DIGEST = binding.digest_of(DATA)


@pytest.fixture
def cache(tmp_path):
    tmp_path.chmod(0o700)
    return str(tmp_path / "ansible" / "gpufleet-0")


def cached(cache):
    return os.path.join(cache, binding.cache_name(DIGEST))


def test_a_stored_archive_is_found_again(cache):
    assert binding.fetch(cache, DIGEST) == (None, None)
    assert not os.path.exists(os.path.dirname(cache))
    assert binding.store(cache, DIGEST, DATA) is None
    assert binding.fetch(cache, DIGEST) == (DATA, None)
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(cached(cache)).st_mode) == 0o600
    assert os.listdir(cache) == [binding.cache_name(DIGEST)]


def test_a_tampered_archive_is_not_used_and_is_replaced(cache):
    binding.store(cache, DIGEST, DATA)
    with open(cached(cache), "ab") as stream:
        stream.write(b"import os")
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None
    assert cached(cache) in warning and "does not match its digest" in warning
    assert binding.store(cache, DIGEST, DATA) is None
    assert binding.fetch(cache, DIGEST) == (DATA, None)


def test_a_link_in_place_of_the_archive_is_not_followed_and_is_replaced(cache, tmp_path):
    binding.store(cache, DIGEST, DATA)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(DATA)
    os.unlink(cached(cache))
    os.symlink(str(elsewhere), cached(cache))
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and "it is a link" in warning
    elsewhere.write_bytes(b"precious")
    assert binding.store(cache, DIGEST, DATA) is None
    assert elsewhere.read_bytes() == b"precious"
    assert not os.path.islink(cached(cache))
    assert binding.fetch(cache, DIGEST) == (DATA, None)


def test_a_link_in_place_of_the_directory_is_refused(cache, tmp_path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / binding.cache_name(DIGEST)).write_bytes(DATA)
    os.mkdir(os.path.dirname(cache), 0o700)
    os.symlink(str(other), cache)
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and "not used" in warning
    (other / binding.cache_name(DIGEST)).unlink()
    assert "not cached" in binding.store(cache, DIGEST, DATA)
    assert os.listdir(str(other)) == []


def test_a_fifo_in_place_of_the_archive_does_not_block(cache):
    binding.store(cache, DIGEST, DATA)
    os.unlink(cached(cache))
    os.mkfifo(cached(cache))
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and "not a regular file" in warning


@pytest.mark.parametrize("mode", [0o750, 0o777, 0o701])
def test_a_directory_open_to_others_is_refused(cache, mode):
    binding.store(cache, DIGEST, DATA)
    os.chmod(cache, mode)
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and "open to other users" in warning
    assert "open to other users" in binding.store(cache, DIGEST, DATA)


@pytest.mark.parametrize("mode, sticky_is_fine", [(0o777, False), (0o1777, True), (0o770, False)])
def test_a_shared_parent_is_used_only_when_it_is_sticky(cache, mode, sticky_is_fine):
    os.mkdir(os.path.dirname(cache))
    os.chmod(os.path.dirname(cache), mode)
    warning = binding.store(cache, DIGEST, DATA)
    if sticky_is_fine:
        assert warning is None
    else:
        assert "can be changed by other users" in warning
        assert not os.path.exists(cache)


def owned_by_another(path):
    """Give PATH to another user, which only root can; otherwise become another user in the eyes of the code."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        return lambda: 0
    return lambda: 54321


def test_an_archive_that_others_can_write_is_not_used(cache):
    binding.store(cache, DIGEST, DATA)
    os.chmod(cached(cache), 0o620)
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and "it can be changed by other users" in warning
    assert binding.store(cache, DIGEST, DATA) is None
    assert binding.fetch(cache, DIGEST) == (DATA, None)


def test_a_directory_of_another_owner_is_not_used(cache, monkeypatch):
    binding.store(cache, DIGEST, DATA)
    monkeypatch.setattr(binding.os, "geteuid", owned_by_another(cache))
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and ("belongs to uid" in warning or "can be changed" in warning)
    assert "not cached" in binding.store(cache, DIGEST, DATA)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a file away; the test above covers the owner for other users"
)
def test_an_archive_of_another_owner_is_not_used_and_is_replaced(cache):
    binding.store(cache, DIGEST, DATA)
    os.chown(cached(cache), 12345, 12345)
    data, warning = binding.fetch(cache, DIGEST)
    assert data is None and "belongs to uid 12345" in warning
    assert binding.store(cache, DIGEST, DATA) is None
    assert os.stat(cached(cache)).st_uid == 0
    assert binding.fetch(cache, DIGEST) == (DATA, None)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user; elsewhere every test here runs as one already"
)
def test_a_user_that_is_not_root_has_a_cache_of_its_own(cache, tmp_path):
    """In a child with another effective user, as after become: its own directory works, root's does not."""
    binding.store(cache, DIGEST, DATA)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(str(home), 65534, 65534)
    for place in [tmp_path] + list(tmp_path.parents)[:-2]:
        os.chmod(str(place), os.stat(str(place)).st_mode | 0o011)
    own = str(home / ".ansible" / "tmp" / "gpufleet-65534")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            told = [
                binding.store(own, DIGEST, DATA),
                binding.fetch(own, DIGEST) == (DATA, None),
                os.stat(own).st_uid,
                binding.fetch(cache, DIGEST)[0],
            ]
            os.write(write_end, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        assert json.loads(stream.read()) == [None, True, 65534, None]


def test_a_home_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    assert "not cached" in binding.store(str(tmp_path / "file" / "tmp" / "gpufleet-0"), DIGEST, DATA)


def test_bytes_that_are_not_the_wanted_ones_are_never_stored(cache):
    with pytest.raises(binding.CacheError, match="does not match its digest"):
        binding.store(cache, DIGEST, DATA + b"x")
    assert not os.path.exists(cache)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "A" * 64, "a" * 63])
def test_only_a_digest_names_a_file(cache, digest):
    with pytest.raises(binding.CacheError, match="not a sha256 digest"):
        binding.fetch(cache, digest)


def test_archives_of_long_ago_are_removed(cache):
    binding.store(cache, DIGEST, DATA)
    os.utime(cached(cache), (1, 1))
    other = wheels.archive(version="2")
    binding.store(cache, binding.digest_of(other), other)
    assert os.listdir(cache) == [binding.cache_name(binding.digest_of(other))]


@pytest.fixture
def no_pynvml(monkeypatch):
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield monkeypatch
    sys.modules.pop("pynvml", None)


def test_without_an_archive_the_nodes_own_binding_is_used(no_pynvml, tmp_path):
    (tmp_path / "pynvml.py").write_text("answer = 43\n")
    no_pynvml.syspath_prepend(str(tmp_path))
    nvml, described = binding.own()
    assert nvml.answer == 43 and described["source"] == "node"


def test_without_any_binding_there_is_none(no_pynvml):
    no_pynvml.setitem(sys.modules, "pynvml", None)
    assert binding.own() == (None, {"version": None, "source": "none"})


def test_data_files_are_read_from_the_archive():
    assert binding.read_data(DATA, "table.json") == b"[1]"
