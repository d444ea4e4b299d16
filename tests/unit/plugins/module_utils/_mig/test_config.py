# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The format of nvidia-mig-parted: what is accepted and refused, names of devices, and which GPU an entry is about."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import config, names
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig import boards

pytestmark = pytest.mark.pythons

ON = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 2}}
OFF = {"devices": "all", "mig-enabled": False}


def document(*entries, **more):
    return dict({"version": "v1", "mig-configs": {"one": list(entries)}}, **more)


# The cases of nvidia-mig-parted 0.15.0 (api/spec/v1), and what its parser does beside them.
@pytest.mark.parametrize(
    "accepted",
    [
        document(OFF),
        {"version": "v1"},
        document(ON),
        document(dict(ON, **{"device-filter": "MODEL"})),
        document(dict(ON, **{"device-filter": ["MODEL1", "MODEL2"]})),
        document(dict(ON, **{"device-filter": None})),
        document(dict(OFF, devices=[0, 1, 2, 3])),
        document(dict(ON, **{"mig-devices": {}})),
        document(dict(OFF, **{"mig-devices": {}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": 0, "2g.10gb": 1}})),
        document(dict(ON, **{"mig-devices": {"0g.0gb": 100}})),
        document(dict(ON, **{"mig-devices": {"1c.3g.20gb": 3, "1g.5gb+me": 1, "2g.48gb-me": 1, "4g.96gb+gfx": 1}})),
        document(dict(ON, **{"mig-devices": {"1g.24gb+me.all": 1}})),
        document(dict(OFF, devices=[])),
        document(OFF, ON),
        document(dict(ON, **{"device-filter": "0x20B510DE:0x153310DE"})),
        document(dict(ON, **{"device-filter": [None]})),
        document(dict(OFF, **{"mig-enabled": None})),
        document(dict(OFF, devices=[None, 2.0])),
        document(dict(ON, **{"mig-devices": {"1g.5gb": None, "2g.10gb": 1.0}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb+ME": 1, "01g.5gb": 1, "1g.5gb+me,gfx2": 1, "1g.0gb": 1}})),
    ],
)
def test_accepted(accepted):
    assert set(config.parse(accepted)) <= {"one"}


@pytest.mark.parametrize(
    "refused",
    [
        None,
        [],
        "v1",
        {},
        {"version": "v2"},
        {"version": 1},
        document(OFF, version="v2"),
        {"mig-configs": {"one": [OFF]}},
        document(OFF, bogus="field"),
        {"version": "v1", "mig-configs": {}},
        {"version": "v1", "mig-configs": None},
        document(),
        {"version": "v1", "mig-configs": {"one": None}},
        document({"mig-enabled": True, "mig-devices": {"1g.5gb": 2}}),
        document({"devices": "all", "mig-devices": {"1g.5gb": 2}}),
        document({"devices": "all", "mig-enabled": True}),
        document(dict(ON, **{"mig-devices": {"bogus": 2}})),
        document(dict(OFF, bogus="field")),
        document(dict(OFF, devices="bogus")),
        document(dict(OFF, devices={})),
        document(dict(OFF, devices=None)),
        document(dict(OFF, devices=[True])),
        document(dict(OFF, devices=["0"])),
        document(dict(ON, **{"mig-enabled": False})),
        document(dict(ON, **{"mig-enabled": "yes"})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": 0}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": -1}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": "2"}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": True}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": None}})),
        document(dict(ON, **{"mig-devices": {"1g.5gb": 1.5}})),
        document(dict(OFF, devices=[0.5])),
        document(dict(ON, **{"mig-devices": {"1g.5gb+me-me": 1}})),
        document(dict(ON, **{"mig-devices": {" 1g.5gb": 1}})),
        document(dict(ON, **{"mig-devices": {"1G.5GB": 1}})),
        document(dict(ON, **{"mig-devices": ["1g.5gb"]})),
        document(dict(ON, **{"device-filter": {}})),
        document(dict(ON, **{"device-filter": [1]})),
        document("all-disabled"),
    ],
)
def test_refused(refused):
    with pytest.raises(config.ConfigError):
        config.parse(refused)


def test_a_misspelt_configuration_is_told_those_that_there_are():
    configs = config.parse({"version": "v1", "mig-configs": {"all-off": [OFF], "all-on": [ON]}})
    with pytest.raises(config.ConfigError, match="all-off, all-on"):
        config.choose(configs, "all-of")


TARGET = config.Target(
    1, "0x20b010de", "0x134f10de", ("1", "00000000:43:00.0", "0000:43:00.0", "gpu-1"), "NVIDIA A100-SXM4-40GB"
)


@pytest.mark.parametrize(
    ("entry", "about"),
    [
        ({}, True),
        ({"devices": [1]}, True),
        ({"devices": [0, 2]}, False),
        ({"devices": []}, False),
        ({"device-filter": "0x20B010DE"}, True),
        ({"device-filter": ["0x20B110DE", "0x20b010de"]}, True),
        ({"device-filter": "0x20B110DE"}, False),
        ({"device-filter": "0x20B010DE:0x134F10DE"}, True),
        ({"device-filter": "0x20B010DE:0x153310DE"}, False),
        ({"device-filter": "A100-SXM4-40GB"}, False),
        ({"device-filter": "0X20b010de"}, True),
        ({"device-filter": "0x020B010DE"}, True),
        ({"device-filter": "548409566"}, True),
        ({"device-filter": "0x20B0_10DE:0X134F10DE"}, True),
        ({"device-filter": "20B010DE"}, False),
        ({"device-filter": "0x20B010DE:0x134F10DE:0"}, False),
        ({"device-filter": [None, " 0x20B010DE"]}, False),
        ({"device-filter": ""}, True),
        ({"device-filter": "0x20B010DE", "devices": [0]}, False),
    ],
)
def test_which_gpu_an_entry_is_about(entry, about):
    (found,) = config.choose(config.parse(document(dict(OFF, **entry))), "one")
    assert config.matches(found, TARGET) is about


@pytest.mark.parametrize(
    ("given", "about"),
    [
        ({}, True),
        ({"gpus": ["GPU-1"]}, True),
        ({"gpus": ["0000:43:00.0"]}, True),
        ({"gpus": [1]}, True),
        ({"gpus": ["GPU-2"]}, False),
        ({"model": "NVIDIA A100-SXM4-40GB"}, True),
        ({"model": "NVIDIA H100"}, False),
        ({"gpus": ["GPU-1"], "model": "NVIDIA H100"}, False),
    ],
)
def test_which_gpu_an_entry_of_a_task_is_about(given, about):
    assert config.matches(config.selection("layout[0]", dict({"mig_enabled": False}, **given)), TARGET) is about


def test_the_last_entry_that_matches_holds_and_none_is_none():
    entries = config.choose(config.parse(document(ON, dict(OFF, devices=[1]))), "one")
    assert config.layout_of(entries, TARGET) == config.Layout(False, {})
    assert config.layout_of(entries, TARGET._replace(position=0)) == config.Layout(True, {"1g.5gb": 2})
    assert config.layout_of(entries[1:], TARGET._replace(position=0)) is None


def test_gpus_that_the_node_does_not_have_are_found():
    entries = (config.selection("layout[0]", {"gpus": ["GPU-1", "GPU-9"], "mig_enabled": False}),)
    assert config.unmatched_names(entries, [TARGET]) == ["GPU-9"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1g.10gb", (None, 1, 10, "")),
        ("1c.3g.40gb", (1, 3, 40, "")),
        ("1g.10gb+me", (None, 1, 10, "+me")),
        ("2g.48gb-me", (None, 2, 48, "-me")),
        ("1g.24gb+me.all", (None, 1, 24, "+me.all")),
        ("2c.7g.80gb", (2, 7, 80, "")),
        ("1c.2g.20gb", (1, 2, 20, "")),
        ("1g.24gb-me", (None, 1, 24, "-me")),
        ("4g.96gb+gfx", (None, 4, 96, "+gfx")),
        ("1g.10gb+ME", (None, 1, 10, "+ME")),
        ("2g.0gb+gfx", (None, 2, 0, "+gfx")),
        ("1c.2g.48gb-me", (1, 2, 48, "-me")),
        ("1g.24gb+gfx,me.all", (None, 1, 24, "+gfx,me.all")),
    ],
)
def test_names_are_read_and_written(text, parts):
    assert names.parse(text) == parts and names.write(names.parse(text)) == text


def test_all_compute_slices_are_not_written():
    assert names.write(names.parse("3c.3g.40gb")) == "3g.40gb"


@pytest.mark.parametrize(
    "text",
    ["", "1g", "10gb", "4c.3g.40gb", "0c.3g.40gb", "1g.10gb+", "1g.10gb-", "1g.10gb+me+me", "1g.10gb+me,me", None, 7]
    + ["1g.10gb+me-me", "1g.10gb+.me", "1g.10gb+me.", "1g.10gb+2me", "1g.10gb ", "1g.10gb\n", "1g.10gb.me"],
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(names.NameProblem):
        names.parse(text)


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA RTX PRO 5000 MIG 1c.2g.48gb-me", "1c.2g.48gb-me"),
        ("NVIDIA Thor MIG 2g.0gb+gfx", "2g.0gb+gfx"),
        ("nvidia_h100_80gb_hbm3_1g.10gb", "1g.10gb"),
        ("nvidia_h100_80gb_hbm3_1g.10gb.me", "1g.10gb.me"),
        ("nvidia_rtx_pro_6000_1g.24gb-me", "1g.24gb-me"),
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1c.3g.40gb", "1c.3g.40gb"),
        ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb.me.all"),
        ("1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-small", ""),
        ("nvidia.com/mig-1g.10gb.shared.", ""),
        ("nvidia.com/gpu", ""),
        ("NVIDIA H100 80GB HBM3", ""),
        ("nvidia_h100_80gb_hbm3", ""),
        ("a100_4c.3g.40gb", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_profile_is_found_in_names_of_devices_types_and_resources(text, profile):
    assert names.find_profile(text) == profile


def named(text):
    return [boards.profile(number, name, 1, 1000, None) for number, name in enumerate(text.split())]


GB200 = "1g.%dgb 1g.%dgb+me 1g.47gb 2g.47gb 3g.%dgb 4g.%dgb 7g.%dgb"
OLD, NEW = named(GB200 % (24, 24, 95, 95, 189)), named(GB200 % (23, 23, 93, 93, 186))
GH200 = named("1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb")
H200 = named("1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb")
B200 = named("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb")


@pytest.mark.parametrize(("ours", "theirs"), list(zip(OLD, NEW)))
def test_a_name_of_another_driver_means_the_same_profile_of_the_board(ours, theirs):
    for profiles, name in ((OLD, theirs["name"]), (NEW, ours["name"]), (OLD, ours["name"]), (NEW, theirs["name"])):
        assert names.resolve(names.parse(name), profiles)["id"] == ours["id"]
    assert names.resolve(names.parse("1c.3g.95gb"), NEW)["name"] == "3g.93gb"


@pytest.mark.parametrize(
    ("text", "profiles"),
    [("3g.72gb", H200), ("2g.36gb", H200), ("3g.71gb", GH200), ("1g.24gb", B200), ("2g.47gb", B200), ("3g.95gb", B200)]
    + [("7g.186gb", B200), ("3g.90gb", NEW), ("1g.23gb+gfx", NEW), ("7g.186gb+me", NEW), ("1g.23gb+ME", NEW)],
)
def test_a_name_of_another_board_means_none(text, profiles):
    with pytest.raises(names.NameProblem):
        names.resolve(names.parse(text), profiles)
