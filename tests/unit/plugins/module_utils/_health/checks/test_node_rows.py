# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth tables of the checks outside NVML: pass, fail, unknown and not applicable, each by what the reading and the
baseline say.
"""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, policy
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import (
    containers,
    devices,
    driver_files,
    fabric_services,
    network,
    node,
    nvlink_switches,
    nvml,
    services,
    versions,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import host_lines
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import units as unit_reader
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import (
    DRIVER,
    KERNEL,
    NOT_INSTALLED,
    RUNNING,
    failed,
    value,
)

FAMILIES = (
    containers,
    devices,
    driver_files,
    fabric_services,
    network,
    node,
    nvlink_switches,
    nvml,
    services,
    versions,
)
ROWS = dict((row.ident, row) for family in FAMILIES for row in family.ROWS)
OTHER = "550.54.15"
GONE = object()


def put(document, path, content):
    """Set what lies at a dotted path; parts that are numbers count in a list, and a part may be quoted by being given
    as a tuple.
    """
    path = path if isinstance(path, tuple) else tuple(path.split("."))
    for key in path[:-1]:
        document = document[int(key) if isinstance(document, list) else key]
    last = int(path[-1]) if isinstance(document, list) else path[-1]
    if content is GONE:
        del document[last]
    else:
        document[last] = copy.deepcopy(content)


def judge(ident, now=None, old=None, limits=None, index=0, **options):
    """The checks of one row.

    NOW and OLD change the healthy reading and the baseline; OLD=False is no baseline at all.
    """
    reading = readings.reading()
    baseline = None if old is False else readings.baseline()
    for path, content in (now or {}).items():
        put(reading, path, content)
    if "boot_id" in (now or {}) and isinstance(reading["kernel_log"], dict):
        reading["kernel_log"]["boot_id"] = now["boot_id"]
    for path, content in (old or {}).items():
        put(baseline, path, content)
    sections = dict((key, reading.get(key)) for key in ("snapshot", "audit", "system", "kernel_log"))
    ctx = model.Context(
        reading=reading,
        smoke=None,
        baseline=baseline,
        policy=policy.complete(dict(limits or {})),
        tables={},
        expected_driver=options.get("expected_driver"),
        phase=options.get("phase", "adhoc"),
        expect=options.get("expect", {}),
        **sections,
    )
    row = ROWS[ident]
    answer = row.judge(ctx) if row.scope == "node" else row.judge(ctx, reading["snapshot"]["gpus"][index])
    answer = [answer] if isinstance(answer, dict) else answer
    assert answer and all(check["id"] == ident and check["action"] in model.ACTIONS for check in answer)
    assert set(check["source"] for check in answer) <= set(("policy", "baseline", "hardware"))
    for check in answer:
        if check["status"] != "pass" or check["notice"]:
            assert check["message"], check
        if check["status"] in ("fail", "unknown"):
            assert check["action"] != "none" and check["message"].rstrip().endswith("."), check
    return answer


def said(ident, *arguments, **options):
    """status of the only check, with a star for a notice"""
    (check,) = judge(ident, *arguments, **options)
    return check["status"] + ("*" if check["notice"] else "")


def of_entity(answer, entity):
    (check,) = [check for check in answer if check["entity"] == entity]
    return check["status"] + ("*" if check["notice"] else "")


NOT_ASKED = (
    "node.imex",
    "node.imex_version",
    "node.cdi",
    "node.infiniband_active",
    "node.cuda_toolkit",
    "node.nvlink_managers",
    "node.nvlink_modules",
    "node.nvlsm",
)


@pytest.mark.parametrize("ident", sorted(ROWS))
def test_a_healthy_node_passes(ident):
    for check in judge(ident, {"boot_id": "b"}):
        assert check["status"] == ("not_applicable" if ident in NOT_ASKED else "pass"), check
        assert not check["notice"]


@pytest.mark.parametrize("ident", sorted(set(ROWS) - set(("node.boot",))))
def test_a_healthy_node_passes_without_a_baseline(ident):
    for check in judge(ident, {}, False):
        assert check["status"] in ("pass", "not_applicable") and not check["notice"], check


@pytest.mark.parametrize("ident", sorted(ROWS))
@pytest.mark.parametrize("damage", [None, {}, [], "x", 7])
def test_a_section_that_is_damaged_never_passes(ident, damage):
    """Every section that the row reads is replaced by something else, at once."""
    limits = {"imex_required": 1, "cdi_required": 1, "infiniband_active_ports_min": 1}
    for section in ("snapshot", "audit", "system", "kernel_log"):
        signals = [signal for signal in ROWS[ident].signals if signal.partition(".")[0] == section]
        if not signals or (section == "snapshot" and ROWS[ident].scope == "gpu"):
            continue
        if ident in ("driver.flavour", "node.cuda_toolkit") and section == "snapshot":
            continue  # what the GPUs are only adds to the check
        reading = readings.reading()
        reading[section] = damage
        sections = dict(
            (key, reading[key] if isinstance(reading[key], dict) else None)
            for key in ("snapshot", "audit", "system", "kernel_log")
        )
        ctx = model.Context(
            reading=reading,
            smoke=None,
            baseline=readings.baseline(boot_id="x"),
            policy=policy.complete(limits),
            tables={},
            expected_driver=None,
            phase="adhoc",
            expect={},
            **sections,
        )
        answer = (
            ROWS[ident].judge(ctx)
            if ROWS[ident].scope == "node"
            else ROWS[ident].judge(ctx, reading["snapshot"]["gpus"][0])
        )
        answer = [answer] if isinstance(answer, dict) else answer
        assert answer and any(check["status"] in ("unknown", "fail") for check in answer), (ident, section)


# ---- NVML and versions ----


@pytest.mark.parametrize(
    ("now", "expected", "named"),
    [
        ({}, "pass", ""),
        ({"system.libcuda.version": OTHER}, "fail", "libcuda is " + OTHER),
        ({"system.fabricmanager.version": OTHER}, "fail", "the fabric manager is " + OTHER),
        ({"audit.versions.library": OTHER}, "fail", "libnvidia-ml is " + OTHER),
        ({"snapshot.system.driver_version": value(OTHER)}, "fail", "NVML talks to is " + OTHER),
        ({"audit.versions.modules": {KERNEL: {"version": OTHER}}}, "fail", "on disk"),
        ({"system.libcuda.version": None}, "unknown", "libcuda"),
        ({"system.fabricmanager.version": None}, "unknown", "fabric manager"),
        ({"system.fabricmanager": {"present": False, "version": None}}, "pass", ""),
        ({"audit.versions.loaded": None}, "unknown", "the loaded kernel module"),
        ({"audit.versions.loaded": None, "system.libcuda.version": OTHER}, "fail", "libcuda is"),
    ],
)
def test_all_versions_agree(now, expected, named):
    (check,) = judge("driver.versions_agree", now)
    assert check["status"] == expected and named in check["message"]


# ---- units ----

UNIT = "nvidia-dcgm.service"


def unit(**change):
    return dict(RUNNING, **change)


MASKED = unit(load="masked", active="inactive", enabled="masked")


def test_what_is_watched_is_what_is_read():
    assert set(unit_reader.WATCHED) == set(readings.UNITS)
    assert all(
        unit_reader.read_units(lambda argv, timeout: (0, "Id=x.service\n", "")).get(name, 0) is None
        for name in unit_reader.WATCHED
    )


@pytest.mark.parametrize(
    ("now", "old", "expected"),
    [
        (RUNNING, RUNNING, "pass"),
        (RUNNING, NOT_INSTALLED, "pass"),
        (unit(active="reloading", sub="reload"), RUNNING, "pass"),
        (unit(active="active", sub="exited"), unit(active="active", sub="exited"), "pass"),
        (unit(active="inactive", sub="dead"), unit(active="inactive", sub="dead"), "pass"),
        (unit(active="inactive", sub="dead"), NOT_INSTALLED, "pass"),
        (unit(active="inactive", sub="dead"), RUNNING, "fail"),
        (unit(active="failed", sub="failed", result="exit-code"), RUNNING, "fail"),
        (unit(active="failed", sub="failed", result="exit-code"), unit(active="failed"), "fail"),
        (unit(active="failed", sub="failed", result="exit-code"), NOT_INSTALLED, "fail"),
        (unit(active="activating", sub="auto-restart", result="exit-code"), RUNNING, "fail"),
        (unit(load="error"), RUNNING, "fail"),
        (unit(load="masked", active="inactive"), RUNNING, "fail"),
        (MASKED, MASKED, "pass"),
        (NOT_INSTALLED, RUNNING, "fail"),
        (NOT_INSTALLED, unit(active="inactive"), "fail"),
        (unit(enabled="disabled"), RUNNING, "pass*"),
        (unit(enabled="disabled"), unit(enabled="disabled"), "pass"),
        (unit(active="activating", sub="start"), RUNNING, "unknown"),
        (unit(active="deactivating", sub="stop"), RUNNING, "unknown"),
        (unit(active="novel"), RUNNING, "unknown"),
        (None, RUNNING, "unknown"),
        (None, NOT_INSTALLED, "unknown"),
        (GONE, NOT_INSTALLED, "unknown"),
        ({"load": "loaded"}, RUNNING, "unknown"),
        (RUNNING, None, "unknown"),
        (RUNNING, GONE, "unknown"),
    ],
)
def test_a_unit(now, old, expected):
    answer = judge("node.units", {("system", "units", UNIT): now}, {("system", "units", UNIT): old})
    assert of_entity(answer, UNIT) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (unit(active="activating", sub="start"), "pass"),
        (unit(active="deactivating", sub="stop-sigterm"), "pass"),
        (unit(active="activating", sub="auto-restart"), "fail"),
        (unit(active="failed"), "fail"),
    ],
)
@pytest.mark.parametrize("old", [unit(active="inactive"), unit(active="activating", sub="start"), NOT_INSTALLED])
@pytest.mark.parametrize("name", ["gpufleet-textfile.service", "gpufleet-textfile-restart.service"])
def test_unit_that_a_timer_or_path_of_this_collection_starts(name, now, old, expected):
    answer = judge("node.units", {("system", "units", name): now}, {("system", "units", name): old})
    assert of_entity(answer, name) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (RUNNING, "pass"),
        (unit(active="inactive"), "pass"),
        (unit(active="failed"), "fail"),
        (unit(active="activating", sub="start"), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_unit_without_a_baseline(now, expected):
    assert of_entity(judge("node.units", {("system", "units", UNIT): now}, False), UNIT) == expected


def test_units_that_are_not_there_or_not_known():
    assert said("node.units", {"system.units": None}) == "unknown"
    assert said("node.units", {}, {"system.units": None}) == "unknown"
    nothing = dict((name, NOT_INSTALLED) for name in readings.UNITS)
    assert said("node.units", {"system.units": nothing}, {"system.units": nothing}) == "not_applicable"
    assert (
        of_entity(
            judge("node.units", {}, {("system", "units", "gpufleet-mig.service"): RUNNING}), "gpufleet-mig.service"
        )
        == "unknown"
    )
    extra = {("system", "units", "gpufleet-mig.service"): unit(active="failed")}
    assert of_entity(judge("node.units", extra, False), "gpufleet-mig.service") == "fail"


# ---- NVSwitches, fabric manager, IMEX ----

FM = ("system", "units", "nvidia-fabricmanager.service")
IMEX = ("system", "units", "nvidia-imex.service")


# ---- the switches of NVLink 5 ----

ADAPTERS = {
    "found": [{"address": "0000:05:00.0", "device": "0x1021"}, {"address": "0000:06:00.0", "device": "0x1021"}],
    "unread": [],
}
# A board without NVSwitches on the bus, and what its adapters tell.
NO_SWITCH = {"system.nvswitches": []}
NVLINK_5 = dict(
    NO_SWITCH,
    **{
        "system.nvlink_managers": ADAPTERS,
        "system.modules": ["mlx5_core", "ib_umad", "nvidia"],
        "system.nvlsm": {"present": True, "running": True},
    },
)
SILENT = dict(NO_SWITCH, **{"system.nvlink_managers": {"found": [], "unread": ["0000:05:00.0"]}})
NO_FABRIC = dict(("snapshot.gpus.%d.fabric" % index, failed(3)) for index in (0, 1))
STATE_0 = dict(("snapshot.gpus.%d.fabric.value.state" % index, 0) for index in (0, 1))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "pass"),
        ({"system.modules": ["mlx5_core", "nvidia"]}, "fail"),
        ({"system.modules": ["ib_umad", "nvidia"]}, "fail"),
        ({"system.modules": None}, "unknown"),
        ({"system.nvlink_managers": None}, "unknown"),
        ({"system.nvlink_managers": {"found": [], "unread": []}, "system.modules": []}, "not_applicable"),
    ],
)
def test_the_modules_of_the_nvlink_switches(change, expected):
    assert said("node.nvlink_modules", dict(NVLINK_5, **change), False) == expected


@pytest.mark.parametrize(
    ("manager", "expected"),
    [
        ({"present": True, "running": True}, "pass"),
        ({"present": False, "running": True}, "pass"),
        ({"present": True, "running": False}, "fail"),
        ({"present": False, "running": False}, "fail"),
        ({"present": True, "running": None}, "unknown"),
        ({"present": False, "running": None}, "unknown"),
        (None, "unknown"),
    ],
)
def test_the_nvlink_subnet_manager(manager, expected):
    assert said("node.nvlsm", dict(NVLINK_5, **{"system.nvlsm": manager}), False) == expected
    assert said("node.nvlsm", {"system.nvlsm": manager}, False) == "not_applicable"


@pytest.mark.parametrize(
    ("now", "asked", "expected"),
    [
        ({IMEX: RUNNING}, 0, "not_applicable"),
        ({IMEX: unit(active="failed")}, 0, "not_applicable"),
        ({IMEX: RUNNING}, 1, "pass"),
        ({IMEX: unit(active="inactive")}, 1, "fail"),
        ({}, 1, "fail"),
        ({IMEX: None}, 1, "unknown"),
    ],
)
def test_imex(now, asked, expected):
    assert said("node.imex", now, limits={"imex_required": asked}) == expected


@pytest.mark.parametrize(
    ("imex", "asked", "expected"),
    [
        ({"present": True, "version": OTHER}, 0, "not_applicable"),
        ({"present": True, "version": DRIVER}, 1, "pass"),
        ({"present": True, "version": OTHER}, 1, "fail"),
        ({"present": False, "version": None}, 1, "fail"),
        ({"present": True, "version": None}, 1, "unknown"),
        (None, 1, "unknown"),
    ],
)
def test_the_version_of_imex(imex, asked, expected):
    assert said("node.imex_version", {"system.imex": imex}, limits={"imex_required": asked}) == expected


# ---- InfiniBand, direct access ----

PORT = ("system", "infiniband", "mlx5_0/1")


def port(**change):
    return dict(readings.system()["infiniband"]["mlx5_0/1"], **change)


@pytest.mark.parametrize(
    ("now", "old", "expected"),
    [
        (port(), port(), "pass"),
        (port(rate="800 Gb/sec (4X XDR)"), port(), "pass"),
        (port(rate="200 Gb/sec (2X NDR)"), port(), "fail"),
        (port(rate="2.5 Gb/sec (1X SDR)"), port(rate="5 Gb/sec (1X DDR)"), "fail"),
        (port(state="DOWN", phys_state="Polling"), port(), "fail"),
        (port(state="INIT"), port(), "fail"),
        (port(link_layer="Ethernet"), port(), "fail"),
        (GONE, port(), "fail"),
        (GONE, port(state="DOWN"), "pass*"),
        (port(state="DOWN"), port(state="DOWN"), "pass"),
        (port(), port(state="DOWN"), "pass"),
        (port(state=None), port(), "unknown"),
        (port(rate=None), port(), "unknown"),
        (None, port(), "unknown"),
        (port(), port(state=None), "unknown"),
        (port(), port(rate=None), "unknown"),
        (port(), None, "unknown"),
        (port(), GONE, "pass"),
        (port(state="DOWN"), GONE, "not_applicable"),
    ],
)
def test_a_port(now, old, expected):
    assert said("node.infiniband", {PORT: now}, {PORT: old}) == expected


def test_a_link_that_went_down_and_came_back():
    flapped = {PORT: port(link_downed=2)}
    assert said("node.infiniband", dict(flapped, boot_id="b")) == "pass*"
    assert said("node.infiniband", flapped) == "pass", "another boot counts anew"
    assert said("node.infiniband", {PORT: port(link_downed=None), "boot_id": "b"}) == "pass"


def test_ports_that_are_not_there_or_not_known():
    assert said("node.infiniband", {"system.infiniband": {}}, {"system.infiniband": {}}) == "not_applicable"
    assert said("node.infiniband", {"system.infiniband": {}}) == "fail"
    assert said("node.infiniband", {"system.infiniband": None}) == "unknown"
    assert said("node.infiniband", {}, {"system.infiniband": None}) == "unknown"
    assert said("node.infiniband", {PORT: port(state="DOWN")}, False) == "not_applicable"
    assert said("node.infiniband", {"system.infiniband": {"mlx5_0/?": None}}, False) == "unknown"


@pytest.mark.parametrize(
    ("now", "wanted", "expected"),
    [
        ({}, 0, "not_applicable"),
        ({}, 1, "pass"),
        ({}, 2, "fail"),
        ({PORT: port(state="DOWN")}, 1, "fail"),
        ({PORT: port(state=None)}, 1, "unknown"),
        ({"system.infiniband": None}, 1, "unknown"),
    ],
)
def test_as_many_ports_as_the_policy_asks_for(now, wanted, expected):
    assert said("node.infiniband_active", now, False, limits={"infiniband_active_ports_min": wanted}) == expected


@pytest.mark.parametrize(
    ("now", "old", "expected"),
    [
        (["nvidia_peermem"], ["nvidia_peermem"], "pass"),
        (["nvidia_peermem"], ["nv_peer_mem"], "pass"),
        (["nvidia_peermem", "gdrdrv"], ["nvidia_peermem"], "pass"),
        (["nvidia"], ["nvidia", "nvidia_peermem"], "fail"),
        (["nvidia_peermem"], ["nvidia_peermem", "gdrdrv"], "fail"),
        (["nvidia_peermem"], ["nvidia_peermem", "nvidia_fs"], "fail"),
        (["nvidia"], ["nvidia"], "not_applicable"),
        (None, ["nvidia_peermem"], "unknown"),
        (["nvidia_peermem"], None, "unknown"),
    ],
)
def test_modules_for_direct_access(now, old, expected):
    assert said("node.gdr_modules", {"system.modules": now}, {"system.modules": old}) == expected
    assert said("node.gdr_modules", {"system.modules": now}, False) == ("unknown" if now is None else "not_applicable")


# ---- the driver's files ----


@pytest.mark.parametrize(
    ("loaded", "expected"), [(False, "pass"), (True, "fail"), (None, "unknown"), (GONE, "unknown"), ("no", "unknown")]
)
def test_nouveau(loaded, expected):
    assert said("driver.nouveau", {"audit.nouveau_loaded": loaded}) == expected


BLACKWELL = {"snapshot.gpus.0.architecture": value(10)}


def on_disk(licence):
    return {KERNEL: {"version": DRIVER, "license": licence}}


OPEN, PROPRIETARY = on_disk("Dual MIT/GPL"), on_disk("NVIDIA")


def dkms(status, kernel=KERNEL):
    return {
        "id": "dkms_state",
        "entity": kernel,
        "status": status,
        "observed": None,
        "expected": None,
        "message": "The state.",
        "next_step": "Look.",
    }


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([dkms("pass")], "pass"),
        ([dkms("fail")], "fail"),
        ([dkms("unknown")], "unknown"),
        ([dkms("not_applicable")], "not_applicable"),
        ([dkms("pass", "6.1.0-1-amd64")], "unknown"),
        ([dkms("odd")], "unknown"),
        ([], "unknown"),
        (None, "unknown"),
    ],
)
def test_dkms(findings, expected):
    assert said("driver.dkms", {"audit.findings": findings}) == expected


def test_dkms_of_the_kernel_that_boots_next():
    new = "6.1.0-51-amd64"
    answer = judge("driver.dkms", {"audit.kernel.next_boot": new, "audit.findings": [dkms("pass"), dkms("fail", new)]})
    assert of_entity(answer, KERNEL) == "pass" and of_entity(answer, new) == "fail"
    assert said("driver.dkms", {"audit.kernel.next_boot": None}) == "unknown"


@pytest.mark.parametrize(
    ("safe", "findings", "expected"),
    [
        (True, [], "pass"),
        (False, [], "fail"),
        (False, [dict(dkms("fail"), id="next_boot_kernel")], "fail"),
        (False, [dict(dkms("unknown"), id="secure_boot")], "unknown"),
        (False, [dict(dkms("unknown"), id="secure_boot"), dict(dkms("fail"), id="dpkg_interrupted")], "fail"),
        (None, [], "unknown"),
        ("yes", [], "unknown"),
    ],
)
def test_safe_to_reboot(safe, findings, expected):
    assert said("driver.reboot_safe", {"audit.reboot_safe": safe, "audit.findings": findings}) == expected


# ---- CUDA ----


def toolkit(version, path="/usr/local/cuda-12", compat=None):
    return {"path": path, "version": version, "compat": compat}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([toolkit("12.2.1")], "pass"),
        ([toolkit("11.8")], "pass"),
        ([toolkit("12.4.1")], "pass*"),
        ([toolkit("13.0")], "pass*"),
        ([toolkit("13.0", compat="580.65.06")], "pass"),
        ([toolkit("12.2"), toolkit("13.0", "/usr/local/cuda-13")], "pass*"),
        ([toolkit(None)], "unknown"),
        ([], "not_applicable"),
        (None, "unknown"),
    ],
)
def test_toolkits(found, expected):
    assert said("node.cuda_toolkit", {"system.toolkit": found}, False) == expected


def test_the_message_tells_a_major_version_from_a_minor_one():
    assert "do not start" in judge("node.cuda_toolkit", {"system.toolkit": [toolkit("13.0")]}, False)[0]["message"]
    assert "minor version" in judge("node.cuda_toolkit", {"system.toolkit": [toolkit("12.4")]}, False)[0]["message"]


def test_toolkits_and_the_baseline():
    had = {"system.toolkit": [toolkit("12.2")]}
    assert said("node.cuda_toolkit", had, had) == "pass"
    assert said("node.cuda_toolkit", {}, had) == "fail"
    assert said("node.cuda_toolkit", had, {"system.toolkit": None}) == "unknown"
    assert said("node.cuda_toolkit", dict(had, **{"snapshot.system.cuda_driver_version": failed(3)}), had) == "unknown"


@pytest.mark.parametrize(
    ("content", "expected"),
    [("12.2", (12, 2)), (12020, (12, 2)), (13000, (13, 0)), ("12", None), (True, None), (None, None), (0, None)],
)
def test_forms_of_the_cuda_version(content, expected):
    assert driver_files.cuda_version(content) == expected


# ---- device files ----


def device(path="/dev/nvidia0", major=195, minor=0, **change):
    return dict(readings.device_node(path, major, minor), **change)


REAL = {"snapshot.simulated": False}


def params(modify=True):
    return {"mode": "0660", "uid": 0, "gid": 44, "modify": modify}


NULL = device(major=1, minor=3)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({}, "pass"),
        ({"system.device_nodes.0": device(kind="file", major=None, minor=None)}, "fail"),
        ({"system.device_nodes.0": device(kind="link")}, "fail"),
        ({"system.device_nodes.0": device(kind=None, mode=None)}, "unknown"),
        ({"system.device_nodes.0": device(major=240)}, "fail"),
        ({"system.device_nodes.0": device(minor=1)}, "fail"),
        ({"system.device_nodes.0": NULL}, "fail"),
        ({"system.device_nodes.0": device(mode="0600")}, "fail"),
        ({"system.device_nodes.0": device(mode="0777", uid=5)}, "pass"),
        ({"system.device_nodes.0": device(mode="0666", gid=44)}, "pass"),
        ({"system.device_nodes.0": device(mode=[])}, "unknown"),
        ({"system.device_params": params(), "system.device_nodes.0": device(mode="0660", gid=44)}, "pass"),
        ({"system.device_params": params(), "system.device_nodes.0": device(mode="0660")}, "fail"),
        ({"system.device_params": params()}, "pass"),
        ({"system.device_params": params(modify=False), "system.device_nodes.0": device(mode="0600")}, "pass"),
        ({"system.device_params": None}, "unknown"),
        ({"system.device_numbers": None}, "unknown"),
        ({"system.device_numbers": {}}, "fail"),
        ({"system.device_numbers": {"nvidia": 195}}, "pass"),
        ({"system.device_nodes.0": GONE}, "fail"),
        ({"system.device_nodes": []}, "fail"),
        ({"system.device_nodes": None}, "unknown"),
        ({"snapshot.gpus.0.minor_number": failed(3)}, "fail"),
        ({"snapshot.gpus.0.minor_number": value(9)}, "fail"),
    ],
)
def test_the_device_file_of_a_gpu(now, expected):
    assert said("gpu.device_node", dict(REAL, **now), {"snapshot.simulated": False}) == expected


def test_the_minor_number_that_nobody_ever_told():
    unsupported = dict(("snapshot.gpus.%d.minor_number" % index, failed(3)) for index in (0, 1))
    assert said("gpu.device_node", unsupported, False) == "not_applicable"
    assert said("gpu.device_node", {"snapshot.gpus.0.minor_number": failed(3)}, False) == "unknown"


def test_the_numbers_of_a_simulated_device_file_mean_nothing():
    assert said("gpu.device_node", {"system.device_nodes.0": NULL, "system.device_numbers": {}}) == "pass"
    assert said("gpu.device_node", {"system.device_nodes.0": device(mode="0600")}) == "fail"


@pytest.mark.parametrize(
    ("now", "old", "expected"),
    [
        ({}, {}, "pass"),
        ({}, False, "pass"),
        ({"system.device_nodes.4": GONE}, {}, "fail"),
        ({"system.device_nodes.4": GONE}, False, "fail"),
        ({"system.device_nodes.4": device("/dev/nvidiactl", 195, 0)}, {}, "fail"),
        ({"system.device_nodes.4": device("/dev/nvidiactl", 195, 255, mode="0600")}, {}, "fail"),
        ({"system.device_nodes.5": device("/dev/nvidia-uvm", 507)}, {}, "fail"),
        ({"system.device_nodes.5": GONE}, {}, "fail"),
        ({"system.device_nodes.5": GONE, "system.modules": ["nvidia"]}, {}, "pass*"),
        ({"system.device_nodes.5": GONE, "system.modules": ["nvidia"]}, False, "pass"),
        ({"system.device_nodes.3": GONE}, {}, "fail"),
        ({}, {"system.device_nodes.0": device("/dev/nvidia-nvswitch0")}, "fail"),
        ({"system.device_nodes.0": device("/dev/nvidia-caps/nvidia-cap1", 999, mode="0400")}, False, "fail"),
        ({"system.device_nodes.0": device("/dev/nvidia-caps/nvidia-cap1", 234, mode="0400")}, False, "pass"),
        ({"system.device_nodes.4": device("/dev/nvidiactl", kind=None, mode=None)}, {}, "unknown"),
        ({"system.device_nodes": None}, {}, "unknown"),
        ({"system.modules": None}, {}, "unknown"),
        ({"system.device_params": None}, {}, "unknown"),
        ({"system.device_numbers": None}, {}, "unknown"),
        ({}, {"system.device_nodes": None}, "unknown"),
    ],
)
def test_the_other_device_files(now, old, expected):
    assert said("node.device_nodes", dict(REAL, **now), old) == expected


# ---- CDI ----

BOTH = [readings.uuid(index) for index in (0, 1)]


def spec(**change):
    return dict(
        {
            "path": "/etc/cdi/nvidia.yaml",
            "kind": "nvidia.com/gpu",
            "devices": ["0", "1", "all"] + BOTH,
            "versions": [DRIVER],
            "missing": [],
        },
        **change,
    )


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([spec()], "pass"),
        ([spec(), spec(kind="example.com/nic", devices=[], missing=["/x"])], "pass"),
        ([spec(versions=[])], "pass"),
        ([spec(versions=[OTHER])], "fail"),
        ([spec(versions=[DRIVER, OTHER])], "fail"),
        ([spec(missing=["/dev/nvidia7"])], "fail"),
        ([spec(devices=[])], "fail"),
        ([spec(kind="example.com/nic")], "fail"),
        ([], "fail"),
        ([spec(kind=None, devices=None, versions=None, missing=None)], "unknown"),
        ([spec(versions=None)], "unknown"),
        ([spec(conflicts=["/etc/cdi/other.yaml"], devices=BOTH)], "fail"),
        ([spec(conflicts=["/etc/cdi/other.yaml"], devices=[])], "fail"),
        ([spec(devices=[], overridden=["/run/cdi/nvidia.yaml"])], "unknown"),
        ([spec(devices=[], versions=[OTHER], overridden=["/run/cdi/nvidia.yaml"]), spec()], "pass"),
        ([spec(devices=[], overridden=[]), spec()], "fail"),
        ([spec(devices=None, versions=None, missing=None), spec()], "unknown"),
        (None, "unknown"),
    ],
)
def test_cdi(specs, expected):
    assert said("node.cdi", {"system.cdi": {"specs": specs}}, limits={"cdi_required": 1}) == expected
    assert said("node.cdi", {"system.cdi": {"specs": specs}}) == "not_applicable"


def mig(*uuids):
    return {
        "snapshot.gpus.1.mig_mode_current": value(1),
        "snapshot.gpus.1.mig_instances": value([{"uuid": uuid} for uuid in uuids]),
    }


@pytest.mark.parametrize(
    ("devices", "now", "expected"),
    [
        (BOTH, {}, "pass"),
        (["0", "1"], {}, "pass"),
        (["gpu0", "gpu1", "all"], {}, "pass"),
        (["all", BOTH[0]], {}, "fail"),
        (BOTH + ["GPU-gone"], {}, "fail"),
        ([BOTH[0], "GPU-gone"], {}, "fail"),
        (["0", "all"], {}, "fail"),
        (["0", "1", "2"], {}, "fail"),
        (["0", "1", "gpu0"], {}, "fail"),
        (["all"], {}, "unknown"),
        (["mine", "all"], {}, "unknown"),
        # A GPU in MIG mode is none itself; each of its MIG devices is.
        ([BOTH[0], "MIG-a", "MIG-b"], mig("MIG-a", "MIG-b"), "pass"),
        (["0", "1:0", "1:1", "all"], mig("MIG-a", "MIG-b"), "pass"),
        (["gpu0", "mig1:0", "mig1:1", "all"], mig("MIG-a", "MIG-b"), "pass"),
        ([BOTH[0]], mig(), "pass"),
        (BOTH, mig("MIG-a", "MIG-b"), "fail"),
        (["0", "1"], mig("MIG-a", "MIG-b"), "fail"),
        ([BOTH[0], "MIG-a"], mig("MIG-a", "MIG-b"), "fail"),
        ([BOTH[0], "MIG-a", "MIG-old"], mig("MIG-a", "MIG-b"), "fail"),
        ([BOTH[0], "MIG-a"], {}, "fail"),
        (BOTH, {"snapshot.gpus.1.mig_mode_current": failed(3)}, "pass"),
        (BOTH, {"snapshot.gpus.1.mig_mode_current": failed(999)}, "unknown"),
        ([BOTH[0]], dict(mig(), **{"snapshot.gpus.1.mig_instances": failed(999)}), "unknown"),
        ([BOTH[0]], dict(mig(), **{"snapshot.gpus.1.mig_instances": value([{}])}), "unknown"),
        (BOTH, {"snapshot.gpus.1.uuid": failed(15)}, "unknown"),
        (BOTH, {"snapshot.count": failed(999)}, "unknown"),
        (BOTH, {"snapshot.count": value(3)}, "unknown"),
        (BOTH, {"snapshot.gpus": []}, "unknown"),
    ],
)
def test_cdi_has_as_many_devices_as_nvml(devices, now, expected):
    found = dict({"system.cdi": {"specs": [spec(devices=devices)]}}, **now)
    assert said("node.cdi", found, limits={"cdi_required": 1}) == expected


def test_what_two_files_of_cdi_name_counts_together():
    asked, other = {"cdi_required": 1}, spec(path="/run/cdi/nvidia.yaml", devices=[BOTH[1]])
    assert said("node.cdi", {"system.cdi": {"specs": [spec(devices=[BOTH[0]]), other]}}, limits=asked) == "pass"
    stale = spec(path="/etc/cdi/old.yaml", devices=["GPU-gone"])
    (check,) = judge("node.cdi", {"system.cdi": {"specs": [spec(), stale]}}, limits=asked)
    assert check["status"] == "fail" and "Remove /etc/cdi/old.yaml" in check["message"]
    assert "GPU-gone" in check["message"]


def test_cdi_without_a_driver_or_a_reading():
    asked = {"cdi_required": 1}
    assert (
        said("node.cdi", {"system.cdi": {"specs": [spec()]}, "audit.versions.loaded": None}, limits=asked) == "unknown"
    )
    assert said("node.cdi", {"system.cdi": None}, limits=asked) == "unknown"


# ---- the kernel ----

OWN = 12289


@pytest.mark.parametrize(
    ("now", "old", "expected"),
    [
        (OWN, {"system.taint": OWN}, "pass"),
        (OWN, {"system.taint": 0}, "pass"),
        (0, {"system.taint": OWN}, "pass"),
        (OWN | 512, {"system.taint": OWN}, "pass*"),
        (OWN | 512, {"system.taint": OWN | 512}, "pass"),
        (OWN | 2, {"system.taint": OWN}, "pass*"),
        (OWN | 1 << 40, {"system.taint": OWN}, "pass*"),
        (OWN | 128, {"system.taint": OWN}, "fail"),
        (OWN | 128, {"system.taint": OWN | 128}, "fail"),
        (OWN | 16, {}, "fail"),
        (OWN | 32, {}, "fail"),
        (OWN | 1 << 14, {}, "fail"),
        (OWN | 128, False, "fail"),
        (OWN | 512, False, "pass*"),
        (OWN, False, "pass"),
        (None, {}, "unknown"),
        (True, {}, "unknown"),
        (OWN, {"system.taint": None}, "unknown"),
    ],
)
def test_taint(now, old, expected):
    assert said("node.kernel_taint", {"system.taint": now}, old) == expected


def test_bits_have_names():
    assert judge("node.kernel_taint", {"system.taint": OWN | 128 | 16})[0]["action"] == "field_diag"
    assert "D (the kernel died before" in judge("node.kernel_taint", {"system.taint": OWN | 128})[0]["message"]
    assert "bits 0x10000000000 that" in judge("node.kernel_taint", {"system.taint": OWN | 1 << 40})[0]["message"]


def event(kind):
    return {"kind": kind, "monotonic_us": 5000000, "seq": 7, "text": "BUG: unable to handle page fault", "pci": None}


def kernel_log(*kinds, **change):
    log = readings.kernel_log("x")
    log.update(events=[event(kind) for kind in kinds], suppressed=[], counted={"events": len(kinds), "suppressed": 0})
    log.update(change)
    return log


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (kernel_log(), "pass"),
        (kernel_log("xid"), "pass"),
        (kernel_log("oops"), "fail"),
        (kernel_log("oops", complete=False), "fail"),
        (kernel_log("oops_elsewhere"), "pass*"),
        (kernel_log("oops_elsewhere", complete=False), "unknown"),
        (kernel_log("oops_elsewhere", "oops"), "fail"),
        (kernel_log("ubsan"), "pass*"),
        (kernel_log("driver_dump"), "pass*"),
        (kernel_log("warning"), "pass*"),
        (kernel_log("warning", "oops"), "fail"),
        (kernel_log("warning", complete=False), "unknown"),
        (kernel_log("trace"), "pass"),
        (kernel_log("peermem_invalid"), "pass*"),
        (kernel_log("peermem_invalid", "oops"), "fail"),
        (kernel_log("ubsan", "driver_dump", "oops"), "fail"),
        (kernel_log("ubsan", complete=False), "unknown"),
        (kernel_log(complete=False), "unknown"),
        (kernel_log(complete=None), "unknown"),
        (kernel_log(events=None), "unknown"),
        (None, "unknown"),
    ],
)
def test_oops(log, expected):
    assert said("node.kernel_oops", {"kernel_log": log}, phase="post") == expected


HOUR_US = 3600 * 10**6


def host_events(kind, what, number=1, every_us=HOUR_US, last_us=99 * HOUR_US, **more):
    """NUMBER events of a device, the last of them at LAST_US, in a log that was read at hour 100."""
    events = [
        dict(event(kind), what=what, device="d0", monotonic_us=last_us - each * every_us, **more)
        for each in range(number)
    ]
    return kernel_log(events=events, counted={"events": number, "suppressed": 0}, read_at_us=100 * HOUR_US)


@pytest.mark.parametrize(
    "ident, log, expected",
    [
        ("node.network_log", kernel_log("oops"), "pass"),
        ("node.network_log", host_events("network", "cable"), "pass*"),
        ("node.network_log", host_events("network", "link_down", 5), "pass"),
        ("node.network_log", host_events("network", "link_down", 6), "pass*"),
        # one failure of the link in many lines
        ("node.network_log", host_events("network", "link_down", 60, every_us=1000), "pass"),
        # more than a day ago
        ("node.network_log", host_events("network", "link_down", 60, last_us=70 * HOUR_US), "pass"),
        ("node.network_log", host_events("storage", "io_error"), "pass"),
        ("node.network_log", kernel_log(complete=False), "unknown"),
        ("node.network_log", None, "unknown"),
        ("node.storage_log", kernel_log("oops"), "pass"),
        ("node.storage_log", host_events("storage", "io_error"), "pass*"),
        ("node.storage_log", host_events("storage", "read_only"), "pass*"),
        ("node.storage_log", host_events("network", "cable"), "pass"),
        ("node.storage_log", kernel_log(complete=None), "unknown"),
        ("node.storage_log", None, "unknown"),
    ],
)
def test_what_the_kernel_logged_of_network_and_disks(ident, log, expected):
    assert said(ident, {"kernel_log": log}, phase="post", limits={"network_link_downs_max": 5}) == expected


def test_every_thing_that_a_line_can_say_has_a_meaning():
    for kind, meanings in (("network", dict(node.NETWORK, link_down="counted")), ("storage", node.STORAGE)):
        assert {what for what, pattern in dict(host_lines.KINDS)[kind]} == set(meanings)


@pytest.mark.parametrize(
    ("now", "old", "reboot", "expected"),
    [
        ("b", {}, True, "fail"),
        ("b", {}, False, "pass"),
        ("b", {}, None, "pass"),
        ("x", {}, True, "pass"),
        ("x", {}, False, "fail"),
        ("x", {}, None, "pass"),
        (None, {}, True, "unknown"),
        (None, {}, None, "unknown"),
        ("x", {"boot_id": None}, True, "unknown"),
        ("x", {"boot_id": ""}, False, "unknown"),
        ("x", False, True, "unknown"),
        ("x", False, False, "unknown"),
        ("x", False, None, "not_applicable"),
    ],
)
def test_boot(now, old, reboot, expected):
    assert said("node.boot", {"boot_id": now}, old, expect={"reboot": reboot, "changes": []}) == expected


def test_nobody_said_what_was_expected():
    assert said("node.boot", {"boot_id": "x"}, phase="soak") == "pass*"
    assert said("node.boot", {"boot_id": "b"}, phase="soak") == "pass"
    assert said("node.boot", {"boot_id": "b"}, expect={}) == "pass"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([], "pass"),
        ([{"pid": 60, "comm": "nvidia-smi", "state": "D", "seconds": 5.0}], "fail"),
        (["damaged"], "fail"),
        (None, "unknown"),
        ({}, "unknown"),
    ],
)
def test_hung_tasks(tasks, expected):
    assert said("node.hung_tasks", {"system.hung_tasks": tasks}) == expected


FULL = {"device": 7, "free": 3 << 20, "files": 1 << 30, "read_only": False}


@pytest.mark.parametrize(
    ("path", "about", "expected"),
    [
        ("/var/cache", FULL, "fail"),
        ("/var/lib/dkms", FULL, "fail"),
        ("/usr", FULL, "fail"),
        ("/lib/modules", FULL, "fail"),
        ("/boot", FULL, "fail"),
        ("/boot", dict(FULL, free=65 << 20), "pass"),
        ("/boot", dict(FULL, free=63 << 20), "fail"),
        ("/var/cache", dict(FULL, free=1 << 40, read_only=True), "fail"),
        ("/var/cache", dict(FULL, free=1 << 40, files=100), "fail"),
        ("/var/cache", dict(FULL, free=1 << 40, files=None), "pass"),
        # one file system for all that is written below / and /var has to have the room for both
        ("/usr", dict(FULL, device=2049, free=1500 << 20), "fail"),
        ("/usr", None, "unknown"),
        ("/boot", dict(FULL, free="much"), "unknown"),
    ],
)
def test_room_for_a_change_of_the_driver(path, about, expected):
    limits = {"room_var_min_mib": 1024, "room_usr_min_mib": 1024, "room_boot_min_mib": 64, "room_inodes_min": 5000}
    found = {("system", "filesystems", path): about}
    assert said("node.room", found, limits=limits, expect={"room": True}) == expected
    assert said("node.room", found, limits=limits) == expected.replace("fail", "pass*")


def test_room_that_was_not_read_is_unknown():
    for found in ({}, None, []):
        assert said("node.room", {"system.filesystems": found}, limits={"room_var_min_mib": 0}) == "unknown"


def test_full_file_system_beside_one_that_was_not_read_is_unknown():
    found = {("system", "filesystems", "/usr"): None, ("system", "filesystems", "/var/cache"): FULL}
    assert said("node.room", found) == "unknown"
    assert said("node.room", found, expect={"room": True}) == "fail"


def no_firmware(*findings):
    return {"audit.versions.gsp_firmware": [], "audit.findings": list(findings)}


# The status that a check has, by what is read, by the baseline, and by options of judge(); what is left out is healthy.
TABLE = {
    "nvml.library_match": [
        ("pass",),
        ("fail", {"snapshot.nvml.rc": 18, "snapshot.status": "nvml_error"}),
        ("fail", {"audit.versions.library": OTHER}),
        ("fail", {"audit.versions.library": OTHER, "snapshot.nvml.rc": None}),
        ("unknown", {"audit.versions.library": None}),
        ("unknown", {"audit.versions.loaded": None}),
        ("unknown", {"snapshot.nvml.rc": 9}),
        ("unknown", {"snapshot.nvml.rc": False}),
        ("unknown", {"snapshot.nvml": GONE}),
    ],
    "driver.packages": [
        ("pass",),
        ("pass", {}, {}, {"expected_driver": DRIVER}),
        ("pass", {}, {}, {"expected_driver": OTHER}),  # driver.loaded says it
        ("fail", {"audit.versions.library": None}, {}, {"expected_driver": OTHER}),
        ("fail", {"audit.versions.driver_packages": {"nvidia-smi": OTHER, "nvidia-kernel-dkms": DRIVER}}),
        ("fail", {"audit.versions.driver_packages": {}}),
        ("not_applicable", {"audit.versions.driver_packages": {}}, False),
        ("unknown", {"audit.versions.driver_packages": None}),
        ("unknown", {"audit.versions.driver_packages": GONE}),
        ("unknown", {"audit.versions.loaded": None}),
    ],
    "node.nvswitches": [
        ("pass",),
        ("not_applicable", {}, False),
        ("not_applicable", {"system.nvswitches": []}, {"system.nvswitches": []}),
        ("fail", {"system.nvswitches": []}),
        ("fail", {"system.nvswitches": [{"address": "0000:08:00.0"}]}),
        ("pass", {"system.nvswitches": [{"address": "00000000:07:00.0"}, {"address": "0000:08:00.0"}]}),
        ("unknown", {"system.nvswitches": None}),
        ("unknown", {}, {"system.nvswitches": None}),
        ("unknown", {}, {"system": None}),
    ],
    "node.fabric_manager": [
        ("pass",),
        ("pass", {}, False),
        ("fail", {FM: unit(active="inactive")}),
        ("fail", {FM: unit(active="activating", sub="start")}),
        ("fail", {FM: NOT_INSTALLED}, False),
        ("unknown", {FM: None}),
        ("unknown", {"system.units": None}),
        ("unknown", {"system.nvswitches": None}),
        ("not_applicable", {"system.nvswitches": [], FM: NOT_INSTALLED}, {"system.nvswitches": []}),
        ("fail", {"system.nvswitches": [], FM: NOT_INSTALLED}),
        ("not_applicable", {"system.nvswitches": [], FM: NOT_INSTALLED}, False),
        ("pass", NVLINK_5, NVLINK_5),
        ("pass", NVLINK_5, False),
        ("fail", {**NVLINK_5, FM: NOT_INSTALLED}, False),
        ("fail", {**NVLINK_5, FM: unit(active="inactive")}, NVLINK_5),
        ("unknown", {**NVLINK_5, FM: None}, NVLINK_5),
        # The adapters left, and what they needed is needed still.
        ("fail", {**NO_SWITCH, FM: NOT_INSTALLED}, NVLINK_5),
        ("unknown", dict(NO_SWITCH, **{"system.nvlink_managers": None}), False),
        ("unknown", dict(NO_SWITCH, **{"system.nvlink_managers": {}}), False),
        ("unknown", dict(NO_SWITCH, **{"system.nvlink_managers": {"found": []}}), False),
        ("unknown", SILENT, False),
        ("not_applicable", dict(SILENT, **NO_FABRIC), False),
        ("not_applicable", dict(SILENT, **STATE_0), False),
        ("unknown", dict(SILENT, **{"snapshot.gpus.0.fabric": failed(3)}), False),
        ("unknown", dict(SILENT, **{"snapshot.gpus": []}), False),
        ("pass", dict(NVLINK_5, **{"system.nvlink_managers": dict(ADAPTERS, unread=["0000:07:00.0"])}), False),
    ],
    "node.nvlink_managers": [
        ("pass", NVLINK_5, NVLINK_5),
        ("not_applicable", NVLINK_5, False),
        ("unknown", NVLINK_5, {"system.nvlink_managers": None}),
        ("unknown", NO_SWITCH, {"system.nvlink_managers": None}),
        ("fail", NO_SWITCH, NVLINK_5),
        ("fail", dict(NVLINK_5, **{"system.nvlink_managers": dict(ADAPTERS, found=ADAPTERS["found"][:1])}), NVLINK_5),
        ("unknown", SILENT, NVLINK_5),
        ("unknown", dict(NO_SWITCH, **{"system.nvlink_managers": None}), NVLINK_5),
    ],
    "node.fabric_manager_version": [
        ("pass",),
        ("pass", NVLINK_5),
        ("fail", dict(NVLINK_5, **{"system.fabricmanager.version": OTHER}), False),
        ("fail", {"system.fabricmanager.version": OTHER}),
        ("pass", {}, {}, {"expected_driver": OTHER}),  # driver.loaded says it
        ("fail", {"audit.versions.library": None}, {}, {"expected_driver": OTHER}),
        ("fail", {"system.fabricmanager": {"present": False, "version": None}}),
        ("unknown", {"system.fabricmanager.version": None}),
        ("unknown", {"system.fabricmanager": None}),
        ("unknown", {"audit.versions.loaded": None}),
        ("unknown", {"system.nvswitches": None, FM: NOT_INSTALLED}),
        ("not_applicable", {"system.nvswitches": [], FM: NOT_INSTALLED, "system.fabricmanager.version": OTHER}, False),
        ("fail", {"system.nvswitches": [], "system.fabricmanager.version": OTHER}, False),
    ],
    "driver.gsp_firmware_file": [
        ("pass",),
        ("pass", {"audit.versions.gsp_firmware": [OTHER, DRIVER]}),
        ("fail", {"audit.versions.gsp_firmware": [OTHER]}),
        ("fail", {"audit.versions.gsp_firmware": []}),
        ("unknown", {"audit.versions.gsp_firmware": None}),
        ("unknown", {"audit.versions.loaded": None}),
        ("not_applicable", {"audit.versions.loaded": "470.57.02", "audit.versions.gsp_firmware": []}),
        ("not_applicable", no_firmware({"id": "gsp_firmware", "entity": "node", "status": "not_applicable"})),
        ("fail", no_firmware({"id": "gsp_firmware", "entity": "node", "status": "fail"}, "damaged")),
    ],
    "driver.flavour": [
        ("pass",),
        ("pass", {}, False),
        ("fail", {"audit.flavour": "open"}),
        ("fail", {}, {"audit.flavour": "open"}),
        ("pass", {"audit.flavour": "open"}, {}, {"expect": {"changes": ["audit.flavour"]}}),
        ("pass", {"audit.flavour": "open"}, {}, {"expect": {"changes": ["audit.*"]}}),
        ("fail", {"audit.flavour": "open"}, {}, {"expect": {"changes": ["units.*", 3]}}),
        ("unknown", {"audit.flavour": None}),
        ("unknown", {"audit.flavour": "odd"}),
        ("unknown", {}, {"audit.flavour": None}),
        ("fail", BLACKWELL, False),
        ("fail", BLACKWELL, {}, {"expect": {"changes": ["audit.flavour"]}}),
        ("pass", dict(BLACKWELL, **{"audit.flavour": "open"}), False),
        ("fail", {"audit.versions.modules": OPEN}),
        ("pass", {"audit.versions.modules": OPEN}, {}, {"expect": {"changes": ["audit.flavour"]}}),
        ("pass", {"audit.versions.modules": OPEN}, False),
        ("pass", {"audit.versions.modules": PROPRIETARY}),
        ("pass", {"audit.versions.modules": on_disk(None)}),
        ("fail", dict(BLACKWELL, **{"audit.flavour": "open", "audit.versions.modules": PROPRIETARY}), False),
        (
            "fail",
            dict(BLACKWELL, **{"audit.flavour": "open", "audit.versions.modules": PROPRIETARY}),
            {},
            {"expect": {"changes": ["audit.flavour"]}},
        ),
        ("pass", dict(BLACKWELL, **{"audit.flavour": "open", "audit.versions.modules": OPEN}), False),
        ("pass", {"snapshot.gpus.0.architecture": value(0xFFFFFFFF)}, False),
        ("pass", {"snapshot.gpus.0.architecture": failed(13)}, False),
    ],
    "driver.libcuda": [
        ("pass",),
        ("fail", {"system.libcuda.version": OTHER}),
        ("pass", {}, {}, {"expected_driver": OTHER}),  # driver.loaded says it
        ("fail", {"audit.versions.library": None}, {}, {"expected_driver": OTHER}),
        ("fail", {"system.libcuda": {"path": None, "version": None, "candidates": []}}),
        ("unknown", {"system.libcuda": {"path": None, "version": None, "candidates": ["a", "b"]}}),
        ("unknown", {"system.libcuda": None}),
        ("unknown", {"system.libcuda": {}}),
        ("unknown", {"audit.versions.loaded": None}),
    ],
}


@pytest.mark.parametrize(("ident", "row"), [(ident, row) for ident, rows in TABLE.items() for row in rows])
def test_the_truth_table(ident, row):
    expected, *given = row
    options = given.pop() if len(given) == 3 else {}
    assert said(ident, *given, **options) == expected
