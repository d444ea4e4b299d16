# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG profiles of real boards, and the places and numbers that real drivers gave to instances.

fixtures/mig.json has both, with their sources.
"""

from __future__ import annotations

import json
import pathlib

import pytest

BOARDS = json.loads((pathlib.Path(__file__).parent / "fixtures/mig.json").read_text())
ASK = """
n.nvmlInit()
gpu = handle()
rc(n.nvmlDeviceSetMigMode, gpu, 1)
if n.nvmlDeviceGetMigMode(gpu) != [1, 1]:
    raise SystemExit("MIG is not on")

def placements(profile):
    places, count = (n.c_nvmlGpuInstancePlacement_t * 16)(), ctypes.c_uint()
    answer = rc(n.nvmlDeviceGetGpuInstancePossiblePlacements, gpu, profile, places, ctypes.byref(count))
    return [[places[i].start, places[i].size] for i in range(count.value)] if answer == 0 else answer

def profiles():
    found = {}
    for index in range(24):
        info = value(n.nvmlDeviceGetGpuInstanceProfileInfo, gpu, index)
        if info not in ("rc 3", "rc 2"):
            found[info.id] = {"mib": info.memorySizeMB, "sm": info.multiprocessorCount, "ce": info.copyEngineCount,
                              "dec": info.decoderCount, "enc": info.encoderCount, "jpeg": info.jpegCount,
                              "ofa": info.ofaCount, "count": info.instanceCount, "index": index,
                              "slices": info.sliceCount, "placements": placements(info.id)}
    return found

def create(profile):
    instance = value(n.nvmlDeviceCreateGpuInstance, gpu, profile)
    if isinstance(instance, str):
        return instance, None
    info = n.nvmlGpuInstanceGetInfo(instance)
    return info.id, info.placement.start
"""


def ask(node, question):
    return node.python(ASK + question)


@pytest.fixture
def board(make_node):
    """Makes a node of one GPU with MIG on."""

    def make(model):
        node = make_node(model, 1)
        if model == "rtx-pro-6000":
            # Blackwell takes the open modules only.
            node.kernel()
            node.module("580.105.08", licence="Dual MIT/GPL")
            node.library("580.105.08")
            node.sim("boot")
        else:
            node.booted()
        if model in ("a100-sxm", "a100-80-sxm", "a30"):
            node.ask("rc(n.nvmlDeviceSetMigMode, handle(), 1)")
            node.sim("boot")
        return node

    return make


SEQUENCES = [(model, number) for model, facts in BOARDS.items() for number in range(len(facts["sequences"]))]


@pytest.mark.parametrize("model, number", SEQUENCES)
def test_instances_get_the_places_and_numbers_of_a_real_driver(board, model, number):
    recorded = BOARDS[model]["sequences"][number]
    found = ask(board(model), "print(json.dumps([create(profile) for profile in %r]))" % recorded["create"])
    assert found == [list(pair) for pair in zip(recorded["ids"], recorded["starts"])]


@pytest.mark.parametrize("model", [model for model, facts in BOARDS.items() if "profiles" in facts])
def test_profiles_are_those_of_the_board(board, model):
    found = ask(board(model), "print(json.dumps(profiles()))")
    # The table of the board with 80 GB is of a driver without profile 15.
    assert set(found) - set(BOARDS[model]["profiles"]) == ({"15"} if model == "a100-80-sxm" else set())
    for number, facts in BOARDS[model]["profiles"].items():
        assert {key: found[number][key] for key in facts} == facts, number


@pytest.mark.parametrize("model", [model for model, facts in BOARDS.items() if "devices" in facts])
def test_instances_have_the_memory_and_engines_of_the_board(board, model):
    found = ask(board(model), "print(json.dumps(profiles()))")
    for number, facts in BOARDS[model]["devices"].items():
        # The window to the memory is asked of the device: test_mig_use.py.
        keys = [key for key in facts if key != "bar1_mib"]
        assert [found[number][key] for key in keys] == [facts[key] for key in keys], number


def test_compute_instances_that_share_have_the_multiprocessors_of_the_board(board):
    facts = BOARDS["h200"]["compute"]
    assert (
        ask(
            board("h200"),
            """
instance = n.nvmlDeviceCreateGpuInstance(gpu, %d)
def count(item):
    info = (ctypes.c_uint * 16)()  # id, slices, instances, multiprocessors, ...
    n._nvmlGetFunctionPointer("nvmlGpuInstanceGetComputeInstanceProfileInfo")(instance, item, 0, info)
    return info[3]
print(json.dumps({item: count(item) for item in %r}))
"""
            % (facts["profile"], [int(item) for item in facts["slices"]]),
        )
        == facts["slices"]
    )


# ---- a board whose profiles share engines and graphics ----


def test_media_engines_are_given_once(board):
    node = board("rtx-pro-6000")
    assert ask(
        node,
        """
print(json.dumps([create(65)[0], create(14)[0], create(21)[0], create(67)[0], create(66)[0]]))
""",
    ) == [3, "rc 23", "rc 23", 4, 2]
    assert ask(node, "print(json.dumps([create(item)[0] for item in (14, 67, 5, 66, 0)]))") == ["rc 23"] * 5


def test_profiles_in_the_third_version_of_the_structure_have_no_name_where_it_should_be(board):
    """As driver 580 fills it: the name of the second version's place, without memory, and no version."""
    assert ask(
        board("rtx-pro-6000"),
        """
def capabilities(index):
    space = ctypes.create_string_buffer(152)
    ctypes.c_uint.from_buffer(space).value = 152 | 3 << 24
    answer = n._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstanceProfileInfoV")(gpu, index, space)
    names = [space.raw[place:144].split(b"\\0")[0].decode() for place in (48, 56)]
    return [answer, ctypes.c_uint.from_buffer(space).value, *names, ctypes.c_uint.from_buffer(space, 144).value]
print(json.dumps([capabilities(index) for index in (0, 10, 15, 13)]))
""",
    ) == [
        [0, 0, "", "MIG 1g.0gb", 0],
        [0, 0, "", "MIG 1g.0gb+gfx", 2],
        [0, 0, "", "MIG 1g.0gb+me.all", 0],
        [0, 0, "", "MIG 1g.0gb-me", 0],
    ]
