# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles of evidence on the controller: a directory with files and a manifest, there whole or not at all, and never written to again.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib

SCHEMA = "gpufleet.evidence/1"
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640
MAX_FILE = 64 * 1024 * 1024
MAX_BUNDLES = 1000

# A node is believed what is in a file, not what it is called.
NAMES = ("processes.json", "kernel.log", "nvidia-smi.xml")
NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")
ROLLOUT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
MOMENT = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class EvidenceError(Exception):
    """No bundle was written; the text says where, why and what to do."""


def check(node, rollout_id, attempt, moment):
    """Refuse what cannot be the name of a directory."""
    for what, text, pattern, allowed in (
        ("node name", node, NODE, "letters, digits and . _ : -"),
        ("rollout_id", rollout_id, ROLLOUT, "letters, digits and . _ + ~ -"),
        ("moment", moment, MOMENT, "small letters, digits, _ and -"),
    ):
        if not pattern.fullmatch(text or ""):
            raise EvidenceError("%s: the %s %r cannot name a bundle of evidence; expected %s." % (node, what, text, allowed))
    if attempt < 0:
        raise EvidenceError("%s: attempt is %d; expected 0 or more." % (node, attempt))


def bundle(answer, **about):
    """({name: bytes}, manifest) of what the module answered. ABOUT are node, rollout_id, attempt, moment and time."""
    facts = answer["facts"]
    snapshot = facts.get("snapshot") if isinstance(facts.get("snapshot"), dict) else {}
    missing = [{"part": str(entry.get("part")), "reason": str(entry.get("reason"))} for entry in answer.get("missing") or []]
    files = {"reading.json": (as_json(facts), False, "")}
    sent = answer.get("files") or {}
    for name in sorted(sent):
        if name not in NAMES:
            missing.append({"part": repr(name), "reason": "the node sent a file of a name that is none of a bundle's"})
            continue
        try:
            files[name] = (unpack(sent[name].get("data")), bool(sent[name].get("truncated")), str(sent[name].get("note") or ""))
        except (ValueError, zlib.error, AttributeError) as exc:
            missing.append({"part": name, "reason": "it did not arrive whole: %s" % (exc,)})
    told = set(entry["part"] for entry in missing)
    missing += [{"part": name, "reason": "the node did not say why"} for name in NAMES if name not in files and name not in told]
    manifest = dict(
        about, schema=SCHEMA, boot_id=facts.get("boot_id"), simulated=bool(snapshot.get("simulated")), missing=missing,
        files=[{"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "truncated": truncated, "note": note}
               for name, (data, truncated, note) in sorted(files.items())])
    return dict(((name, data) for name, (data, dummy, dummy2) in files.items()), **{"manifest.json": as_json(manifest)}), manifest


def as_json(document):
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("utf-8", "backslashreplace")


def unpack(text):
    """The bytes of a file that was compressed for the way, never more than MAX_FILE of them."""
    try:
        packed = base64.b64decode(str(text).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise ValueError("not base64") from exc
    worker = zlib.decompressobj()
    data = worker.decompress(packed, MAX_FILE)
    if worker.unconsumed_tail:
        raise ValueError("it is longer than %d bytes" % (MAX_FILE,))
    if not worker.eof:
        raise ValueError("its end is missing")
    return data


def write(artifact_dir, files, manifest):
    """Keep the FILES; the path of the new directory."""
    node, rollout_id = manifest["node"], manifest["rollout_id"]
    base = os.path.abspath(os.path.expanduser(artifact_dir))
    parent = os.path.join(base, "evidence", rollout_id, node)
    name = "%d-%s" % (manifest["attempt"], manifest["moment"])
    temporary = None
    try:
        make(parent)
        temporary = tempfile.mkdtemp(prefix=".new-", dir=parent)
        for entry, data in sorted(files.items()):
            with open(os.path.join(temporary, entry), "xb") as stream:
                os.fchmod(stream.fileno(), FILE_MODE)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(temporary, DIRECTORY_MODE)
        sync(temporary)
        path = claim(temporary, os.path.join(parent, name))
        temporary = None
        sync(parent)
    except OSError as exc:
        raise EvidenceError(
            "%s: the bundle of evidence (%d bytes) cannot be written as %s: %s. Make room there, or let user %d write there, and run again." % (
                node, sum(len(data) for data in files.values()), os.path.join(parent, name), exc.strerror or exc, os.geteuid())) from exc
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return path


def make(path):
    """A directory and those above it, each with our mode if it is new, whatever the umask is."""
    if os.path.isdir(path):
        return
    make(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chmod(path, DIRECTORY_MODE)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, "%s is no directory" % (path,))


def claim(temporary, wanted):
    """Give the finished directory its name, or that with a number: a directory is never renamed over one that holds something."""
    for number in range(1, MAX_BUNDLES + 1):
        path = wanted if number == 1 else "%s-%d" % (wanted, number)
        try:
            os.rename(temporary, path)
            return path
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
    raise OSError(errno.EEXIST, "there are %d bundles of this attempt and moment already" % (MAX_BUNDLES,))


def sync(directory):
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
