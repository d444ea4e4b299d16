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


def is_locked(locks, name, version, arch) -> bool:
    """Return whether a package is locked at just this version."""
    whole = "%s-%s.%s" % (name, version if ":" in version else "0:%s" % version, arch)
    forms = (whole, whole.replace("-0:", "-", 1), name)
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms for pattern in locks)


def render_locks(text, hold, unhold) -> str:
    """The lock list with the versions of ``hold`` (``{name: version}``, a foreign architecture behind the name) and
    without any lock of ``unhold``; other lines stay.
    """
    gone = set(name.split(":", 1)[0] for name in hold) | set(unhold)
    kept = [line for line in text.splitlines() if lock_name(line) not in gone]
    for name, version in sorted(hold.items()):
        plain, dummy, arch = name.partition(":")
        kept.append("%s-%s.%s" % (plain, version if ":" in version else "0:%s" % version, arch or "*"))
    return "".join("%s\n" % line for line in kept)
