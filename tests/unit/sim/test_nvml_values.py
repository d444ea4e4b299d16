# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the simulated library answers to the questions of a health check, with the oldest and the newest binding."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

BOTH = pytest.mark.parametrize("wheel", wheels.VERSIONS)
NEW = "580.95.05"


def value_of(node, key, value, gpu="1"):
    node.sim("inject", "set", key, str(value), "--gpu", gpu)


@BOTH
def test_errors_by_location(booted, wheel):
    for key, value in (("ecc_vol_unc", 5), ("sram_vol_unc", 2), ("ecc_agg_corr", 9), ("sram_agg_corr", 4)):
        value_of(booted, key, value)
    assert booted.ask(
        "[[n.nvmlDeviceGetMemoryErrorCounter(handle(1), kind, counter, place) for place in (2, 7)] for kind, counter in"
        " ((0, 0), (1, 0), (0, 1), (1, 1))]",
        wheel,
    ) == [[0, 0], [3, 2], [5, 4], [0, 0]]
    assert booted.ask(
        "[rc(n.nvmlDeviceGetMemoryErrorCounter, handle(), 1, 0, place) for place in (0, 3, 8)]", wheel
    ) == [3, 3, 2]


def test_sram_status(booted):
    for key, value in (
        ("sram_threshold_exceeded", 1),
        ("sram_agg_unc", 6),
        ("sram_vol_unc", 2),
        ("sram_vol_corr", 3),
        ("sram_agg_corr", 8),
    ):
        value_of(booted, key, value)
    question = """
n.nvmlInit()
answers = []
for version in (0x1000068, 0x2000068):
    status = n.c_nvmlEccSramErrorStatus_v1_t()
    status.version = version
    answers.append(rc(n.nvmlDeviceGetSramEccErrorStatus, handle(1), ctypes.byref(status)))
    if not answers[-1]:
        answers.append([status.bThresholdExceeded, status.aggregateUncSecDed, status.volatileUncSecDed, \
status.volatileCor, status.aggregateCor])
print(json.dumps(answers))
"""
    assert booted.python(question) == [0, [1, 6, 2, 3, 8], 25]


@BOTH
def test_histogram_and_repair(make_node, wheel):
    node = make_node().booted(NEW)
    value_of(node, "hist_low", 3)
    assert node.ask(
        "[getattr(n.nvmlDeviceGetRowRemapperHistogram(handle(1)), key) for key in ('max', 'high', "
        "'partial', 'low', 'none')]",
        wheel,
    ) == [2560, 0, 0, 3, 0]
    value_of(node, "tpc_repair_pending", 1)
    assert node.python(
        """
n.nvmlInit()
status = (ctypes.c_uint * 3)(0x100000c)
answer = n._nvmlGetFunctionPointer("nvmlDeviceGetRepairStatus")(handle(1), ctypes.byref(status))
print(json.dumps([answer, list(status)[1:]]))
""",
        wheel,
    ) == [0, [0, 1]]


@BOTH
def test_retired_pages(make_node, wheel):
    node = make_node("v100-sxm").booted()
    value_of(node, "retired_sbe", 3)
    value_of(node, "retired_pending", 1)
    assert node.ask(
        "[len(n.nvmlDeviceGetRetiredPages(handle(1), 0)), len(n.nvmlDeviceGetRetiredPages(handle(1), "
        "1)), n.nvmlDeviceGetRetiredPagesPendingStatus(handle(1)), field(29, 1), field(30, 1), "
        "field(31, 1), rc(n.nvmlDeviceGetRemappedRows, handle(1)), "
        "rc(n.nvmlDeviceGetRowRemapperHistogram, handle(1)), field(144, 1)]",
        wheel,
    ) == [3, 0, 1, 3, 0, 1, 3, 3, "rc 3"]


@BOTH
def test_what_an_old_board_has_not(make_node, wheel):
    node = make_node("v100-sxm").booted("570.172.08")
    assert node.ask(
        "[rc(n.nvmlDeviceGetMigMode, handle()), n._nvmlGetFunctionPointer('nvmlDeviceGetGspFirmwareVersion')(handle(), "
        "None), field(230), n.nvmlDeviceGetNvLinkState(handle(), 5), rc(n.nvmlDeviceGetNvLinkState, handle(), 6)]",
        wheel,
    ) == [3, 3, "rc 3", 1, 2]


@BOTH
def test_clocks(make_node, wheel):
    question = (
        "[[value(function, handle(), kind) for kind in (0, 1, 2, 3)] for function in (n.nvmlDeviceGetClockInfo, "
        "n.nvmlDeviceGetMaxClockInfo, n.nvmlDeviceGetApplicationsClock, n.nvmlDeviceGetDefaultApplicationsClock)]"
    )
    assert make_node().booted().ask(question, wheel) == [
        [345, 345, 2619, 765],
        [1980, 1980, 2619, 1545],
        [1980, 1980, 2619, "rc 3"],
        [1980, 1980, 2619, "rc 3"],
    ]
    # Boards have application clocks with drivers up to 580 and not with 590, as captures of an H100, a B200 and an H200
    # show.
    for driver, expected in (("580.95.05", [[1980, 1980, 3201, "rc 3"]] * 2), ("590.48.01", [["rc 26"] * 4] * 2)):
        newer = make_node("h200").booted(driver)
        assert newer.ask(question, wheel)[2:] == expected
        assert newer.ask(
            "[rc(n.nvmlDeviceSetApplicationsClocks, handle(), 3201, 1980), "
            "rc(n.nvmlDeviceResetApplicationsClocks, handle())]",
            wheel,
        ) == ([0, 0] if driver.startswith("580") else [26, 26])


@BOTH
def test_violations(booted, wheel):
    value_of(booted, "violation_thermal_ns", 7000)
    value_of(booted, "violation_power_ns", 500)
    assert booted.ask(
        "[n.nvmlDeviceGetViolationStatus(handle(1), kind).violationTime for kind in (0, 1, 2, 3, 4, 5, 10)]", wheel
    ) == [500, 7000, 0, 0, 0, 0, 7500]
    assert booted.ask(
        "[n.nvmlDeviceGetFieldValues(handle(1), [kind])[0].value.ullVal for kind in (74, 75, 79)]", wheel
    ) == [500, 7000, 0]
    assert booted.ask("rc(n.nvmlDeviceGetViolationStatus, handle(1), 7)", wheel) == 2


@BOTH
def test_temperatures_are_absolute_or_margins(make_node, wheel):
    question = (
        "[[value(n.nvmlDeviceGetTemperatureThreshold, handle(), kind) for kind in (0, 1, 2, 3)], [(lambda item: "
        "item.value.siVal if item.nvmlReturn == 0 else 'rc %d' % item.nvmlReturn)(n.nvmlDeviceGetFieldValues(handle(), "
        "[kind])[0])  for kind in (193, 194, 195, 196)], field(82)]"
    )
    assert make_node("a100-sxm").booted().ask(question, wheel) == [[92, 89, 95, 85], ["rc 3"] * 4, 42]
    both = make_node().booted()
    assert both.ask(question, wheel) == [[95, 89, 95, 87], [-8, -2, 0, 0], 42]
    assert make_node("l4").booted().ask(question, wheel) == [[92, 89, "rc 3", 87], [-5, -2, "rc 3", 0], "rc 3"]
    both.sim("inject", "set", "temperature_thresholds", "0")
    assert both.ask(question, wheel) == [["rc 3"] * 4, [-8, -2, 0, 0], 42]


def test_margin_temperature(make_node):
    node = make_node().booted(NEW)
    value_of(node, "temperature", 85)
    assert node.ask("[n.nvmlDeviceGetMarginTemperature(handle(i)) for i in (0, 1)]") == [56, 2]


@BOTH
def test_pcie(booted, wheel):
    value_of(booted, "pcie_gen_max", 4)
    value_of(booted, "pcie_replay", 12)
    assert booted.ask(
        "[n.nvmlDeviceGetMaxPcieLinkGeneration(handle(1)), n.nvmlDeviceGetGpuMaxPcieLinkGeneration(handle(1)),"
        " n.nvmlDeviceGetPcieReplayCounter(handle(1)), field(94, 1)]",
        wheel,
    ) == [4, 5, 12, 12]


@BOTH
def test_errors_of_each_link(booted, wheel):
    value_of(booted, "nvlink_recovery", "3:5 11:7")
    value_of(booted, "nvlink_crc_flit", 2)
    assert booted.ask(
        "[[n.nvmlDeviceGetNvLinkErrorCounter(handle(1), link, counter) for counter in range(4)] for "
        "link in (0, 3, 11)]",
        wheel,
    ) == [[0, 0, 2, 0], [0, 5, 2, 0], [0, 7, 2, 0]]
    assert booted.ask("[field(162, 1, 3), field(162, 1, 4), field(59, 1), field(38, 1)]", wheel) == [5, 0, 12, 36]
    assert booted.ask(
        "[n.nvmlDeviceGetNvLinkVersion(handle(), 0), n.nvmlDeviceGetNvLinkRemoteDeviceType(handle(), 0)]"
        if wheel == wheels.VERSIONS[-1]
        else "[n.nvmlDeviceGetNvLinkVersion(handle(), 0), 2]",
        wheel,
    ) == [4, 2]


def test_links_of_the_fifth_generation(make_node):
    node = make_node("b200")
    node.module(NEW, licence="Dual MIT/GPL")
    node.kernel()
    node.library(NEW)
    node.sim("boot")
    value_of(node, "nvlink_recovery", "3:5")
    assert node.ask(
        "[n.nvmlDeviceGetNvLinkVersion(handle(), 0), rc(n.nvmlDeviceGetNvLinkErrorCounter, handle(), 0, 1), field(215, "
        "1, 3), field(215, 1, 4), field(162, 1, 3), rc(n.nvmlDeviceGetNvLinkRemotePciInfo, handle(), 0)]"
    ) == [5, 3, 5, 0, "rc 3", 3]


def test_a_board_that_needs_the_open_modules(make_node):
    node = make_node("b200").booted(NEW)
    assert node.init_rc() == 9
    assert "requires use of the NVIDIA open kernel modules" in node.sim("kmsg").stdout


@BOTH
def test_peers(booted, wheel):
    value_of(booted, "p2p_broken_with", "2,5")
    assert booted.ask(
        "[[n.nvmlDeviceGetP2PStatus(handle(1), handle(other), kind) for kind in (0, 1, 2, 3)] for other in (0, 2, 5)]"
        " + [n.nvmlDeviceGetP2PStatus(handle(2), handle(1), 0)]",
        wheel,
    ) == [[0] * 4, [5] * 4, [5] * 4, 5]
    value_of(booted, "p2p_broken", 1, gpu="7")
    assert booted.ask(
        "[n.nvmlDeviceGetP2PStatus(handle(0), handle(7), 0), n.nvmlDeviceGetP2PStatus(handle(0), handle(3), 0)]", wheel
    ) == [5, 0]


ENDS = (
    "[[text(lambda: n.nvmlDeviceGetNvLinkRemotePciInfo(handle(gpu), link).busId) for link in range(count)] for count "
    "in [n.nvmlDeviceGetFieldValues(handle(), [91])[0].value.uiVal] for gpu in range(n.nvmlDeviceGetCount())]"
)


@pytest.mark.parametrize(
    "model, gpus", [("a100-sxm", 4), ("a100-sxm", 3), ("a100-sxm", 2), ("v100-sxm", 4), ("h100-sxm", 8)]
)
def test_links_agree_at_both_of_their_ends(make_node, model, gpus):
    node = make_node(model, gpus).booted()
    addresses = node.ask(
        "[text(lambda: n.nvmlDeviceGetPciInfo(handle(gpu)).busId) for gpu in range(n.nvmlDeviceGetCount())]"
    )
    ends = node.ask(ENDS)
    switches = [node.read("etc/gpusim/node.ini").count("[nvswitch")] * gpus
    for gpu, links in enumerate(ends):
        if switches[gpu]:
            assert set(links).isdisjoint(addresses) and len(set(links)) == switches[gpu]
            continue
        assert addresses[gpu] not in links
        assert [links.count(address) for address in addresses] == [
            ends[other].count(addresses[gpu]) for other in range(gpus)
        ]
        assert sum(links.count(address) for address in addresses) == len(links)


def test_a_link_between_gpus_is_down_for_both(make_node):
    node = make_node("a100-sxm").booted()
    node.sim("inject", "nvlink-down", "--gpu", "0", "--link", "5,6")
    states = node.ask("[[n.nvmlDeviceGetNvLinkState(handle(gpu), link) for link in range(12)] for gpu in range(4)]")
    # Link 5 of GPU 0 leads to GPU 3, link 6 to GPU 1.
    assert [[link for link, state in enumerate(links) if not state] for links in states] == [[5, 6], [8], [], [3]]
    assert node.ask("[field(165, gpu, link) for gpu, link in ((0, 5), (3, 3), (3, 4))]") == [0, 0, 1]
    assert node.ask(
        "[rc(n.nvmlDeviceGetNvLinkRemotePciInfo, handle(gpu), link) for gpu, link in ((0, 5), (3, 3), (3, 4))]"
    ) == [3, 3, 0]


def test_a_buffer_that_is_too_small_and_arguments_that_are_none(make_node):
    assert make_node().booted(NEW).python("""
n.nvmlInit()
lib = ctypes.CDLL("libnvidia-ml.so.1")
text, number, device, count = ctypes.create_string_buffer(200), ctypes.c_ulonglong(), ctypes.c_void_p(), \
ctypes.c_uint(0)
branch = (ctypes.c_uint * 21)(0x1000054)
few = [getattr(lib, "nvmlDeviceGet" + name)(handle(), text, 3) for name in ("Name", "UUID", "Serial", "VbiosVersion", \
"BoardPartNumber")]
few += [lib.nvmlSystemGetDriverVersion(text, 3), lib.nvmlSystemGetNVMLVersion(text, 3), \
lib.nvmlSystemGetDriverBranch(branch, 3),
        lib.nvmlDeviceGetInforomVersion(handle(), 0, text, 1), lib.nvmlDeviceGetSupportedMemoryClocks(handle(), \
ctypes.byref(count), None)]
none = [lib.nvmlDeviceGetHandleByUUID(None, ctypes.byref(device)), lib.nvmlDeviceGetHandleBySerial(None, \
ctypes.byref(device)),
        lib.nvmlDeviceGetHandleByPciBusId_v2(b"no address", ctypes.byref(device)), \
lib.nvmlDeviceGetHandleByIndex_v2(8, ctypes.byref(device)),
        lib.nvmlDeviceGetHandleByIndex_v2(0, None), lib.nvmlDeviceGetName(None, text, 96), \
lib.nvmlDeviceGetMemoryInfo(handle(), None),
        lib.nvmlDeviceGetTotalEccErrors(handle(), 7, 0, ctypes.byref(number)), lib.nvmlDeviceGetNvLinkState(handle(), \
18, ctypes.byref(count)),
        lib.nvmlDeviceGetSupportedMemoryClocks(handle(), None, None), lib.nvmlDeviceGetCount_v2(None),
        lib.nvmlDeviceGetName(ctypes.c_void_p(64), text, 96), rc(n.nvmlDeviceGetTemperature, handle(), 7)]
unknown = [lib.nvmlDeviceGetHandleByUUID(b"GPU-0", ctypes.byref(device)), \
lib.nvmlDeviceGetHandleByPciBusId_v2(b"0000:02:00.0", ctypes.byref(device)),
           lib.nvmlDeviceGetSupportedGraphicsClocks(handle(), 1, ctypes.byref(count), None)]
print(json.dumps([few, none, unknown]))
""") == [[7] * 10, [2] * 13, [6] * 3]


def test_what_a_gpu_that_needs_a_reset_answers(booted):
    booted.sim("inject", "reset-required", "--gpu", "1")
    assert booted.ask(
        "[rc(n.nvmlDeviceGetHandleByIndex, 1), rc(n.nvmlDeviceGetName, handle(1)), rc(n.nvmlDeviceGetMemoryInfo, "
        "handle(1)), rc(n.nvmlDeviceGetFieldValues, handle(1), [144]), rc(n.nvmlDeviceGetName, handle(0))]"
    ) == [0, 16, 16, 16, 0]
    booted.tool("modprobe", "-r", "nvidia_drm", "nvidia_uvm")
    booted.tool("modprobe", "nvidia_uvm")
    assert booted.ask("rc(n.nvmlDeviceGetName, handle(1))") == 0


def test_the_recovery_action_follows_a_row_that_waits(make_node):
    node = make_node().booted(NEW)
    node.sim("inject", "remap-pending", "--gpu", "1")
    assert node.ask("[field(230, index) for index in (0, 1)]") == [0, 4]
    node.sim("inject", "recovery-action", "--gpu", "1", "--value", "2")
    assert node.ask("field(230, 1)") == 2


def test_no_errors_are_counted_where_ecc_is_off(booted):
    booted.sim("inject", "ecc-off", "--gpu", "1")
    assert booted.ask("[[field(number, index) for number in (1, 3, 4, 5, 6)] for index in (0, 1)]") == [
        [1, 0, 0, 0, 0],
        [0] + ["rc 3"] * 4,
    ]
    assert booted.ask("[rc(n.nvmlDeviceGetTotalEccErrors, handle(index), 1, 0) for index in (0, 1)]") == [0, 3]


def test_fabric_in_every_version(make_node):
    node = make_node().booted("570.172.08")
    value_of(node, "fabric_cluster", "0123456789abcdef0123456789abcdef")
    value_of(node, "fabric_clique", 7)
    value_of(node, "fabric_health_mask", 0x155)
    value_of(node, "fabric_health_summary", 2)
    assert node.python("""
lib = ctypes.CDLL('libnvidia-ml.so.1')
n.nvmlInit()
answers = []
for version, offset in ((None, 0), (0x2000024, 4), (0x3000028, 4)):
    call = "nvmlDeviceGetGpuFabricInfo" + ("V" if version else "")
    raw = ctypes.create_string_buffer(b"\\xff" * 64, 64)
    if version:
        raw[:4] = version.to_bytes(4, "little")
    code = getattr(lib, call)(handle(1), raw)
    number = lambda at: int.from_bytes(raw.raw[at:at + 4], "little")
    answers.append([code, raw.raw[offset:offset + 16].hex(), number(offset + 16), number(offset + 20), \
raw.raw[offset + 24],
                    number(32) if version else None, raw.raw[36]])
print(json.dumps(answers))
""") == [
        [0, "0123456789abcdef" * 2, 0, 7, 3, None, 255],
        [0, "0123456789abcdef" * 2, 0, 7, 3, 0x155, 255],
        [0, "0123456789abcdef" * 2, 0, 7, 3, 0x155, 2],
    ]


# ---- values that change from call to call ----


def test_a_counter_that_rises(booted):
    value_of(booted, "ecc_vol_corr", "5++3")
    question = (
        "[n.nvmlDeviceGetTotalEccErrors(handle(1), 0, 0) for _ in range(2)] + "
        "[n.nvmlDeviceGetTotalEccErrors(handle(0), 0, 0)]"
    )
    assert booted.ask(question) == [5, 8, 0]
    assert booted.ask(question) == [11, 14, 0]
    value_of(booted, "nvlink_recovery", "4:5++1")
    assert booted.ask("[n.nvmlDeviceGetNvLinkErrorCounter(handle(1), link, 1) for link in (4, 4, 4, 0)]") == [
        5,
        6,
        7,
        0,
    ]


def test_a_state_that_settles(booted):
    value_of(booted, "fabric_state", "1*1,2*2,3")
    assert booted.python("""
n.nvmlInit()
states = []
for _ in range(5):
    raw = ctypes.create_string_buffer(64)
    ctypes.CDLL('libnvidia-ml.so.1').nvmlDeviceGetGpuFabricInfo(handle(1), raw)
    states.append(raw.raw[24])
print(json.dumps(states))
""") == [1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "model, driver, expected",
    [
        # Display mode, power management mode, buffer of accounting, average and instantaneous power (fields 185 and
        # 186): as the captures named in the profiles have them, and the display mode with driver 580 as it was
        # recorded: NVML answers what nvidia-smi calls deprecated.
        ("h100-sxm", "580.105.08", [1, 1, 4000, 71250, 71250]),
        ("h200", "590.48.01", ["rc 26", "rc 26", 4000, 71250, 71250]),
        ("a100-sxm", "570.148.08", [1, 1, 4000, "rc 3", 71250]),
        ("l4", "550.90.07", [1, 1, 4000, 71250, 71250]),
    ],
)
def test_what_boards_answer_with_the_drivers_that_were_captured(make_node, model, driver, expected):
    node = make_node(model)
    node.firmware(driver)
    node.booted(driver)
    value_of(node, "power_usage_mw", 71250, gpu="0")
    assert (
        node.ask(
            "[value(n.nvmlDeviceGetDisplayMode, handle()), value(n.nvmlDeviceGetPowerManagementMode, handle()), "
            "value(n.nvmlDeviceGetAccountingBufferSize, handle()), field(185), field(186)]"
        )
        == expected
    )


def test_boards_before_ampere_count_ecc_errors_by_memory(make_node):
    node = make_node("v100-sxm").booted()
    node.sim("inject", "ecc-uncorrectable", "--gpu", "0", "--value", "3")
    question = (
        "[value(n.nvmlDeviceGetMemoryErrorCounter, handle(), kind, 0, place) for kind in (1, 0) for place in range(8)]"
    )
    # L1, L2, device memory, registers, texture, shared, convergence barrier unit, SRAM
    assert node.ask(question) == [0, 3, 0, 0, "rc 3", "rc 3", 0, "rc 3", 0, 0, 0, 0, "rc 3", "rc 3", "rc 3", "rc 3"]
    assert make_node().booted().ask(question)[:8] == ["rc 3", "rc 3", 0, "rc 3", "rc 3", "rc 3", "rc 3", 0]
