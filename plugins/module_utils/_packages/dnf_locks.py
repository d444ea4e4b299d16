# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of dnf's plugin versionlock: its lines, and the list with other locks."""

from __future__ import annotations

import fnmatch
import re


def lock_pattern(line) -> str | None:
    """Return the package that a line of the lock list locks; None for comments and exclusions."""
    line = line.split("#", 1)[0].strip()
    return None if not line or line.startswith("!") else line


def lock_name(line) -> str | None:
    """The package of a line of the lock list."""
    pattern = lock_pattern(line) or ""
    found = re.match(r"^(.+?)-(?:[0-9]+:|\*:)[^-]+-.+$", pattern) or re.match(r"^(.+)-[^-]+-[^-]+$", pattern)
    return found.group(1) if found else pattern or None


def forms_of(version) -> tuple[str, ...]:
    """Return how a lock may write a version: with its epoch, with any, and without one where that is 0."""
    whole = version if ":" in version else "0:%s" % version
    return (whole, "*:%s" % whole.split(":", 1)[1]) + ((whole[2:],) if whole.startswith("0:") else ())


def is_exact(pattern, name, version, arch) -> bool:
    """Return whether a lock allows just this version of a package."""
    ends = ["-%s%s" % (form, end) for form in forms_of(version) for end in ("", ".*", ".%s" % arch)]
    return any(pattern.endswith(end) and fnmatch.fnmatchcase(name, pattern[: -len(end)]) for end in ends)


def is_loose(pattern, name, version, arch) -> bool:
    """Return whether a lock allows other versions beside this one, such as a bare name, which allows all.

    dnf keeps away what no lock of a name allows, so that such a lock also takes others of the name their effect.
    """
    forms = [name, "%s.%s" % (name, arch)] + ["%s-%s.%s" % (name, form, arch) for form in forms_of(version)]
    fits = any(fnmatch.fnmatchcase(form, pattern) for form in forms)
    return fits and not is_exact(pattern, name, version, arch)


def is_locked(locks, name, version, arch) -> bool:
    """Return whether a package is locked at just this version."""
    package = (name, version, arch)
    return any(is_exact(pattern, *package) for pattern in locks) and not any(
        is_loose(pattern, *package) for pattern in locks
    )


def render_locks(text, hold, unhold) -> str:
    """The lock list with the versions of ``hold`` (``{name: version}``, a foreign architecture behind the name) and
    without any lock of ``unhold``; other lines stay, but for those that would take these locks their effect.
    """
    gone = set(name.split(":", 1)[0] for name in hold) | set(unhold)
    held = []
    for name, version in sorted(hold.items()):
        plain, dummy, arch = name.partition(":")
        held.append((plain, version if ":" in version else "0:%s" % version, arch or "*"))
    kept = [
        line
        for line in text.splitlines()
        if lock_name(line) not in gone
        and not any(is_loose(pattern, *package) for pattern in [lock_pattern(line)] if pattern for package in held)
    ]
    return "".join("%s\n" % line for line in kept + ["%s-%s.%s" % package for package in held])
