# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose keys a file has, against what gpg says of keys that it made for the test."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import keyring
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories

pytestmark = pytest.mark.pythons


@pytest.fixture(name="signers", scope="module")
def _signers():
    made = [repositories.Signer(name) for name in ("new <new@localhost>", "old <old@localhost>")]
    yield made
    for signer in made:
        signer.close()


def read_by_gpg(tmp_path, data):
    path = tmp_path / "shown"
    path.write_bytes(data)
    dummy, out, dummy = repositories.call(
        ["gpg", "--homedir", str(tmp_path), "--batch", "--show-keys", "--with-colons", str(path)]
    )
    lines = [line.split(":") for line in out.splitlines()]
    return [lines[number + 1][9] for number, line in enumerate(lines) if line[0] == "pub"]


@pytest.mark.parametrize("form", [True, False])
def test_fingerprints_are_those_that_gpg_shows(signers, tmp_path, form):
    for signer in signers:
        data = signer.key(form)
        assert keyring.armor_keys(data) is form and keyring.fingerprints(data) == [signer.fingerprint] == read_by_gpg(
            tmp_path, data
        )


def test_both_forms_hold_the_same(signers, tmp_path):
    plain, text = signers[0].key(False), signers[0].key(True)
    assert keyring.dearmor(text) == plain and keyring.dearmor(keyring.armor(plain)) == plain
    assert keyring.render_keys(text, "armored") == text and keyring.render_keys(
        text, "binary"
    ) == plain == keyring.render_keys(plain, "binary")
    assert read_by_gpg(tmp_path, keyring.render_keys(plain, "armored")) == [signers[0].fingerprint]
    unheaded = text.replace(b"BLOCK-----\n\n", b"BLOCK-----\n", 1)
    assert unheaded != text and keyring.dearmor(unheaded) == plain
    headed = text.replace(b"BLOCK-----\n\n", b"BLOCK-----\r\nVersion: a\r\nComment: b\r\n\r\n", 1)
    assert keyring.dearmor(headed) == plain


@pytest.mark.parametrize("form", [True, False])
def test_one_key_goes_and_the_other_stays(signers, tmp_path, form):
    new, old = signers
    both = new.key(False) + old.key(False)
    both = keyring.armor(both) if form else both
    assert keyring.fingerprints(both) == sorted([new.fingerprint, old.fingerprint])
    left = keyring.without(both, [old.fingerprint])
    assert keyring.armor_keys(left) is form and read_by_gpg(tmp_path, left) == [new.fingerprint]
    assert keyring.dearmor(left) == new.key(False)
    assert keyring.without(left, [old.fingerprint]) == left and keyring.without(left, [new.fingerprint]) is None


def test_what_is_not_expected(signers):
    new, old = signers
    data = new.key()
    digest = hashlib.sha256(data).hexdigest()
    assert (
        keyring.problem(data, [new.fingerprint]) is None
        and keyring.problem(data, [new.fingerprint, old.fingerprint]) is None
    )
    assert (
        keyring.problem(data, [], digest.upper()) is None and keyring.problem(data, [new.fingerprint], digest) is None
    )
    assert keyring.problem(data, [old.fingerprint]) == (
        "fingerprint " + new.fingerprint,
        "fingerprint " + old.fingerprint,
    )
    assert keyring.problem(data, [new.fingerprint], "0" * 64)[1] == "sha256 " + "0" * 64
    # a file with the right key and another one would make apt trust both
    assert old.fingerprint in keyring.problem(new.key(False) + old.key(False), [new.fingerprint])[0]
    assert "no OpenPGP public key" in keyring.problem(b"<html>404</html>", [new.fingerprint])[0]
    # even with the right digest: what apt cannot read is no key
    assert "no OpenPGP" in keyring.problem(b"x", [], hashlib.sha256(b"x").hexdigest())[0]


def test_bytes_that_are_no_keys(signers):
    plain, text = signers[0].key(False), signers[0].key(True)
    secret = bytes([0xC5]) + plain[1:] if plain[0] & 0x40 else bytes([0x80 | 5 << 2 | plain[0] & 3]) + plain[1:]
    last = keyring.packets(plain)[-1][2]
    for data, why in [
        (b"", "empty"),
        (b"\x00" * 8, "begins no OpenPGP packet"),
        (plain[:-1], "cut off"),
        (secret, "secret key"),
        (last, "does not begin"),
        (text.split(b"-----END")[0], "has no end"),
        (text.replace(b"\nm", b"\n*m", 1), "cannot be decoded"),
        (b"\x83", "no length"),
        (b"\xc6\xe0", "in parts"),
        (b"\xc6\x01\x03", "version 3"),
        (b"\xc6", "cut off"),
    ]:
        with pytest.raises(keyring.NotAKeyring, match=why):
            keyring.fingerprints(data)


def test_lengths_of_both_formats():
    body = b"\x04" + b"a" * 299
    name = hashlib.sha1(b"\x99\x01\x2c" + body).hexdigest().upper()
    for head in (b"\x99\x01\x2c", b"\x9a\x00\x00\x01\x2c", b"\xc6\xc0\x6c", b"\xc6\xff\x00\x00\x01\x2c"):
        assert keyring.fingerprints(head + body) == [name]
    six = b"\x06" + b"b" * 40
    assert keyring.fingerprints(b"\xc6\x29" + six) == [
        hashlib.sha256(b"\x9b\x00\x00\x00\x29" + six).hexdigest().upper()
    ]


@pytest.mark.parametrize(
    "text,whole",
    [
        ("EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("0x" + "ab" * 20, "AB" * 20),
        ("cd" * 32, "CD" * 32),
        ("3bf863cc", None),
        ("A4B469963BF863CC", None),
        ("", None),
        (None, None),
        ("g" * 40, None),
    ],
)
def test_a_short_id_is_no_fingerprint(text, whole):
    assert keyring.normal(text) == whole
