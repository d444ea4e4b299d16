# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The form of a finding about a node's driver, and the words for its status."""

from __future__ import annotations

import re

PASS, FAIL, UNKNOWN, NOT_APPLICABLE = "pass", "fail", "unknown", "not_applicable"


# Packages of the kernel module, by any of the archives' names.
KERNEL_SIDE = re.compile(
    r"kernel-(open-)?dkms|kernel-source|^nvidia-dkms|^kmod-nvidia|^linux-(modules|objects)-nvidia-[0-9]"
)


def finding(ident, entity, status, observed=None, expected=None, message="", next_step="") -> dict:
    return {
        "id": ident,
        "entity": entity,
        "status": status,
        "observed": observed,
        "expected": expected,
        "message": message,
        "next_step": next_step,
    }
