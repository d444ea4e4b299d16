# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection for stub nodes: what decides is the checkout's own, what would touch a machine is a stub."""

from __future__ import annotations

import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
STUB = HERE / "stub"
REAL = (
    "galaxy.yml",
    "meta",
    "roles/gpu_node_upgrade",
    "roles/gpu_quarantine",
    "roles/gpu_scheduler",
    "roles/kernel_hold",
    "roles/nvidia_mig/defaults",
    "roles/nvidia_mig/tasks/manager_look.yml",
    "roles/nvidia_mig/vars",
    "plugins/action/dkms_archives.py",
    "plugins/action/dkms_module.py",
    "plugins/action/driver_reload.py",
    "plugins/action/boot_kernel.py",
    "plugins/action/driver_packages.py",
    "plugins/action/hold_info.py",
    "plugins/action/kernel_packages.py",
    "plugins/action/node_services.py",
    "plugins/action/node_state.py",
    "plugins/action/nvidia_ctk.py",
    "plugins/action/package_hold.py",
    "plugins/action/repository_key.py",
    "plugins/action/driver_audit.py",
    "plugins/action/playbook_variables.py",
    "plugins/action/rollout_control.py",
    "plugins/action/quarantine_record.py",
    "plugins/action/rollout_gate.py",
    "plugins/action/rollout_node.py",
    "plugins/action/rollout_plan.py",
    "plugins/action/rollout_report.py",
    "plugins/action/rollout_step.py",
    "plugins/action/slurm_gres.py",
    "plugins/action/slurm_node.py",
    "plugins/callback/rollout_progress.py",
    "plugins/doc_fragments",
    "plugins/filter",
    "plugins/module_utils/_rollout_options.py",
    "plugins/modules/artifact_store.py",
    "plugins/modules/dkms_archives.py",
    "plugins/modules/playbook_variables.py",
    "plugins/modules/rollout_control.py",
    "plugins/modules/quarantine_record.py",
    "plugins/modules/rollout_gate.py",
    "plugins/modules/rollout_node.py",
    "plugins/modules/rollout_plan.py",
    "plugins/modules/rollout_report.py",
    "plugins/modules/rollout_step.py",
    "plugins/plugin_utils",
    # Slurm's commands are stubs, and whoever calls them is real.
    "plugins/modules/slurm_gres.py",
    "plugins/modules/slurm_node.py",
    "plugins/module_utils/_slurm",
    "plugins/module_utils/_driver",
    "plugins/module_utils/_dkms",
    "plugins/module_utils/_kernel",
    "plugins/module_utils/_mig",
    "plugins/module_utils/_node",
    "plugins/module_utils/_packages",
    # The bundles of evidence are written for real.
    "plugins/action/artifact_store.py",
    "plugins/action/gpu_evidence.py",
    "plugins/module_utils/_artifacts.py",
    "plugins/module_utils/_evidence_options.py",
    "plugins/module_utils/_nvml",
    # What a verdict is made of is said by the stub node; how it is read is real.
    "plugins/module_utils/_health",
)


def place(collections):
    """Where the collection is in a directory of collections."""
    return collections / "ansible_collections" / "gpufleet" / "lifecycle"


def link(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.symlink_to(source)


def make(where, real=(), stubs=(STUB,)):
    """The collection in WHERE: REAL and what else of the checkout is named, then the files of the stubs, the first of a
    name.
    """
    for name in tuple(real) + REAL:  # a whole role before parts of it
        link(ROOT / name, where / name)
    for base in stubs:
        for source in sorted(base.rglob("*")):
            name = source.relative_to(base)
            if source.is_file() and source.parent != base and "__pycache__" not in source.parts:
                link(source, where / name)


def put(path, text):
    """Write a file of a collection; where it was a link, the file of the checkout stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
