# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archives of compiled modules in a directory, of the controller or of the artifact host."""

from __future__ import annotations

import os

from .._node.versions import upstream
from . import archive_store, digests


def offered(directory, version):
    """Names of the archives of a version; the digest is written last, so that an archive with it is whole."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [
        name
        for name in names
        if name.endswith(archive_store.SUFFIX) and "_%s_" % (version,) in name and name + ".sha256" in names
    ]


def described(directory, versions):
    """``[{name, sha256, source}]`` of the archives of versions, of the driver or its packages, by what is noted beside
    them; those without a digest are not there.
    """
    found, wanted = [], sorted(set(upstream(version) for version in versions))
    for name in (name for version in wanted for name in offered(directory, version)):
        digest = digests.promised(os.path.join(directory, name))
        if digest:
            found.append({"name": name, "sha256": digest, "source": digests.source_of(os.path.join(directory, name))})
    return found


def lacking(giver, taker):
    """Return the archives that the giver has and the taker lacks. Pure.

    An archive of the same name that differs counts as there: which of the two fits a node is for the node to see.
    """
    names = set(item["name"] for item in taker)
    return [item for item in giver if item["name"] not in names]
