# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option of all modules that read NVML."""

from __future__ import annotations


class ModuleDocFragment:
    # _nvml.binding.ARGUMENTS
    DOCUMENTATION = r"""
options:
  binding:
    description: The NVML binding of the controller. Set by the action plugin, not for playbooks.
    type: dict
    suboptions:
      digest:
        description: Its sha256.
        type: str
        required: true
      version:
        description: The version of C(nvidia-ml-py).
        type: str
        required: true
      source:
        description: The file, compressed and in base64. Sent if the node does not have it.
        type: str
"""
