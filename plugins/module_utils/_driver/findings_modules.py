# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge the kernel modules on disk: for each kernel, in DKMS, and for the kernel that boots next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from .._dkms import dkms
from .._kernel import modules
from .._kernel.kernels import headers_package
from ._finding import FAIL, KERNEL_SIDE, NOT_APPLICABLE, PASS, UNKNOWN, finding


def judge_module(facts, kernel, target) -> tuple[str, str | None, str]:
    """(status, observed, message) for the module that a kernel would load."""
    item = facts["modules"].get(kernel)
    if item is None:
        return FAIL, None, "Kernel %s has no NVIDIA kernel module on disk." % kernel
    seen = "%s %s" % (item["path"], item["version"] or "?")
    if item["error"] or not item["version"] or not item["vermagic"]:
        return (
            UNKNOWN,
            seen,
            "The kernel module %s cannot be read: %s."
            % (item["path"], item["error"] or "modinfo names no version or no vermagic"),
        )
    if not modules.made_for(kernel, item):
        return (
            FAIL,
            seen,
            "The kernel module %s was made for kernel %s, not for %s."
            % (item["path"], item["vermagic"].split(" ", 1)[0], kernel),
        )
    if item.get("listed") is False:
        return (
            FAIL,
            seen,
            "The kernel module %s is not in modules.dep of kernel %s, so modprobe does not find it (depmod -a %s)."
            % (item["path"], kernel, kernel),
        )
    if not item.get("listed"):
        return (
            UNKNOWN,
            seen,
            "Whether modprobe finds the kernel module %s is not known: modules.dep of kernel %s cannot be read."
            % (item["path"], kernel),
        )
    if item["version"] != target:
        return (
            FAIL,
            seen,
            "Kernel %s has the NVIDIA kernel module %s on disk, not %s." % (kernel, item["version"], target),
        )
    others = [
        "%s %s" % (other["path"], other["version"] or "?")
        for other in item.get("others", [])
        if other["version"] != target
    ]
    if others:
        return (
            FAIL,
            "; ".join([seen] + others),
            "Kernel %s has more than one NVIDIA kernel module on disk, and not all are %s." % (kernel, target),
        )
    return PASS, seen, ""


def needs_no_module(facts, kernel, target, expect_loaded) -> bool:
    """Return whether a kernel without a module is one that does not boot by itself, where nothing builds modules.

    Repositories have the prebuilt module of a driver for a few kernels alone. Until the reboot (``expect_loaded`` is
    false) the kernel that runs is such a one, too.
    """
    following = facts["kernel"]["next_boot"]
    return (
        facts["modules"].get(kernel) is None
        and following is not None
        and kernel != following
        and (kernel != facts["kernel"]["running"] or not expect_loaded)
        and not uses_dkms(facts, kernel, target)
    )


def kernel_module(facts, target, expect_loaded) -> Iterator:
    installed = facts["kernel"]["installed"]
    if not installed:
        yield finding(
            "kernel_module",
            "node",
            UNKNOWN,
            [],
            "a kernel that can boot",
            "No installed kernel with an image was found.",
            "Look at /boot and /lib/modules on the node.",
        )
    for kernel in installed:
        if target is None:
            yield finding("kernel_module", kernel, NOT_APPLICABLE, None, None, "No driver is installed.")
            continue
        status, observed, message = judge_module(facts, kernel, target)
        if status == FAIL and needs_no_module(facts, kernel, target, expect_loaded):
            status = NOT_APPLICABLE
            message += " Modules are prebuilt here, and %s boots next." % facts["kernel"]["next_boot"]
        step = (
            ""
            if status in (PASS, NOT_APPLICABLE)
            else "Build it: dkms install nvidia module %s for kernel %s; then look at this finding again."
            % (target, kernel)
        )
        if status == UNKNOWN:
            step = "Run modinfo on the file."
        yield finding("kernel_module", kernel, status, observed, target, message, step)


def uses_dkms(facts, kernel, target) -> bool:
    """Return whether a kernel's module is DKMS's to make: DKMS has it, the file lies where DKMS puts it, or the
    driver's package is one for DKMS.

    That dkms is there says nothing: others use it beside prebuilt modules (linux-modules-nvidia, kmod-nvidia, akmods).
    """
    item = facts["modules"].get(kernel)
    known = [entry for entry in facts["dkms"]["entries"] + facts["dkms"]["leftovers"] if entry["version"] == target]
    if any(entry["kernel"] == kernel for entry in known) or (known and not item):
        return True
    if item:
        return "/updates/dkms/" in item["path"] or os.path.basename(os.path.dirname(item["path"])) == "extra"
    packages = [name for name in facts["dpkg"]["packages"] if KERNEL_SIDE.search(name)]
    return any("dkms" in name for name in packages) or not packages


STATE_STEPS = {
    "absent": "Register and build it: dkms add and dkms install.",
    "added": "Build it: dkms install.",
    "built": "Install it: dkms install.",
    "differs": "The file on disk is not the one that was built: dkms install --force.",
    "incomplete": "Some modules of the build are missing: remove the build for this kernel and build again.",
    "broken": "The module's source is gone: install the package with the source of the kernel module again.",
}


def orphan_step(error) -> str:
    """Return the next step for a dkms status that does not answer, as with one tree without its dkms.conf."""
    found = re.search(r"(%s/[^/\s]+/[^/\s]+)/source" % dkms.TREE, error or "")
    return "Delete %s, whose source is gone." % found.group(1) if found else "Run dkms status on the node."


def dkms_state(facts, target, expect_loaded) -> Iterator:
    state = facts["dkms"]
    for kernel in facts["kernel"]["installed"]:
        if target is None or not uses_dkms(facts, kernel, target):
            yield finding(
                "dkms_state",
                kernel,
                NOT_APPLICABLE,
                None,
                None,
                "No driver is installed." if target is None else "The kernel modules are not made by DKMS.",
            )
            continue
        lines = find_unknown_lines(state)
        if not state["available"] or lines:
            yield finding(
                "dkms_state",
                kernel,
                UNKNOWN,
                lines or None,
                "installed",
                "The state of DKMS cannot be read: %s."
                % (state["error"] or "dkms status has a line of an unknown form: %s" % lines[0]),
                orphan_step(state["error"]),
            )
            continue
        names = sorted(set(entry["name"] for entry in state["entries"] if entry["version"] == target))
        states = dict((name, dkms.state_of(state["entries"], name, target, kernel)) for name in names)
        if any(value == "installed" for value in states.values()):
            yield finding("dkms_state", kernel, PASS, states, "installed")
            continue
        value = sorted(states.values())[0] if states else "absent"
        if value == "unknown":
            said = [
                dkms.describe(entry)
                for entry in state["entries"]
                if (entry["version"], entry["kernel"]) == (target, kernel)
            ]
            yield finding(
                "dkms_state",
                kernel,
                UNKNOWN,
                said,
                "installed",
                "DKMS says something of driver %s for kernel %s that is not known: %s."
                % (target, kernel, "; ".join(said)),
                "Run dkms status on the node.",
            )
            continue
        yield finding(
            "dkms_state",
            kernel,
            FAIL,
            states or "absent",
            "installed",
            "DKMS has driver %s as '%s' for kernel %s, not as installed." % (target, value, kernel),
            STATE_STEPS.get(value, "Run dkms status on the node."),
        )


def kernel_headers(facts, target, expect_loaded) -> Iterator:
    for kernel in facts["kernel"]["installed"]:
        present = facts["headers"].get(kernel)
        if present:
            yield finding("kernel_headers", kernel, PASS, True, True)
        elif present is None:
            yield finding(
                "kernel_headers",
                kernel,
                UNKNOWN,
                None,
                True,
                "Whether the headers of kernel %s are there cannot be read." % kernel,
                "Look at /lib/modules/%s/build." % kernel,
            )
        elif target and judge_module(facts, kernel, target)[0] == PASS:
            yield finding(
                "kernel_headers",
                kernel,
                NOT_APPLICABLE,
                False,
                None,
                "The headers are missing, but the module of this kernel is already on disk.",
            )
        elif target and needs_no_module(facts, kernel, target, expect_loaded):
            yield finding(
                "kernel_headers",
                kernel,
                NOT_APPLICABLE,
                False,
                None,
                "The headers are missing, and no module is built for this kernel.",
            )
        else:
            yield finding(
                "kernel_headers",
                kernel,
                FAIL,
                False,
                True,
                "The headers of kernel %s are not installed, so no module can be built for it." % kernel,
                "Install %s, or remove the kernel." % headers_package(kernel),
            )


def states_of(state, name, version) -> list[str]:
    return [entry["state"] for entry in state["entries"] if (entry["name"], entry["version"]) == (name, version)]


def find_unknown_lines(state) -> list[str]:
    """Return the lines of dkms status in no known form that may be about the driver."""
    return [line for line in state["unparsed"] if "nvidia" in line]


def dkms_stale(facts, target, expect_loaded) -> Iterator:
    state = facts["dkms"]
    if not state["available"]:
        kernels = facts["kernel"]["installed"] or [None]
        status = UNKNOWN if any(uses_dkms(facts, kernel, target) for kernel in kernels) else NOT_APPLICABLE
        yield finding(
            "dkms_stale",
            "node",
            status,
            None,
            [],
            "DKMS trees of other versions cannot be listed: %s." % state["error"],
            orphan_step(state["error"]),
        )
        return
    stale = sorted(set((entry["name"], entry["version"]) for entry in state["entries"] if entry["version"] != target))
    for name, version in stale:
        yield finding(
            "dkms_stale",
            "%s/%s" % (name, version),
            FAIL,
            version,
            target,
            "DKMS still has %s/%s; it builds the newest version it has for a new kernel." % (name, version),
            "Delete %s: its source is gone, and dkms refuses to remove it." % dkms.directory_of(name, version)
            if "broken" in states_of(state, name, version)
            else "Remove it: dkms remove %s/%s --all." % (name, version),
        )
    lines = find_unknown_lines(state)
    if lines:
        message = "DKMS trees of other versions cannot be listed: dkms status has a line of an unknown form: %s."
        yield finding("dkms_stale", "node", UNKNOWN, lines, [], message % lines[0], orphan_step(None))
    elif not stale:
        yield finding("dkms_stale", "node", PASS, [], [])


def dkms_leftover(facts, target, expect_loaded) -> Iterator:
    leftovers = facts["dkms"]["leftovers"]
    for item in leftovers:
        yield finding(
            "dkms_leftover",
            item["path"],
            FAIL,
            item["path"],
            "nothing left over",
            "DKMS tree %s/%s: %s%s."
            % (
                item["name"],
                item["version"],
                item["reason"],
                " (kernel %s)" % item["kernel"] if item["kernel"] else "",
            ),
            "Build the module again with dkms_module; it clears what is left. The end of make.log there says "
            "why a build failed."
            if item["version"] == target and "broken" not in states_of(facts["dkms"], item["name"], item["version"])
            else "Delete %s, which belongs to no driver that can be built." % item["path"],
        )
    if not leftovers:
        yield finding("dkms_leftover", "node", PASS, [], [])


def next_boot_kernel(facts, target, expect_loaded) -> Iterator:
    kernel, source = facts["kernel"]["next_boot"], facts["kernel"]["next_boot_source"]
    if kernel is None:
        yield finding(
            "next_boot_kernel",
            "node",
            UNKNOWN,
            None,
            "a kernel with module %s" % target if target else "a known kernel",
            "Which kernel boots next is not known: %s." % source,
            "Set the boot loader's default to an installed kernel (grub-set-default, update-grub).",
        )
    elif kernel not in facts["kernel"]["installed"]:
        yield finding(
            "next_boot_kernel",
            kernel,
            FAIL,
            kernel,
            facts["kernel"]["installed"],
            "The kernel that boots next, %s (%s), is not installed." % (kernel, source),
            "Set the boot loader's default to an installed kernel.",
        )
    elif target is None:
        yield finding("next_boot_kernel", kernel, NOT_APPLICABLE, kernel, None, "No driver is installed.")
    else:
        status, observed, message = judge_module(facts, kernel, target)
        yield finding(
            "next_boot_kernel",
            kernel,
            status,
            observed,
            target,
            message and "It boots next (%s): %s" % (source, message),
            "" if status == PASS else "Do not reboot. Build module %s for kernel %s first." % (target, kernel),
        )
