# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_mig: the action plugin checks them before the node is asked, the module works by them."""

from __future__ import annotations

from ._node import lock

PRESENT, RESTORED, CLEARED, EXPORTED, GENERATED = "present", "restored", "cleared", "exported", "generated"
LAYOUT_SPEC = {
    "gpus": {"type": "list", "elements": "str", "default": []},
    "model": {"type": "str"},
    "mig_enabled": {"type": "bool", "required": True},
    "mig_devices": {"type": "dict"},
}
ARGUMENT_SPEC = dict(
    {
        "state": {"type": "str", "choices": [PRESENT, RESTORED, CLEARED, EXPORTED, GENERATED], "default": PRESENT},
        "config": {"type": "dict"},
        "config_file": {"type": "path"},
        "config_name": {"type": "str"},
        "layout": {"type": "list", "elements": "dict", "options": LAYOUT_SPEC},
        "baseline": {"type": "dict"},
        "baseline_file": {"type": "path"},
        "instances": {"type": "bool", "default": True},
        "timeout_s": {"type": "int", "default": 120},
    },
    **lock.ARGUMENTS,
)
MUTUALLY_EXCLUSIVE = [("config", "config_file", "layout"), ("baseline", "baseline_file")]
WANTED = ("config", "config_file", "layout")
BASELINE = ("baseline", "baseline_file")


def contradiction(params) -> str | None:
    """Return the options that cannot be combined, with the next step; None if there are none."""
    for name, least in (("timeout_s", 1), ("lock_timeout_s", 0)):
        if params[name] < least:
            return "%s is %d; expected at least %d second" % (name, params[name], least)
    state = params["state"]
    given = [name for name in WANTED + BASELINE if params.get(name) is not None]
    expected = {PRESENT: WANTED, RESTORED: BASELINE}.get(state, ())
    strangers = [name for name in given if name not in expected]
    if strangers:
        return "state: %s takes no %s; remove it, or set the state" % (state, ", ".join(strangers))
    if expected and not given:
        return "state: %s needs one of %s" % (state, ", ".join(expected))
    if state == PRESENT and not params.get("layout") and not params.get("config_name"):
        if params.get("layout") is not None:
            return "layout is empty; expected an entry for every GPU"
        return "config_name is missing; name one of the configurations"
    if params.get("config_name") and state not in (PRESENT, EXPORTED):
        return "state: %s takes no config_name; remove it" % (state,)
    if not params["instances"] and state != RESTORED:
        return "instances: false goes with state: restored; remove it, or set the state"
    if params.get("config_name") and params.get("layout") is not None:
        return "layout takes no config_name; remove one of them"
    return None
