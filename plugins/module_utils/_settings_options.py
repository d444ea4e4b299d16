# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_settings: the action plugin checks them before the node is asked, the module works by them."""

from __future__ import annotations

from ._node import lock
from ._nvml.settings import table

VALUES_SPEC = dict((setting.name, setting.spec) for setting in table.TABLE)
ARGUMENT_SPEC = dict(
    {
        "state": {"type": "str", "choices": ["present", "restored"], "default": "present"},
        "gpus": {"type": "list", "elements": "str", "default": []},
        "baseline": {"type": "dict"},
        "baseline_file": {"type": "path"},
        "settings": {"type": "list", "elements": "str", "choices": sorted(VALUES_SPEC)},
        "processes": {"type": "str", "choices": ["refuse", "allow"], "default": "refuse"},
        "timeout_s": {"type": "int", "default": 60},
        **lock.ARGUMENTS,
    },
    **VALUES_SPEC,
)
MUTUALLY_EXCLUSIVE = [("baseline", "baseline_file")]


def contradiction(params) -> str | None:
    """Return the options that cannot be combined, with the next step; None if there are none."""
    for name, least in (("timeout_s", 1), ("lock_timeout_s", 0)):
        if params[name] < least:
            return "%s is %d; expected at least %d second" % (name, params[name], least)
    named = [name for name in VALUES_SPEC if params.get(name) is not None]
    if params["state"] == "restored":
        if named:
            return (
                "state: restored takes its values from the baseline; remove %s from the task, or use state: present"
                % (", ".join(sorted(named)),)
            )
        if not params.get("baseline") and not params.get("baseline_file"):
            return "state: restored needs a baseline; pass baseline or baseline_file"
        return None
    if not named:
        return "no setting is named; name one of %s, or use state: restored with a baseline" % (", ".join(VALUES_SPEC),)
    for name in ("baseline", "baseline_file", "settings"):
        if params.get(name):
            return "%s goes with state: restored; remove it, or set the state" % (name,)
    return None
