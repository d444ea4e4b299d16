# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking a reading and its baseline about the node around the GPUs, and the words of the checks that do."""

from __future__ import annotations

import collections

from . import model
from .model import FAIL, NODE, NOT_APPLICABLE, PASS, UNKNOWN

# given: there is a baseline; known: it holds the value.
Before = collections.namedtuple("Before", ["given", "known", "value"])
AGAIN = "Take a new baseline on a healthy node."


def of_kind(value, kind):
    """VALUE if it is of KIND (and no boolean in place of a number), else None."""
    if isinstance(value, bool) and kind is not bool:
        return None
    return value if isinstance(value, kind) else None


def read_baseline(ctx, *keys, **options):
    """Return the baseline's value at KEYS, if it is of the ``kind`` wanted."""
    value = of_kind(model.item(ctx.baseline, *keys), options.get("kind", object))
    return Before(ctx.baseline is not None, value is not None, value)


def same_boot(ctx):
    """Tell if the baseline was read in this boot: True or False, None if unknown or without a baseline."""
    old, new = model.item(ctx.baseline, "boot_id"), model.item(ctx.reading, "boot_id")
    return old == new if isinstance(old, str) and isinstance(new, str) and old and new else None


def is_simulated(ctx):
    """Tell if this is the project's simulator, as NVML reports it, or as the baseline has it if NVML does not answer
    now."""
    silent = model.item(ctx.snapshot, "nvml", "rc") is None
    return model.item(ctx.snapshot, "simulated") is True or (
        silent and model.item(ctx.baseline, "snapshot", "simulated") is True
    )


def strip_package_version(version):
    """The driver's own version out of a package version: 535.261.03-1~deb12u1 gives 535.261.03."""
    if not isinstance(version, str) or not version:
        return None
    return version.rpartition(":")[2].partition("-")[0]


def find_driver_version(ctx):
    """The version everything is compared with: the wanted one, else the loaded one; None if neither is known."""
    return strip_package_version(ctx.expected_driver) or strip_package_version(
        model.item(ctx.audit, "versions", "loaded")
    )


class Checks:
    """Makes the checks of one kind: the id, the entity and where the expectation comes from are said once."""

    def __init__(self, ident, entity=NODE, source="policy"):
        self.ident, self.entity, self.source = ident, entity, source

    def make(self, status, observed, expected, action, message, source=None, notice=False):
        return model.check(
            self.ident, self.entity, status, observed, expected, source or self.source, action, message, notice=notice
        )

    def good(self, observed=None, expected=None, source=None):
        return self.make(PASS, observed, expected, None, "", source)

    def notice(self, observed, expected, message, source=None):
        return self.make(PASS, observed, expected, None, message, source, True)

    def fail(self, observed, expected, message, action="hold", source=None):
        return self.make(FAIL, observed, expected, action, message, source)

    def unknown(self, observed, expected, message, source=None):
        return self.make(UNKNOWN, observed, expected, "hold", message, source)

    def none(self, message, observed=None, source=None):
        return self.make(NOT_APPLICABLE, observed, None, None, message, source)
