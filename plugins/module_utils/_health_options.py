# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_health: the module takes them for its documentation, the action plugin judges by them.

It lies outside of _health, so that the node is not sent the judges.
"""

from __future__ import annotations

ARGUMENT_SPEC = {
    "phase": {"type": "str", "choices": ["baseline", "post", "soak", "adhoc"], "default": "adhoc"},
    "baseline": {"type": "dict"},
    "baseline_file": {"type": "path"},
    "expected_driver_version": {"type": "str"},
    "expect": {
        "type": "dict",
        "options": {
            "reboot": {"type": "bool"},
            "mig_hidden": {"type": "str", "choices": ["none", "volatile_ecc", "all"], "default": "none"},
            "room": {"type": "bool", "default": False},
            "changes": {"type": "list", "elements": "str", "default": []},
            "hardware": {
                "type": "dict",
                "options": {
                    "gpus": {"type": "int"},
                    "model": {"type": "str"},
                    "memory_mib": {"type": "int"},
                    "ecc": {"type": "bool"},
                    "nvlinks": {"type": "int"},
                    "nvswitches": {"type": "int"},
                    "pcie_generation": {"type": "int"},
                    "pcie_width": {"type": "int"},
                },
            },
            "peers": {"type": "dict", "options": {"gpus": {"type": "dict", "default": {}}}},
        },
    },
    "since": {
        "type": "dict",
        "options": {
            "boot_id": {"type": "str", "required": True},
            "seq": {"type": "int"},
            "monotonic_us": {"type": "int"},
        },
    },
    "mig_free_reading": {"type": "dict"},
    "smoke": {"type": "dict"},
    "sequence": {"type": "int"},
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
    "timeout_s": {"type": "int", "default": 60},
}
MUTUALLY_EXCLUSIVE = [("baseline", "baseline_file")]
