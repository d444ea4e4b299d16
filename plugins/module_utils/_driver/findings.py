# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""What is right and wrong with a node's driver, out of the facts alone.

Every function takes facts and answers findings; nothing is read here. A signal that is not there is ``unknown``.
"""

from __future__ import annotations

from collections import Counter

from . import dkms, dpkg, modules, versions

PASS, FAIL, UNKNOWN, NOT_APPLICABLE = "pass", "fail", "unknown", "not_applicable"
FIRST_GSP = "510"


def finding(ident, entity, status, observed=None, expected=None, message="", next_step=""):
    return {"id": ident, "entity": entity, "status": status, "observed": observed, "expected": expected, "message": message, "next_step": next_step}


def driver_packages(facts):
    """Version of every installed package that must be of the driver's version."""
    packages = facts["dpkg"]["packages"]
    return dict((name, versions.upstream(item["version"])) for name, item in packages.items() if dpkg.is_driver_package(name, item))


def target_version(facts, wanted_version=None):
    """The version the node is meant to have: the wanted one, or the one that what is installed speaks for. None of nothing."""
    if wanted_version:
        return wanted_version
    packages = driver_packages(facts)
    kernel_side = [version for name, version in packages.items() if "kernel-dkms" in name or "kernel-source" in name]
    on_disk = [item["version"] for item in facts["modules"].values() if item and item["version"]]
    built = [entry["version"] for entry in facts["dkms"]["entries"]]
    for group in (kernel_side, list(packages.values()), on_disk, built, [facts["library"]["version"]], [facts["loaded"]["version"]]):
        known = sorted(value for value in group if value)
        if known:
            return Counter(known).most_common(1)[0][0]
    return None


def judge_module(facts, kernel, target):
    """(status, observed, message) for the module that a kernel would load."""
    item = facts["modules"].get(kernel)
    if item is None:
        return FAIL, None, "Kernel %s has no NVIDIA kernel module on disk." % kernel
    seen = "%s %s" % (item["path"], item["version"] or "?")
    if item["error"] or not item["version"] or not item["vermagic"]:
        return UNKNOWN, seen, "The kernel module %s cannot be read: %s." % (item["path"], item["error"] or "modinfo names no version or no vermagic")
    if not modules.made_for(kernel, item["vermagic"]):
        return FAIL, seen, "The kernel module %s was made for kernel %s, not for %s." % (item["path"], item["vermagic"].split(" ", 1)[0], kernel)
    if item["version"] != target:
        return FAIL, seen, "Kernel %s has the NVIDIA kernel module %s on disk, not %s." % (kernel, item["version"], target)
    others = ["%s %s" % (other["path"], other["version"] or "?") for other in item.get("others", []) if other["version"] != target]
    if others:
        return FAIL, "; ".join([seen] + others), "Kernel %s has more than one NVIDIA kernel module on disk, and not all are %s." % (kernel, target)
    return PASS, seen, ""


def pci_device(facts, target, expect_loaded):
    devices = facts["pci"]
    if devices is None:
        yield finding("pci_device", "node", UNKNOWN, None, "an NVIDIA GPU", "The PCI bus cannot be listed.", "Look at /sys/bus/pci/devices on the node.")
    elif not devices:
        yield finding(
            "pci_device",
            "node",
            FAIL,
            [],
            "an NVIDIA GPU",
            "There is no NVIDIA GPU on the PCI bus.",
            "Check that this is a GPU node and that its GPUs have power (lspci -d 10de:).",
        )
    else:
        yield finding("pci_device", "node", PASS, [item["address"] for item in devices], "an NVIDIA GPU")


def polygon(facts, expect_loaded):
    """Every version the node shows, by where it was seen."""
    seen = {}
    if expect_loaded and facts["loaded"]["state"] == "loaded":
        seen["loaded module"] = facts["loaded"]["version"]
    if facts["library"]["version"]:
        seen["library libnvidia-ml"] = facts["library"]["version"]
    for kernel, item in facts["modules"].items():
        if item and item["version"]:
            seen["module for kernel %s" % kernel] = item["version"]
    for name, version in driver_packages(facts).items():
        seen["package %s" % name] = version
    return seen


def versions_agree(facts, target, expect_loaded, wanted_version=None):
    seen = polygon(facts, expect_loaded)
    if target is None:
        yield finding(
            "versions_agree",
            "node",
            FAIL,
            {},
            "an installed driver",
            "No NVIDIA driver is installed: no package, no kernel module, no library.",
            "Install the driver.",
        )
        return
    common = wanted_version or Counter(sorted(seen.values())).most_common(1)[0][0] if seen else target
    odd = sorted(name for name, version in seen.items() if version != common)
    if odd:
        parts = ", ".join("%s is %s" % (name, seen[name]) for name in odd)
        yield finding(
            "versions_agree",
            "node",
            FAIL,
            seen,
            common,
            "Not every part of the driver is %s: %s." % (common, parts),
            "Install one coherent set of the wanted version, then load it or reboot.",
        )
    elif not facts["library"]["version"] and not facts["library"]["candidates"]:
        yield finding(
            "versions_agree", "node", FAIL, seen, common, "The library libnvidia-ml is not installed.", "Install the driver's libraries of version %s." % common
        )
    elif not facts["library"]["version"]:
        yield finding(
            "versions_agree",
            "node",
            UNKNOWN,
            dict(seen, candidates=facts["library"]["candidates"]),
            common,
            "Several versions of libnvidia-ml are on disk and no link says which one is used.",
            "Remove the one that no package owns (dpkg -S PATH).",
        )
    elif not facts["dpkg"]["available"]:
        yield finding(
            "versions_agree",
            "node",
            UNKNOWN,
            seen,
            common,
            "The installed packages cannot be read: %s." % facts["dpkg"]["error"],
            "Run dpkg-query -W on the node.",
        )
    elif expect_loaded and facts["loaded"]["state"] == "unknown":
        yield finding(
            "versions_agree", "node", UNKNOWN, seen, common, "Which driver is loaded cannot be read.", "Look at /proc/driver/nvidia/version on the node."
        )
    else:
        yield finding("versions_agree", "node", PASS, seen, common)


def kernel_module(facts, target, expect_loaded):
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
        step = "" if status == PASS else "Build it: dkms install nvidia module %s for kernel %s; then look at this finding again." % (target, kernel)
        if status == UNKNOWN:
            step = "Run modinfo on the file."
        yield finding("kernel_module", kernel, status, observed, target, message, step)


def uses_dkms(facts):
    """False only when nothing on the node came from DKMS: no command, no tree, no module in its directory."""
    paths = [item["path"] for item in facts["modules"].values() if item]
    return bool(facts["dkms"]["available"] or facts["dkms"]["leftovers"] or not paths or any("/updates/dkms/" in path for path in paths))


STATE_STEPS = {
    "absent": "Register and build it: dkms add and dkms install.",
    "added": "Build it: dkms install.",
    "built": "Install it: dkms install.",
    "differs": "The file on disk is not the one that was built: dkms install --force.",
    "incomplete": "Some modules of the build are missing: remove the build for this kernel and build again.",
    "broken": "The module's source is gone: install the driver's package again.",
}


def dkms_state(facts, target, expect_loaded):
    state = facts["dkms"]
    for kernel in facts["kernel"]["installed"]:
        if target is None or not uses_dkms(facts):
            yield finding(
                "dkms_state", kernel, NOT_APPLICABLE, None, None, "No driver is installed." if target is None else "The kernel modules are not made by DKMS."
            )
            continue
        lines = [line for line in state["unparsed"] if "nvidia" in line]
        if not state["available"] or lines:
            yield finding(
                "dkms_state",
                kernel,
                UNKNOWN,
                lines or None,
                "installed",
                "The state of DKMS cannot be read: %s." % (state["error"] or "dkms status has a line of an unknown form: %s" % lines[0]),
                "Run dkms status on the node.",
            )
            continue
        names = sorted(set(entry["name"] for entry in state["entries"] if entry["version"] == target))
        states = dict((name, dkms.state_of(state["entries"], name, target, kernel)) for name in names)
        if any(value == "installed" for value in states.values()):
            yield finding("dkms_state", kernel, PASS, states, "installed")
            continue
        value = sorted(states.values())[0] if states else "absent"
        yield finding(
            "dkms_state",
            kernel,
            FAIL,
            states or "absent",
            "installed",
            "DKMS has driver %s as '%s' for kernel %s, not as installed." % (target, value, kernel),
            STATE_STEPS.get(value, "Run dkms status on the node."),
        )


def kernel_headers(facts, target, expect_loaded):
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
            yield finding("kernel_headers", kernel, NOT_APPLICABLE, False, None, "The headers are missing, but the module of this kernel is already on disk.")
        else:
            yield finding(
                "kernel_headers",
                kernel,
                FAIL,
                False,
                True,
                "The headers of kernel %s are not installed, so no module can be built for it." % kernel,
                "Install linux-headers-%s, or remove the kernel." % kernel,
            )


def dkms_stale(facts, target, expect_loaded):
    state = facts["dkms"]
    if not state["available"]:
        status = UNKNOWN if uses_dkms(facts) else NOT_APPLICABLE
        yield finding(
            "dkms_stale", "node", status, None, [], "DKMS trees of other versions cannot be listed: %s." % state["error"], "Run dkms status on the node."
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
            "Remove it: dkms remove %s/%s --all." % (name, version),
        )
    if not stale:
        yield finding("dkms_stale", "node", PASS, [], [])


def dkms_leftover(facts, target, expect_loaded):
    leftovers = facts["dkms"]["leftovers"]
    for item in leftovers:
        yield finding(
            "dkms_leftover",
            item["path"],
            FAIL,
            item["path"],
            "nothing left over",
            "DKMS tree %s/%s: %s%s." % (item["name"], item["version"], item["reason"], " (kernel %s)" % item["kernel"] if item["kernel"] else ""),
            "Build the module again with dkms_module; it clears what is left. The end of make.log there says why a build failed.",
        )
    if not leftovers:
        yield finding("dkms_leftover", "node", PASS, [], [])


def next_boot_kernel(facts, target, expect_loaded):
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


def loaded_version(facts, target, expect_loaded):
    state, version = facts["loaded"]["state"], facts["loaded"]["version"]
    if not expect_loaded:
        yield finding("loaded_version", "node", NOT_APPLICABLE, version, None, "The loaded driver is not judged yet.")
    elif target is None:
        yield finding("loaded_version", "node", NOT_APPLICABLE, version, None, "No driver is installed.")
    elif state == "unknown":
        yield finding(
            "loaded_version", "node", UNKNOWN, None, target, "Which driver is loaded cannot be read.", "Look at /proc/driver/nvidia/version on the node."
        )
    elif state == "not_loaded":
        yield finding(
            "loaded_version",
            "node",
            FAIL,
            None,
            target,
            "The NVIDIA kernel module is not loaded.",
            "Load it (modprobe nvidia) or reboot, once the module is on disk for the kernel that runs or boots; the kernel log says why it did not load.",
        )
    elif facts["loaded"]["disagree"]:
        yield finding(
            "loaded_version",
            "node",
            UNKNOWN,
            version,
            target,
            "/sys/module/nvidia/version and /proc/driver/nvidia/version name different versions.",
            "Read both on the node.",
        )
    elif version != target:
        yield finding("loaded_version", "node", FAIL, version, target, "Driver %s is loaded, not %s." % (version, target), "Reload the driver or reboot.")
    else:
        yield finding("loaded_version", "node", PASS, version, target)


def nouveau(facts, target, expect_loaded):
    value = facts["loaded"]["nouveau"]
    if value is None:
        yield finding("nouveau", "node", UNKNOWN, None, False, "Whether nouveau is loaded cannot be read.", "Look at /proc/modules on the node.")
    elif value:
        yield finding(
            "nouveau", "node", FAIL, True, False, "The nouveau driver is loaded and holds the GPUs.", "Blacklist nouveau, rebuild the initramfs and reboot."
        )
    else:
        yield finding("nouveau", "node", PASS, False, False)


def secure_boot(facts, target, expect_loaded):
    state, keys = facts["secure_boot"]["state"], facts["secure_boot"]["keys"]
    kernel = facts["kernel"]["next_boot"] or facts["kernel"]["running"]
    item = facts["modules"].get(kernel)
    signer = item["signer"] if item else None
    if state == "disabled":
        yield finding("secure_boot", kernel, PASS, "disabled", None)
    elif item is None or item["error"]:
        yield finding(
            "secure_boot",
            kernel,
            NOT_APPLICABLE if state != "unknown" and item is None else UNKNOWN,
            state,
            "a signed module",
            "Secure Boot is %s, and there is no readable module to check for kernel %s." % (state, kernel),
            "Build the module, then look again.",
        )
    elif state != "enabled":
        yield finding(
            "secure_boot",
            kernel,
            UNKNOWN,
            {"state": state, "signer": signer},
            "a known state",
            "Whether Secure Boot is on cannot be read.",
            "Run mokutil --sb-state on the node.",
        )
    elif not signer:
        yield finding(
            "secure_boot",
            kernel,
            FAIL,
            None,
            "a signed module",
            "Secure Boot is on and the module %s is not signed: it will not load." % item["path"],
            "Sign it with an enrolled key (DKMS signs with mok_signing_key), or use signed modules of the distribution.",
        )
    elif keys is None:
        yield finding(
            "secure_boot",
            kernel,
            UNKNOWN,
            signer,
            "an enrolled key",
            "The module is signed by '%s', and the enrolled keys cannot be listed." % signer,
            "Run mokutil --list-enrolled on the node.",
        )
    elif signer not in keys:
        yield finding(
            "secure_boot",
            kernel,
            FAIL,
            signer,
            keys,
            "Secure Boot is on and the module's signer '%s' is not among the enrolled keys: it will not load." % signer,
            "Enrol the key (mokutil --import; it is confirmed at the console), or sign with an enrolled one.",
        )
    else:
        yield finding("secure_boot", kernel, PASS, signer, keys)


def flavour(facts, kernel):
    item = facts["modules"].get(kernel) if kernel else None
    return facts["loaded"]["flavour"] or modules.flavour(item["license"] if item else None)


def gsp_firmware(facts, target, expect_loaded):
    kind = flavour(facts, facts["kernel"]["next_boot"])
    if target is None or versions.compare(target, FIRST_GSP) < 0:
        yield finding(
            "gsp_firmware",
            "node",
            NOT_APPLICABLE,
            facts["gsp_firmware"],
            None,
            "No driver is installed." if target is None else "Driver %s has no GSP firmware." % target,
        )
    elif target in facts["gsp_firmware"]:
        yield finding("gsp_firmware", "node", PASS, facts["gsp_firmware"], target)
    elif facts["gsp_disabled"] and kind == "proprietary":
        yield finding("gsp_firmware", "node", NOT_APPLICABLE, facts["gsp_firmware"], None, "GSP firmware is switched off (NVreg_EnableGpuFirmware=0).")
    else:
        yield finding(
            "gsp_firmware",
            "node",
            FAIL,
            facts["gsp_firmware"],
            target,
            "There is no GSP firmware of version %s in /lib/firmware/nvidia." % target,
            "Install the firmware package of that version.",
        )


def dpkg_interrupted(facts, target, expect_loaded):
    state = facts["dpkg"]
    if state["interrupted"] or state["journal"]:
        names = ["%s (%s)" % (item["package"], item["state"]) for item in state["interrupted"]]
        yield finding(
            "dpkg_interrupted",
            "node",
            FAIL,
            names or "%d journal entries" % state["journal"],
            [],
            "dpkg was interrupted: %s." % (", ".join(names) or "its journal is not empty"),
            "Run dpkg --configure -a, then apt-get -f install if it asks for it.",
        )
    elif not state["available"]:
        yield finding("dpkg_interrupted", "node", UNKNOWN, None, [], "dpkg cannot be asked: %s." % state["error"], "Run dpkg-query -W on the node.")
    else:
        yield finding("dpkg_interrupted", "node", PASS, [], [])


def runfile_remains(facts, target, expect_loaded):
    paths = facts["runfile"]
    if paths:
        yield finding(
            "runfile_remains",
            "node",
            FAIL,
            paths,
            [],
            "The driver was once installed with NVIDIA's .run installer: %s." % ", ".join(paths),
            "Run nvidia-uninstall and remove the log, or the packages and the .run files overwrite each other.",
        )
    else:
        yield finding("runfile_remains", "node", PASS, [], [])


CHECKS = (
    pci_device,
    kernel_module,
    dkms_state,
    kernel_headers,
    dkms_stale,
    dkms_leftover,
    next_boot_kernel,
    loaded_version,
    nouveau,
    secure_boot,
    gsp_firmware,
    dpkg_interrupted,
    runfile_remains,
)
