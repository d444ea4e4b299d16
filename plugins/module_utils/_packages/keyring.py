# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OpenPGP public keys as bytes: whose keys a file has, by their whole fingerprints, and the file without some of them.

gpg is not needed for it: apt itself does without gpg on many machines. Nothing is read or written here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

PUBLIC_KEY, SECRET_TAGS = 6, (5, 7)
BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


class NotAKeyring(ValueError):
    """The bytes are no OpenPGP public keys; the message says why."""


def normal(fingerprint) -> str | None:
    """A fingerprint as it is compared: hexadecimal capitals alone.

    None when it is not a whole one: an id of a key proves nothing.
    """
    text = re.sub(r"[\s:]", "", fingerprint or "").upper()
    text = text[2:] if text.startswith("0X") else text
    return text if re.match(r"^([0-9A-F]{40}|[0-9A-F]{64})$", text) else None


def armor_keys(data) -> bool:
    return BEGIN.encode("ascii") in data


def dearmor(data) -> bytes:
    """The packets of a file, whichever of the two forms it has."""
    if not armor_keys(data):
        return data
    found = []
    for block in data.decode("latin-1").split(BEGIN)[1:]:
        body, end, dummy = block.partition(END)
        if not end:
            raise NotAKeyring("the armored block has no end")
        lines = [line.strip() for line in body.replace("\r", "").split("\n")][1:]
        # headers end with an empty line; a block without headers may lack it
        begin = lines.index("") + 1 if "" in lines and all(":" in line for line in lines[: lines.index("")]) else 0
        text = "".join(line for line in lines[begin:] if line and not line.startswith("="))
        try:
            found.append(base64.b64decode(text.encode("ascii"), validate=True))
        except (binascii.Error, UnicodeEncodeError) as exc:
            raise NotAKeyring("the armored block cannot be decoded: %s" % exc) from exc
    return b"".join(found)


def armor(data) -> bytes:
    """The armored form, with its checksum."""
    text = base64.b64encode(data).decode("ascii")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    check = base64.b64encode(crc24(data).to_bytes(3, "big")).decode("ascii")
    return ("\n".join([BEGIN, ""] + lines + ["=" + check, END]) + "\n").encode("ascii")


def crc24(data) -> int:
    value = 0xB704CE
    for byte in data:
        value ^= byte << 16
        for dummy in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
    return value


def packets(data) -> list[tuple]:
    """``[(tag, body, whole packet)]``."""
    found, at = [], 0
    while at < len(data):
        begin, head = at, data[at]
        if not head & 0x80:
            raise NotAKeyring("byte %d begins no OpenPGP packet" % at)
        if head & 0x40:
            tag, (length, at) = head & 0x3F, new_length(data, at + 1)
        else:
            tag, (length, at) = (head >> 2) & 0x0F, old_length(data, at + 1, head & 0x03)
        if at + length > len(data):
            raise NotAKeyring("the packet at byte %d is cut off" % begin)
        found.append((tag, data[at : at + length], data[begin : at + length]))
        at += length
    return found


def new_length(data, at) -> tuple[int, int]:
    first = number(data, at, 1)
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + number(data, at + 1, 1) + 192, at + 2
    if first == 255:
        return number(data, at + 1, 4), at + 5
    raise NotAKeyring("a packet of a key comes in parts")


def old_length(data, at, kind) -> tuple[int, int]:
    if kind == 3:
        raise NotAKeyring("a packet has no length")
    size = 1 << kind
    return number(data, at, size), at + size


def number(data, at, size) -> int:
    if at + size > len(data):
        raise NotAKeyring("the length of a packet is cut off")
    return int.from_bytes(data[at : at + size], "big")


def fingerprint(body) -> str:
    """The fingerprint of a public key packet."""
    version = body[:1]
    if version == b"\x04":
        # the form's own digest, which names a key and is no proof of a message; a second key of the same name is not
        # known to be possible
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    if version == b"\x06":
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise NotAKeyring("a key has the version %d, which is not known" % (body[0] if body else 0))


def keys(data) -> list[tuple]:
    """``[(fingerprint, its packets)]`` of every key in a file, by its primary key."""
    found = []
    for tag, body, whole in packets(dearmor(data)):
        if tag in SECRET_TAGS:
            raise NotAKeyring("it has a secret key, which belongs on the machine that signs and on no other")
        if tag == PUBLIC_KEY:
            found.append((fingerprint(body), [whole]))
        elif found:
            found[-1][1].append(whole)
        else:
            raise NotAKeyring("it does not begin with a public key")
    if not found:
        raise NotAKeyring("it is empty")
    return found


def fingerprints(data) -> list[str]:
    return sorted(set(name for name, parts in keys(data)))


def render_keys(data, form) -> bytes:
    """The same keys as ``binary`` or ``armored`` bytes; those of the wanted form are left as they are."""
    if form == "armored":
        return data if armor_keys(data) else armor(data)
    return dearmor(data)


def without(data, unwanted) -> bytes | None:
    """The file without some keys, in its own form; None when nothing would be left, and the same bytes when it has none
    of them.
    """
    unwanted = set(unwanted)
    found = keys(data)
    left = [(name, parts) for name, parts in found if name not in unwanted]
    if len(left) == len(found):
        return data
    if not left:
        return None
    content = b"".join(part for name, parts in left for part in parts)
    return armor(content) if armor_keys(data) else content


def problem(data, wanted, sha256=None) -> tuple[str, str] | None:
    """Return why a file is not what was expected, as ``(found, expected)``; None when it is.

    Every key in it has to be a wanted one.
    """
    digest = hashlib.sha256(data).hexdigest()
    if sha256 and digest != sha256.strip().lower():
        return "sha256 %s" % digest, "sha256 %s" % sha256.strip().lower()
    try:
        found = fingerprints(data)
    except NotAKeyring as exc:
        return "no OpenPGP public key (%s)" % exc, "an OpenPGP public key"
    if wanted and not set(found) <= set(wanted):
        return "fingerprint %s" % ", ".join(found), "fingerprint %s" % " or ".join(sorted(wanted))
    return None
