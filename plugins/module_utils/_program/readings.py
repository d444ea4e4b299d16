# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read all parts of the node's own series, once. If a part cannot be read, only that part is missing.

This module judges nothing and changes nothing.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .._driver import driver_files
from .._kernel import kernels, loaded, modules, newer
from .._node import boot_expectation, claim, files, identity, notes
from .._node.runner import Runner
from .._nvml import binding, snapshot

MIG_CONFIG = "/etc/gpufleet/mig.json"
# What is read of each GPU; a MIG layout is read only where one is wanted.
GATHER = ("identity", "repair", "temperatures", "fabric", "memory", "mig")
# When these change, what is held or held out may be another: package managers are slow to ask.
HOLD_SOURCES = (
    "/var/lib/dpkg/status",
    "/var/lib/apt/lists",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/etc/dnf/plugins/versionlock.list",
    "/var/cache/dnf/last_makecache",
    "/var/lib/gpufleet/holds.json",
    "/var/lib/gpufleet/kernel-holds.json",
)
DIGEST = re.compile(r"([0-9a-f]{64}) [ *](/.+)$")


class Sources(NamedTuple):
    """Paths and numbers for reading the parts; gpus is the number of GPUs that the node should have, 0 for that of its
    expectation."""

    state_dir: str = files.OWN
    expectation: str = boot_expectation.PATH
    boot_result: str = boot_expectation.RESULT
    mig_config: str = MIG_CONFIG
    digests: Tuple[str, ...] = ("/usr/local/lib/gpufleet", "/etc/gpufleet")
    gpus: int = 0
    timeout_s: int = 20


def read_parts(
    sources: Sources,
    state: Dict[str, Any],
    now: float,
    root: str = "/",
    runner: Optional[Runner] = None,
    take: Callable[..., Dict[str, Any]] = snapshot.take,
    uname: Callable[[], Any] = os.uname,
) -> Dict[str, Any]:
    """The parts by name, None for one that is not known; "problems" says why. STATE is what the run before knew."""
    runner = runner or Runner()
    found: Dict[str, Any] = {"now": int(now), "problems": {}}
    for name, reader in (
        ("boot_id", lambda: identity.read_boot_id(root)),
        ("layout", lambda: wanted_layout(sources.mig_config)),
        ("snapshot", lambda: gpus(sources.timeout_s, found["layout"] is not None, take)),
        ("kernel_log", lambda: newer.read(root, runner, state["position"])),
        ("kernels", lambda: kernels.read(root, runner, uname)),
        ("modules", lambda: on_disk(root, runner, found["kernels"])),
        ("loaded", lambda: loaded.read_driver(root)),
        ("library", lambda: driver_files.read_libraries(root)),
        ("holds", lambda: holds(root, runner, state["holds"], now)),
        ("expected_gpus", lambda: read_expected_gpus(sources)),
        ("verdicts", lambda: [document(path) for path in (sources.boot_result, in_state(sources, "verdict.json"))]),
        ("claim", lambda: dict(zip(("claim", "problem"), claim.read_claim(sources.state_dir)))),
        ("drain", lambda: dict(zip(("note", "problem"), notes.read_note(sources.state_dir, "drain")))),
        ("quarantine", lambda: dict(zip(("note", "problem"), notes.read_note(sources.state_dir, "quarantine")))),
        ("changed_files", lambda: find_changed_files(sources.digests)),
    ):
        try:
            found[name] = reader()
        except Exception as exc:  # noqa: BLE001 (whatever it is, it costs that part alone)
            found[name] = None
            found["problems"][name] = "%s: %s" % (type(exc).__name__, exc)
    if found["snapshot"] is not None and found["snapshot"]["status"] != "ok":
        found["problems"]["snapshot"] = found["snapshot"]["message"]
    return found


def gpus(timeout_s: int, layouts: bool, take: Callable[..., Dict[str, Any]]) -> Dict[str, Any]:
    """The snapshot of NVML, read in a child with a deadline; with the MIG layout of each GPU where LAYOUTS."""
    more: Tuple[Any, ...] = ()
    if layouts:
        from .._mig import read as mig_read  # here, as below

        more = (mig_read.read_layout,)
    return take(deadline_s=timeout_s, stuck_file=binding.STUCK_FILE, gather=list(GATHER), more=more)


def wanted_layout(path: str) -> Optional[Dict[str, Any]]:
    """The MIG layout that the file PATH wants; None without one. Raises mig.Unusable."""
    if not os.path.lexists(path):
        return None
    from . import mig  # here, since most nodes want none

    return mig.read_layout(path)


def on_disk(root: str, runner: Runner, found: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The kernel module that the running kernel would load, and the one of the kernel that boots next, by kernel."""
    if found is None:
        raise ValueError("the kernels are not known")
    names = set(name for name in (found["running"], found["next_boot"]) if name)
    return dict((name, modules.read(root, name, runner)) for name in sorted(names))


def holds(root: str, runner: Runner, known: Any, now: float) -> Dict[str, Any]:
    """{"signature", "rows"}: the packages that are held, asked again only when what they are made of has changed."""
    seen = [stamp(files.under(root, path)) for path in HOLD_SOURCES]
    if isinstance(known, dict) and known.get("signature") == seen and isinstance(known.get("rows"), dict):
        return known
    from .._packages import holds, kernel_packages  # here, since most runs need none of it

    return {"signature": seen, "rows": holds.read_holds(kernel_packages.manager_of(runner, root), now)}


def stamp(path: str) -> Optional[List[int]]:
    """Return a value that changes with a file or with the entries of a directory; None if it does not exist."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return [about.st_ino, about.st_size, about.st_mtime_ns]


def read_expected_gpus(sources: Sources) -> Optional[int]:
    """Return the number of GPUs that the node should have; None if it is not specified."""
    if sources.gpus:
        return sources.gpus
    try:
        return boot_expectation.read_expectation(sources.expectation)["hardware"]["gpus"]
    except boot_expectation.Unusable as exc:
        if exc.problem == boot_expectation.MISSING:
            return None
        raise


def in_state(sources: Sources, name: str) -> str:
    """The path of a file in the collection's directory."""
    return os.path.join(sources.state_dir, name)


def document(path: str) -> Any:
    """The JSON document in the file PATH; None where there is none or it is damaged."""
    try:
        return json.loads(files.read_text(path) or "null")
    except ValueError:
        return None


def find_changed_files(directories: Tuple[str, ...]) -> Optional[List[str]]:
    """The files that differ from the digests in the lists *.sha256 of DIRECTORIES; None without such a list."""
    lists = sorted(
        path for directory in directories for path in glob.glob(os.path.join(glob.escape(directory), "*.sha256"))
    )
    if not lists:
        return None
    wrong = set()
    for path in lists:
        for line in files.read_owned(path).splitlines():
            parts = DIGEST.match(line)
            if not parts:
                raise ValueError("%s: %r is no line of sha256sum" % (path, line[:80]))
            if digest(parts.group(2)) != parts.group(1):
                wrong.add(parts.group(2))
    return sorted(wrong)


def digest(path: str) -> Optional[str]:
    """The SHA-256 of a file; None where it cannot be read."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                found.update(block)
    except OSError:
        return None
    return found.hexdigest()
