# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Directories in which archives are copied and unpacked before DKMS gets them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

from .._node import files
from . import dkms
from .digests import expected_sha256, sha256_of, source_of
from .errors import TreeError

WORKPLACE = ".gpufleet-import"


@contextlib.contextmanager
def private_directory():
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

    def __init__(self, root):
        self.beside, self.path, self.umask = files.under(root, dkms.TREE), None, None

    def directory(self, name):
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

    def __enter__(self):
        self.umask = os.umask(0o022)  # as dkms does: everybody may read its tree
        return self

    def __exit__(self, *exc):
        os.umask(self.umask)
        if self.path is not None:
            shutil.rmtree(self.path)


@contextlib.contextmanager
def private_copies(paths):
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
            copies.append({"path": path, "copy": copy_path, "sha256": found, "source": source_of(path)})
        yield copies
