# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_smoke: the module tests by some, the action plugin judges by the others."""

from __future__ import annotations

ARGUMENT_SPEC = {
    "level": {"type": "str", "choices": ["t0", "t1", "t2", "t3"], "default": "t0"},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "together": {"type": "bool", "default": False},
    "phase": {"type": "str", "choices": ["baseline", "post", "soak", "adhoc"], "default": "adhoc"},
    "baseline": {"type": "dict"},
    "baseline_file": {"type": "path"},
    "peers": {"type": "list", "elements": "dict", "default": []},
    "nccl": {
        "type": "dict",
        "options": {
            "node_gbps": {"type": "list", "elements": "float"},
            "fleet_gbps": {"type": "list", "elements": "float"},
        },
    },
    "tolerance_percent": {"type": "float"},
    "retries": {"type": "int", "default": 1},
    "require": {"type": "bool", "default": False},
    "dcgm_level": {"type": "int", "choices": [1, 2, 3, 4], "default": 2},
    "library_path": {"type": "path"},
    "fail_on": {"type": "list", "elements": "str", "choices": ["fail", "unknown"], "default": ["fail", "unknown"]},
    "policy": {"type": "dict"},
    "policy_file": {"type": "path"},
    "waivers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "check": {"type": "str", "required": True},
            "entity": {"type": "str"},
            "reason": {"type": "str", "required": True},
            "expires": {"type": "str", "required": True},
        },
    },
    "full": {"type": "bool", "default": False},
    "timeout_s": {"type": "int"},
    "dcgm_timeout_s": {"type": "int", "default": 3600},
}
# What the node is asked with; the others stay on the controller.
NODE_OPTIONS = ("level", "gpus", "together", "dcgm_level", "library_path", "timeout_s", "dcgm_timeout_s")
# What the action plugin gives the module beside them, to measure low rates again.
REPEAT_SPEC = {"tests": {"type": "list", "elements": "str", "default": []}}
MUTUALLY_EXCLUSIVE = [("baseline", "baseline_file")]
