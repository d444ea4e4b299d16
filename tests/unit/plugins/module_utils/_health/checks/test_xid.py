# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel log says about GPUs, judged: a truth table for every class and every rule."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import tables
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import xid_rules
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import (
    GPU0,
    GPU1,
    STRANGER,
    TABLES,
    ask,
    log,
    said,
    xid,
)

ZERO, ONE = readings.uuid(0), readings.uuid(1)
FAR = 1000


def judged(*lines, **options):
    change = dict((key, options.pop(key)) for key in ("driver",) if key in options)
    return said(ask("gpu.xid", log(*lines, **change), **options))


def one(code, word):
    """What a single code on GPU 0 should give; nothing for a pass."""
    return {} if word == "pass" else {(ZERO, code): word}


# Every class of the table: adhoc, after an upgrade, and codes of it.
CLASSES = [
    ("pass", "pass", (43, 14, 106, 107, 108, 137)),
    ("notice", "fail:hold", (8, 13, 31, 69, 94)),
    ("notice", "notice", (37, 63, 92, 121, 157)),
    ("fail:reset_gpu", "fail:reset_gpu", (46, 62, 64, 95, 109, 119)),
    ("fail:reboot", "fail:reboot", (79, 151, 167)),
    ("fail:hold", "fail:hold", (54, 78, 142, 173, 56, 61, 81, 123, 4321, 0)),
]


@pytest.mark.parametrize("code, adhoc, post", [(code, adhoc, post) for adhoc, post, codes in CLASSES for code in codes])
def test_a_code_has_its_class(code, adhoc, post):
    assert judged(xid(code)) == one(code, adhoc)
    assert judged(xid(code), phase="baseline") == one(code, adhoc)
    assert judged(xid(code), phase="post") == one(code, post)
    assert judged(xid(code), phase="soak") == one(code, post)


def test_no_code_of_the_table_is_left_without_an_answer():
    table = tables.parse_xid_table(TABLES["xid"])
    for code in list(table.codes) + sorted(table.unused):
        gate = table.codes[code]["gate"] if code in table.codes else "hold"
        answer = judged(xid(code), phase="post")
        if gate in ("hold", "reset", "reboot"):
            assert answer[ZERO, code].startswith("fail"), code
        elif gate == "app":
            assert answer == one(code, "fail:hold"), code
        elif gate == "warn":
            assert answer == one(code, "notice"), code
        elif gate == "ok":
            assert answer == {}, code
    assert set(xid_rules.RULES) >= tables.DECODED


def test_a_line_that_cannot_be_read_holds_the_node():
    assert judged("NVRM: Xid (PCI:0000:66:00): abc, pid=2280636") == {("node", None): "fail:hold"}
    assert judged("NVRM: Xid (PCI:%s" % GPU0) == {("node", None): "fail:hold"}


def test_a_check_says_all_a_person_needs():
    lines = [(100, xid(79, GPU1)), (101, xid(79, GPU1, "again")), (900, xid(79, GPU1))]
    (check,) = ask("gpu.xid", log(*lines))
    assert check["entity"] == ONE and check["driver_suspect"] is True and check["expected"] == 0
    assert check["observed"] == {
        "xid": 79,
        "mnemonic": "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
        "count": 3,
        "bursts": 2,
        "gate": "reboot",
    }
    for words in (
        "XID 79",
        "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
        "GPU has fallen off the bus",
        ONE + " at 0000:1b:00.0",
        "3 lines in 2 bursts",
        "NVRM: Xid (PCI:0000:1b:00): 79, pid=7",
        "reboot",
    ):
        assert words in check["message"], words
    (check,) = ask("gpu.xid", log(xid(62, "0000:1b:00 GPU-I:05")))
    assert "(MIG GPU-I:05)" in check["message"] and check["driver_suspect"] is True
    (check,) = ask("gpu.xid", log(xid(95)))
    assert check["driver_suspect"] is False


def test_a_gpu_that_nvml_does_not_show_is_judged_too():
    assert judged(xid(79, STRANGER)) == {("0000:99:00.0", 79): "fail:reboot"}
    (check,) = ask("gpu.xid", log(xid(79, STRANGER)))
    assert "(NVML does not show it)" in check["message"]
    # The log may know its UUID.
    uuid = "GPU-5fc0bcec-c2e1-38dc-8994-2a9f9f3b709e"
    assert judged("NVRM: GPU at PCI:%s: %s" % (STRANGER, uuid), xid(79, STRANGER)) == {(uuid, 79): "fail:reboot"}
    # A line that names a UUID alone is about that GPU.
    snapshot = readings.snapshot()
    snapshot["gpus"][1]["uuid"] = readings.value(uuid)
    line = "NVRM: Xid (%s): 79, GPU has fallen off the bus." % uuid
    assert said(ask("gpu.xid", log(line), snapshot=snapshot)) == {(uuid, 79): "fail:reboot"}
    assert said(ask("gpu.xid", log(line))) == {(uuid, 79): "fail:reboot"}
    assert said(ask("gpu.xid", log(xid(79)), snapshot=None)) == {("0000:1a:00.0", 79): "fail:reboot"}


def test_codes_and_gpus_are_judged_apart():
    assert judged(xid(79), xid(63), xid(79, GPU1), xid(43, GPU1), xid(119, STRANGER)) == {
        (ZERO, 79): "fail:reboot",
        (ZERO, 63): "notice",
        (ONE, 79): "fail:reboot",
        ("0000:99:00.0", 119): "fail:reset_gpu",
    }


# 45 alone, and with something that explains it.
@pytest.mark.parametrize(
    "lines, adhoc, post",
    [
        ([xid(45)], {(ZERO, 45): "notice"}, {(ZERO, 45): "fail:restart_service"}),
        ([xid(45), xid(31)], {(ZERO, 31): "notice"}, {(ZERO, 31): "fail:hold"}),
        ([xid(45), xid(79)], {(ZERO, 79): "fail:reboot"}, {(ZERO, 79): "fail:reboot"}),
        # What means nothing explains nothing.
        ([xid(45), xid(43)], {(ZERO, 45): "notice"}, {(ZERO, 45): "fail:restart_service"}),
        # Neither does something long ago, or on another GPU.
        (
            [(0, xid(31)), (FAR, xid(45))],
            {(ZERO, 31): "notice", (ZERO, 45): "notice"},
            {(ZERO, 31): "fail:hold", (ZERO, 45): "fail:restart_service"},
        ),
        (
            [xid(31, GPU1), xid(45)],
            {(ONE, 31): "notice", (ZERO, 45): "notice"},
            {(ONE, 31): "fail:hold", (ZERO, 45): "fail:restart_service"},
        ),
        # One explained does not explain the other.
        (
            [xid(31), xid(45), (FAR, xid(45))],
            {(ZERO, 31): "notice", (ZERO, 45): "notice"},
            {(ZERO, 31): "fail:hold", (ZERO, 45): "fail:restart_service"},
        ),
        # The line may name its cause itself, also of another GPU, if that is there.
        (
            [xid(46, GPU1), (FAR, xid(45, text="pid=7, name=a, Ch 01 caused by previous Xid 46"))],
            {(ONE, 46): "fail:reset_gpu"},
            {(ONE, 46): "fail:reset_gpu"},
        ),
        (
            [xid(45, text="pid=7, name=a, Ch 01 caused by previous Xid 46")],
            {(ZERO, 45): "notice"},
            {(ZERO, 45): "fail:restart_service"},
        ),
    ],
)
def test_cleanup_is_explained_or_stands_alone(lines, adhoc, post):
    assert judged(*lines) == adhoc
    assert judged(*lines, phase="post") == post


def sram(flag):
    snapshot = readings.snapshot()
    snapshot["gpus"][0]["sram_ecc"] = (
        readings.value({"threshold_exceeded": flag}) if flag is not None else readings.failed(4)
    )
    return snapshot


@pytest.mark.parametrize(
    "codes, flag, expected",
    [
        ([48], False, {48: "fail:reset_gpu"}),
        ([48], None, {48: "fail:reset_gpu"}),
        ([48], True, {48: "fail:field_diag"}),
        ([48, 63], False, {48: "fail:reset_gpu", 63: "notice"}),
        ([48, 64], False, {48: "fail:reset_gpu", 64: "fail:reset_gpu"}),
        ([48, 171], False, {48: "fail:field_diag"}),
        ([48, 171, 63], False, {48: "fail:reset_gpu", 63: "notice"}),
        ([48, 172], False, {48: "fail:reset_gpu"}),
        ([48, 172], True, {48: "fail:field_diag"}),
        ([48, 172], None, {48: "fail:field_diag"}),
        ([171], False, {171: "fail:field_diag"}),
        ([172], False, {172: "fail:reset_gpu"}),
        ([172], None, {172: "fail:field_diag"}),
        ([171, 63], False, {171: "fail:reset_gpu", 63: "notice"}),
    ],
)
def test_a_double_bit_error_with_what_comes_with_it(codes, flag, expected):
    found = said(ask("gpu.xid", log(*[xid(code) for code in codes]), snapshot=sram(flag)))
    assert found == dict(((ZERO, code), word) for code, word in expected.items())


def test_a_remap_on_another_gpu_does_not_explain_a_double_bit_error():
    check = [check for check in ask("gpu.xid", log(xid(48), xid(63, GPU1))) if check["entity"] == ZERO][0]
    assert "No row was remapped" in check["message"]


def recovery(now, text, before="0x0 (None)"):
    return xid(154, text="GPU recovery action changed from %s to %s (%s)" % (before, now, text))


@pytest.mark.parametrize(
    "lines, word",
    [
        ([recovery("0x1", "GPU Reset Required")], "fail:reset_gpu"),
        ([recovery("0x1", "PF FLR")], "fail:reset_gpu"),
        ([recovery("0x1", "gpu reset required")], "fail:reset_gpu"),
        ([recovery("0x1", "Some new name")], "fail:reset_gpu"),
        ([recovery("0x2", "Node Reboot Required")], "fail:reboot"),
        ([recovery("0x2", "OS Reboot")], "fail:reboot"),
        ([recovery("0x3", "Drain P2P")], "fail:hold"),
        ([recovery("0x4", "Drain and Reset")], "fail:reset_gpu"),
        ([recovery("0x0", "None", "0x1 (GPU Reset Required)")], "pass"),
        # What the driver said last counts.
        ([recovery("0x1", "GPU Reset Required"), recovery("0x0", "None")], "pass"),
        ([recovery("0x0", "None"), recovery("0x2", "OS Reboot")], "fail:reboot"),
        ([(5, recovery("0x1", "PF FLR")), (5, recovery("0x2", "OS Reboot"))], "fail:reboot"),
        # What is not known, or contradicts itself, is held.
        ([recovery("0x9", "Something")], "fail:hold"),
        ([recovery("0x0", "Something")], "fail:hold"),
        ([recovery("0x0", "OS Reboot")], "fail:hold"),
        ([recovery("0x1", "None")], "fail:hold"),
        ([xid(154)], "fail:hold"),
        ([xid(154, text="GPU recovery action changed from 0x0 to 0x0")], "fail:hold"),
    ],
)
def test_the_driver_says_what_it_wants(lines, word):
    assert judged(*lines) == one(154, word)


def nvlink(registers, link=3, gpu=GPU0):
    values = dict((int(key[1:]), value) for key, value in registers.items())
    return xid(
        74,
        gpu,
        "NVLink: fatal error detected on link %d(%s)"
        % (link, ", ".join("0x%x" % values.get(number, 0) for number in range(1, 8))),
    )


@pytest.mark.parametrize(
    "lines, word, words",
    [
        ([nvlink({"r1": 1})], "pass", ""),
        ([nvlink({"r1": 1 << 23 | 1 << 30 | 1})], "pass", ""),
        ([nvlink({"r1": 1 << 1})], "fail:hold", "stands alone"),
        ([nvlink({"r1": 1 << 20})], "fail:hold", "stands alone"),
        ([nvlink({"r1": 1 << 20 | 1})], "pass", ""),
        ([nvlink({"r1": 1 << 4})], "fail:reset_gpu", "bit 4"),
        ([nvlink({"r1": 1 << 5})] * 2, "fail:reset_gpu", "bit 5"),
        ([nvlink({"r1": 1 << 5})] * 3, "fail:field_diag", "field diagnostics"),
        ([nvlink({"r1": 1 << 5}, 1), nvlink({"r1": 1 << 5}, 2), nvlink({"r1": 1 << 5}, 3)], "fail:reset_gpu", ""),
        ([nvlink({"r1": 1 << 8})], "fail:hold", "mechanical"),
        ([nvlink({"r1": 1 << 28})], "fail:hold", "mechanical"),
        ([nvlink({"r1": 1 << 21})], "fail:hold", "signal"),
        ([nvlink({"r1": 1 << 21 | 1 << 4})], "fail:reset_gpu", "bit 4"),
        ([nvlink({"r1": 1 << 27})], "fail:hold", "reported"),
        ([nvlink({"r1": 1 << 31})], "fail:hold", "not in this collection's table"),
        ([nvlink({"r2": 1})], "fail:hold", "not in this collection's table"),
        ([nvlink({"r3": 1})], "fail:reset_gpu", ""),
        ([nvlink({"r3": 1})] * 3, "fail:field_diag", ""),
        ([nvlink({"r3": 1 << 13})], "fail:hold", "reported"),
        ([nvlink({"r3": 1 << 16})], "fail:field_diag", ""),
        ([nvlink({"r3": 1 << 18})], "fail:hold", ""),
        ([nvlink({"r4": 1 << 16})], "fail:hold", "stands alone"),
        ([nvlink({"r4": 1 << 18})], "fail:reset_gpu", "NVSwitches"),
        ([nvlink({"r5": 1 << 19})], "fail:reset_gpu", ""),
        ([nvlink({"r5": 1 << 20})], "notice", "threshold"),
        ([nvlink({})], "fail:hold", "No bit"),
        ([xid(74)], "fail:hold", "no registers"),
        ([xid(74, text="NVLink: fatal error detected on link 3(oops)")], "fail:hold", "no registers"),
    ],
)
def test_nvlink_errors_are_read_bit_by_bit(lines, word, words):
    checks = ask("gpu.xid", log(*lines))
    assert said(checks) == one(74, word)
    assert words in checks[0]["message"]


def test_a_sympathetic_nvlink_error_follows_the_other_one():
    assert judged(nvlink({"r1": 1 << 20}), xid(46)) == {(ZERO, 46): "fail:reset_gpu"}


def nvlink5(code, unit, first, status, fatal="Nonfatal"):
    return xid(code, text="%s %s XC0 i0 Link 08 (0x%08x 0x%08x 0x00000000 0x00000000)" % (unit, fatal, first, status))


# The number of the unit, in the layout of R575 and later (bits 6 to 0).
@pytest.mark.parametrize(
    "code, unit, number, status, fatal, word",
    [
        (144, "SAW_MVB", 1, 0x1, "Nonfatal", "pass"),
        (144, "SAW_MVB", 1, 0x2, "Fatal", "fail:reset_gpu"),
        (144, "SAW_MVB", 1, 0x10, "Fatal", "fail:reset_gpu"),
        (144, "SAW_MVB", 1, 0x3, "Fatal", "fail:reset_gpu"),
        (144, "SAW_MVB", 1, 0x40, "Nonfatal", "fail:hold"),
        (144, "SAW_MVB", 1, 0, "Nonfatal", "fail:hold"),
        (144, "SAW_MVB", 2, 0x1, "Nonfatal", "fail:hold"),
        (144, "NEW_UNIT", 1, 0x1, "Nonfatal", "fail:hold"),
        (145, "RLW_CTRL", 3, 0x80000000, "Nonfatal", "pass"),
        (145, "RLW_REMAP", 4, 0x40, "Fatal", "fail:reset_gpu"),
        (145, "RLW_REMAP", 4, 0x1, "Nonfatal", "notice"),
        (145, "RLW_REMAP", 4, 0x1, "Fatal", "fail:reset_gpu"),
        (145, "RLW_REMAP", 4, 0x100, "Nonfatal", "pass"),
        (145, "RLW_RSPCOL", 5, 0x2, "Fatal", "fail:reset_gpu"),
        (145, "RLW_RSPCOL", 5, 0x1, "Nonfatal", "pass"),
        (145, "RLW_RXPIPE", 6, 0x8, "Nonfatal", "pass"),
        (145, "RLW_RXPIPE", 6, 0x1, "Nonfatal", "pass"),
        (145, "RLW_RXPIPE", 6, 0x1, "Fatal", "fail:reset_gpu"),
        (145, "RLW_SRC_TRACK", 7, 0x20, "Fatal", "fail:reset_gpu"),
        (145, "RLW_SRC_TRACK", 7, 0x4, "Nonfatal", "notice"),
        (145, "RLW_TAGSTATE", 8, 0x20000, "Fatal", "fail:reset_gpu"),
        (145, "RLW_TAGSTATE", 8, 0x10000, "Nonfatal", "pass"),
        # What NVIDIA's table says of a bit counts, also where the line says Nonfatal.
        (144, "SAW_MVB", 1, 0x2, "Nonfatal", "fail:reset_gpu"),
        (144, "SAW_MVB", 1, 0x10, "Nonfatal", "fail:reset_gpu"),
        (144, "SAW_MVB", 1, 0x2D, "Nonfatal", "pass"),
        (144, "SAW_MVB", 1, 0x3D, "Nonfatal", "fail:reset_gpu"),
        (145, "RLW_REMAP", 4, 0x80, "Nonfatal", "fail:reset_gpu"),
        (145, "RLW_REMAP", 4, 0x340, "Nonfatal", "fail:reset_gpu"),
        (145, "RLW_REMAP", 4, 0x30000000, "Nonfatal", "fail:hold"),
        (145, "RLW_RSPCOL", 5, 0x2, "Nonfatal", "fail:reset_gpu"),
        (145, "RLW_SRC_TRACK", 7, 0x10, "Nonfatal", "fail:reset_gpu"),
        (145, "RLW_SRC_TRACK", 7, 0x2, "Nonfatal", "pass"),
        (145, "RLW_SRC_TRACK", 7, 0xE, "Nonfatal", "notice"),
        (145, "RLW_TAGSTATE", 8, 0x100000, "Nonfatal", "fail:reset_gpu"),
        (145, "RLW_TAGSTATE", 8, 0x2, "Nonfatal", "fail:reset_gpu"),
        (146, "TLW_CTRL", 9, 0x4, "Fatal", "fail:reset_gpu"),
        (146, "TLW_RX/TLW_RX_PIPE0", 10, 0x1, "Nonfatal", "pass"),
        (146, "TLW_RX/TLW_RX_PIPE1", 11, 0x4, "Fatal", "fail:reset_gpu"),
        (146, "TLW_TX/TLW_TX_PIPE1", 13, 0x2, "Nonfatal", "pass"),
        (147, "TREX", 14, 0x1, "Nonfatal", "pass"),
        (148, "NVLPW_CTRL/NVLPW", 15, 0x80000000, "Nonfatal", "pass"),
        (148, "NVLPW", 15, 0x1, "Nonfatal", "fail:hold"),
        (149, "NETIR", 24, 0, "Fatal", "fail:reset_gpu"),
        (149, "NETIR_BER_EVENT", 19, 2, "Nonfatal", "pass"),
        (149, "NETIR_BER_EVENT", 19, 4, "Nonfatal", "fail:hold"),
        (149, "NETIR_MFDE_EVENT", 20, 3, "Nonfatal", "pass"),
        (149, "NETIR_MFDE_EVENT", 20, 5, "Fatal", "fail:reset_gpu"),
        (149, "NETIR_LINK_EVT", 0x02500011, 0, "Fatal", "fail:reset_gpu"),
        (149, "NETIR_LINK_EVT", 0x02600011, 0, "Fatal", "pass"),
        (149, "NETIR_LINK_DOWN", 0x02800011, 0, "Fatal", "pass"),
        (149, "NETIR_LINK_DOWN", 0x03F00011, 0, "Fatal", "fail:hold"),
        (150, "MSE_WATCHDOG", 0, 0, "Fatal", "fail:reset_gpu"),
    ],
)
def test_nvlink5_errors_are_read_by_unit_and_status(code, unit, number, status, fatal, word):
    assert judged(nvlink5(code, unit, number, status, fatal), driver="580.95.05") == one(code, word)


def test_the_layout_of_a_line_is_that_of_the_driver_that_wrote_it():
    old, new = (
        nvlink5(149, "NETIR_LINK_EVT", 0x025001C6, 0, "Fatal"),
        nvlink5(149, "NETIR_LINK_EVT", 0x02500011, 0, "Fatal"),
    )
    harmless_old, harmless_new = nvlink5(144, "SAW_MVB", 0x21, 1), nvlink5(144, "SAW_MVB", 0x1, 1)
    for line, before, since in (
        (old, "fail:reset_gpu", "fail:hold"),
        (new, "fail:hold", "fail:reset_gpu"),
        (harmless_old, "pass", "fail:hold"),
        (harmless_new, "fail:hold", "pass"),
    ):
        code = 149 if line in (old, new) else 144
        assert judged(line, driver="570.86.15") == one(code, before)
        assert judged(line, driver="575.57.08") == one(code, since)
        # Nobody knows which driver wrote it: the two answers differ, so it is held.
        assert judged(line) == one(code, "fail:hold")
    # Where both layouts say the same, the driver need not be known.
    assert judged(nvlink5(150, "MSE_WATCHDOG", 0, 0, "Fatal")) == one(150, "fail:reset_gpu")


def test_what_follows_154_does_so():
    remap = nvlink5(145, "RLW_REMAP", 4, 1)
    assert judged(remap, recovery("0x1", "PF FLR"), driver="580.95.05") == {
        (ZERO, 145): "fail:reset_gpu",
        (ZERO, 154): "fail:reset_gpu",
    }
    assert judged(remap, recovery("0x0", "None"), driver="580.95.05") == {(ZERO, 145): "notice"}


@pytest.mark.parametrize("harm", ["layouts", "units", "error_status", "subcode", "unit", "fatal", "nvlink5"])
def test_a_part_of_an_nvlink5_line_that_is_missing_never_makes_it_harmless(harm):
    kernel_log = log(nvlink5(144, "SAW_MVB", 1, 1), driver="580.95.05")
    assert said(ask("gpu.xid", kernel_log)) == {}
    event = kernel_log["events"][0]
    del (event if harm == "nvlink5" else event["nvlink5"])[harm]
    assert said(ask("gpu.xid", kernel_log))[ZERO, 144].startswith("fail:")
    kernel_log = log(nvlink5(145, "RLW_REMAP", 4, 1), driver="580.95.05")
    event = kernel_log["events"][0]
    del (event if harm == "nvlink5" else event["nvlink5"])[harm]
    assert said(ask("gpu.xid", kernel_log))[ZERO, 145].startswith("fail:")


def contained(reset, drain):
    return xid(94, text="Contained: SM (0x1). RST: %s, D-RST: %s" % (reset, drain))


@pytest.mark.parametrize(
    "lines, word",
    [
        ([xid(159)], "fail:reset_gpu"),
        ([xid(163)], "notice"),
        ([(0, xid(163)), (FAR, xid(162))], "pass"),
        ([(0, xid(162)), (FAR, xid(163))], "notice"),
        ([(0, xid(163)), (1, xid(162)), (2, xid(163))], "notice"),
        ([recovery("0x5", "Recover IMEX Domain")], "fail:hold"),
        ([recovery("0x7", "System Reboot")], "fail:reboot"),
        ([(0, xid(163)), (FAR, xid(162, GPU1))], "notice"),
        ([xid(174)], "notice"),
        ([xid(175)], "fail:reset_gpu"),
        ([xid(176)], "fail:hold"),
        ([contained("No", "No")], "notice"),
        ([contained("Yes", "No")], "fail:reset_gpu"),
        ([contained("No", "Yes")], "fail:reset_gpu"),
        # One line of several that asks for a reset is enough, wherever it stands.
        ([contained("No", "Yes"), contained("No", "No")], "fail:reset_gpu"),
        ([contained("Yes", "No"), contained("No", "No")], "fail:reset_gpu"),
        ([contained("No", "No"), contained("Yes", "No")], "fail:reset_gpu"),
    ],
)
def test_codes_that_depend_on_others(lines, word):
    code = json.loads(json.dumps(log(*lines)["events"]))[0]["xid"]
    assert judged(*lines) == one(163 if code == 162 else code, word)


@pytest.mark.parametrize(
    "code, mnemonic",
    [
        (174, "ROBUST_CHANNEL_RESETCHANNEL_KILL_PROCESS_SILENT"),
        (175, "MEMORY_SUBSYSTEM_ERROR"),
        (176, "PCIE_CORRECTABLE_ERROR_FAULT"),
    ],
)
def test_a_code_of_the_newest_drivers_is_known_and_not_only_held(code, mnemonic):
    assert ask("gpu.xid", log(xid(code)))[0]["observed"]["mnemonic"] == mnemonic


def test_the_recovery_of_an_imex_domain_is_known_and_not_only_held():
    line = recovery("0x5", "Recover IMEX Domain")
    assert "nvidia-imex" in ask("gpu.xid", log(line))[0]["message"]


def test_159_follows_another_one():
    assert judged(xid(159), xid(46)) == {(ZERO, 46): "fail:reset_gpu"}


def test_what_comes_again_on_one_place_is_said_so():
    place = "pid=7, name=a, Graphics SM Warp Exception on (GPC %d, TPC 5, SM 1): Out Of Range"
    again = [(0, xid(13, text=place % 3)), (FAR, xid(13, text=place % 3))]
    assert "GPC 3 TPC 5 was named 2 times" in ask("gpu.xid", log(*again))[0]["message"]
    assert "named" not in ask("gpu.xid", log(again[0], (FAR, xid(13, text=place % 4))))[0]["message"]
    assert "named" not in ask("gpu.xid", log(again[0], (5, again[0][1])))[0]["message"]
    assert "on no other GPU" in ask("gpu.xid", log((0, xid(31)), (FAR, xid(31))))[0]["message"]
    assert (
        "on no other GPU" not in ask("gpu.xid", log((0, xid(31)), (FAR, xid(31)), (FAR, xid(31, GPU1))))[0]["message"]
    )


def test_a_notice_that_comes_again_and_again_fails():
    assert judged(*[(number * FAR, xid(92)) for number in range(4)]) == one(92, "notice")
    assert judged(*[(number * FAR, xid(92)) for number in range(5)]) == one(92, "fail:hold")
    assert judged(*[(number, xid(92)) for number in range(50)]) == one(92, "notice"), "one burst"
    assert judged(*[(number * FAR, xid(92)) for number in range(2)], change={"xid_warn_bursts_max": 1}) == one(
        92, "fail:hold"
    )


def test_lines_that_were_left_out_are_counted():
    kernel_log = log(
        (1, xid(31)),
        suppressed=[
            {"kind": "xid", "pci": "0000:1a:00.0", "code": 31, "count": 480, "last_us": 900000000},
            {"kind": "xid", "pci": "0000:1b:00.0", "code": 31, "count": 7, "last_us": 900000000},
        ],
    )
    (check,) = [check for check in ask("gpu.xid", kernel_log) if check["entity"] == ZERO]
    assert check["observed"]["count"] == 481 and check["observed"]["bursts"] == 2
    assert "481 lines in 2 bursts" in check["message"]


def test_silence_is_a_pass_and_so_is_what_means_nothing():
    (check,) = ask("gpu.xid", log())
    assert (check["status"], check["entity"], check["observed"]) == ("pass", "node", 0)
    (check,) = ask("gpu.xid", log(xid(43), xid(43), xid(14, GPU1)))
    assert (check["status"], check["observed"]) == ("pass", {"XID 43": 2, "XID 14": 1})


ALL = ("gpu.xid", "gpu.fallen_off", "gpu.init_failed", "driver.client_mismatch", "node.sxid")


@pytest.mark.parametrize("ident", ALL)
@pytest.mark.parametrize(
    "change",
    [
        {"complete": False},
        {"complete": None},
        {"complete": 1},
        {"complete": "yes"},
        {"schema": "gpufleet.kernel-log/2"},
        {"boot_id": None},
        {"boot_id": "y"},
        {"events": None},
        {"events": {}},
        {"suppressed": None},
        {"counted": None},
        {"counted": {"events": 1, "suppressed": 0}},
        {"counted": {"events": 0, "suppressed": 1}},
        {"watermark": "gone"},
        "none",
        "no dictionary",
    ],
)
def test_a_log_that_is_not_whole_is_unknown(ident, change):
    kernel_log = None if change == "none" else [] if change == "no dictionary" else log()
    if isinstance(change, dict):
        kernel_log.update(change)
        if change.get("watermark") == "gone":
            del kernel_log["watermark"]
    for phase in ("post", "adhoc"):
        checks = ask(ident, kernel_log, phase=phase)
        assert [(check["status"], check["entity"], check["action"]) for check in checks] == [
            ("unknown", "node", "hold")
        ]


@pytest.mark.parametrize("key", ["kind", "monotonic_us", "text"])
def test_a_damaged_event_makes_the_log_unknown(key):
    kernel_log = log(xid(43))
    assert said(ask("gpu.xid", kernel_log)) == {}
    for how in ("delete", "none"):
        damaged = copy.deepcopy(kernel_log)
        if how == "delete":
            del damaged["events"][0][key]
        else:
            damaged["events"][0][key] = None
        assert said(ask("gpu.xid", damaged)) == {("node", None): "unknown:hold"}
    del kernel_log["events"][0]
    assert said(ask("gpu.xid", kernel_log)) == {("node", None): "unknown:hold"}


def test_what_a_log_says_counts_also_if_it_is_not_whole():
    found = judged(xid(79)), said(ask("gpu.xid", log(xid(79), complete=False)))
    assert found == ({(ZERO, 79): "fail:reboot"}, {(ZERO, 79): "fail:reboot", ("node", None): "unknown:hold"})


HOUR = 3600 * 10**6


@pytest.mark.parametrize(
    "phase, watermark, since_us, read_at_us, word",
    [
        ("adhoc", None, 100 * HOUR, 130 * HOUR, "notice"),
        ("baseline", None, 100 * HOUR, 130 * HOUR, "notice"),
        ("adhoc", None, 100 * HOUR, 110 * HOUR, "unknown"),
        ("post", None, 100 * HOUR, 130 * HOUR, "unknown"),
        ("soak", None, 100 * HOUR, 130 * HOUR, "unknown"),
        ("adhoc", {"boot_id": "x", "seq": 5, "monotonic_us": 1}, 100 * HOUR, 130 * HOUR, "unknown"),
        ("adhoc", None, None, 130 * HOUR, "unknown"),
        ("adhoc", None, 100 * HOUR, None, "unknown"),
        ("adhoc", None, True, 130 * HOUR, "unknown"),
    ],
)
def test_without_a_watermark_a_log_that_reaches_back_far_enough_will_do(phase, watermark, since_us, read_at_us, word):
    kernel_log = log(
        complete=False, watermark=watermark, since_us=since_us, read_at_us=read_at_us, problem="it wrapped"
    )
    (check,) = ask("gpu.xid", kernel_log, phase=phase)
    assert ("notice" if check["notice"] else check["status"]) == word
    assert ("30 h only" if word == "notice" else "it wrapped") in check["message"]
    assert (
        said(ask("gpu.xid", kernel_log, phase=phase, change={"kernel_log_reach_min_h": 31}))["node", None]
        == "unknown:hold"
    )


def test_without_a_table_xids_are_unknown():
    assert said(ask("gpu.xid", log(xid(43)), tables={})) == {("node", None): "unknown:hold"}
    assert said(ask("gpu.xid", log(), tables={})) == {}
    damaged = copy.deepcopy(TABLES)
    damaged["xid"]["codes"][0]["gate"] = "harmless"
    (check,) = ask("gpu.xid", log(xid(43)), tables=damaged)
    assert check["status"] == "unknown" and "codes[0].gate is 'harmless'" in check["message"]


def test_what_was_sick_before_is_told_from_what_broke():
    old = log(xid(79), xid(94), boot_id="b")
    after = dict(
        ((check["entity"], check["observed"]["xid"]), check["since"])
        for check in ask("gpu.xid", log(xid(79), xid(48), xid(94), xid(79, GPU1)), phase="post", old=old)
    )
    assert after == {(ZERO, 79): "before", (ZERO, 48): "during", (ZERO, 94): "during", (ONE, 79): "during"}
    unknown = log(xid(79), boot_id="b", complete=False)
    assert [check["since"] for check in ask("gpu.xid", log(xid(79)), phase="post", old=unknown)] == [None]
    assert [check["since"] for check in ask("gpu.xid", log(xid(79)), phase="post")] == [None]


LOST = "NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus."
SILENT = "NVRM: fallen off the bus and is not responding to commands."
UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
RATE = (
    "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:1a:00 (printing 1 of every 30).  The GPU likely "
    "needs to be reset."
)
WATCHDOG = "NVRM: GPU0 krcWatchdogCallback_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7"
LINKS = "NVRM: GPU1 knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!"
PROBE = "nvidia 0000:1a:00.0: probe with driver nvidia failed with error -1"
INIT = "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0xffff:2393)"


@pytest.mark.parametrize(
    "ident, lines, expected",
    [
        ("gpu.fallen_off", [LOST], {(ZERO, "fallen_off"): "fail:reboot"}),
        (
            "gpu.fallen_off",
            [LOST, LOST, LOST.replace("1a", "99")],
            {(ZERO, "fallen_off"): "fail:reboot", ("0000:99:00.0", "fallen_off"): "fail:reboot"},
        ),
        ("gpu.fallen_off", [SILENT], {("node", "fallen_off"): "fail:reboot"}),
        ("gpu.fallen_off", [UVM], {("node", "uvm_fatal"): "fail:reboot"}),
        ("gpu.fallen_off", [RATE], {(ZERO, "needs_reset"): "fail:reset_gpu"}),
        ("gpu.fallen_off", [WATCHDOG], {("node", "needs_reset"): "fail:reset_gpu"}),
        ("gpu.fallen_off", [LINKS], {("node", "no_link_detect"): "fail:reset_gpu"}),
        ("gpu.init_failed", [PROBE], {(ZERO, "probe_failed"): "fail:hold"}),
        ("gpu.fallen_off", [INIT, xid(79)], {}),
        ("gpu.init_failed", [INIT, INIT], {(ONE, "rm_init_failed"): "fail:reboot"}),
        ("gpu.init_failed", ["NVRM: No NVIDIA GPU found."], {("node", "probe_failed"): "fail:hold"}),
        ("gpu.init_failed", [LOST], {}),
    ],
)
def test_a_gpu_that_fails_without_an_xid(ident, lines, expected):
    for phase in ("adhoc", "post"):
        checks = ask(ident, log(*lines), phase=phase)
        assert said(checks) == expected
        assert all(check["driver_suspect"] for check in checks if check["status"] == "fail")


def mismatch(module="535.216.03", client="580.95.05"):
    return (
        "NVRM: API mismatch: the client 'dcgm' (pid 42) has the version %s, but this kernel module has the version %s."
        % (client, module)
    )


@pytest.mark.parametrize(
    "lines, adhoc, post",
    [
        ([], "pass", "pass"),
        ([mismatch()], "notice", "fail"),
        ([mismatch("535.161.08", "535.216.03")], "pass", "pass"),
        (["NVRM: API mismatch: something new"], "notice", "fail"),
        ([mismatch("535.161.08"), mismatch()], "notice", "fail"),
    ],
)
def test_a_process_with_another_library(lines, adhoc, post):
    for phase, word in (("adhoc", adhoc), ("post", post)):
        checks = ask("driver.client_mismatch", log(*lines), phase=phase)
        words = ["notice" if check["notice"] else check["status"] for check in checks]
        assert [found for found in words if found != "pass"] == ([] if word == "pass" else [word])
        if word == "fail":
            assert checks[0]["action"] == "restart_service" and len(checks) == 1
    if lines == [mismatch()]:
        assert "dcgm (pid 42)" in checks[0]["message"] and "580.95.05" in checks[0]["message"]


def test_a_mismatch_counts_where_it_is_not_known_which_driver_is_loaded():
    audit = readings.audit()
    audit["versions"]["loaded"] = None
    assert ask("driver.client_mismatch", log(mismatch("535.161.08")), phase="post", audit=audit)[0]["status"] == "fail"
    found = ask("driver.client_mismatch", log(mismatch(), complete=None), phase="adhoc")
    assert sorted("notice" if check["notice"] else check["status"] for check in found) == ["notice", "unknown"]


def test_other_phases_and_orders_change_nothing_else():
    lines = [xid(79), xid(63), xid(48, GPU1), xid(45, GPU1), recovery("0x1", "PF FLR")]
    at_once = [(5, line) for line in lines]
    assert judged(*at_once) == judged(*reversed(at_once))
    swapped = readings.snapshot()
    swapped["gpus"].reverse()
    assert said(ask("gpu.xid", log(*at_once), snapshot=swapped)) == judged(*at_once)


def test_the_verdict_tells_what_was_sick_before_from_what_broke():
    document = readings.reading(kernel_log=log(xid(79), xid(48)))
    old = readings.baseline(kernel_log=log(xid(79), boot_id="b"))
    health = _health.evaluate(document, old, tables=TABLES, phase="post", node=readings.NODE, now=readings.NOW)
    assert dict(
        (check["observed"]["xid"], check["since"]) for check in health["checks"] if check["id"] == "gpu.xid"
    ) == {79: "before", 48: "during"}
    assert "gpu.xid" in health["attribution"]["sick_before"] and "gpu.xid" in health["attribution"]["broke_during"]
