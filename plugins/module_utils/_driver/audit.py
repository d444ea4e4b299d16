# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit of a node's driver (schema gpufleet.audit/1): read the facts, then judge them."""

from __future__ import annotations

from . import facts as reader
from . import findings

SCHEMA = "gpufleet.audit/1"

read = reader.read


def decide(facts: dict, wanted_version: str | None = None, expect_loaded: bool = True) -> dict:
    """The audit document. Pure: facts in, verdict out.

    Without a wanted version the parts are judged against each other. ``expect_loaded=False`` is for the time between an
    installation and the reload: what is loaded is reported, and asks for a reboot, but is not held against the node.
    """
    target = findings.target_version(facts, wanted_version)
    found = list(findings.versions_agree(facts, target, expect_loaded, wanted_version))
    found.extend(findings.package_revision(facts, target, wanted_version))
    for check in findings.CHECKS:
        found.extend(check(facts, target, expect_loaded))
    safe, safe_reason = reboot_safe(facts, found, target)
    required, required_reason = reboot_required(facts)
    return {
        "schema": SCHEMA,
        "kernel": dict(facts["kernel"]),
        "versions": {
            "wanted": wanted_version,
            "loaded": facts["loaded"]["version"],
            "library": facts["library"]["version"],
            "gsp_firmware": list(facts["gsp_firmware"]),
            "packages": dict((name, item["version"]) for name, item in sorted(facts["dpkg"]["packages"].items())),
            "package": findings.package_version(facts) if facts["dpkg"]["available"] else None,
            "driver_packages": findings.driver_packages(facts) if facts["dpkg"]["available"] else None,
            "modules": dict((kernel, module_of(item)) for kernel, item in facts["modules"].items()),
        },
        "dkms": [
            dict((key, entry[key]) for key in ("name", "version", "kernel", "arch", "state", "note"))
            for entry in facts["dkms"]["entries"]
        ],
        "headers": dict(facts["headers"]),
        "flavour": findings.flavour(facts, facts["kernel"]["next_boot"]),
        "nouveau_loaded": facts["loaded"]["nouveau"],
        "compute_users": facts["loaded"].get("compute_users"),
        "secure_boot": facts["secure_boot"]["state"],
        "pci": list(facts["pci"] or []),
        "identity": dict(facts.get("identity") or {}),
        "findings": found,
        "verdict": verdict(found),
        "reboot_safe": safe,
        "reboot_safe_reason": safe_reason,
        "reboot_required": required,
        "reboot_required_reason": required_reason,
    }


def module_of(item) -> dict | None:
    keys = ("version", "path", "link", "vermagic", "signer", "license")
    return dict((key, item.get(key)) for key in keys) if item else None


def verdict(found: list[dict]) -> str:
    """fail before unknown before pass; no finding at all is unknown."""
    statuses = set(item["status"] for item in found)
    for status in (findings.FAIL, findings.UNKNOWN):
        if status in statuses:
            return status
    return findings.PASS if findings.PASS in statuses else findings.UNKNOWN


def reboot_safe(facts, found, target) -> tuple[bool, str]:
    """Return whether the node comes back with the wanted driver: never true when something that decides it is not
    known.
    """
    if target is None:
        return False, "No driver is installed, so no module would be there after a reboot."
    kernel = facts["kernel"]["next_boot"]
    for ident in ("next_boot_kernel", "dpkg_interrupted", "secure_boot"):
        for item in found:
            if ident == "secure_boot" and item["entity"] != (kernel or facts["kernel"]["running"]):
                continue  # another kernel's module
            if item["id"] == ident and item["status"] in (findings.FAIL, findings.UNKNOWN):
                return False, item["message"]
    return True, "Kernel %s boots next (%s) and has module %s on disk." % (
        kernel,
        facts["kernel"]["next_boot_source"],
        target,
    )


def other_builds(loaded, on_disk) -> list[str]:
    """Loaded modules whose source is not that of the file on disk, though both say the same version: another revision
    of the package.
    """
    odd = sorted(name for name, source in loaded.items() if on_disk.get(name) not in (None, source))
    verb = "was" if len(odd) == 1 else "were"
    return (
        ["%s on disk %s built from other source of the same version than what is loaded" % (", ".join(odd), verb)]
        if odd
        else []
    )


def reboot_required(facts) -> tuple[bool, str]:
    """Return whether what is loaded is not what is on disk, and every reason for it."""
    reasons = []
    running, following = facts["kernel"]["running"], facts["kernel"]["next_boot"]
    item = facts["modules"].get(running)
    on_disk = item["version"] if item else None
    library, current = facts["library"]["version"], facts["loaded"]["version"]
    if current and on_disk and current != on_disk:
        reasons.append("driver %s is loaded, the module on disk for the running kernel is %s" % (current, on_disk))
    if current and library and current != library:
        reasons.append("driver %s is loaded, the library is %s" % (current, library))
    if facts["loaded"]["state"] == "not_loaded" and any(facts["modules"].values()):
        reasons.append("the NVIDIA kernel module is on disk and not loaded")
    if following and running != following:
        reasons.append("kernel %s runs and %s boots next" % (running, following))
    if current and current == on_disk:
        reasons += other_builds(facts["loaded"].get("sources") or {}, item.get("sources") or {})
    if facts["loaded"]["nouveau"] and any(facts["modules"].values()):
        reasons.append("nouveau is loaded")
    return bool(reasons), "; ".join(reasons)
