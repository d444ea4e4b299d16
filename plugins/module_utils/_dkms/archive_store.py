# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Places where a node keeps archives of exported trees, and those that it needs no longer."""

from __future__ import annotations

SUFFIX = ".dkms.tar.gz"
# Where a node keeps archives: those of the driver it had, to roll back, and those it will get. Only root writes there.
STORE = "/var/lib/gpufleet/dkms"


def superfluous(kept, version, kernels, versions=2):
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


def staging_path(name, version):
    """Return where the maintainer script of a distribution's DKMS package looks for a prebuilt tree before it
    compiles.
    """
    return "/usr/share/%s-dkms/%s-%s.dkms.tar.gz" % (name, name, version)
