# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock for commands that hang: their time is over when they have done what they do before."""

from __future__ import annotations


def over_when(condition):
    """A clock that stands still, and is an hour later once CONDITION() was so twice.

    One look may be the one that sets the deadline; after the other one the command's output is read.
    """
    seen = []

    def clock():
        over = len(seen) > 1
        if condition():
            seen.append(True)
        return 3600.0 if over else 0.0

    return clock
