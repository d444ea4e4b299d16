# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge how the driver loads: the device, what is loaded, what keeps it from loading, and its firmware."""

from __future__ import annotations

from collections.abc import Iterator

from .._kernel import modules, secureboot
from .._node import versions
from ._finding import FAIL, NOT_APPLICABLE, PASS, UNKNOWN, finding

FIRST_GSP = "510"


def pci_device(facts, target, expect_loaded) -> Iterator:
    devices = facts["pci"]
    if devices is None:
        yield finding(
            "pci_device",
            "node",
            UNKNOWN,
            None,
            "an NVIDIA GPU",
            "The PCI bus cannot be listed.",
            "Look at /sys/bus/pci/devices on the node.",
        )
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


def loaded_version(facts, target, expect_loaded) -> Iterator:
    state, version = facts["loaded"]["state"], facts["loaded"]["version"]
    if not expect_loaded:
        yield finding("loaded_version", "node", NOT_APPLICABLE, version, None, "The loaded driver is not judged yet.")
    elif target is None:
        yield finding("loaded_version", "node", NOT_APPLICABLE, version, None, "No driver is installed.")
    elif state == "unknown":
        yield finding(
            "loaded_version",
            "node",
            UNKNOWN,
            None,
            target,
            "Which driver is loaded cannot be read.",
            "Look at /proc/driver/nvidia/version on the node.",
        )
    elif state == "not_loaded":
        yield finding(
            "loaded_version",
            "node",
            FAIL,
            None,
            target,
            "The NVIDIA kernel module is not loaded.",
            "Load it (modprobe nvidia) or reboot, once the module is on disk for the kernel that runs or boots; the "
            "kernel log says why it did not load.",
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
        yield finding(
            "loaded_version",
            "node",
            FAIL,
            version,
            target,
            "Driver %s is loaded, not %s." % (version, target),
            "Reload the driver or reboot.",
        )
    else:
        yield finding("loaded_version", "node", PASS, version, target)


def nouveau(facts, target, expect_loaded) -> Iterator:
    value = facts["loaded"]["nouveau"]
    if value is None:
        yield finding(
            "nouveau",
            "node",
            UNKNOWN,
            None,
            False,
            "Whether nouveau is loaded cannot be read.",
            "Look at /proc/modules on the node.",
        )
    elif value:
        yield finding(
            "nouveau",
            "node",
            FAIL,
            True,
            False,
            "The nouveau driver is loaded and holds the GPUs.",
            "Blacklist nouveau, rebuild the initramfs and reboot.",
        )
    else:
        yield finding("nouveau", "node", PASS, False, False)


def secure_boot(facts, target, expect_loaded) -> Iterator:
    """For every kernel that can boot, the one that boots next first: a module that is not signed for it will not
    load.
    """
    following = facts["kernel"]["next_boot"] or facts["kernel"]["running"]
    if facts["secure_boot"]["state"] == "disabled":
        yield finding("secure_boot", following, PASS, "disabled", None)
        return
    for kernel in [following] + [name for name in facts["kernel"]["installed"] if name != following]:
        yield signature(facts, kernel)


def signature(facts, kernel) -> dict:
    state, keys = facts["secure_boot"]["state"], facts["secure_boot"]["keys"]
    item = facts["modules"].get(kernel)
    signer = item["signer"] if item else None
    if item is None or item["error"]:
        return finding(
            "secure_boot",
            kernel,
            NOT_APPLICABLE if state != "unknown" and item is None else UNKNOWN,
            state,
            "a signed module",
            "Secure Boot is %s, and there is no readable module to check for kernel %s." % (state, kernel),
            "Build the module, then look again.",
        )
    verdict = secureboot.judge(facts["secure_boot"], signer, kernel == facts["kernel"]["running"])
    if state != "enabled":
        return finding(
            "secure_boot",
            kernel,
            UNKNOWN,
            {"state": state, "signer": signer},
            "a known state",
            "Whether Secure Boot is on cannot be read.",
            "Run mokutil --sb-state on the node.",
        )
    if verdict == "unsigned":
        return finding(
            "secure_boot",
            kernel,
            FAIL,
            None,
            "a signed module",
            "Secure Boot is on and the module %s is not signed: it will not load." % item["path"],
            "Sign it with an enrolled key (DKMS signs with mok_signing_key), or use signed modules of "
            "the distribution.",
        )
    if verdict == "unknown":
        return finding(
            "secure_boot",
            kernel,
            UNKNOWN,
            signer,
            "an enrolled key",
            "The module of kernel %s is signed by '%s', and the enrolled keys cannot be listed." % (kernel, signer),
            "Run mokutil --list-enrolled on the node.",
        )
    if verdict == "untrusted":
        return finding(
            "secure_boot",
            kernel,
            FAIL,
            signer,
            keys,
            "Secure Boot is on and the signer of kernel %s's module, '%s', is not among the enrolled keys: "
            "it will not load." % (kernel, signer),
            "Enrol the key (mokutil --import; it is confirmed at the console), or sign with an enrolled one.",
        )
    return finding("secure_boot", kernel, PASS, signer, keys)


def flavour(facts, kernel) -> str | None:
    item = facts["modules"].get(kernel) if kernel else None
    return facts["loaded"]["flavour"] or modules.flavour(item["license"] if item else None)


def gsp_firmware(facts, target, expect_loaded) -> Iterator:
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
        yield finding(
            "gsp_firmware",
            "node",
            NOT_APPLICABLE,
            facts["gsp_firmware"],
            None,
            "GSP firmware is switched off (NVreg_EnableGpuFirmware=0).",
        )
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
