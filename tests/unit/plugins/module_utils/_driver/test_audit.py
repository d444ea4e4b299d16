# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit's truth table: every finding, in the direction of fail and of unknown, from a node where everything is
right.
"""

from __future__ import annotations

import copy
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import audit, findings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import versions
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import modules
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import Recorded, link, write

OLD, NEW, KERNEL = "535.216.03", "535.261.03", "6.1.0-56-amd64"


def module(version=NEW, kernel=KERNEL, **fields):
    item = {
        "version": version,
        "path": "/lib/modules/%s/updates/dkms/nvidia-current.ko" % kernel,
        "vermagic": "%s SMP preempt" % kernel,
        "signer": "key",
        "license": "NVIDIA",
        "sig_key": None,
        "error": None,
        "listed": True,
        "others": [],
    }
    item.update(fields)
    return item


def package(version=NEW, status="ii ", source="nvidia-graphics-drivers"):
    return {"version": version + "-1", "arch": "amd64", "status": status, "source": source}


def dkms_entry(version=NEW, kernel=KERNEL, state="installed", note="", name="nvidia-current"):
    return {
        "name": name,
        "version": version,
        "kernel": kernel,
        "arch": "x86_64" if kernel else None,
        "state": state,
        "note": note,
        "origin": None,
    }


def good():
    return {
        "kernel": {
            "running": KERNEL,
            "installed": [KERNEL],
            "next_boot": KERNEL,
            "next_boot_source": "grub.cfg default",
        },
        "modules": {KERNEL: module()},
        "headers": {KERNEL: True},
        "loaded": {"state": "loaded", "version": NEW, "flavour": "proprietary", "disagree": False, "nouveau": False},
        "library": {"version": NEW, "path": "/usr/lib/x", "candidates": ["/usr/lib/x"]},
        "gsp_firmware": [NEW],
        "gsp_disabled": False,
        "secure_boot": {"state": "disabled", "keys": None},
        "pci": [{"address": "0000:1b:00.0", "device": "0x2330", "class": "0x030200"}],
        "dpkg": {
            "available": True,
            "error": None,
            "journal": 0,
            "interrupted": [],
            "packages": {
                "nvidia-kernel-dkms": package(),
                "libnvidia-ml1": package(),
                "nvidia-persistenced": package("535.171.04", source="nvidia-persistenced"),
            },
        },
        "dkms": {"available": True, "error": None, "entries": [dkms_entry()], "unparsed": [], "leftovers": []},
        "runfile": [],
        "operator": {"owner": False, "signs": []},
    }


def empty():
    """A machine without anything: no driver, no dkms, no dpkg answer, nothing readable."""
    return {
        "kernel": {
            "running": KERNEL,
            "installed": [],
            "next_boot": None,
            "next_boot_source": "no kernel that can boot is installed",
        },
        "modules": {KERNEL: None},
        "headers": {KERNEL: False},
        "loaded": {"state": "unknown", "version": None, "flavour": None, "disagree": False, "nouveau": None},
        "library": {"version": None, "path": None, "candidates": []},
        "gsp_firmware": [],
        "gsp_disabled": False,
        "secure_boot": {"state": "unknown", "keys": None},
        "pci": None,
        "dpkg": {
            "available": False,
            "error": "dpkg-query is not on this machine",
            "journal": 0,
            "interrupted": [],
            "packages": {},
        },
        "dkms": {"available": False, "error": "dkms is not installed", "entries": [], "unparsed": [], "leftovers": []},
        "runfile": [],
        "operator": {"owner": None, "signs": ["/run/nvidia: Permission denied"]},
    }


def changed(path, value):
    """Good facts with one thing changed; a path of keys, the last one set."""
    facts = good()
    here = facts
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return facts


def status_of(document, ident):
    return sorted(item["status"] for item in document["findings"] if item["id"] == ident)


def test_everything_right_passes():
    document = audit.decide(good(), NEW)
    assert [item for item in document["findings"] if item["status"] != "pass"] == []
    assert (document["verdict"], document["reboot_safe"], document["reboot_required"]) == ("pass", True, False)
    assert document["schema"] == "gpufleet.audit/1" and document["flavour"] == "proprietary"
    assert (
        document["versions"]["packages"]["nvidia-persistenced"] == "535.171.04-1"
        and document["versions"]["modules"][KERNEL]["version"] == NEW
    )
    assert audit.decide(good())["verdict"] == "pass"


TABLE = [
    ("pci_device", ("pci",), None, "unknown"),
    ("pci_device", ("pci",), [], "fail"),
    ("versions_agree", ("library", "version"), OLD, "fail"),
    ("versions_agree", ("loaded", "version"), OLD, "fail"),
    ("versions_agree", ("modules", KERNEL), module(OLD), "fail"),
    ("versions_agree", ("dpkg", "packages", "libnvidia-ml1"), package(OLD), "fail"),
    ("versions_agree", ("library",), {"version": None, "path": None, "candidates": []}, "fail"),
    ("versions_agree", ("library", "version"), None, "unknown"),
    (
        "versions_agree",
        ("dpkg",),
        {"available": False, "error": "gone", "journal": 0, "interrupted": [], "packages": {}},
        "unknown",
    ),
    (
        "versions_agree",
        ("loaded",),
        {"state": "unknown", "version": None, "flavour": None, "disagree": False, "nouveau": False},
        "unknown",
    ),
    ("kernel_module", ("modules", KERNEL), None, "fail"),
    ("kernel_module", ("modules", KERNEL), module(OLD), "fail"),
    ("kernel_module", ("modules", KERNEL), module(vermagic="6.1.0-49-amd64 SMP"), "fail"),
    ("kernel_module", ("modules", KERNEL), module(listed=False), "fail"),
    ("kernel_module", ("modules", KERNEL), module(listed=None), "unknown"),
    ("kernel_module", ("modules", KERNEL), module(others=[module(OLD)]), "fail"),
    ("kernel_module", ("modules", KERNEL), module(others=[module(None, error="rc 1")]), "fail"),
    ("kernel_module", ("modules", KERNEL), module(error="modinfo is not installed"), "unknown"),
    ("kernel_module", ("modules", KERNEL), module(None), "unknown"),
    ("kernel_module", ("modules", KERNEL), module(vermagic=None), "unknown"),
    ("kernel_module", ("kernel", "installed"), [], "unknown"),
    ("dkms_state", ("dkms", "entries"), [], "fail"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(kernel=None, state="added")], "fail"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(kernel=None, state="broken")], "fail"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(state="built")], "fail"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(note="WARNING! Diff between built and installed module!")], "fail"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(note="Differences between built and installed modules")], "fail"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(note="WARNING! Missing some built modules!")], "fail"),
    (
        "dkms_state",
        ("dkms", "entries"),
        [dkms_entry(note="Built modules are missing in the kernel modules folder")],
        "fail",
    ),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(note="a word of a later release")], "unknown"),
    ("dkms_state", ("dkms", "entries"), [dkms_entry(state="reticulated")], "unknown"),
    ("dkms_state", ("dkms", "unparsed"), ["nvidia is odd"], "unknown"),
    ("dkms_state", ("dkms", "unparsed"), ["zfs is odd"], "pass"),
    (
        "dkms_state",
        ("dkms",),
        {"available": False, "error": "dkms is not installed", "entries": [], "unparsed": [], "leftovers": []},
        "unknown",
    ),
    ("kernel_headers", ("headers", KERNEL), False, "not_applicable"),
    ("kernel_headers", ("headers",), {}, "unknown"),
    ("dkms_stale", ("dkms", "entries"), [dkms_entry(), dkms_entry(OLD, state="built")], "fail"),
    ("dkms_stale", ("dkms", "unparsed"), ["nvidia of a later release: 535.216.03"], "unknown"),
    ("dkms_stale", ("dkms", "entries"), [dkms_entry(), dkms_entry("550.1.1", kernel=None, state="added")], "fail"),
    (
        "dkms_stale",
        ("dkms",),
        {"available": False, "error": "rc 1", "entries": [], "unparsed": [], "leftovers": []},
        "unknown",
    ),
    (
        "dkms_leftover",
        ("dkms", "leftovers"),
        [
            {
                "name": "nvidia-current",
                "version": NEW,
                "kernel": KERNEL,
                "arch": None,
                "path": "/p",
                "reason": "interrupted",
            }
        ],
        "fail",
    ),
    ("next_boot_kernel", ("kernel", "next_boot"), None, "unknown"),
    ("next_boot_kernel", ("kernel", "next_boot"), "6.1.0-99-amd64", "fail"),
    ("next_boot_kernel", ("modules", KERNEL), None, "fail"),
    ("next_boot_kernel", ("modules", KERNEL), module(OLD), "fail"),
    ("next_boot_kernel", ("modules", KERNEL), module(error="rc 1"), "unknown"),
    ("loaded_version", ("loaded", "version"), OLD, "fail"),
    (
        "loaded_version",
        ("loaded",),
        {"state": "not_loaded", "version": None, "flavour": None, "disagree": False, "nouveau": False},
        "fail",
    ),
    (
        "loaded_version",
        ("loaded",),
        {"state": "unknown", "version": None, "flavour": None, "disagree": False, "nouveau": False},
        "unknown",
    ),
    ("loaded_version", ("loaded", "disagree"), True, "unknown"),
    ("nouveau", ("loaded", "nouveau"), True, "fail"),
    ("nouveau", ("loaded", "nouveau"), None, "unknown"),
    ("secure_boot", ("secure_boot",), {"state": "unknown", "keys": None}, "unknown"),
    ("secure_boot", ("secure_boot",), {"state": "enabled", "keys": None}, "unknown"),
    ("secure_boot", ("secure_boot",), {"state": "enabled", "keys": ["other"]}, "fail"),
    ("secure_boot", ("secure_boot",), {"state": "enabled", "keys": ["key", "other"]}, "pass"),
    ("secure_boot", ("secure_boot",), {"state": "enabled", "keys": ["other"], "built_in": ["key"]}, "pass"),
    ("secure_boot", ("secure_boot",), {"state": "enabled", "keys": None, "built_in": ["key"]}, "pass"),
    ("secure_boot", ("secure_boot",), {"state": "enabled", "keys": None, "built_in": ["other"]}, "unknown"),
    ("driver_owner", ("operator",), {"owner": True, "signs": ["a driver is mounted at /run/nvidia/driver"]}, "fail"),
    ("driver_owner", ("operator",), {"owner": None, "signs": ["/run/nvidia: Permission denied"]}, "unknown"),
    ("gsp_firmware", ("gsp_firmware",), [], "fail"),
    ("gsp_firmware", ("gsp_firmware",), [OLD], "fail"),
    (
        "dpkg_interrupted",
        ("dpkg", "interrupted"),
        [{"package": "nvidia-kernel-dkms", "state": "half-configured"}],
        "fail",
    ),
    ("dpkg_interrupted", ("dpkg", "journal"), 2, "fail"),
    (
        "dpkg_interrupted",
        ("dpkg",),
        {"available": False, "error": "gone", "journal": 0, "interrupted": [], "packages": {}},
        "unknown",
    ),
    (
        "dpkg_interrupted",
        ("dpkg",),
        {"available": False, "error": "gone", "journal": 1, "interrupted": [], "packages": {}},
        "fail",
    ),
    ("runfile_remains", ("runfile",), ["/usr/bin/nvidia-uninstall"], "fail"),
]


@pytest.mark.parametrize(("ident", "path", "value", "expected"), TABLE)
def test_one_thing_wrong(ident, path, value, expected):
    document = audit.decide(changed(path, value), NEW)
    found = [item for item in document["findings"] if item["id"] == ident and item["status"] == expected]
    assert found, status_of(document, ident)
    if expected in ("fail", "unknown"):
        assert document["verdict"] in ("fail", expected)
        assert all(item["message"] and item["next_step"] for item in found)


def test_the_table_reaches_every_finding_in_the_direction_of_fail():
    assert set(row[0] for row in TABLE if row[3] == "fail") | {"kernel_headers"} == set(
        item["id"] for item in audit.decide(good(), NEW)["findings"]
    )


def without(facts, name):
    blank = copy.deepcopy(facts)
    blank[name] = copy.deepcopy(empty()[name])
    return blank


# the three are not witnesses: their absence says nothing good
SIGNALS = sorted(set(empty()) - {"gsp_disabled", "runfile", "headers"})


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_that_is_taken_away_from_a_good_node_does_not_pass(signal):
    assert audit.decide(without(good(), signal), NEW)["verdict"] in ("fail", "unknown")


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("broken", [row[1:3] for row in TABLE if row[3] in ("fail", "unknown")])
def test_a_signal_that_is_taken_away_never_improves_a_verdict(signal, broken):
    facts = changed(*broken)
    assert audit.decide(facts, NEW)["verdict"] in ("fail", "unknown")
    after = audit.decide(without(facts, signal), NEW)
    assert after["verdict"] in ("fail", "unknown")
    if not audit.decide(facts, NEW)["reboot_safe"] and broken[0][0] != signal:
        assert not after["reboot_safe"]


def test_the_odd_one_out_is_named():
    facts = changed(("library", "version"), OLD)
    message = [item["message"] for item in audit.decide(facts)["findings"] if item["id"] == "versions_agree"][0]
    assert (
        "library libnvidia-ml is 535.216.03" in message
        and "Not every part of the driver is 535.261.03" in message
        and "package" not in message
    )


def test_with_a_wanted_version_everything_else_is_odd():
    item = [item for item in audit.decide(good(), OLD)["findings"] if item["id"] == "versions_agree"][0]
    assert item["status"] == "fail" and item["expected"] == OLD
    for name in (
        "loaded module",
        "library libnvidia-ml",
        "package nvidia-kernel-dkms",
        "module for kernel %s" % KERNEL,
    ):
        assert name in item["message"]
    assert "persistenced" not in item["message"]


def test_headers_missing_for_a_kernel_without_a_module_name_the_package():
    facts = good()
    facts["kernel"]["installed"] = [KERNEL, "6.1.0-99-amd64"]
    facts["headers"]["6.1.0-99-amd64"] = False
    facts["modules"]["6.1.0-99-amd64"] = None
    found = [
        item
        for item in audit.decide(facts, NEW)["findings"]
        if item["id"] == "kernel_headers" and item["status"] == "fail"
    ]
    assert found[0]["entity"] == "6.1.0-99-amd64" and "linux-headers-6.1.0-99-amd64" in found[0]["next_step"]


def test_a_kernel_module_that_no_dkms_made_needs_no_dkms():
    facts = good()
    facts["modules"][KERNEL] = module(path="/lib/modules/%s/kernel/nvidia-535/nvidia.ko" % KERNEL)
    facts["dkms"] = empty()["dkms"]
    document = audit.decide(facts, NEW)
    assert status_of(document, "dkms_state") == ["not_applicable"] and document["verdict"] == "pass"


PREBUILT = "/lib/modules/%s/kernel/nvidia-550srv/nvidia.ko" % KERNEL
OTHER_DKMS = {"available": True, "error": None, "entries": [], "unparsed": [], "leftovers": []}
SILENT_DKMS = dict(OTHER_DKMS, available=False, error="dkms status answered rc 4: no dkms.conf")


@pytest.mark.parametrize(
    "path,packages,dkms,expected",
    [
        (PREBUILT, ["linux-modules-nvidia-535-server-6.8.0-60-generic"], OTHER_DKMS, "not_applicable"),
        (PREBUILT, ["nvidia-dkms-535-server"], OTHER_DKMS, "not_applicable"),
        (PREBUILT, [], SILENT_DKMS, "not_applicable"),
        ("/lib/modules/k/extra/nvidia/nvidia.ko.xz", ["akmod-nvidia"], OTHER_DKMS, "not_applicable"),
        ("/lib/modules/k/extra/drivers/video/nvidia/nvidia.ko.xz", [], OTHER_DKMS, "not_applicable"),
        ("/lib/modules/k/weak-updates/nvidia-open/nvidia.ko", ["kmod-nvidia-open"], OTHER_DKMS, "not_applicable"),
        ("/lib/modules/k/extra/nvidia.ko.xz", ["kmod-nvidia-open-dkms"], OTHER_DKMS, "fail"),
        ("/lib/modules/k/updates/dkms/nvidia.ko.zst", [], OTHER_DKMS, "fail"),
        ("/lib/modules/k/updates/dkms/nvidia.ko.zst", [], SILENT_DKMS, "unknown"),
        (None, ["nvidia-kernel-dkms"], OTHER_DKMS, "fail"),
        (None, ["linux-modules-nvidia-535-server-6.8.0-60-generic"], OTHER_DKMS, "not_applicable"),
        (None, [], SILENT_DKMS, "unknown"),
        (PREBUILT, [], dict(OTHER_DKMS, entries=[dkms_entry(state="built")]), "fail"),
        (PREBUILT, [], dict(OTHER_DKMS, entries=[dkms_entry(kernel="6.8.0-1-other")]), "not_applicable"),
    ],
)
def test_dkms_is_asked_for_the_modules_that_are_its_own(path, packages, dkms, expected):
    facts = good()
    facts["modules"] = {KERNEL: module(path=path) if path else None}
    facts["dpkg"]["packages"] = dict((name, package()) for name in packages)
    facts["dkms"] = dkms
    assert status_of(audit.decide(facts, NEW), "dkms_state") == [expected]


OTHER_KERNEL = "6.1.0-1-amd64"


@pytest.mark.parametrize(
    "running, following, expect_loaded, packages, other, expected",
    [
        # The archive has no module of the driver for the kernel that ran before.
        (KERNEL, KERNEL, True, ["linux-modules-nvidia-535-server-" + KERNEL], None, "not_applicable"),
        (OTHER_KERNEL, KERNEL, False, ["linux-modules-nvidia-535-server-" + KERNEL], None, "not_applicable"),
        (OTHER_KERNEL, KERNEL, True, ["linux-modules-nvidia-535-server-" + KERNEL], None, "fail"),
        (KERNEL, OTHER_KERNEL, True, ["linux-modules-nvidia-535-server-" + KERNEL], None, "fail"),
        (KERNEL, None, True, ["linux-modules-nvidia-535-server-" + KERNEL], None, "fail"),
        (KERNEL, KERNEL, True, ["nvidia-dkms-535-server"], None, "fail"),
        (KERNEL, KERNEL, True, [], None, "fail"),
        (KERNEL, KERNEL, True, ["linux-modules-nvidia-535-server-" + KERNEL], module(OLD, OTHER_KERNEL), "fail"),
    ],
)
def test_kernel_that_does_not_boot_needs_no_prebuilt_module(
    running, following, expect_loaded, packages, other, expected
):
    facts = good()
    facts["kernel"].update(running=running, next_boot=following, installed=[OTHER_KERNEL, KERNEL])
    facts["modules"] = {OTHER_KERNEL: other, KERNEL: module(path=PREBUILT)}
    facts["headers"] = {OTHER_KERNEL: False, KERNEL: True}
    facts["dpkg"]["packages"] = dict((name, package()) for name in packages)
    facts["dkms"] = OTHER_DKMS
    document = audit.decide(facts, NEW, expect_loaded)
    assert status_of(document, "kernel_module") == [expected, "pass"]
    assert status_of(document, "kernel_headers") == [expected, "pass"]
    assert document["reboot_safe"] == (following == KERNEL)


@pytest.mark.parametrize(
    "target,vermagic,expected",
    [
        ("/lib/modules/%s/extra/nvidia.ko" % OTHER_KERNEL, OTHER_KERNEL + " SMP mod_unload modversions ", "pass"),
        ("/usr/lib/modules/%s/extra/nvidia.ko" % OTHER_KERNEL, OTHER_KERNEL + " SMP modversions", "pass"),
        ("/lib/modules/%s/extra/nvidia.ko" % OTHER_KERNEL, OTHER_KERNEL + " SMP mod_unload ", "fail"),
        ("/lib/modules/%s/extra/nvidia.ko" % OTHER_KERNEL, "6.1.0-2-amd64 SMP modversions", "fail"),
        ("/srv/nvidia.ko", OTHER_KERNEL + " SMP modversions", "fail"),
        (None, OTHER_KERNEL + " SMP modversions", "fail"),
    ],
)
def test_a_module_that_is_linked_from_a_kernel_of_the_same_symbols(target, vermagic, expected):
    facts = good()
    facts["modules"][KERNEL].update(link=target, vermagic=vermagic)
    document = audit.decide(facts, NEW)
    assert status_of(document, "kernel_module") == status_of(document, "next_boot_kernel") == [expected]
    assert document["reboot_safe"] is (expected == "pass")
    assert bool(versions.explain_absence(types.SimpleNamespace(audit=document), "next_boot")) is (expected == "fail")


def test_a_link_of_weak_modules_is_read(tmp_path):
    write(tmp_path, "/lib/modules/%s/extra/nvidia.ko" % OTHER_KERNEL, "ko")
    path = "/lib/modules/%s/weak-updates/nvidia.ko" % KERNEL
    link(tmp_path, path, "../../%s/extra/nvidia.ko" % OTHER_KERNEL)
    found = modules.read(str(tmp_path), KERNEL, Recorded({"modinfo": "version: 535.261.03\n"}))
    assert (found["path"], found["link"]) == (path, "/lib/modules/%s/extra/nvidia.ko" % OTHER_KERNEL)


@pytest.mark.parametrize(
    "name,version,expected",
    [
        ("nvidia-firmware-535-server-535.216.03", "535.216.03", "pass"),
        ("nvidia-firmware-535-535.216.03", "535.216.03", "pass"),
        ("firmware-nvidia-gsp", "535.216.03", "fail"),
        ("nvidia-fabricmanager-535", "535.216.03", "fail"),
        ("nvidia-container-toolkit", "1.17.8", "pass"),
        ("nvidia-peer-memory-dkms", "1.2", "pass"),
        ("nvidia-cuda-toolkit", "12.0.140~12.0.1", "pass"),
    ],
)
def test_what_is_not_of_the_drivers_version_by_design_is_not_mixed(name, version, expected):
    facts = good()
    facts["dpkg"]["packages"][name] = package(version)
    assert status_of(audit.decide(facts), "versions_agree") == [expected]


@pytest.mark.parametrize(
    "entry,error,step",
    [
        (dkms_entry(OLD, kernel=None, state="broken"), None, "Delete /var/lib/dkms/nvidia-current/%s" % OLD),
        (dkms_entry(OLD), None, "dkms remove nvidia-current/%s --all" % OLD),
        (None, "rc 4: File: /var/lib/dkms/nvidia/390.48/source/dkms.conf", "Delete /var/lib/dkms/nvidia/390.48"),
    ],
)
def test_the_next_step_for_a_stale_tree_is_one_that_works(entry, error, step):
    facts = good()
    facts["dkms"].update(available=not error, error=error, entries=[dkms_entry()] + ([entry] if entry else []))
    (found,) = [item for item in audit.decide(facts, NEW)["findings"] if item["id"] == "dkms_stale"]
    assert step in found["next_step"] and ("dkms remove" in found["next_step"]) is ("dkms remove" in step)


def test_gsp_firmware_is_only_needed_where_it_is_used():
    facts = changed(("gsp_firmware",), [])
    facts["gsp_disabled"] = True
    assert status_of(audit.decide(facts, NEW), "gsp_firmware") == ["not_applicable"]
    facts["loaded"]["flavour"] = "open"
    assert status_of(audit.decide(facts, NEW), "gsp_firmware") == ["fail"]
    assert [item["status"] for item in findings.gsp_firmware(facts, "470.57.02", True)] == ["not_applicable"]


def test_secure_boot_with_an_unsigned_module():
    facts = changed(("secure_boot",), {"state": "enabled", "keys": ["key"]})
    facts["modules"][KERNEL]["signer"] = None
    document = audit.decide(facts, NEW)
    assert (
        status_of(document, "secure_boot") == ["fail"]
        and not document["reboot_safe"]
        and "not signed" in document["reboot_safe_reason"]
    )


def test_secure_boot_is_judged_for_every_kernel():
    """The other kernel's module does not load, which is said; the next boot is safe all the same."""
    facts, other = changed(("secure_boot",), {"state": "enabled", "keys": ["key"], "built_in": []}), "6.1.0-99-amd64"
    facts["kernel"]["installed"] = [KERNEL, other]
    facts["modules"][other] = module(kernel=other, signer="somebody")
    facts["headers"][other] = True
    facts["dkms"]["entries"].append(dkms_entry(kernel=other))
    document = audit.decide(facts, NEW)
    found = dict((item["entity"], item["status"]) for item in document["findings"] if item["id"] == "secure_boot")
    assert found == {KERNEL: "pass", other: "fail"} and document["verdict"] == "fail" and document["reboot_safe"]
    facts["kernel"]["next_boot"] = other
    document = audit.decide(facts, NEW)
    assert [item["entity"] for item in document["findings"] if item["id"] == "secure_boot"] == [other, KERNEL], (
        "the next one first"
    )
    assert not document["reboot_safe"] and "'somebody'" in document["reboot_safe_reason"]
    # a key that a kernel's build made for itself is another one in the next build, under the same name
    facts["secure_boot"]["built_in"] = ["Build time autogenerated kernel key", "Canonical Ltd. Kernel Module Signing"]
    facts["modules"][other]["signer"] = "Build time autogenerated kernel key"
    assert not audit.decide(facts, NEW)["reboot_safe"]
    facts["modules"][other]["signer"] = "Canonical Ltd. Kernel Module Signing"
    assert audit.decide(facts, NEW)["reboot_safe"]


def test_missing_headers_name_their_package():
    facts = good()
    facts["headers"][KERNEL], facts["modules"][KERNEL] = False, None
    found = [item for item in audit.decide(facts, NEW)["findings"] if item["id"] == "kernel_headers"]
    assert "Install linux-headers-%s" % KERNEL in found[0]["next_step"]


@pytest.mark.parametrize("wanted", [None, NEW])
def test_an_empty_machine_gets_clear_messages(wanted):
    document = audit.decide(empty(), wanted)
    assert document["verdict"] == "fail" and document["reboot_safe"] is False and document["reboot_required"] is False
    assert "versions_agree" in [item["id"] for item in document["findings"] if item["status"] == "fail"]
    assert all(item["message"] for item in document["findings"] if item["status"] != "pass")


def test_with_no_driver_at_all_the_message_says_so():
    facts = empty()
    document = audit.decide(facts)
    assert (
        "No NVIDIA driver is installed"
        in [item["message"] for item in document["findings"] if item["id"] == "versions_agree"][0]
    )
    assert "No driver is installed" in document["reboot_safe_reason"]


def test_after_an_installation_the_loaded_driver_is_not_held_against_the_node():
    facts = changed(("loaded", "version"), OLD)
    document = audit.decide(facts, NEW, expect_loaded=False)
    assert document["verdict"] == "pass" and document["reboot_safe"] and document["reboot_required"]
    assert OLD in document["reboot_required_reason"] and NEW in document["reboot_required_reason"]
    assert audit.decide(facts, NEW)["verdict"] == "fail"


@pytest.mark.parametrize(
    ("path", "value", "required", "words"),
    [
        (
            ("loaded", "version"),
            OLD,
            True,
            "driver 535.216.03 is loaded, the module on disk for the running kernel is 535.261.03",
        ),
        (("library", "version"), OLD, True, "the library is 535.216.03"),
        (
            ("loaded",),
            {"state": "not_loaded", "version": None, "flavour": None, "disagree": False, "nouveau": False},
            True,
            "not loaded",
        ),
        (("kernel", "next_boot"), "6.1.0-99-amd64", True, "6.1.0-99-amd64 boots next"),
        (("kernel", "next_boot"), None, False, ""),
        (("loaded", "nouveau"), True, True, "nouveau is loaded"),
        (("pci",), [], False, ""),
    ],
)
def test_when_a_reboot_is_required(path, value, required, words):
    document = audit.decide(changed(path, value), NEW)
    assert document["reboot_required"] is required and words in document["reboot_required_reason"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kernel", "next_boot"), None),
        (("kernel", "next_boot"), "6.1.0-99-amd64"),
        (("modules", KERNEL), None),
        (("modules", KERNEL), module(OLD)),
        (("modules", KERNEL), module(error="x")),
        (("dpkg", "journal"), 1),
        (("dpkg", "available"), False),
        (("secure_boot",), {"state": "unknown", "keys": None}),
        (("secure_boot",), {"state": "enabled", "keys": []}),
    ],
)
def test_when_a_reboot_is_refused(path, value):
    document = audit.decide(changed(path, value), NEW)
    assert document["reboot_safe"] is False and document["reboot_safe_reason"]


def test_a_reboot_is_safe_for_the_other_kernel_that_has_its_module():
    facts = good()
    facts["kernel"].update(installed=[KERNEL, "6.1.0-99-amd64"], next_boot="6.1.0-99-amd64")
    facts["modules"]["6.1.0-99-amd64"] = module(kernel="6.1.0-99-amd64")
    facts["headers"]["6.1.0-99-amd64"] = True
    facts["dkms"]["entries"].append(dkms_entry(kernel="6.1.0-99-amd64"))
    document = audit.decide(facts, NEW)
    assert document["reboot_safe"] and document["verdict"] == "pass" and document["reboot_required"]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], "unknown"),
        (["pass"], "pass"),
        (["not_applicable"], "unknown"),
        (["pass", "not_applicable"], "pass"),
        (["pass", "unknown"], "unknown"),
        (["unknown", "fail"], "fail"),
    ],
)
def test_the_verdict(statuses, expected):
    assert audit.verdict([{"status": status} for status in statuses]) == expected


def test_the_target_is_what_most_of_the_driver_says():
    facts = good()
    assert (
        findings.target_version(facts, OLD) == OLD
        and findings.target_version(facts) == NEW
        and findings.target_version(empty()) is None
    )
    facts["dpkg"]["packages"] = {}
    facts["modules"] = {KERNEL: module(OLD)}
    assert findings.target_version(facts) == OLD


# Two revisions of one driver version: the same version everywhere but in the packages, and other patches.
REVISION = NEW + "-1"


@pytest.mark.parametrize(
    ("wanted", "statuses", "words"),
    [
        (REVISION, ["pass"], ""),
        (
            NEW + "-2~bpo13+1",
            ["fail"],
            (
                "Not every package of the driver is 535.261.03-2~bpo13+1: libnvidia-ml1 is 535.261.03-1, "
                "nvidia-kernel-dkms is"
            ),
        ),
        (NEW, [], ""),
        (None, [], ""),
    ],
)
def test_a_package_version_that_is_wanted_is_held_against_the_packages_alone(wanted, statuses, words):
    document = audit.decide(good(), wanted)
    assert status_of(document, "package_revision") == statuses
    assert document["verdict"] == ("fail" if "fail" in statuses else "pass") and document["reboot_safe"]
    assert words in "".join(item["message"] for item in document["findings"] if item["id"] == "package_revision")
    assert document["versions"]["wanted"] == wanted and document["versions"]["package"] == REVISION


def test_packages_of_other_sources_may_have_another_revision():
    facts = good()
    facts["dpkg"]["packages"]["libnvidia-egl"] = {
        "version": NEW + "-7",
        "arch": "amd64",
        "status": "ii ",
        "source": "nvidia-open-gpu-kernel-modules",
    }
    assert audit.decide(facts, REVISION)["verdict"] == "pass"


def test_a_package_version_that_nothing_has_is_not_proven():
    facts = changed(("dpkg", "packages"), {"libnvidia-ml1": package()})
    assert status_of(audit.decide(facts, REVISION), "package_revision") == ["fail"]
    assert audit.decide(facts)["versions"]["package"] is None


@pytest.mark.parametrize(
    ("loaded", "on_disk", "reason"),
    [
        ({"nvidia": "A", "nvidia_drm": "B"}, {"nvidia": "A", "nvidia_drm": "B", "nvidia_uvm": "C"}, ""),
        (
            {"nvidia": "A", "nvidia_drm": "B"},
            {"nvidia": "A", "nvidia_drm": "X"},
            "nvidia_drm on disk was built from other source of the same version",
        ),
        (
            {"nvidia": "A", "nvidia_drm": "B"},
            {"nvidia": "Y", "nvidia_drm": "X"},
            "nvidia, nvidia_drm on disk were built from other source",
        ),
        ({"nvidia": "A"}, {}, ""),
        ({}, {"nvidia": "A"}, ""),
    ],
)
def test_another_build_of_the_same_version_asks_for_a_reboot(loaded, on_disk, reason):
    facts = good()
    facts["loaded"]["sources"] = loaded
    facts["modules"][KERNEL]["sources"] = on_disk
    document = audit.decide(facts, NEW)
    assert document["reboot_required"] is bool(reason) and reason in document["reboot_required_reason"]
    assert document["verdict"] == "pass"
