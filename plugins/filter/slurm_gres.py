# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot of a node's GPUs as generic resources of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_gres
short_description: Make the Gres of a node and its lines of gres.conf out of what gpu_info read
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers the options O(gpufleet.lifecycle.slurm_gres#module:state), O(gpufleet.lifecycle.slurm_gres#module:gres),
    O(gpufleet.lifecycle.slurm_gres#module:kept) and O(gpufleet.lifecycle.slurm_gres#module:lines) of
    M(gpufleet.lifecycle.slurm_gres).
  - A GPU that is not in MIG mode is one device, C(File=/dev/nvidiaN) with its minor number. One that is has its MIG
    devices instead, each with C(MultipleFiles) (gres.conf(5)). Types are those of Slurm's own detection, such as
    V(nvidia_h100_80gb_hbm3) and V(nvidia_h100_80gb_hbm3_1g.10gb).
options:
  _input:
    description: The snapshot that M(gpufleet.lifecycle.gpu_info) returned, with the subsets V(identity) and V(mig).
    type: dict
    required: true
  node:
    description: The name of the node in Slurm.
    type: str
    required: true
  minors:
    description: The text of C(/proc/driver/nvidia-caps/mig-minors) of the node. Needed where it has MIG devices.
    type: str
    default: ''
  step:
    description:
      - When it is asked. V(check) is before the drain, and tells what the node has with O(layout). V(before) is after
        the drain and before the layout is made, and tells what stays. V(after) tells what there is.
    type: str
    choices: [check, before, after]
    default: after
  layout:
    description: For V(check) and V(before), RV(gpufleet.lifecycle.gpu_mig#module:gpus) of M(gpufleet.lifecycle.gpu_mig)
      in check mode.
    type: list
    elements: dict
    default: []
  types:
    description: Names that the cluster uses instead of a type. An empty one gives its devices no type.
    type: dict
    default: {}
"""

EXAMPLES = r"""
---
- name: See what gres.conf has to have for the node
  ansible.builtin.debug:
    msg: "{{ (gpus.snapshot | gpufleet.lifecycle.slurm_gres(node='n1', minors=minors.content | b64decode)).lines }}"
"""

RETURN = r"""
---
_value:
  description: With V(check) C(lines) is empty if the layout changes a GPU, since the device files of MIG devices are
    known once these are there.
  type: dict
  sample:
    state: present
    gres: {nvidia_h100_80gb_hbm3: 1, nvidia_h100_80gb_hbm3_3g.40gb: 1}
    kept: null
    lines:
      - NodeName=n1 AutoDetect=off Name=gpu Type=nvidia_h100_80gb_hbm3 File=/dev/nvidia0
      - >-
        NodeName=n1 AutoDetect=off Name=gpu Type=nvidia_h100_80gb_hbm3_3g.40gb
        MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap156,/dev/nvidia-caps/nvidia-cap157
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import gres, gres_config


def slurm_gres(snapshot, node, minors="", step="after", layout=None, types=None):
    if not isinstance(snapshot, dict):
        raise AnsibleFilterError(
            "slurm_gres takes the snapshot that gpu_info returned, and got %s" % (type(snapshot).__name__,)
        )
    if step not in ("check", "before", "after"):
        raise AnsibleFilterError("slurm_gres: step is %r, expected check, before or after" % (step,))
    try:
        return answer(gres.of_snapshot(snapshot, minors, types), node, step, layout or [], types)
    except gres.GresError as exc:
        raise AnsibleFilterError("%s: %s." % (node, exc)) from exc


def answer(gpus, node, step, layout, types) -> dict:
    """The options of the module for GPUs that were read."""
    kept = gres.staying(gpus, layout)
    if step == "before":
        return {"state": gres_config.REDUCED, "gres": gres.counts(kept), "kept": None, "lines": gres.lines(node, kept)}
    if step == "check":
        lines = gres.lines(node, gpus) if len(kept) == len(gpus) else []
        return {
            "state": gres_config.CHECKED,
            "gres": gres.plan_counts(gpus, layout, types),
            "kept": gres.counts(kept),
            "lines": lines,
        }
    return {"state": gres_config.PRESENT, "gres": gres.counts(gpus), "kept": None, "lines": gres.lines(node, gpus)}


class FilterModule:
    def filters(self) -> dict:
        return {"slurm_gres": slurm_gres}
