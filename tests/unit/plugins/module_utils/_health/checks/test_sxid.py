# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver of the NVSwitches says, judged: a truth table for every class, with and without its word."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import tables
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import (
    TABLES,
    ask,
    log,
    said,
)

SWITCH = "nvswitch 0000:c1:00.0"


def sxid(code, word, switch="c1", link="Link 32 "):
    return "nvidia-nvswitch3: SXid (PCI:0000:%s:00.0): %s, %s, %ssome text (First)" % (switch, code, word, link)


def judged(*lines, **options):
    return said(ask("node.sxid", log(*lines), **options))


@pytest.mark.parametrize(
    "code, nonfatal, fatal",
    [
        (10001, "notice", "fail:reset_gpu"),
        (10004, "notice", "fail:reset_gpu"),
        (10003, "fail:reset_gpu", "fail:reset_gpu"),
        (11001, "notice", "fail:reset_gpu"),
        (11004, "fail:restart_service", "fail:reset_gpu"),
        (12001, "notice", "fail:reset_gpu"),
        (12028, "fail:reboot", "fail:reboot"),
        (12030, "notice", "fail:reset_gpu"),
        (14017, "notice", "fail:reset_gpu"),
        (15001, "notice", "fail:reset_gpu"),
        (19047, "notice", "fail:reset_gpu"),
        (20001, "notice", "fail:reset_gpu"),
        (20012, "notice", "fail:reset_gpu"),
        (20034, "notice", "fail:reset_gpu"),
        (22003, "notice", "fail:reset_gpu"),
        (22013, "pass", "fail:reset_gpu"),
        (23009, "notice", "fail:reset_gpu"),
        (24004, "notice", "fail:reset_gpu"),
        (11012, "pass", "fail:reset_gpu"),
        (24003, "pass", "fail:reset_gpu"),
        # NVIDIA's guide has everything reset, whatever word the driver prints.
        *((code, "fail:reset_gpu", "fail:reset_gpu") for code in (19048, 19056, 19058, 19061, 19064, 19067, 19084)),
        # Codes that the table does not have.
        (28006, "notice", "fail:reset_gpu"),
        (99999, "notice", "fail:reset_gpu"),
    ],
)
def test_the_word_of_the_line_overrides_the_table(code, nonfatal, fatal):
    for phase in ("adhoc", "post"):
        for word, expected in (("Non-fatal", nonfatal), ("Fatal", fatal)):
            assert judged(sxid(code, word), phase=phase) == ({} if expected == "pass" else {(SWITCH, code): expected})
        both = judged(sxid(code, "Non-fatal"), sxid(code, "Fatal"), phase=phase)
        assert both == {(SWITCH, code): fatal}


def test_every_code_of_the_table_has_an_answer():
    for code in tables.parse_sxid_table(TABLES["sxid"]):
        assert judged(sxid(code, "Fatal"))[SWITCH, code].startswith("fail:")


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, something else",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Severity 7 Engine instance 1",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Data {0x1, 0x2}",
    ],
)
def test_a_line_that_does_not_say_whether_it_is_fatal_is_held(line):
    assert judged(line) == {(SWITCH, 22013): "fail:hold"}


def test_a_line_that_cannot_be_read_is_held():
    assert judged("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): what, Fatal") == {("node", None): "fail:hold"}


def test_the_lines_that_belong_to_one_event_are_one():
    lines = [
        sxid(22013, "Non-fatal"),
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Severity 0 Engine instance 32 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Data {0x00000037, 0x00000037}",
    ]
    times = [(5, lines[0]), (5.1, lines[1]), (5.2, lines[2])]
    (check,) = ask("node.sxid", log(*times))
    assert (check["status"], check["observed"]) == ("pass", {"SXid 22013": 1})
    # The severity alone is as good as the word.
    assert judged(lines[1]) == {}
    assert judged(lines[1].replace("Severity 0", "Severity 1")) == {(SWITCH, 22013): "fail:reset_gpu"}


def test_the_form_of_the_fabric_manager():
    line = (
        "[ERROR] [tid 12727] detected NVSwitch %s error 20034 on fid 0 on NVSwitch pci bus id 00000000:C1:00.0 "
        "physical id 3 port 61"
    )
    assert judged(line % "fatal") == {(SWITCH, 20034): "fail:reset_gpu"}
    assert judged(line % "non-fatal") == {(SWITCH, 20034): "notice"}


def test_a_check_says_all_a_person_needs():
    lines = [(1, sxid(20034, "Fatal")), (2, sxid(20034, "Fatal", link="Link 33 ")), (2000, sxid(20034, "Fatal"))]
    (check,) = ask("node.sxid", log(*lines))
    assert check["observed"] == {"sxid": 20034, "count": 3, "links": [32, 33], "gate": "reset"}
    assert check["driver_suspect"] is True
    for words in (
        "SXid 20034",
        "LTSSM fault up",
        "NVSwitch 0000:c1:00.0",
        "link 32, 33",
        "3 lines in 2 bursts",
        "nvidia-nvswitch3: SXid",
        "mechanical",
    ):
        assert words in check["message"], words
    assert "NVSwitches" in ask("node.sxid", log(sxid(28006, "Fatal")))[0]["message"]
    assert "not in this collection's table" in ask("node.sxid", log(sxid(28006, "Non-fatal")))[0]["message"]


def test_switches_and_codes_are_judged_apart():
    assert judged(sxid(20034, "Fatal"), sxid(20034, "Non-fatal", "c2"), sxid(11012, "Fatal", "c3")) == {
        (SWITCH, 20034): "fail:reset_gpu",
        ("nvswitch 0000:c2:00.0", 20034): "notice",
        ("nvswitch 0000:c3:00.0", 11012): "fail:reset_gpu",
    }


@pytest.mark.parametrize("key", ["fatal", "sxid", "pci", "kind", "text"])
@pytest.mark.parametrize("how", ["delete", None])
def test_a_missing_part_of_a_fatal_event_never_opens_the_way(key, how):
    kernel_log = log(sxid(12030, "Fatal"), sxid(12030, "Non-fatal"))
    damaged = copy.deepcopy(kernel_log)
    if how == "delete":
        del damaged["events"][0][key]
    else:
        damaged["events"][0][key] = None
    statuses = set(check["status"] for check in ask("node.sxid", damaged))
    assert statuses & {"fail", "unknown"}


def test_without_a_table_sxids_are_unknown():
    assert judged(sxid(22013, "Non-fatal"), tables={}) == {("node", None): "unknown:hold"}
    assert judged(tables={}) == {}
