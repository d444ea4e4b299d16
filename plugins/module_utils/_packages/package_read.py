# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node for a change of driver packages, through a package manager. Nothing is decided or changed here."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .._dkms import act as dkms_act
from .._dkms import dkms
from .._kernel import kernels
from .._node import boot_expectation, files, gpu_operator, pci, workloads
from .._node.versions import upstream
from . import holds, package_plan, transaction
from .manager import NO_NAMES, Manager, ManagerError
from .package_plan import Plan
from .package_state import Archives, Installed, Problem, Rehearsal, Room, State, Wish


def read_state(manager: Manager, wish: Wish, table: Dict[str, Any]) -> State:
    """Return everything that is known before anything is decided."""
    root, kernel_names = manager.root, tuple(manager.kernels())
    installed = manager.list_installed()
    journal, broken = manager.find_interrupted(installed)
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
        next_kernel=kernels.find_next_boot(root, manager.runner, list(kernel_names))[0]
        if wish.kernel_module == "prebuilt"
        else None,
        compilers=dict((kernel, dkms.compiler_id(dkms.kernel_config(root, kernel))) for kernel in kernel_names),
        headers=dict((kernel, kernels.headers_present(root, kernel)) for kernel in kernel_names)
        if "headers" in wish.require
        else {},
        architecture=kernels.architecture(),
        initrd_bytes=manager.initrd_bytes(),
        gpus=pci.read_devices(root),
        operator=gpu_operator.read_operator(root),
        workloads=read_workloads(root) if wish.running_floors else (),
        streams=streams,
        enabled_stream=enabled,
        hold_problem=manager.hold_problem(),
        lock_package=manager.find_lock_package(),
        unattended_file=manager.unattended_file,
        texts=dict((path, files.read_text(manager.path(path))) for path in paths if path),
        expected_driver=read_expected_driver(manager),
    )


def read_workloads(root: str) -> Optional[Tuple[Dict[str, Any], ...]]:
    """Return what containers that run require of the driver; None when they cannot be listed."""
    found = workloads.read_workloads(root)
    return None if found is None else tuple(found)


def read_streams(manager: Manager, module: Optional[str]) -> Tuple[Tuple[str, ...], Optional[str]]:
    """``(streams that there are, stream that is enabled)`` of a dnf module."""
    return (tuple(manager.streams(module)), manager.enabled_stream(module)) if module else ((), None)


def read_expected_driver(manager: Manager) -> Optional[str]:
    """Return the driver that the node's check at boot expects; None where there is no check, or it refuses its file."""
    try:
        return upstream(boot_expectation.read_expectation(manager.path(boot_expectation.PATH))["driver_version"])
    except boot_expectation.Unusable:
        return None


def rehearse_plan(manager: Manager, plan: Plan) -> Rehearsal:
    """Ask the package manager what it would do for a plan that has an action."""
    if plan.action == "remove":
        words = plan.targets
    else:
        words = tuple(manager.arguments(plan.packages, plan.resolved["obsolete"], plan.stream))
    if not plan.due:
        return Rehearsal(words, dkms_names=read_dkms_names(manager, plan.resolved))
    try:
        found = manager.simulate(words, plan.action, manager.fix_options(plan.state.broken))
    except ManagerError as exc:
        return Rehearsal(words, problem=Problem("; ".join(exc.unmet) or str(exc), exc.output, tuple(exc.packages)))
    return Rehearsal(words, transaction=found)


def read_dkms_names(manager: Manager, resolved: Dict[str, Any]) -> Tuple[str, ...]:
    """Return the names that a driver's module has on the node; the driver has none where it is prebuilt."""
    return tuple(dkms_act.find_names(manager.root, resolved["dkms_version"])) if resolved["dkms_name"] else ()


def read_downloads(manager: Manager, plan: Plan) -> Dict[str, int]:
    """``{what: bytes}`` that is not on the node yet. A download is of what is installed, too: it is the way back."""
    return manager.to_download(plan.arguments, download_options(manager, plan))


def download_options(manager: Manager, plan: Plan) -> List[str]:
    options = manager.download_options if plan.wish.state == "downloaded" else manager.fix_options
    return options(plan.state.broken)


def read_silent_mirrors(manager: Manager, plan: Plan) -> List[Dict[str, str]]:
    """Fetch an archive from each mirror that the plan downloads from; return those from which nothing came."""
    return manager.silent_mirrors(plan.arguments, download_options(manager, plan))


def read_room(manager: Manager, plan: Plan) -> Room:
    unsized = package_plan.find_unsized(plan)
    return Room(
        downloads=read_downloads(manager, plan),
        sizes=manager.index(NO_NAMES, unsized) if unsized else {},
        filesystems=manager.filesystems(transaction.disk_paths(manager.name)),
    )


def read_archives(manager: Manager, plan: Plan) -> Archives:
    before, after = manager.unkept(package_plan.driver_before(plan)), manager.unkept(plan.packages)
    # Apart: most packages are in both, at two versions.
    cached = dict(manager.find_cached(before, plan.state.index))
    cached.update(manager.find_cached(after, plan.state.index))
    return Archives(before, after, cached)


def read_back(manager: Manager, plan: Plan) -> Optional[Dict[str, Any]]:
    """The set after the change: with the name of its module in DKMS, and the archives of the module's source."""
    resolved = plan.resolved
    if resolved and plan.wish.state == "present":
        resolved = package_plan.rename_module(resolved, read_dkms_names(manager, resolved), plan.state)
    return dict(resolved, module_archives=read_module_archives(manager, plan)) if resolved else None


def read_module_archives(manager: Manager, plan: Plan) -> Optional[List[str]]:
    """The files that hold the module's source, in the package manager's cache or the node's store; None where it is not
    compiled ahead of its installation.
    """
    if not package_plan.unpacks_archives(manager.name):
        return None
    sources = package_plan.module_sources(plan)
    if not sources:
        return []
    found = manager.find_cached(sources, plan.state.index)
    found.update((key, item["path"]) for key, item in manager.store.index().items() if key in sources.items())
    return sorted(found.values())


def read_holds(manager: Manager, plan: Plan, installed: Installed, now: float) -> List[Dict[str, Any]]:
    """Return the age of the driver's holds and the updates that they keep out, as holds.report returns them."""
    held = package_plan.held_driver(plan.state.table, installed)
    if not held:
        return []
    record = holds.parse_record(files.read_text(manager.path(holds.RECORD)))
    return holds.report_holds(record, held, plan.state.index, manager.security(held), manager.name, now)
