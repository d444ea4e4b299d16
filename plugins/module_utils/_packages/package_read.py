# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node for a change of driver packages, through a package manager. Nothing is decided or changed here."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .._dkms import dkms
from .._kernel import kernels
from .._node import boot_expectation, files, gpu_operator, pci, workloads
from .._node.versions import upstream
from .manager import Manager
from .package_state import State, Wish


def read(manager: Manager, wish: Wish, table: Dict[str, Any]) -> State:
    """Return everything that is known before anything is decided."""
    root, kernel_names = manager.root, tuple(manager.kernels())
    installed = manager.installed()
    journal, broken = manager.interrupted(installed)
    streams, enabled = read_streams(manager, table.get("module") if wish.state != "absent" else None)
    paths = (wish.pin_file, manager.unattended_file)
    return State(
        manager=manager.name,
        table=table,
        installed=installed,
        index=manager.index(table["name_pattern"], wish.extra_packages),
        journal=tuple(journal),
        broken=tuple(broken),
        kernels=kernel_names,
        compilers=dict((kernel, dkms.compiler_id(dkms.kernel_config(root, kernel))) for kernel in kernel_names),
        headers=dict((kernel, kernels.headers_present(root, kernel)) for kernel in kernel_names)
        if "headers" in wish.require else {},
        architecture=kernels.architecture(),
        initrd_bytes=manager.initrd_bytes(),
        gpus=pci.read(root),
        operator=gpu_operator.read(root),
        workloads=tuple(workloads.read(root) or ()) if wish.running_floors else (),
        streams=streams,
        enabled_stream=enabled,
        hold_problem=manager.hold_problem(),
        can_keep=manager.keeps,
        unattended_file=manager.unattended_file,
        texts=dict((path, files.read_text(manager.path(path))) for path in paths if path),
        expected_driver=read_expected_driver(manager),
    )


def read_streams(manager: Manager, module: Optional[str]) -> Tuple[Tuple[str, ...], Optional[str]]:
    """``(streams that there are, stream that is enabled)`` of a dnf module."""
    return (tuple(manager.streams(module)), manager.enabled_stream(module)) if module else ((), None)


def read_expected_driver(manager: Manager) -> Optional[str]:
    """Return the driver that the node's check at boot expects; None where there is no check, or it refuses its file."""
    try:
        return upstream(boot_expectation.read(manager.path(boot_expectation.PATH))["driver_version"])
    except boot_expectation.Unusable:
        return None
