# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding on a node: asked for, kept, imported from verified bytes only, and refused."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import pathlib
import stat
import sys
import zlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import fake_nvml, wheels

pytestmark = pytest.mark.pythons

DATA = b"answer = 42\n"
OTHER = b"answer = 13\n"


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def encoded(data):
    return base64.b64encode(zlib.compress(data)).decode("ascii")


DIGEST = digest_of(DATA)


@pytest.fixture
def cache(tmp_path):
    tmp_path.chmod(0o700)
    return str(tmp_path / "ansible" / "gpufleet-0")


@pytest.fixture(autouse=True)
def no_pynvml(monkeypatch):
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield monkeypatch
    sys.modules.pop("pynvml", None)


def kept(cache, digest=DIGEST):
    return pathlib.Path(cache, digest, "pynvml.py")


def bytecode(cache):
    return kept(cache).with_name(os.path.basename(importlib.util.cache_from_source("pynvml.py")))


def send(cache, data=DATA):
    return binding.prepare(cache, digest_of(data), "1.2.3", encoded(data))


def test_binding_is_asked_for_then_sent_then_kept(cache):
    assert binding.prepare(cache, DIGEST, "1.2.3") == (None, None)
    assert not os.path.exists(os.path.dirname(cache))
    for found, warning in (send(cache), binding.prepare(cache, DIGEST, "1.2.3")):
        module, described = found.load()
        assert (module.answer, described, warning) == (42, {"version": "1.2.3", "source": "shipped"}, None)
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (cache, kept(cache).parent)] == [0o700, 0o700]
    assert set(os.listdir(str(kept(cache).parent))) == {"pynvml.py", bytecode(cache).name}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept(cache).parent.iterdir())


def test_directories_belong_to_the_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    user = os.geteuid()
    assert binding.cache_directory("~/.ansible/tmp") == "/home/someone/.ansible/tmp/gpufleet-%d" % user
    assert binding.cache_directory(None) == "/home/someone/.ansible/tmp/gpufleet-%d" % user
    assert binding.cache_directory("$HOME/x/../y") == "/home/someone/y/gpufleet-%d" % user
    monkeypatch.setattr(binding.os, "geteuid", lambda: 0)
    assert binding.Binding("/c").stuck_file == "/run/gpufleet-nvml.stuck"
    monkeypatch.setattr(binding.os, "geteuid", lambda: 7)
    assert binding.Binding("/c").stuck_file == "/c/nvml.stuck"


def append(path, tmp_path):
    with open(str(path), "ab") as stream:
        stream.write(b"import os")


def link(path, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)


def fifo(path, tmp_path):
    path.unlink()
    os.mkfifo(str(path))


def others_write(path, tmp_path):
    path.chmod(0o620)


def another_owner(path, tmp_path):
    os.chown(str(path), 12345, 12345)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away; the other cases need no root")
DAMAGES = [append, link, fifo, others_write, pytest.param(another_owner, marks=ROOT_ONLY)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_file_that_is_not_the_wanted_one_is_reported_and_replaced(cache, tmp_path, damage):
    send(cache)
    damage(kept(cache), tmp_path)
    found, warning = binding.prepare(cache, DIGEST, "1.2.3")
    assert found is None and str(kept(cache)) in warning
    found, warning = send(cache)
    assert (found.load()[0].answer, warning) == (42, None)
    assert kept(cache).read_bytes() == DATA and not kept(cache).is_symlink()
    assert kept(cache).stat().st_uid == os.geteuid() and stat.S_IMODE(kept(cache).stat().st_mode) == 0o600
    if damage is link:
        assert (tmp_path / "elsewhere").read_bytes() == DATA


def cut_off(path, tmp_path):
    path.write_bytes(path.read_bytes()[:-9])


def empty(path, tmp_path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_off, empty] + DAMAGES[1:])
def test_bytecode_that_cannot_be_used_is_made_again(cache, tmp_path, damage):
    send(cache)[0].load()
    damage(bytecode(cache), tmp_path)
    for dummy in range(2):
        assert binding.prepare(cache, DIGEST, "1.2.3")[0].load()[0].answer == 42
    assert bytecode(cache).is_file() and stat.S_IMODE(bytecode(cache).lstat().st_mode) == 0o600


def test_bytecode_is_compiled_once(cache, monkeypatch):
    send(cache)[0].load()
    monkeypatch.setattr(binding._Loader, "source_to_code", lambda *args: pytest.fail("compiled"))
    assert binding.prepare(cache, DIGEST, "1.2.3")[0].load()[0].answer == 42


def works_without_cache(cache):
    found, warning = send(cache)
    assert warning and found.load()[0].answer == 42
    return warning


def test_link_in_place_of_a_directory_is_refused(cache, tmp_path):
    send(cache)
    for place in (kept(cache).parent, pathlib.Path(cache)):
        place.rename(tmp_path / "moved")
        place.symlink_to(tmp_path / "moved")
        assert binding.prepare(cache, DIGEST, "1.2.3")[0] is None
        works_without_cache(cache)
        place.unlink()
        (tmp_path / "moved").rename(place)
    assert binding.prepare(cache, DIGEST, "1.2.3")[1] is None


@pytest.mark.parametrize("mode", [0o750, 0o777, 0o701])
def test_directory_open_to_others_is_refused(cache, mode):
    send(cache)
    for place in (kept(cache).parent, pathlib.Path(cache)):
        place.chmod(mode)
        found, warning = binding.prepare(cache, DIGEST, "1.2.3")
        assert found is None and "%04o" % mode in warning
        assert "%04o" % mode in works_without_cache(cache)
        place.chmod(0o700)


@pytest.mark.parametrize("mode, is_used", [(0o777, False), (0o1777, True), (0o770, False)])
def test_shared_parent_is_used_only_if_it_is_sticky(cache, mode, is_used):
    os.mkdir(os.path.dirname(cache))
    os.chmod(os.path.dirname(cache), mode)
    if is_used:
        assert send(cache)[1] is None
    else:
        works_without_cache(cache)
        assert not os.path.exists(cache)


def test_directory_of_another_owner_is_refused(cache, monkeypatch):
    send(cache)
    # Only root can give a directory away; otherwise the code sees another user.
    if os.geteuid() == 0:
        os.chown(cache, 12345, 12345)
    else:
        monkeypatch.setattr(binding.os, "geteuid", lambda: 54321)
    assert binding.prepare(cache, DIGEST, "1.2.3")[0] is None
    works_without_cache(cache)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user; elsewhere every test here runs as one already"
)
def test_user_that_is_not_root_has_a_cache_of_its_own(cache, tmp_path):
    """In a child with another effective user, as after become: its own directory works, root's does not."""
    send(cache)
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
                send(own)[1],
                binding.prepare(own, DIGEST, "1.2.3")[0].load()[0].answer,
                os.stat(own).st_uid,
                binding.prepare(cache, DIGEST, "1.2.3")[0],
            ]
            os.write(write_end, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        assert json.loads(stream.read()) == [None, 42, 65534, None]


def test_home_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    works_without_cache(str(tmp_path / "file" / "tmp" / "gpufleet-0"))


@pytest.mark.parametrize("sent", [encoded(OTHER), base64.b64encode(DATA).decode("ascii"), "no base64!", "\u00e9"])
def test_anything_but_the_announced_file_is_refused(cache, sent):
    with pytest.raises(binding.CacheError):
        binding.prepare(cache, DIGEST, "1.2.3", sent)
    assert not os.path.exists(cache)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "A" * 64, "a" * 63, "a" * 65])
def test_only_a_digest_names_a_directory(cache, digest):
    with pytest.raises(binding.CacheError):
        binding.prepare(cache, digest, "1.2.3")


def test_bindings_of_long_ago_are_removed(cache):
    for data in (DATA, b"answer = 1\n"):
        send(cache, data)[0].load()
        os.utime(os.path.join(cache, digest_of(data)), (1, 1))
    pathlib.Path(cache, "nvml.stuck").write_text("{}")
    send(cache, OTHER)
    assert set(os.listdir(cache)) == {digest_of(OTHER), "nvml.stuck"}


class Done(Exception):
    pass


class FakeModule:
    """What get_binding needs of AnsibleModule."""

    def __init__(self, cache, **given):
        self._remote_tmp = os.path.dirname(cache)
        self.params = {"binding": given or None}
        self.warnings = []
        self.warn = self.warnings.append

    def exit_json(self, **result):
        raise Done(result)

    def fail_json(self, **result):
        raise Done(dict(result, failed=True))


def ask(module):
    with pytest.raises(Done) as ended:
        binding.get_binding(module, "nothing was done")
    return ended.value.args[0]


def test_module_without_the_binding_asks_for_it(cache):
    assert ask(FakeModule(cache, digest=DIGEST, version="1", source=None)) == {"changed": False, "needs_binding": True}
    module = FakeModule(cache, digest=DIGEST, version="1", source=encoded(DATA))
    assert binding.get_binding(module, "nothing was done").load()[0].answer == 42
    place = binding.cache_directory(os.path.dirname(cache))
    append(kept(place), None)
    module = FakeModule(cache, digest=DIGEST, version="1", source=None)
    assert ask(module)["needs_binding"] is True and len(module.warnings) == 1


def test_module_fails_for_a_file_that_was_not_announced(cache):
    result = ask(FakeModule(cache, digest=DIGEST, version="1", source=encoded(OTHER)))
    assert result["failed"] is True and result["msg"].startswith("nothing was done: ")


@pytest.mark.parametrize("own", ["answer = 43\n", None])
def test_without_a_binding_of_the_controller_the_nodes_own_is_used(no_pynvml, cache, tmp_path, own):
    if own:
        (tmp_path / "pynvml.py").write_text(own)
        no_pynvml.syspath_prepend(str(tmp_path))
    else:
        no_pynvml.setitem(sys.modules, "pynvml", None)
    module, described = binding.get_binding(FakeModule(cache), "nothing was done").load()
    assert described["source"] == ("node" if own else "none")
    assert (module.answer if own else module) == (43 if own else None)
    assert not os.path.exists(cache)


@pytest.mark.parametrize("version", wheels.VERSIONS)
def test_binding_is_imported_from_the_bytes(cache, version):
    data = (wheels.path(version) / "pynvml.py").read_bytes()
    nvml, described = binding.prepare(cache, digest_of(data), version, encoded(data))[0].load()
    assert described == {"version": version, "source": "shipped"}
    fake_nvml.install(nvml, fake_nvml.FakeNvml())
    nvml.nvmlInit()
    assert nvml.nvmlSystemGetDriverVersion() == "535.216.03"
    fake_nvml.install(nvml, fake_nvml.FakeNvml(init=18))
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()


def test_binding_that_fails_leaves_no_half_module(cache):
    found, dummy = send(cache, b"1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        found.load()
    assert "pynvml" not in sys.modules
