# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_evidence: the module takes them for its documentation and gathers by some, the action plugin
writes by the others.
"""

from __future__ import annotations

# What goes to the node.
GATHER_SPEC = {
    "log_lines": {"type": "int", "default": 500},
    "nvidia_smi_timeout_s": {"type": "int", "default": 30},
    "timeout_s": {"type": "int", "default": 60},
}
# What the bundle is called and where it lies, for the controller.
WRITE_SPEC = {
    "artifact_dir": {"type": "path"},
    "rollout_id": {"type": "str", "default": "adhoc"},
    "attempt": {"type": "int", "default": 1},
    "moment": {"type": "str", "default": "adhoc"},
    "required": {"type": "bool", "default": True},
}
ARGUMENT_SPEC = dict(GATHER_SPEC, **WRITE_SPEC)
