# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the simulated library answers to the questions of a health check."""

from __future__ import annotations

import pytest

NEW = "580.95.05"


def value_of(node, key, value, gpu="1"):
    node.sim("inject", "set", key, str(value), "--gpu", gpu)


def test_clocks(make_node):
    question = (
        "[[value(function, handle(), kind) for kind in (0, 1, 2, 3)] for function in (n.nvmlDeviceGetClockInfo, "
        "n.nvmlDeviceGetMaxClockInfo, n.nvmlDeviceGetApplicationsClock, n.nvmlDeviceGetDefaultApplicationsClock)]"
    )
    assert make_node().booted().ask(question) == [
        [345, 345, 2619, 765],
        [1980, 1980, 2619, 1545],
        [1980, 1980, 2619, "rc 3"],
        [1980, 1980, 2619, "rc 3"],
    ]
    # Boards have application clocks with drivers up to 580 and not with 590, as captures of an H100, a B200 and an H200
    # show.
    for driver, expected in (("580.95.05", [[1980, 1980, 3201, "rc 3"]] * 2), ("590.48.01", [["rc 26"] * 4] * 2)):
        newer = make_node("h200").booted(driver)
        assert newer.ask(question)[2:] == expected
        assert newer.ask(
            "[rc(n.nvmlDeviceSetApplicationsClocks, handle(), 3201, 1980), "
            "rc(n.nvmlDeviceResetApplicationsClocks, handle())]"
        ) == ([0, 0] if driver.startswith("580") else [26, 26])


def test_temperatures_are_absolute_or_margins(make_node):
    question = (
        "[[value(n.nvmlDeviceGetTemperatureThreshold, handle(), kind) for kind in (0, 1, 2, 3)], [(lambda item: "
        "item.value.siVal if item.nvmlReturn == 0 else 'rc %d' % item.nvmlReturn)(n.nvmlDeviceGetFieldValues(handle(), "
        "[kind])[0])  for kind in (193, 194, 195, 196)], field(82)]"
    )
    assert make_node("a100-sxm").booted().ask(question) == [[92, 89, 95, 85], ["rc 3"] * 4, 42]
    both = make_node().booted()
    assert both.ask(question) == [[95, 89, 95, 87], [-8, -2, 0, 0], 42]
    assert make_node("l4").booted().ask(question) == [[92, 89, "rc 3", 87], [-5, -2, "rc 3", 0], "rc 3"]
    both.sim("inject", "set", "temperature_thresholds", "0")
    assert both.ask(question) == [["rc 3"] * 4, [-8, -2, 0, 0], 42]


def test_links_of_the_fifth_generation(make_node):
    node = make_node("b200")
    node.module(NEW, licence="Dual MIT/GPL")
    node.kernel()
    node.library(NEW)
    node.sim("boot")
    value_of(node, "nvlink_recovery", "3:5")
    assert node.ask(
        "[n.nvmlDeviceGetNvLinkVersion(handle(), 0), rc(n.nvmlDeviceGetNvLinkErrorCounter, handle(), 0, 1), field(215, "
        "1, 3), field(215, 1, 4), rc(n.nvmlDeviceGetNvLinkRemotePciInfo, handle(), 0)]"
    ) == [5, 3, 5, 0, 3]


def test_a_board_that_needs_the_open_modules(make_node):
    node = make_node("b200").booted(NEW)
    assert node.init_rc() == 9
    assert "requires use of the NVIDIA open kernel modules" in node.sim("kmsg").stdout


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
    assert node.ask(
        "[rc(n.nvmlDeviceGetNvLinkRemotePciInfo, handle(gpu), link) for gpu, link in ((0, 5), (3, 3), (3, 4))]"
    ) == [3, 3, 0]


def test_what_a_gpu_that_needs_a_reset_answers(booted):
    booted.sim("inject", "reset-required", "--gpu", "1")
    assert booted.ask(
        "[rc(n.nvmlDeviceGetHandleByIndex, 1), rc(n.nvmlDeviceGetName, handle(1)), rc(n.nvmlDeviceGetMemoryInfo, "
        "handle(1)), rc(n.nvmlDeviceGetFieldValues, handle(1), [144]), rc(n.nvmlDeviceGetName, handle(0))]"
    ) == [0, 16, 16, 16, 0]
    booted.tool("modprobe", "-r", "nvidia_drm", "nvidia_uvm")
    booted.tool("modprobe", "nvidia_uvm")
    assert booted.ask("rc(n.nvmlDeviceGetName, handle(1))") == 0


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


def test_boards_before_ampere_count_ecc_errors_by_memory(make_node):
    node = make_node("v100-sxm").booted()
    node.sim("inject", "ecc-uncorrectable", "--gpu", "0", "--value", "3")
    question = (
        "[value(n.nvmlDeviceGetMemoryErrorCounter, handle(), kind, 0, place) for kind in (1, 0) for place in range(8)]"
    )
    # L1, L2, device memory, registers, texture, shared, convergence barrier unit, SRAM
    assert node.ask(question) == [0, 3, 0, 0, "rc 3", "rc 3", 0, "rc 3", 0, 0, 0, 0, "rc 3", "rc 3", "rc 3", "rc 3"]
    assert make_node().booted().ask(question)[:8] == ["rc 3", "rc 3", 0, "rc 3", "rc 3", "rc 3", "rc 3", 0]
