# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which kernel module drives which GPU."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import compatibility
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.compatibility import ARCHITECTURES, DEVICES

V100, P40, T4, A100, L40S, H100, GH200, B200, RTX5090, K80, M40, NEW = (
    "0x1db1",
    "0x1b38",
    "0x1eb8",
    "0x20b0",
    "0x26b9",
    "0x2330",
    "0x2342",
    "0x2901",
    "0x2b85",
    "0x102d",
    "0x17fd",
    "0x4001",
)


def bus(*devices):
    return [
        {"address": "0000:%02x:00.0" % number, "device": device, "class": "0x030200"}
        for number, device in enumerate(devices)
    ]


@pytest.mark.parametrize(
    "device,expected",
    [
        (K80, "kepler"),
        ("0x0fc0", "kepler"),
        (M40, "maxwell"),
        ("0x1340", "maxwell"),
        ("0x15f8", "pascal"),
        (P40, "pascal"),
        ("0x1d01", "pascal"),
        ("0x1d7f", "pascal"),
        ("0x1d80", "volta"),
        (V100, "volta"),
        ("0x1df6", "volta"),
        ("0x1e02", "turing"),
        (T4, "turing"),
        ("0x2182", "turing"),
        (A100, "ampere"),
        ("0x20b7", "ampere"),
        ("0x2235", "ampere"),
        ("0x25b6", "ampere"),
        (L40S, "ada"),
        ("0x27b8", "ada"),
        ("0x28f8", "ada"),
        ("0x2321", "hopper"),
        (H100, "hopper"),
        ("0x2335", "hopper"),
        (GH200, "grace-hopper"),
        (B200, "blackwell"),
        (RTX5090, "blackwell"),
        (NEW, None),
        ("0x22a3", None),
        ("", None),
        (None, None),
        ("nonsense", None),
    ],
)
def test_architecture(device, expected):
    assert compatibility.architecture_of(device) == expected


def test_ranges_are_in_order_and_apart():
    assert all(first <= last for first, last, name in DEVICES)
    assert all(before[1] < after[0] for before, after in zip(DEVICES, DEVICES[1:]))
    assert set(name for first, last, name in DEVICES) == set(ARCHITECTURES)


@pytest.mark.parametrize(
    "devices,version,expected",
    [
        ([H100], "580.95.05", "open"),
        ([H100], "535.261.03-1", "proprietary"),
        ([H100], "560.1.1", "open"),
        ([H100], "559.1.1", "proprietary"),
        ([H100], "620.1.1", "open"),
        ([T4, A100, L40S, H100], "580.95.05", "open"),
        ([A100] * 8, "3:580.95.05-1.el9", "open"),
        ([V100], "580.95.05", "proprietary"),
        ([P40], "535.1.1", "proprietary"),
        ([M40], "470.1.1", "proprietary"),
        ([V100, A100], "580.1.1", "proprietary"),
        ([B200], "580.95.05", "open"),
        ([RTX5090], "570.1.1", "open"),
        ([GH200], "550.1.1", "open"),
        ([B200, H100], "570.1.1", "open"),
        ([A100], "470.1.1", "proprietary"),
    ],
)
def test_auto(devices, version, expected):
    result = compatibility.decide_flavour(bus(*devices), version, "auto")
    assert (result["flavour"], result["refusals"]) == (expected, []) and result["reason"]


@pytest.mark.parametrize(
    "devices,version,words",
    [
        ([V100, B200], "580.95.05", "No kernel module of branch 580 drives all GPUs"),
        ([V100], "590.1.1", "branch 580 is the last one that does"),
        ([B200], "550.1.1", "its first branch is 570"),
        ([K80], "535.1.1", "branch 470 is the last one"),
        ([H100, NEW], "580.1.1", "not known here: 0x4001"),
        ([], "580.1.1", "no NVIDIA GPU on the PCI bus"),
        (None, "580.1.1", "the PCI bus cannot be read"),
    ],
)
def test_auto_is_refused_when_nothing_fits_or_nothing_is_known(devices, version, words):
    result = compatibility.decide_flavour(None if devices is None else bus(*devices), version, "auto")
    (refusal,) = result["refusals"]
    assert (
        result["flavour"] is None
        and words in refusal["message"]
        and refusal["next_step"]
        and refusal["found"]
        and refusal["expected"]
    )


@pytest.mark.parametrize(
    "devices,version,asked,words,step",
    [
        ([B200], "580.1.1", "proprietary", "it needs the open one", "use flavour open"),
        ([GH200], "580.1.1", "proprietary", "it needs the open one", "use flavour open"),
        ([V100], "580.1.1", "open", "it needs the proprietary one", "use flavour proprietary"),
        ([H100], "620.1.1", "proprietary", "branch 615 is the last one", "use flavour open"),
        ([V100], "590.1.1", "proprietary", "branch 580 is the last one", "stay on a driver of branch 580"),
        ([T4], "510.1.1", "open", "its first branch is 515", "branch 515 or later"),
        ([B200], "565.1.1", "open", "its first branch is 570", "branch 570 or later"),
        ([A100, V100], "580.1.1", "open", "volta GPUs (0000:01:00.0 (0x1db1))", "use flavour proprietary"),
    ],
)
def test_what_was_asked_for_is_refused_when_it_cannot_work(devices, version, asked, words, step):
    (refusal,) = compatibility.decide_flavour(bus(*devices), version, asked)["refusals"]
    assert refusal["id"] == "impossible_flavour" and words in refusal["message"] and step in refusal["next_step"]


@pytest.mark.parametrize(
    "devices,version,asked",
    [
        ([H100], "580.1.1", "proprietary"),
        ([H100], "535.1.1", "open"),
        ([V100], "580.1.1", "proprietary"),
        ([B200], "580.1.1", "open"),
        ([NEW], "580.1.1", "open"),
        ([], "580.1.1", "proprietary"),
        (None, "580.1.1", "open"),
        ([H100], "rubbish", "open"),
    ],
)
def test_what_was_asked_for_and_can_work(devices, version, asked):
    """Of a GPU that is not known here nothing is said against what was asked for."""
    result = compatibility.decide_flavour(None if devices is None else bus(*devices), version, asked)
    assert (result["flavour"], result["refusals"]) == (asked, [])


def test_auto_for_what_is_no_version():
    (refusal,) = compatibility.decide_flavour(bus(H100), "rubbish", "auto")["refusals"]
    assert refusal["id"] == "unknown_version" and "rubbish" in refusal["message"]
