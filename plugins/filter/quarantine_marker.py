# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The quarantine marker of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: quarantine_marker
short_description: Make the quarantine marker of a node
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers a document of schema C(gpufleet.quarantine/1), for the note C(quarantine) of
    M(gpufleet.lifecycle.node_state). The role P(gpufleet.lifecycle.gpu_quarantine#role) documents its fields.
options:
  _input:
    description:
      - Fields of the marker, of which C(node), C(time) and C(reason) are required. A field that a marker does not
        have is refused. C(user) and C(controller) are who runs this where they are not given.
      - In the place of C(gpus) and C(checks) it may have C(snapshot), C(baseline) and C(health), as
        M(gpufleet.lifecycle.gpu_health) returned them.
    type: dict
    required: true
"""


from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import marker


def quarantine_marker(given):
    try:
        return marker.build(_controller.sign(given))
    except marker.MarkerError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    def filters(self) -> dict:
        return {"quarantine_marker": quarantine_marker}
