# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the document that gpufleet-node boot-check compares a node with."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_expectation
short_description: Make the document that gpufleet-node boot-check compares a node with
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to role C(gpu_health).
options:
  _input:
    description: Fields of the document, and the policy as M(gpufleet.lifecycle.gpu_health) takes it.
    type: dict
    required: true
"""

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging

VARIABLES = "gpu_health_expected_driver_version, gpu_health_expect (hardware) and gpu_health_boot_mig_file"


def make_boot_expectation(given: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the document with the whole policy, as the node will read it: at boot it has no controller to ask."""
    try:
        policy = _judging.policy(given["policy_file"], given["policy"], given["waivers"])
        document = {
            "schema": boot_expectation.SCHEMA,
            "driver_version": given["driver_version"],
            "hardware": given["hardware"],
            "mig_file": given["mig_file"] or None,
            "policy": policy,
        }
        return boot_expectation.check_document(document, VARIABLES)
    except boot_expectation.Unusable as exc:
        raise AnsibleFilterError("%s: the boot expectation is not usable: %s" % (node, exc.reason)) from exc
    except _judging.InputError as exc:
        raise AnsibleFilterError("%s: %s" % (node, exc)) from exc


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"boot_expectation": make_boot_expectation}
