# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check names, digests and sizes that a host answers, before one of them becomes a path or a key on the controller.

Root on a node answers what it likes. What passes here is a name of the expected form that was asked for, and not
larger than such a thing is.
"""

from __future__ import annotations

import contextlib
import re
import resource
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives

# Built modules of one driver for one kernel take 20 to 150 MiB, compressed.
MAX_ARCHIVE_BYTES = 512 * 1024 * 1024
# Kernels that can boot on one node; distributions keep two to five.
MAX_ARCHIVES = 64
# With a suffix such as .sha256 it still is a file name (NAME_MAX is 255).
MAX_NAME = 240
# A baseline of 16 GPUs with MIG takes about 1 MiB.
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ARCHIVE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9.+-]*_(?P<version>[A-Za-z0-9][A-Za-z0-9.+~-]*)_[A-Za-z0-9][A-Za-z0-9.+_-]*"
    + re.escape(tree_archives.SUFFIX)
)


class AnswerError(Exception):
    """A host answered what cannot be used; the message says what was found and expected."""


class Archive(t.NamedTuple):
    """An archive as a host described it, after the check."""

    name: str
    sha256: str
    source: str | None


def check_digest(found: t.Any, what: str) -> str:
    """Return a sha256 digest in hexadecimal digits.

    Raises:
        AnswerError: it is none.
    """
    if not isinstance(found, str) or not _DIGEST.fullmatch(found):
        raise AnswerError("%s is %s; expected a sha256 digest" % (what, shorten_value(found)))
    return found


def check_name(found: t.Any, versions: t.Collection[str], allowed: t.Collection[str] | None = None) -> str:
    """Return the file name of an archive of compiled modules.

    Args:
        found: What the host answered.
        versions: Versions of the driver that were asked for.
        allowed: Names that were offered to the host or claimed for it. None: each name of the right form.

    Raises:
        AnswerError: it is not such a name.
    """
    matched = _ARCHIVE.fullmatch(found) if isinstance(found, str) and len(found) <= MAX_NAME else None
    if not matched or matched.group("version") not in versions:
        raise AnswerError(
            "an archive is called %s; expected NAME_VERSION_KERNEL_ARCH_COMPILER%s of version %s"
            % (shorten_value(found), tree_archives.SUFFIX, " or ".join(versions))
        )
    if allowed is not None and found not in allowed:
        raise AnswerError("the archive %s was not asked for" % (found,))
    return found


def check_names(
    found: t.Any, versions: t.Collection[str], allowed: t.Collection[str] | None = None, what: str = "names"
) -> list[str]:
    """Return the names of a list of archives, in order, as :func:`check_name` accepts each; no list is an empty one."""
    return sorted(set(check_name(name, versions, allowed) for name in check_list(found, what)))


def check_archives(
    found: t.Any, versions: t.Collection[str], allowed: t.Collection[str] | None = None, what: str = "archives"
) -> list[Archive]:
    """Return the archives that a host describes, by name; no list is an empty one.

    Each entry has sha256, source (may be left out), and name or path. Of a path the last part counts alone: where the
    file lies on the host is for the controller to say.

    Raises:
        AnswerError: an entry is malformed, or its name does not pass :func:`check_name`.
    """
    archives: dict[str, Archive] = {}
    for item in check_list(found, what):
        if not isinstance(item, dict):
            raise AnswerError("%s has the entry %s; expected a dictionary" % (what, shorten_value(item)))
        name = item.get("name")
        if name is None and isinstance(item.get("path"), str):
            name = item["path"].rsplit("/", 1)[-1]
        name = check_name(name, versions, allowed)
        source = item.get("source")
        archives[name] = Archive(
            name,
            check_digest(item.get("sha256"), "the digest of %s" % name),
            None if source is None else check_digest(source, "the source of %s" % name),
        )
    return [archives[name] for name in sorted(archives)]


def as_mapping(found: t.Any) -> t.Mapping[str, t.Any]:
    """Return what was found if it is a mapping, else an empty one."""
    return found if isinstance(found, t.Mapping) else {}


def get_mapping(found: t.Any, key: str) -> t.Mapping[str, t.Any]:
    """Return the mapping under KEY of one; an empty one where there is none."""
    return as_mapping(found.get(key))


def check_list(found: t.Any, what: str) -> list[t.Any]:
    """Return a list of up to MAX_ARCHIVES entries; None is an empty one."""
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > MAX_ARCHIVES:
        raise AnswerError("%s is %s; expected a list of up to %d entries" % (what, shorten_value(found), MAX_ARCHIVES))
    return found


def check_size(size: int, most: int, what: str) -> None:
    """Refuse more than MOST bytes."""
    if size > most:
        raise AnswerError("%s has %d bytes; expected up to %d" % (what, size, most))


def shorten_value(found: t.Any) -> str:
    """Return a value for a message, printable and in one line."""
    text = ascii(found)
    return text if len(text) <= 100 else text[:97] + "..."


@contextlib.contextmanager
def limit_file_size(most: int) -> t.Iterator[None]:
    """Keep this process and those that it starts from writing a file of more than MOST bytes while the block runs.

    A connection plugin has no limit of its own for what it fetches: a write past the limit fails here (EFBIG), and
    ends a transfer program (SIGXFSZ, setrlimit(2)).
    """
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [most] + [limit for limit in (before, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
