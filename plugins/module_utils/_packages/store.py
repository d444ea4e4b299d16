# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's own store of driver packages: what it had and what it has, so that the way back needs neither a mirror nor
a network.

A flat directory of ``.deb`` or ``.rpm`` files and a list of them, :data:`LIST`:
``{file: {"package", "version", "sha256", "control", "size"}}``. A file that is not in the list, or does not agree with
it, is none. Only root writes there, and everybody may read: apt gives up its rights to read archives.
"""

from __future__ import annotations

import json
import os
import shutil

from .._dkms.tree_archives import sha256_of
from .._node import files
from .._node.files import write_atomically

DIRECTORY = "/var/lib/gpufleet/packages"
LIST = "packages.json"


class Store:
    """The store of the machine below ``root``.

    ``describe(path)`` reads an archive with the tools of the package manager, and returns its name, its version, and
    the text that the list keeps of it, which the package manager reads as part of its index.
    """

    def __init__(self, describe, root="/", directory=DIRECTORY) -> None:
        self.describe, self.root = describe, root
        self.known = None
        self.directory = files.under(root, directory)
        self.shown = directory

    def read(self) -> dict[str, dict]:
        """The list; empty when there is none or it cannot be read, which means that nothing is kept."""
        try:
            found = json.loads(files.read_text(os.path.join(self.directory, LIST)) or "{}")
        except ValueError:
            return {}
        fields = ("package", "version", "sha256", "control", "size")
        if not isinstance(found, dict) or not all(
            isinstance(item, dict) and all(key in item for key in fields) for item in found.values()
        ):
            return {}
        return dict((name, item) for name, item in found.items() if os.path.basename(name) == name)

    def index(self) -> dict:
        """``{(package, version): {"path", "shown", "size", "control"}}`` of what is kept and whole; ``shown`` is the
        path as the machine has it.

        The archives are read once, unless something is added or removed.
        """
        if self.known is None:
            self.known = self.whole()
        return dict(self.known)

    def whole(self) -> dict:
        found = {}
        for name, item in self.read().items():
            path = os.path.join(self.directory, name)
            try:
                whole = sha256_of(path) == item["sha256"]
            except OSError:
                continue
            if whole:
                found[(item["package"], item["version"])] = {
                    "path": path,
                    "shown": os.path.join(self.shown, name),
                    "size": item["size"],
                    "control": item["control"],
                }
        return found

    def add(self, archives) -> dict:
        """Keep archives, ``{(package, version): path}``; answers ``{(package, version): why}`` of those that are not
        what they should be.
        """
        if not archives:
            return {}
        files.own_directory(self.root, self.shown)
        known, wrong = self.read(), {}
        for (package, version), path in sorted(archives.items()):
            name, found, control = self.describe(path)
            if (name, found) != (package.split(":", 1)[0], version):
                wrong[(package, version)] = "%s is not a package %s %s" % (path, package, version)
                continue
            name = os.path.basename(path)
            target = os.path.join(self.directory, name)
            if os.path.realpath(path) != os.path.realpath(target):
                take_archive(path, target)
            known[name] = {
                "package": package,
                "version": version,
                "sha256": sha256_of(target),
                "size": os.path.getsize(target),
                "control": control,
            }
        self.write(known)
        return wrong

    def write(self, known) -> None:
        self.known = None
        write_atomically(os.path.join(self.directory, LIST), json.dumps(known, indent=1, sort_keys=True) + "\n")

    def superfluous(self, wanted) -> list[str]:
        """Files of packages that are not among ``(package, version)``."""
        return sorted(name for name, item in self.read().items() if (item["package"], item["version"]) not in wanted)

    def forget(self, wanted) -> list[str]:
        """Remove the others; answers their names."""
        known, gone = self.read(), self.superfluous(wanted)
        if not gone:
            return []
        self.write(dict((name, item) for name, item in known.items() if name not in gone))
        for name in gone:
            if os.path.lexists(os.path.join(self.directory, name)):
                os.unlink(os.path.join(self.directory, name))
        return gone


def take_archive(path, target) -> None:
    """Link or copy an archive to its place in the store, where it appears whole or not at all."""
    with files.replace_whole(target) as temporary:
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
