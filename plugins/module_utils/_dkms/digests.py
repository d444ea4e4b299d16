# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Digests of archives, of the files beside them, and of the source that modules are built from."""

from __future__ import annotations

import hashlib
import os
import re

from .._node import files
from .errors import TreeError

SOURCE = re.compile(r"^# source ([0-9a-f]{64})$", re.M)
# Larger blocks cost more: each is a mapping of its own, which the kernel fills with zeros first.
READ_BYTES = 64 * 1024
# Of this process, by the path of a file and its signature.
_DIGESTS = {}


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(READ_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def known_sha256(path):
    """The same, read once for as long as the file is the same: a task looks before and after it has the node to
    itself.
    """
    key = (path,) + signature(path)
    _DIGESTS[key] = digest = _DIGESTS.get(key) or sha256_of(path)
    return digest


def signature(path):
    """Return a value that differs when a file was written to or replaced: the time of its last change of status cannot
    be set.
    """
    try:
        found = os.stat(path)
    except OSError as exc:
        raise TreeError("it is not a readable tar archive: %s" % exc) from exc
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def expected_sha256(path):
    """The digest in the file beside an archive, in sha256sum's form."""
    beside = path + ".sha256"
    try:
        with open(beside, encoding="ascii") as handle:
            words = handle.read(4096).split()
    except (OSError, UnicodeDecodeError) as exc:
        raise TreeError("its digest %s cannot be read: %s" % (beside, exc)) from exc
    if not words or not re.match(r"^[0-9a-f]{64}$", words[0]):
        raise TreeError("%s holds no sha256 digest" % beside)
    return words[0]


def write_sha256(path, digest, source=None):
    """The digest in sha256sum's form, and what the modules were built from in a comment, which sha256sum leaves out."""
    remark = "# source %s\n" % source if source else ""
    files.write_atomically(path + ".sha256", "%s  %s\n%s" % (digest, os.path.basename(path), remark))


def source_of(path):
    """The digest of the source that an archive was built from, as its export noted it; None where it was not noted."""
    try:
        with open(path + ".sha256", encoding="ascii") as handle:
            found = SOURCE.search(handle.read(4096))
    except (OSError, UnicodeDecodeError):
        return None
    return found.group(1) if found else None


def source_digest(root, name, version):
    """One digest of a module's source on a node, None where there is none: two packages of one driver version may
    differ in their patches.
    """
    return digest_below(files.under(root, "/usr/src/%s-%s" % (name, version)))


def digest_below(base):
    """One digest of all files below a directory, with their names; None where there are none."""
    total, there = hashlib.sha256(), False
    for top, directories, names in os.walk(base):
        directories.sort()
        for each in sorted(names):
            path = os.path.join(top, each)
            there, value = True, os.readlink(path) if os.path.islink(path) else known_sha256(path)
            total.update(("%s\0%s\n" % (os.path.relpath(path, base), value)).encode("utf-8", "surrogateescape"))
    return total.hexdigest() if there else None


def other_source(noted, node):
    """Return whether an archive was built from other source than a node has; False where one of the two is not
    known.
    """
    return bool(noted and node and noted != node)


def whole(path):
    """The digest of an archive that is there with the digest beside it, and agrees with it; else None."""
    try:
        digest = known_sha256(path)
        return digest if digest == expected_sha256(path) else None
    except (OSError, TreeError):
        return None


def promised(path):
    """Return the digest beside an archive that is there, which a reader of the archive still has to compare; else
    None.
    """
    try:
        return expected_sha256(path) if os.path.isfile(path) else None
    except TreeError:
        return None
