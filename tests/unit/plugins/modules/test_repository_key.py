# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module with keys that gpg makes for the test: what is proven is written, and nothing else is."""

from __future__ import annotations

import functools
import hashlib
import os

import pytest
from ansible.module_utils import basic

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
def _run(call_module):
    return functools.partial(call_module, repository_key, diff=True)


def is_armored(data):
    return data.startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n")


@pytest.mark.parametrize("name", ["a.gpg", "RPM-GPG-KEY-a"])
@pytest.mark.parametrize("form", ["binary", "armored", "headers"])
def test_a_proven_key_is_written_once(run, signers, tmp_path, name, form):
    place, source = tmp_path / "keyrings" / name, tmp_path / "a.pub"
    data = signers[0].key(form != "binary")
    headers = b"\r\nVersion: a\r\nComment: b\r\n\r\n" if form == "headers" else b"\n\n"
    source.write_bytes(data.replace(b"BLOCK-----\n\n", b"BLOCK-----" + headers, 1))
    options = dict(path=str(place), url="file://%s" % source, fingerprints=[signers[0].fingerprint.lower()])
    foreseen = run(check=True, **options)
    assert foreseen["changed"] and foreseen["fingerprints"] == [signers[0].fingerprint] and not place.parent.exists()
    first = run(**options)
    assert first["changed"]
    assert repositories.read_fingerprints(place.read_bytes()) == first["fingerprints"] == [signers[0].fingerprint]
    assert is_armored(place.read_bytes()) is (name != "a.gpg") and place.stat().st_mode & 0o7777 == 0o644
    assert first["diff"]["before"] == "" and signers[0].fingerprint in first["diff"]["after"]
    assert not run(**options)["changed"] and not run(check=True, **options)["changed"]
    place.chmod(0o600)
    assert run(**options)["changed"] and place.stat().st_mode & 0o7777 == 0o644
    assert os.listdir(str(place.parent)) == [name]


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


def spoil_key(signers, how):
    """A file of the wanted key with what has to be refused."""
    new, old = signers
    plain, text = new.key(False), new.key()
    tag = bytes([0xC5]) if plain[0] & 0x40 else bytes([0x80 | 5 << 2 | plain[0] & 3])
    return {
        "one key more": plain + old.key(False),
        "one armored key more": text + old.key(),
        "secret key": new.secret_key(),
        "secret packet": tag + plain[1:],
        "cut off": plain[:-1],
        "half a key more": plain + old.key(False)[:-40],
        "noise": plain + b"\x00" * 40,
        "no letter of the armor": text.replace(b"\nm", b"\n*m", 1),
        "no empty line": text.replace(b"BLOCK-----\n\n", b"BLOCK-----\n", 1),
        "empty": b"",
        "page": b"<html>404</html>",
    }[how]


@pytest.mark.parametrize(
    "how,found",
    [
        ("one key more", "fingerprint"),
        ("one armored key more", "fingerprint"),
        ("secret key", "no OpenPGP public key (it has a secret key"),
        ("secret packet", "no OpenPGP public key ("),
        ("cut off", "no OpenPGP public key ("),
        ("half a key more", "no OpenPGP public key ("),
        ("noise", "no OpenPGP public key ("),
        ("no letter of the armor", "no OpenPGP public key ("),
        ("no empty line", "no OpenPGP public key ("),
        ("empty", "no OpenPGP public key ("),
        ("page", "no OpenPGP public key ("),
    ],
)
def test_file_with_anything_beside_the_wanted_key_is_refused(run, signers, tmp_path, how, found):
    place, source = tmp_path / "a.gpg", tmp_path / "a.pub"
    source.write_bytes(spoil_key(signers, how))
    result = run(path=str(place), url="file:%s" % source, fingerprints=[signers[0].fingerprint])
    assert result["failed"] and result["found"].startswith(found) and not place.exists()
    assert (signers[1].fingerprint in result["found"]) is (found == "fingerprint")


def test_a_digest_alone_lets_no_file_pass_that_is_no_key(run, tmp_path):
    digest = hashlib.sha256(b"x").hexdigest()
    result = run(path=str(tmp_path / "a.gpg"), content="x", sha256=digest.upper())
    assert "no OpenPGP" in result["found"] and not (tmp_path / "a.gpg").exists()


def test_an_expired_key_is_refused(run, signers, tmp_path):
    place, source = tmp_path / "a.gpg", tmp_path / "a.pub"
    old = repositories.Signer("expired <expired@localhost>", made="20200101T000000", lasts="30d")
    source.write_bytes(old.key())
    old.close()
    result = run(path=str(place), url="file:%s" % source, fingerprints=[old.fingerprint])
    assert result["failed"] and result["found"] == "fingerprint %s, which is expired" % old.fingerprint
    assert not place.exists()


@pytest.mark.parametrize("letter,problem", [("-", False), ("e", True), ("r", True), ("d", True), ("i", True)])
def test_a_key_that_gpg_calls_unfit_is_refused(letter, problem):
    listing = "pub:%s:2048:1:00:0::::::\nfpr:::::::::%s:\nsub:e:2048:1:00:0::::::\nfpr:::::::::%s:\n"
    keys = repository_key.parse_keys(listing % (letter, "A" * 40, "B" * 40))
    assert list(keys) == ["A" * 40] and bool(repository_key.find_problem(keys, ["A" * 40])) is problem


def test_without_gpg_a_run_is_refused_and_check_mode_warns(run, signers, tmp_path, monkeypatch):
    """Check mode compares the digest all the same, and does not answer that nothing would change."""
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda *dummy, **more: None)
    place, source = tmp_path / "keyrings/a.gpg", tmp_path / "a.pub"
    source.write_bytes(signers[0].key())
    options = dict(path=str(place), url="file:%s" % source, fingerprints=[signers[0].fingerprint])
    result = run(**options)
    assert result["failed"] and "gpg" in result["msg"] and not place.exists()
    foreseen = run(check=True, **options)
    assert foreseen["changed"] and "gpg" in str(foreseen["warnings"]) and not place.exists()
    assert run(check=True, sha256="0" * 64, **options)["failed"]
    absent = dict(state="absent", fingerprints=[signers[0].fingerprint])
    assert run(keyrings=[str(source)], **absent)["failed"] and source.exists()
    assert "gpg" in str(run(check=True, keyrings=[str(source)], **absent)["warnings"])
    assert not run(keyrings=[str(tmp_path / "nothing")], **absent)["changed"]


@pytest.mark.parametrize(
    "text,whole",
    [
        ("EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("0x" + "ab" * 20, "AB" * 20),
        ("cd" * 32, "CD" * 32),
        ("3bf863cc", None),
        ("A4B469963BF863CC", None),
        ("", None),
        ("g" * 40, None),
    ],
)
def test_a_short_id_is_no_fingerprint(text, whole):
    assert repository_key.normalize_fingerprint(text) == whole


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
    text.write_bytes(old.key() + new.key())
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
    for place in (both, text):
        assert repositories.read_fingerprints(place.read_bytes()) == [new.fingerprint]
    assert not is_armored(both.read_bytes()) and is_armored(text.read_bytes()) and other.stat().st_mtime_ns == before
    assert not run(**options)["changed"]


def test_a_keyring_that_cannot_be_changed_is_named(run, signers, tmp_path):
    place = tmp_path / "box.gpg"
    place.write_bytes(b"\x00\x00\x00\x20KBXf" + bytes.fromhex(signers[1].fingerprint))
    result = run(state="absent", fingerprints=[signers[1].fingerprint], keyrings=[str(place)])
    assert result["failed"] and str(place) in result["msg"] and "Next step" in result["msg"]
    assert not run(state="absent", fingerprints=[signers[0].fingerprint], keyrings=[str(place)])["changed"]
