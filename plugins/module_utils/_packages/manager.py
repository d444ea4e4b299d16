# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interface of the package managers, and the part of it that is the same for all. No decision is made here.

Beside what :class:`Manager` has, a manager answers:

``installed()``
    ``{name: {"version", "source", "status", "hold", "size_kib", "installed", "ok"}}``
``index(name_pattern, also)``
    ``{name: [{"version", "source", "relations", "provides", "size", "installed_kib", "downloadable", ...}]}``
``security(names)``
    ``{name: [versions that fix a vulnerability]}``, None when it cannot tell
``interrupted(installed)``
    ``(journal entries, packages that an interrupted run left half done)``
``arguments(packages, obsolete)``
    the words that ask for exactly these versions and for the removal of the obsolete ones
``simulate(arguments, action, options)``
    the transaction as data, see ``_packages.transaction``
``to_download(arguments, options)``
    ``{what: bytes}`` that is not on the machine yet
``silent_mirrors(arguments, options)``
    ``[{"mirror", "package", "version", "why"}]``, the mirrors of these downloads from which nothing comes; [] where the
    manager cannot ask one without a change of the machine
``change(arguments, action, options)``, ``download(arguments, options)``, ``configure(names)``, ``mark(action, names)``
    act: a transaction, its downloads, finishing an interrupted run (of
    these of the driver's packages), ``hold`` and ``unhold``
``fix_options(broken)``, ``download_options(broken)``, ``deferred_dkms_options()``
    options of these commands
``unattended_file``
    the file that keeps unattended upgrades from the driver; ``_packages.holds`` has its content
"""

from __future__ import annotations

import glob
import os

from .._kernel import kernels
from .._node import files
from .store import Store

# As a pattern of names: none beside those that are named.
NO_NAMES = "(?!)"


def parse_os_release(text) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        key, sep, value = line.strip().partition("=")
        if sep and not key.startswith("#"):
            found[key] = value.strip().strip("\"'")
    return found


def tail(text, lines=25) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])


class ManagerError(Exception):
    """A command of a package manager failed.

    ``output`` is the end of what it said, ``unmet`` what it cannot satisfy.
    """

    ERRORS = ("E: ",)

    def __init__(self, what, rc, out, err) -> None:
        self.rc = rc
        self.output = tail((out.rstrip() + "\n" + err).strip())
        self.unmet = self.find_unmet(out, err)
        lines = [line for line in self.output.splitlines() if line.startswith(self.ERRORS)] or self.output.splitlines()[
            -3:
        ]
        # A shell says 128 and the signal for what it ran, subprocess the signal as a negative number.
        ended = "was killed (out of memory?)" if rc in (-9, 137) else "failed (exit status %s)" % rc
        super().__init__("%s %s: %s" % (what, ended, " ".join(lines) or "it said nothing"))

    @staticmethod
    def find_unmet(out, err) -> list:
        return []

    @property
    def packages(self) -> list[str]:
        return sorted(set(line.split(" ", 1)[0] for line in self.unmet))


class Manager:
    """The package manager of one machine. ``runner(argv, timeout)`` answers ``(rc, out, err)``."""

    name = ""
    unattended_file = None
    error = ManagerError

    def __init__(self, runner, root="/", lock_timeout_s=300, timeout_s=3600) -> None:
        self.runner = runner
        self.root = root
        self.lock_timeout_s = lock_timeout_s
        self.timeout_s = timeout_s
        self.store = Store(self.describe, root)
        self.kept = {}  # what the store has, as read with the index

    def path(self, *parts) -> str:
        return files.under(self.root, *parts)

    def run(self, what, argv, timeout=120, ok=(0,)) -> str:
        rc, out, err = self.runner(list(argv), timeout)
        if rc not in ok:
            raise self.error(what, rc, out, err)
        return out

    def os_release(self) -> dict[str, str]:
        return parse_os_release(files.read_text(self.path("/etc/os-release")) or "")

    def initrd_bytes(self) -> int:
        sizes = [
            os.stat(name).st_size
            for name in glob.glob(self.path("/boot/initrd.img-*")) + glob.glob(self.path("/boot/initramfs-*.img"))
        ]
        return max(sizes) if sizes else 0

    def kernels(self) -> list[str]:
        return kernels.find_installed(self.root)

    def streams(self, module) -> list:
        """Names of the streams of a module, where the manager has such."""
        return []

    def hold_problem(self) -> tuple[str, str] | None:
        """``(why, next step)`` when a hold would hold nothing on this machine."""
        return None

    def find_lock_package(self) -> str | None:
        """Return the package that the first hold installs on this machine."""
        return None

    def silent_mirrors(self, arguments, options=()) -> list:
        return []

    # the node's own store

    def describe(self, path):
        """Return ``(name, version, text for the index)`` of an archive; empty texts for what is no package."""
        raise NotImplementedError

    def find_cached(self, wanted, index):
        """Return ``{(name, version): path}`` of the archives in the package manager's cache."""
        raise NotImplementedError

    def fetch(self, missing, index):
        """Download packages into the store; return ``{(name, version): why}`` of those that cannot be had."""
        raise NotImplementedError

    def unkept(self, wanted) -> dict[str, str]:
        """Return those of ``{name: version}`` that are not in the store."""
        kept = self.store.index()
        return dict(item for item in wanted.items() if item not in kept)

    def keep(self, wanted, index) -> dict[str, str]:
        """Put packages into the store, from the cache or a mirror; return ``{name: why}`` of those that cannot be."""
        due = self.unkept(wanted)
        archives = self.find_cached(due, index)
        wrong = self.store.add(archives)
        missing = dict(item for item in due.items() if item not in archives)
        wrong.update(self.fetch(missing, index) if missing else {})
        return dict((name, why) for (name, dummy), why in wrong.items())

    def forget(self, names):
        """Holds of packages that are gone: nothing is left of them unless the manager keeps a list."""

    def filesystems(self, paths) -> dict[str, dict]:
        """Return ``{path: files.read_filesystem(path)}``; a path that cannot be read is left out."""
        found = dict((path, files.read_filesystem(self.root, path)) for path in paths)
        return dict((path, about) for path, about in found.items() if about)
