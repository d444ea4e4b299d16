# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The form of a refusal of a change of packages."""

from __future__ import annotations


def refusal(ident, packages, found, expected, message, next_step):
    return {
        "id": ident,
        "packages": sorted(packages),
        "found": found,
        "expected": expected,
        "message": message,
        "next_step": next_step,
    }
