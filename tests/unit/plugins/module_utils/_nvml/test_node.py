# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module does with the digest and the archive of the task."""

from __future__ import annotations

import base64
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, node
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import archives

pytestmark = pytest.mark.pythons

DATA = archives.archive(
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
