# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell if the GPUs of a node are in use."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpus_in_use
short_description: Tell whether processes compute on the GPUs out of what gpu_info read
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers why a node must be left alone, because processes compute on its GPUs, or because a GPU does not tell. The
    answer is empty where no process computes.
options:
  _input:
    description: The snapshot that M(gpufleet.lifecycle.gpu_info) returned.
    type: dict
    required: true
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use


def gpus_in_use(snapshot):
    return _gpu_use.in_use((snapshot or {}).get("gpus"))


class FilterModule:
    def filters(self) -> dict:
        return {"gpus_in_use": gpus_in_use}
