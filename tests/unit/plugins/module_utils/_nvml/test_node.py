# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code and binding come to the node in one archive: when it is asked for, kept, compiled, and refused."""

from __future__ import annotations

import base64
import os
import stat
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, node
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import fake_nvml, wheels

pytestmark = pytest.mark.pythons

DATA = wheels.archive(
    code={"__init__.py": "", "snapshot.py": "def take(**options):\n    return dict(options, by='the archive')\n"}
)
DIGEST = binding.digest_of(DATA)


@pytest.fixture
def remote_tmp(tmp_path):
    tmp_path.chmod(0o700)
    return str(tmp_path / "tmp")


def take(**options):
    return options


def encoded(data=DATA):
    return base64.b64encode(data).decode("ascii")


def test_the_cache_lies_in_the_users_own_temporary_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    user = os.geteuid()
    assert node.cache_directory("~/.ansible/tmp") == "/home/someone/.ansible/tmp/gpufleet-%d" % user
    assert node.cache_directory(None) == "/home/someone/.ansible/tmp/gpufleet-%d" % user
    assert node.cache_directory("$HOME/x/../y") == "/home/someone/y/gpufleet-%d" % user


def test_the_note_of_a_stuck_child_lies_where_the_user_can_write(monkeypatch):
    monkeypatch.setattr(node.os, "geteuid", lambda: 0)
    assert node.stuck_file("/c") == "/run/gpufleet-nvml.stuck"
    monkeypatch.setattr(node.os, "geteuid", lambda: 7)
    assert node.stuck_file("/c") == "/c/nvml.stuck"


def test_first_asked_then_sent_then_cached(remote_tmp):
    assert node.read(remote_tmp, DIGEST, None, 5) == {"needs_binding": True, "warnings": []}
    sent = node.read(remote_tmp, DIGEST, encoded(), 5, ["ecc"])
    assert sent["warnings"] == []
    assert (sent["snapshot"]["deadline_s"], sent["snapshot"]["gather"], sent["snapshot"]["by"]) == (
        5,
        ["ecc"],
        "the archive",
    )
    assert sent["snapshot"]["load"]()[0].answer == 42
    again = node.read(remote_tmp, DIGEST, None, 5)
    assert (again["warnings"], again["snapshot"]["gather"], again["snapshot"]["by"]) == ([], None, "the archive")


def test_a_tampered_cache_is_told_and_asks_again(remote_tmp):
    node.read(remote_tmp, DIGEST, encoded(), 5, take=take)
    place = os.path.join(node.cache_directory(remote_tmp), binding.cache_name(DIGEST))
    with open(place, "wb") as stream:
        stream.write(b"evil")
    answer = node.read(remote_tmp, DIGEST, None, 5, take=take)
    assert answer["needs_binding"] is True
    assert "does not match its digest" in answer["warnings"][0]


def test_without_an_archive_the_package_beside_it_is_used(remote_tmp):
    assert "load" not in node.read(remote_tmp, None, None, 5, take=take)["snapshot"]
    assert not os.path.exists(remote_tmp)
    with pytest.raises(ValueError, match="gather_subset has 'nothing'"):
        node.read(remote_tmp, None, None, 5, ["nothing"])


def test_a_cache_that_cannot_be_used_does_not_stop_the_reading(remote_tmp):
    os.mkdir(remote_tmp, 0o700)
    os.mkdir(node.cache_directory(remote_tmp), 0o755)
    sent = node.read(remote_tmp, DIGEST, encoded(), 5, take=take)
    assert sent["snapshot"]["load"]()[0].answer == 42
    assert len(sent["warnings"]) == 1 and "open to other users" in sent["warnings"][0]


@pytest.mark.parametrize("sent", [encoded(b"other"), "no base64!", "\u00e9"])
def test_anything_but_the_announced_bytes_is_refused(remote_tmp, sent):
    with pytest.raises(binding.CacheError, match="arrived"):
        node.read(remote_tmp, DIGEST, sent, 5, take=take)


SMALL = wheels.archive(
    code={"__init__.py": "", "left.py": "from . import right\nanswer = right.answer + 1\n", "right.py": "answer = 6\n"}
)
SMALL_DIGEST = binding.digest_of(SMALL)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """No binding and none of our finders before, and none after."""
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name == "pynvml" or name.startswith("gpufleet_nvml_"):
            sys.modules.pop(name)


@pytest.fixture
def cache(tmp_path):
    tmp_path.chmod(0o700)
    place = str(tmp_path / "ansible" / "gpufleet-0")
    assert binding.store(place, SMALL_DIGEST, SMALL) is None
    return place


@pytest.fixture
def compiled(monkeypatch):
    """The archives that were compiled."""
    real = node.compile_all
    seen = []

    def counted(archive):
        seen.append(archive)
        return real(archive)

    monkeypatch.setattr(node, "compile_all", counted)
    return seen


def code(cache):
    return os.path.join(cache, node.code_name(SMALL_DIGEST))


def works(cache, warning=None):
    started, told = node.start_runtime(SMALL_DIGEST, SMALL, cache)
    assert started.module("_nvml.left").answer == 7
    assert started.load_binding()[0].answer == 42
    assert (told is None) if warning is None else (warning in told)


def test_code_is_compiled_once_and_kept_beside_the_archive(cache, compiled):
    works(cache)
    works(cache)
    assert compiled == [SMALL]
    assert sorted(os.listdir(cache)) == sorted([binding.cache_name(SMALL_DIGEST), node.code_name(SMALL_DIGEST)])
    assert stat.S_IMODE(os.stat(code(cache)).st_mode) == 0o600


def test_without_a_cache_nothing_is_kept(cache, compiled):
    started, warning = node.start_runtime(SMALL_DIGEST, SMALL)
    assert started.module("_nvml.left").answer == 7 and warning is None
    assert os.listdir(cache) == [binding.cache_name(SMALL_DIGEST)] and len(compiled) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:60] + b"\0" + data[61:],
        lambda data: data.replace(node.MARK, b"gpufleet-code/2\n"),
    ],
)
def test_damaged_code_is_told_and_made_anew(cache, compiled, damage):
    works(cache)
    with open(code(cache), "rb") as stream:
        sound = stream.read()
    with open(code(cache), "wb") as stream:
        stream.write(damage(sound))
    works(cache, "is damaged; it is made again")
    assert len(compiled) == 2
    works(cache)
    assert len(compiled) == 2


def test_code_of_another_archive_or_interpreter_is_not_taken(cache, compiled, monkeypatch):
    other = wheels.archive(source="answer = 13\n", code={"__init__.py": "", "left.py": "answer = 13\n"})
    node.start_runtime(binding.digest_of(other), other, cache)
    os.rename(os.path.join(cache, node.code_name(binding.digest_of(other))), code(cache))
    works(cache, "is damaged; it is made again")
    before = node.code_name(SMALL_DIGEST)
    monkeypatch.setattr(node.importlib.util, "MAGIC_NUMBER", b"other")
    assert node.code_name(SMALL_DIGEST) != before
    del compiled[:]
    works(cache)
    assert compiled == [SMALL]


def test_a_link_in_place_of_the_code_is_not_followed_and_is_replaced(cache, compiled, tmp_path):
    works(cache)
    elsewhere = tmp_path / "elsewhere"
    os.rename(code(cache), str(elsewhere))
    os.symlink(str(elsewhere), code(cache))
    kept = elsewhere.read_bytes()
    works(cache, "it is a link")
    assert len(compiled) == 2 and not os.path.islink(code(cache)) and elsewhere.read_bytes() == kept


def test_code_that_others_can_write_is_not_used(cache, compiled):
    works(cache)
    os.chmod(code(cache), 0o622)
    works(cache, "it can be changed by other users")
    assert len(compiled) == 2 and stat.S_IMODE(os.stat(code(cache)).st_mode) == 0o600


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a file away; links and modes are tested for every user"
)
def test_code_of_another_owner_is_not_used(cache, compiled):
    works(cache)
    os.chown(code(cache), 12345, 12345)
    works(cache, "it belongs to uid 12345")
    assert len(compiled) == 2 and os.stat(code(cache)).st_uid == 0


def test_a_cache_that_cannot_be_written_is_told_and_the_code_runs(cache, compiled):
    os.chmod(cache, 0o755)
    works(cache, "open to other users")
    assert os.listdir(cache) == [binding.cache_name(SMALL_DIGEST)]


def test_code_of_long_ago_goes_with_its_archive(cache):
    works(cache)
    for name in os.listdir(cache):
        os.utime(os.path.join(cache, name), (1, 1))
    other = wheels.archive(version="2")
    binding.store(cache, binding.digest_of(other), other)
    assert os.listdir(cache) == [binding.cache_name(binding.digest_of(other))]


@pytest.mark.parametrize("version", wheels.VERSIONS)
def test_the_binding_is_imported_from_the_bytes(version):
    data = wheels.archive((wheels.path(version) / "pynvml.py").read_text(), version)
    nvml, described = node.start_runtime(binding.digest_of(data), data)[0].load_binding()
    assert described == {"version": version, "source": "shipped"}
    fake_nvml.install(nvml, fake_nvml.FakeNvml())
    nvml.nvmlInit()
    assert nvml.nvmlSystemGetDriverVersion() == "535.216.03"
    fake_nvml.install(nvml, fake_nvml.FakeNvml(init=18))
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()


def test_a_binding_that_fails_leaves_no_half_module():
    data = wheels.archive("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        node.start_runtime(binding.digest_of(data), data)[0].load_binding()
    assert "pynvml" not in sys.modules


def test_an_archive_without_a_binding_leaves_the_nodes_own(tmp_path, monkeypatch):
    (tmp_path / "pynvml.py").write_text("answer = 43\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = wheels.archive(None, None)
    nvml, described = node.start_runtime(binding.digest_of(data), data)[0].load_binding()
    assert nvml.answer == 43 and described["source"] == "node"


def test_two_archives_do_not_mix():
    other = wheels.archive(code={"__init__.py": "", "left.py": "answer = 1\n"})
    first = node.start_runtime(SMALL_DIGEST, SMALL)[0]
    second = node.start_runtime(binding.digest_of(other), other)[0]
    assert (
        first.module("_nvml.left").answer,
        second.module("_nvml.left").answer,
        first.module("_nvml.right").answer,
    ) == (7, 1, 6)
    with pytest.raises(ImportError):
        second.module("_nvml.right")
