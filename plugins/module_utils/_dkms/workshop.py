# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compile a module version that is not installed, beside the one that serves: in a tree of its own, at the lowest
priority.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from .._node import files
from . import dkms
from .act import COMMAND_TIMEOUT_S, ActError
from .dkms import DKMS_BUILD_MIB

WORKSHOP = "/var/lib/gpufleet/dkms-build"
MIB = 1024 * 1024
# What a serving node keeps free beside a build; driver_packages leaves as much by default (min_free_mib).
LEFT_FREE_MIB = 512
# Jobs run on the node meanwhile: nice(1), and the idle class of ionice(1) where the disk scheduler has one.
QUIETLY = ("nice", "-n", "19", "ionice", "-c", "3")


def refuse_without_room(tree, kernels) -> None:
    """The node serves: what is compiled on it must not fill its disk."""
    about, build = files.read_filesystem(tree.root, WORKSHOP), len(kernels) * DKMS_BUILD_MIB
    if about is None:
        raise ActError(
            "%s %s cannot be compiled ahead of its installation: the file system of %s cannot be read. Nothing was "
            "changed. Next step: check that file system, then run again." % (tree.name, tree.version, WORKSHOP)
        )
    free = about["free"] // MIB
    if free < build + LEFT_FREE_MIB:
        raise ActError(
            "%s %s cannot be compiled ahead of its installation: the file system of %s has %d MiB free, and %d MiB are "
            "needed, %d for the build and %d left over. Nothing was changed. Next step: free space there (old kernels, "
            "logs, apt-get clean), then run again."
            % (tree.name, tree.version, WORKSHOP, free, build + LEFT_FREE_MIB, build, LEFT_FREE_MIB)
        )


class Workshop:
    """A private directory with a module's source and an empty DKMS tree.

    ``with`` removes it, and first what a killed run left.
    """

    def __init__(self, tree, packages) -> None:
        self.tree, self.packages = tree, packages
        self.directory = None

    def __enter__(self) -> Workshop:
        base = files.under(self.tree.root, WORKSHOP)
        shutil.rmtree(base, ignore_errors=True)
        os.makedirs(base, mode=0o700)
        self.directory = tempfile.mkdtemp(dir=base)
        os.mkdir(self._path("tree"))
        return self

    def __exit__(self, *exc) -> None:
        shutil.rmtree(files.under(self.tree.root, WORKSHOP))

    def _path(self, *parts) -> str:
        return os.path.join(self.directory, *parts)

    def sources(self) -> str:
        """The directory with the module's source: the node's own, or what the packages hold together.

        Ubuntu's have dkms.conf and the patches in one package, and what is compiled in another.
        """
        wanted = "%s-%s" % (self.tree.name, self.tree.version)
        own = files.under(self.tree.root, "/usr/src")
        if os.path.isfile(os.path.join(own, wanted, "dkms.conf")):
            return own
        target = self._path("packages")
        for package in self.packages:
            rc, out, err = self.tree.runner(["dpkg-deb", "-x", package, target], COMMAND_TIMEOUT_S)
            if rc:
                raise ActError(
                    "The package %s cannot be unpacked: %s." % (package, (err or out).strip() or "rc %s" % rc)
                )
        found = os.path.join(target, "usr/src")
        if os.path.isfile(os.path.join(found, wanted, "dkms.conf")):
            return found
        raise ActError(
            "The source of %s %s is neither in /usr/src nor in a package: looked into %s. Next step: download the "
            "driver's packages first." % (self.tree.name, self.tree.version, ", ".join(self.packages) or "none")
        )

    def compile(self, kernel, store, compiler) -> dict[str, str]:
        """Compile for one kernel, and leave the archive in the store; answers what :meth:`Tree.export` does."""
        tree, apart = self.tree, (self._path("tree"), self.sources())
        argv = dkms.make_command("build", tree.name, tree.version, kernel, tree.arch, apart=apart)
        rc, out, err = tree.runner(list(QUIETLY) + argv, tree.build_timeout_s)
        if rc:
            raise self.failure(kernel, rc, out, err)
        return tree.export(kernel, store, compiler, apart)

    def failure(self, kernel, rc, out, err) -> ActError:
        """The reason, with the end of the log: the directory it lies in is removed."""
        log = self._path("tree", self.tree.name, self.tree.version, "build/make.log")
        tail = dkms.last_lines(files.read_text(log))
        text = (
            "%s %s cannot be compiled for kernel %s ahead of its installation: dkms build ended with rc %s: %s. "
            "Nothing in use was changed." % (self.tree.name, self.tree.version, kernel, rc, dkms.meaning(rc))
        )
        said = "\n".join(part for part in (out.strip(), err.strip()) if part)
        text += "\ndkms said:\n%s" % said if said else ""
        text += "\nThe last %d lines of make.log:\n%s" % (len(tail), "\n".join(tail)) if tail else ""
        return ActError(
            text,
            kernel=kernel,
            action="prepare",
            rc=rc,
            rc_meaning=dkms.meaning(rc),
            stdout=out,
            stderr=err,
            make_log=tail,
        )
