# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the steps for the DKMS tree. Pure: states in, steps and problems out; nothing is read or run here."""

from __future__ import annotations

from .._kernel import modules
from .._kernel.kernels import headers_package
from .dkms import directory_of


def step(action: str, kernel: str | None = None, **details: object) -> dict[str, object]:
    return dict({"action": action, "kernel": kernel}, **details)


def module_right(item: dict | None, kernel: str | None, version: str) -> bool:
    """True when the module that a kernel would load is of this version and made for it."""
    return bool(item and not item["error"] and item["version"] == version and modules.made_for(kernel, item))


def clear_steps(leftovers: list[dict], name: str, version: str, kernels: list[str] | None = None) -> list[dict]:
    """Return the steps that clear an interrupted build of this module version, and of these kernels where the kernel is
    known.
    """
    mine = [item for item in leftovers if (item["name"], item["version"]) == (name, version)]
    return [
        step("clear", item["kernel"], path=item["path"], reason=item["reason"])
        for item in mine
        if kernels is None or item["kernel"] is None or item["kernel"] in kernels
    ]


def other_installed(entries: list[dict], name: str, version: str, kernel: str | None) -> list[str]:
    """Other versions of the same module that DKMS has installed for a kernel: they give way first."""
    return sorted(
        entry["version"]
        for entry in entries
        if entry["name"] == name
        and entry["version"] != version
        and entry["kernel"] == kernel
        and entry["state"] == "installed"
    )


def stale(entries: list[dict], name: str, version: str) -> list[dict]:
    """Other versions of the module in the tree, with the kernels they are there for."""
    found = {}
    for entry in entries:
        if entry["name"] == name and entry["version"] != version:
            found.setdefault(entry["version"], []).append({"kernel": entry["kernel"], "state": entry["state"]})
    return [{"name": name, "version": other, "kernels": found[other]} for other in sorted(found)]


def plan_build(
    kernels: list[str],
    view: dict[str, dict],
    name: str,
    version: str,
    force: bool = False,
    archived: tuple[str, ...] = (),
) -> tuple[list[dict], list[str]]:
    """(steps, problems) that make the module built and installed for every kernel.

    ``view``: ``states`` and ``modules`` and ``headers`` by kernel, ``entries``, ``leftovers``, ``source`` (whether the
    module's source is on the node). ``archived``: kernels for which an archive takes the place of a compilation.
    """
    steps, problems = [], []
    archived = () if force else archived
    due = [kernel for kernel in kernels if force or not is_settled(view, kernel, version)]
    steps += clear_steps(view["leftovers"], name, version)
    if (
        due
        and not view["source"]
        and any(view["states"][kernel] not in ("built", "installed", "differs") for kernel in due)
    ):
        problems.append(
            "The source of %s %s is not on this node: found nothing at /usr/src/%s-%s. Install the package "
            "that carries it." % (name, version, name, version)
        )
    # Loading an archive adds the module too; only what is compiled needs it added first.
    if set(due) - set(archived) and view["source"] and all(view["states"][kernel] == "absent" for kernel in kernels):
        steps.append(step("add"))
    for kernel in due:
        state = view["states"][kernel]
        missing = force or state not in ("built", "installed", "differs")
        loads, compiles = missing and kernel in archived, missing and kernel not in archived
        if compiles and not view["headers"].get(kernel):
            problems.append(
                "The headers of kernel %s are not installed, so no module can be built for it. Install "
                "%s, or leave that kernel out." % (kernel, headers_package(kernel))
            )
        if missing and state in ("incomplete", "built", "installed", "differs"):
            steps.append(step("unbuild", kernel))
        if compiles:
            steps.append(step("build", kernel))
        if loads:
            steps.append(step("load", kernel))
        steps += [
            step("uninstall", kernel, version=other)
            for other in other_installed(view["entries"], name, version, kernel)
        ]
        steps.append(install(kernel, view))
    return steps, problems


def find_uncompiled(kernels: list[str], view: dict[str, dict], version: str) -> list[str]:
    """Kernels for which the module would have to be compiled."""
    return [
        kernel
        for kernel in kernels
        if not is_settled(view, kernel, version) and view["states"][kernel] not in ("built", "installed", "differs")
    ]


def find_unprepared(kernels: list[str], view: dict[str, dict], version: str) -> list[str]:
    """Kernels whose module is not in place: an archive would be of use there."""
    return [kernel for kernel in kernels if not is_settled(view, kernel, version)]


def plan_archives(kernels: list[str], view: dict[str, dict], fitting: list[str]) -> tuple[list[dict], list[str]]:
    """(steps, problems) that have an archive ready for every kernel, ``fitting`` being those that have one."""
    due = [kernel for kernel in kernels if kernel not in fitting]
    problems = [
        "The headers of kernel %s are not installed, so no module can be compiled for it. Install %s, or leave that "
        "kernel out." % (kernel, headers_package(kernel))
        for kernel in due
        if not view["headers"].get(kernel)
    ]
    return [step("prepare", kernel) for kernel in due], problems


def find_replaced(entries: list[dict], version: str, kernels: list[str]) -> list[tuple[str, str, str]]:
    """Return what DKMS has installed now and the wanted version will replace: ``[(name, version, kernel)]``."""
    return sorted(
        (entry["name"], entry["version"], entry["kernel"])
        for entry in entries
        if entry["state"] == "installed"
        and entry["version"] != version
        and entry["kernel"] in kernels
        and entry["name"].startswith("nvidia")
    )


def remove_stale(entries: list[dict], name: str, version: str) -> list[dict]:
    """Steps that take every other version of the module out, as a whole."""
    return [removal(entries, name, item["version"]) for item in stale(entries, name, version)]


def removal(entries: list[dict], name: str, version: str) -> dict:
    """Return the step that takes a version out; dkms refuses to remove one whose source is gone (rc 4)."""
    states = set(entry["state"] for entry in entries if (entry["name"], entry["version"]) == (name, version))
    if "broken" in states:
        return step("clear", version=version, path=directory_of(name, version), reason="its source is gone")
    return step("remove", version=version)


def is_settled(view: dict[str, dict], kernel: str | None, version: str) -> bool:
    return view["states"][kernel] == "installed" and module_right(view["modules"].get(kernel), kernel, version)


def install(kernel, view) -> dict:
    """Put the built modules in place.

    Without --force dkms leaves a file alone that is of the same or a newer version (a rollback, an orphan of an earlier
    tree), and calls a module installed that it once installed, whatever became of the file.
    """
    return step(
        "install",
        kernel,
        force=view["modules"].get(kernel) is not None or view["states"][kernel] in ("installed", "differs"),
    )


def absent(kernels: list[str] | None, view: dict[str, dict], name: str, version: str) -> tuple[list[dict], list[str]]:
    """(steps, problems) that take the module version out: for the kernels, or with None as a whole."""
    mine = [entry for entry in view["entries"] if (entry["name"], entry["version"]) == (name, version)]
    steps = clear_steps(view["leftovers"], name, version, kernels)
    if kernels is None:
        if mine:
            steps.append(removal(view["entries"], name, version))
    else:
        there = set(entry["kernel"] for entry in mine)
        steps += [step("unbuild", kernel) for kernel in kernels if kernel in there]
    return steps, []


def plan_import(
    kernels: list[str], view: dict[str, dict], name: str, version: str, force: bool = False
) -> tuple[list[dict], list[str]]:
    """(steps, problems) that take built modules out of archives and install them, for a module whose source is
    there.
    """
    due = [kernel for kernel in kernels if force or not is_settled(view, kernel, version)]
    steps = clear_steps(view["leftovers"], name, version, due)
    for kernel in due:
        state = view["states"][kernel]
        loads = force or state not in ("built", "installed", "differs")
        if loads and state in ("incomplete", "built", "installed", "differs"):
            steps.append(step("unbuild", kernel))
        if loads:
            steps.append(step("load", kernel))
        steps += [
            step("uninstall", kernel, version=other)
            for other in other_installed(view["entries"], name, version, kernel)
        ]
        steps.append(install(kernel, view))
    return steps, []


def describe(kernel: str | None, view: dict[str, dict]) -> str:
    """One line for the diff: DKMS's state, and the version that lies on disk."""
    item = view["modules"].get(kernel)
    return "%s, module on disk: %s" % (view["states"].get(kernel, "absent"), (item or {}).get("version") or "none")


def predict_line(kernel: str | None, steps: list[dict], view: dict[str, dict], version: str) -> str:
    """The same line for a kernel after the steps, for check mode."""
    actions = [
        item["action"] for item in steps if item["kernel"] in (kernel, None) and item.get("version", version) == version
    ]
    if "install" in actions:
        return "installed, module on disk: %s" % version
    if "remove" in actions or "unbuild" in actions:
        item = view["modules"].get(kernel)
        elsewhere = any(
            entry["version"] == version and entry["kernel"] not in (kernel, None) for entry in view["entries"]
        )
        state = "added" if elsewhere and "unbuild" in actions else "absent"
        return "%s, module on disk: %s" % (state, item["version"] if item and item["version"] != version else "none")
    return describe(kernel, view)
