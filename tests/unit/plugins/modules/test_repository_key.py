# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module with keys that gpg makes for the test: what is proven is written, and nothing else is."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import keyring
from ansible_collections.gpufleet.lifecycle.plugins.modules import repository_key
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories

pytestmark = pytest.mark.cores


@pytest.fixture(name="signers", scope="module")
def _signers():
    made = [repositories.Signer(name) for name in ("new <new@localhost>", "old <old@localhost>")]
    yield made
    for signer in made:
        signer.close()


@pytest.fixture(name="run")
def _run(tmp_path, monkeypatch, capsys):
    def run(check=False, **options):
        options.update(
            _ansible_check_mode=check, _ansible_diff=True, _ansible_remote_tmp=str(tmp_path), _ansible_tmpdir=None
        )
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode("utf-8"))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit):
            repository_key.main()
        return json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    return run


@pytest.mark.parametrize("form", ["binary", "armored"])
def test_a_proven_key_is_written_once(run, signers, tmp_path, form):
    place, source = tmp_path / "keyrings/a.gpg", tmp_path / "a.pub"
    source.write_bytes(signers[0].key())
    options = dict(
        path=str(place), url="file://%s" % source, fingerprints=[signers[0].fingerprint.lower()], format=form
    )
    foreseen = run(check=True, **options)
    assert foreseen["changed"] and foreseen["fingerprints"] == [signers[0].fingerprint] and not place.parent.exists()
    first = run(**options)
    assert first["changed"]
    assert keyring.fingerprints(place.read_bytes()) == first["fingerprints"] == [signers[0].fingerprint]
    assert keyring.armor_keys(place.read_bytes()) is (form == "armored") and place.stat().st_mode & 0o7777 == 0o644
    assert first["diff"]["before"] == "" and signers[0].fingerprint in first["diff"]["after"]
    assert not run(**options)["changed"] and not run(check=True, **options)["changed"]
    place.chmod(0o600)
    assert run(**options)["changed"] and place.stat().st_mode & 0o7777 == 0o644
    assert os.listdir(str(place.parent)) == ["a.gpg"]


def test_a_wrong_key_is_refused_and_leaves_nothing(run, signers, tmp_path):
    new, old = signers
    place, source = tmp_path / "keyrings/a.gpg", tmp_path / "a.pub"
    source.write_bytes(old.key())
    for check in (True, False):
        result = run(check=check, path=str(place), url="file:%s" % source, fingerprints=[new.fingerprint])
        assert result["failed"] and not place.parent.exists()
        assert old.fingerprint in result["found"] and new.fingerprint in result["expected"]
        assert "file:%s" % source in result["msg"] and "Next step" in result["msg"]
    # what was there stays as it was
    place.parent.mkdir()
    place.write_bytes(new.key(False))
    assert run(path=str(place), url="file:%s" % source, fingerprints=[new.fingerprint])["failed"]
    assert place.read_bytes() == new.key(False)


def test_the_content_of_the_task_and_its_digest(run, signers, tmp_path):
    text = signers[0].key().decode("ascii")
    place, digest = tmp_path / "a.gpg", hashlib.sha256(text.encode("ascii")).hexdigest()
    assert "found sha256 %s" % digest in run(path=str(place), content=text, sha256="0" * 64)["msg"]
    assert not place.exists()
    assert run(path=str(place), content=text, sha256=digest)["fingerprints"] == [signers[0].fingerprint]


@pytest.mark.parametrize(
    "options,words",
    [
        (dict(content="x"), "Nothing says which key"),
        (dict(content="x", fingerprints=["3bf863cc"]), "3bf863cc is no whole fingerprint"),
        (dict(url="file:///nowhere/a.pub", fingerprints=["0" * 40]), "file:///nowhere/a.pub cannot be had"),
        (dict(url="http://127.0.0.1:9/a.pub", fingerprints=["0" * 40]), "http://127.0.0.1:9/a.pub cannot be had"),
        (dict(content="<html>", fingerprints=["0" * 40]), "no OpenPGP public key"),
        (dict(state="absent"), "state=absent needs fingerprints"),
        (dict(), "missing: url, content"),
        (dict(content="x", url="file:/a"), "mutually exclusive"),
    ],
)
def test_refusals_write_nothing(run, tmp_path, options, words):
    place = tmp_path / "a.gpg"
    result = run(**dict(dict(path=str(place)), **options))
    assert result["failed"] and words in result["msg"] and not place.exists()


def test_an_old_key_leaves_every_keyring(run, signers, tmp_path):
    new, old = signers
    only, both, text, other = (tmp_path / name for name in ("only.gpg", "both.gpg", "text.asc", "other.gpg"))
    only.write_bytes(old.key(False))
    both.write_bytes(new.key(False) + old.key(False))
    text.write_bytes(keyring.armor(old.key(False) + new.key(False)))
    other.write_bytes(new.key(False))
    (tmp_path / "readme").write_text("no key", encoding="utf-8")
    (tmp_path / "directory").mkdir()
    options = dict(
        state="absent", fingerprints=[old.fingerprint], keyrings=[str(tmp_path / "*"), str(tmp_path / "nothing")]
    )
    before = other.stat().st_mtime_ns
    for check in (True, False):
        result = run(check=check, **options)
        assert result["changed"] and result["keyrings"] == [
            {"path": str(tmp_path / name), "fingerprints": [old.fingerprint], "removed": name == "only.gpg"}
            for name in ("both.gpg", "only.gpg", "text.asc")
        ]
        assert only.exists() is check
    assert keyring.fingerprints(both.read_bytes()) == keyring.fingerprints(text.read_bytes()) == [new.fingerprint]
    assert keyring.armor_keys(text.read_bytes()) and other.stat().st_mtime_ns == before
    assert not run(**options)["changed"]


def test_a_keyring_that_cannot_be_changed_is_named(run, signers, tmp_path):
    place = tmp_path / "box.gpg"
    place.write_bytes(b"\x00\x00\x00\x20KBXf" + bytes.fromhex(signers[1].fingerprint))
    result = run(state="absent", fingerprints=[signers[1].fingerprint], keyrings=[str(place)])
    assert result["failed"] and str(place) in result["msg"] and "Next step" in result["msg"]
    assert not run(state="absent", fingerprints=[signers[0].fingerprint], keyrings=[str(place)])["changed"]
