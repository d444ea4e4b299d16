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
        document(
            dict(
                ON,
                **{
                    "mig-devices": {
                        "1c.3g.20gb": 3,
                        "1g.5gb+me": 1,
                        "2g.48gb-me": 1,
                        "1g.24gb+me.all": 1,
                        "4g.96gb+gfx": 1,
                    }
                },
            )
        ),
        document(dict(OFF, devices=[])),
        document(OFF, ON),
        document(dict(ON, **{"device-filter": "0x20B510DE:0x153310DE"})),
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
    ],
)
def test_names_are_read_and_written(text, parts):
    assert names.parse(text) == parts and names.write(names.parse(text)) == text


def test_all_compute_slices_are_not_written():
    assert names.write(names.parse("3c.3g.40gb")) == "3g.40gb"


@pytest.mark.parametrize(
    "text", ["", "1g", "10gb", "4c.3g.40gb", "0c.3g.40gb", "1g.10gb+", "1g.10gb+ME", "1g.10gb+me+me", None, 7]
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(names.NameProblem):
        names.parse(text)


GB200 = [
    boards.profile(9, "3g.93gb", 2, 95000, None),
    boards.profile(0, "7g.186gb", 1, 189000, None),
    boards.profile(20, "1g.23gb+me", 1, 23000, None),
]


@pytest.mark.parametrize(
    ("text", "ident"), [("3g.93gb", 9), ("3g.95gb", 9), ("7g.189gb", 0), ("1g.23gb+me", 20), ("1c.3g.95gb", 9)]
)
def test_a_name_of_another_driver_means_the_same_profile(text, ident):
    assert names.resolve(names.parse(text), GB200)["id"] == ident


@pytest.mark.parametrize("text", ["3g.90gb", "3g.40gb", "1g.23gb", "7g.186gb+me", "4g.93gb"])
def test_a_name_of_another_board_means_none(text):
    with pytest.raises(names.NameProblem, match="3g.93gb"):
        names.resolve(names.parse(text), GB200)
