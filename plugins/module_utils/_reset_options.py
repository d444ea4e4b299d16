# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_reset: the action plugin checks them before the node is asked, the module works by them."""

from __future__ import annotations

from ._node import lock

ARGUMENT_SPEC = {
    "gpus": {"type": "list", "elements": "str", "required": True},
    "when_needed": {"type": "bool", "default": False},
    "destroy_mig": {"type": "bool", "default": False},
    "reason": {"type": "str"},
    "reset_timeout_s": {"type": "int", "default": 300},
    "timeout_s": {"type": "int", "default": 60},
    **lock.ARGUMENTS,
}


def contradiction(params) -> str | None:
    """Return what is wrong with the options, with the next step; None if nothing is."""
    for name, least in (("reset_timeout_s", 1), ("timeout_s", 1), ("lock_timeout_s", 0)):
        if params[name] < least:
            return "%s is %d; expected at least %d" % (name, params[name], least)
    if not [name for name in params["gpus"] if str(name).strip()]:
        return "gpus is empty; name the GPUs to reset by UUID, PCI address or index, or say [all]"
    return None
