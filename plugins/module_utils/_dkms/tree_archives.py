# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Archives of exported DKMS trees: their digests and what they were built from, where a node, the controller or the
artifact host keeps them, and the directories in which they are copied and unpacked before DKMS gets them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

from .._node import files
from .._node.versions import upstream
from . import dkms


class TreeError(Exception):
    """An archive that must not be given to DKMS; the text says why."""


SUFFIX = ".dkms.tar.gz"
# Where a node keeps archives: those of the driver it had, to roll back, and those it will get. Only root writes there.
STORE = "/var/lib/gpufleet/dkms"


def find_superfluous(kept, version, kernels, versions=2) -> list[str]:
    """Names of archives to remove from a store. Pure.

    ``kept`` is ``[(name, age)]``. Those of kernels that are gone go, and all but the wanted version and the youngest
    others, ``versions`` in all.
    """
    parts = [
        (name, age) + tuple(name.split("_", 2)[1:])
        for name, age in kept
        if name.endswith(SUFFIX) and name.count("_") >= 4
    ]
    ages = {}
    for dummy, age, other, dummy in parts:
        ages[other] = min(age, ages.get(other, age))
    others = sorted((other for other in ages if other != version), key=lambda other: (ages[other], other))
    wanted = set([version] + others[: versions - 1])
    return sorted(
        name
        for name, dummy, other, rest in parts
        if other not in wanted or not any(rest.startswith("%s_" % kernel) for kernel in kernels)
    )


def make_staging_path(name, version) -> str:
    """Return where the maintainer script of a distribution's DKMS package looks for a prebuilt tree before it
    compiles.
    """
    return "/usr/share/%s-dkms/%s-%s.dkms.tar.gz" % (name, name, version)


SOURCE = re.compile(r"^# source ([0-9a-f]{64})$", re.M)
# Larger blocks cost more: each is a mapping of its own, which the kernel fills with zeros first.
READ_BYTES = 64 * 1024
# Of this process, by the path of a file and its signature.
_DIGESTS = {}


def sha256_of(path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(READ_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def known_sha256(path) -> str:
    """The same, read once for as long as the file is the same: a task looks before and after it has the node to
    itself.
    """
    key = (path,) + read_signature(path)
    _DIGESTS[key] = digest = _DIGESTS.get(key) or sha256_of(path)
    return digest


def read_signature(path) -> tuple:
    """Return a value that differs when a file was written to or replaced: the time of its last change of status cannot
    be set.
    """
    try:
        found = os.stat(path)
    except OSError as exc:
        raise TreeError("it is not a readable tar archive: %s" % exc) from exc
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def expected_sha256(path) -> str:
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


def write_sha256(path, digest, source=None) -> None:
    """The digest in sha256sum's form, and what the modules were built from in a comment, which sha256sum leaves out."""
    remark = "# source %s\n" % source if source else ""
    files.write_atomically(path + ".sha256", "%s  %s\n%s" % (digest, os.path.basename(path), remark))


def read_source(path) -> str | None:
    """The digest of the source that an archive was built from, as its export noted it; None where it was not noted."""
    try:
        with open(path + ".sha256", encoding="ascii") as handle:
            found = SOURCE.search(handle.read(4096))
    except (OSError, UnicodeDecodeError):
        return None
    return found.group(1) if found else None


def source_digest(root, name, version) -> str | None:
    """One digest of a module's source on a node, None where there is none: two packages of one driver version may
    differ in their patches.
    """
    return digest_below(files.under(root, "/usr/src/%s-%s" % (name, version)))


def digest_below(base) -> str | None:
    """One digest of all files below a directory, with their names; None where there are none."""
    total, there = hashlib.sha256(), False
    for top, directories, names in os.walk(base):
        directories.sort()
        for each in sorted(names):
            path = os.path.join(top, each)
            there, value = True, os.readlink(path) if os.path.islink(path) else known_sha256(path)
            total.update(("%s\0%s\n" % (os.path.relpath(path, base), value)).encode("utf-8", "surrogateescape"))
    return total.hexdigest() if there else None


def other_source(noted, node) -> bool:
    """Return whether an archive was built from other source than a node has; False where one of the two is not
    known.
    """
    return bool(noted and node and noted != node)


def read_whole_digest(path) -> str | None:
    """The digest of an archive that is there with the digest beside it, and agrees with it; else None."""
    try:
        digest = known_sha256(path)
        return digest if digest == expected_sha256(path) else None
    except (OSError, TreeError):
        return None


def read_promised_digest(path) -> str | None:
    """Return the digest beside an archive that is there, which a reader of the archive still has to compare; else
    None.
    """
    try:
        return expected_sha256(path) if os.path.isfile(path) else None
    except TreeError:
        return None


WORKPLACE = ".gpufleet-import"


@contextlib.contextmanager
def private_directory() -> Iterator:
    """A directory that only this user can enter, as long as it is needed."""
    directory = tempfile.mkdtemp(prefix="gpufleet-dkms-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


class Workplace:
    """The directory in which an archive becomes a tree before DKMS gets it.

    It lies beside DKMS's trees, so that the tree is moved and not copied, and has a name that DKMS passes over.

    It is made when it is first needed, and what a killed run left there is removed then. Without a DKMS tree it is
    anywhere.
    """

    def __init__(self, root) -> None:
        self.beside, self.path, self.umask = files.under(root, dkms.TREE), None, None

    def directory(self, name) -> str:
        """A new directory in it."""
        if self.path is None and os.path.isdir(self.beside):
            path = os.path.join(self.beside, WORKPLACE)
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path, 0o700)
            self.path = path
        elif self.path is None:
            self.path = tempfile.mkdtemp(prefix="gpufleet-dkms-")
        os.mkdir(os.path.join(self.path, name))
        return os.path.join(self.path, name)

    def __enter__(self) -> Workplace:
        self.umask = os.umask(0o022)  # as dkms does: all users may read its tree
        return self

    def __exit__(self, *exc) -> None:
        os.umask(self.umask)
        if self.path is not None:
            shutil.rmtree(self.path)


@contextlib.contextmanager
def private_copies(paths) -> Iterator:
    """Copies of archives in a directory that only this user can enter, each checked against its digest.

    What is inspected is what is loaded: it cannot be changed in between.
    """
    with private_directory() as directory:
        copies = []
        for index, path in enumerate(paths):
            copy_path = os.path.join(directory, "%d.dkms.tar.gz" % index)
            try:
                wanted = expected_sha256(path)
                shutil.copyfile(path, copy_path)
            except FileNotFoundError as exc:
                raise TreeError("The archive %s cannot be used: it is not there." % path) from exc
            except TreeError as exc:
                raise TreeError("The archive %s cannot be used: %s." % (path, exc)) from exc
            found = sha256_of(copy_path)
            if found != wanted:
                raise TreeError(
                    "The archive %s cannot be used: its sha256 is %s, and %s.sha256 says %s."
                    % (path, found, path, wanted)
                )
            copies.append({"path": path, "copy": copy_path, "sha256": found, "source": read_source(path)})
        yield copies


def list_offered(directory, version) -> list[str]:
    """Names of the archives of a version; the digest is written last, so that an archive with it is whole."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [
        name for name in names if name.endswith(SUFFIX) and "_%s_" % (version,) in name and name + ".sha256" in names
    ]


def describe_archives(directory, versions) -> list[dict]:
    """``[{name, sha256, source}]`` of the archives of versions, of the driver or its packages, by what is noted beside
    them; those without a digest are not there.
    """
    found, wanted = [], sorted(set(upstream(version) for version in versions))
    for name in (name for version in wanted for name in list_offered(directory, version)):
        digest = read_promised_digest(os.path.join(directory, name))
        if digest:
            found.append({"name": name, "sha256": digest, "source": read_source(os.path.join(directory, name))})
    return found


def find_lacking(giver, taker) -> list[dict]:
    """Return the archives that the giver has and the taker lacks. Pure.

    An archive of the same name that differs counts as there: which of the two fits a node is for the node to see.
    """
    names = set(item["name"] for item in taker)
    return [item for item in giver if item["name"] not in names]
