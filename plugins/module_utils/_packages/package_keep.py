# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deciding whether the packages of the driver that is installed can be kept, for a rollback."""

from __future__ import annotations

from .package_refusal import refusal

KEEP_STEP = (
    "put these packages into the package manager's cache or on the mirror, or go without a way back (option keep: "
    "false, nvidia_driver_keep: false)"
)


def obtainable(wanted, cached, index):
    """``({name: version}, {name: version})``: what is in the cache or can be downloaded, and what cannot be had."""
    there = dict(
        (name, version)
        for name, version in wanted.items()
        if (name, version) in cached
        or any(record["version"] == version and record["downloadable"] for record in index.get(name, []))
    )
    return there, dict((name, version) for name, version in wanted.items() if name not in there)


def cannot_keep(lost):
    listing = ", ".join("%s %s" % item for item in sorted(lost.items()))
    return refusal(
        "cannot_keep",
        lost,
        "neither in the cache nor at a mirror: %s" % listing,
        "the packages of the driver that is installed",
        "The driver that is installed cannot be kept for the way back: %s cannot be had any more." % listing,
        KEEP_STEP,
    )
