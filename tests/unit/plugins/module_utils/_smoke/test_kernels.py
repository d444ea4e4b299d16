# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernels as text and at work, in an interpreter: no GPU is needed to see that they do what their names say."""

from __future__ import annotations

import struct

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import kernels, tests
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._smoke import ptx

pytestmark = pytest.mark.pythons

VERSION, TARGET, PARSED = ptx.parse(kernels.PTX)
AT, OTHER, THIRD, RESULT = 0x10000, 0x20000, 0x30000, 0x40000


def test_every_kernel_that_is_named_is_an_entry_with_these_parameters():
    assert (VERSION, TARGET) == ("6.4", "sm_70")
    assert dict((kernel.name, kernel.parameters) for kernel in kernels.KERNELS) == dict(
        (name, tuple(kind for kind, dummy in entry.parameters)) for name, entry in PARSED.items()
    )


def test_the_text_is_plain_ascii_and_every_number_of_a_kernel_is_its_own():
    kernels.PTX.encode("ascii")
    assert "\t" not in kernels.PTX and "%%" not in kernels.PTX and "\0" not in kernels.PTX
    for name, entry in PARSED.items():
        assert all(parameter.startswith(name + "_") for dummy, parameter in entry.parameters)
        assert entry.code[-1][1] == "ret"


@pytest.mark.parametrize("words, grid, block", [(1, 1, 4), (7, 2, 4), (64, 2, 8), (100, 3, 4)])
@pytest.mark.parametrize("base, step", tests.PATTERNS)
def test_fill_writes_every_word_and_no_other(words, grid, block, base, step):
    memory = {AT: bytearray(b"\xee" * (words * 4 + 8))}
    ptx.run(PARSED["gpufleet_fill"], (grid, 1), (block, 1), (AT, words, base, step), memory)
    found = struct.unpack("<%dI" % (words + 2), memory[AT])
    assert found == tuple((base + i * step) & 0xFFFFFFFF for i in range(words)) + (0xEEEEEEEE,) * 2


def test_verify_counts_what_differs_and_tells_the_first_place_and_the_bits():
    words, base, step = 50, 0x12345678, 0x9E3779B9
    memory = {AT: bytearray(words * 4), RESULT: bytearray(struct.pack("<3I", 0, 0xFFFFFFFF, 0))}
    ptx.run(PARSED["gpufleet_fill"], (2, 1), (8, 1), (AT, words, base, step), memory)
    ptx.run(PARSED["gpufleet_verify"], (2, 1), (8, 1), (AT, words, base, step, RESULT), memory)
    assert struct.unpack("<3I", memory[RESULT]) == (0, 0xFFFFFFFF, 0)
    memory[AT][4 * 41 + 1] ^= 0x10
    memory[AT][4 * 17] ^= 0x03
    ptx.run(PARSED["gpufleet_verify"], (2, 1), (8, 1), (AT, words, base, step, RESULT), memory)
    assert struct.unpack("<3I", memory[RESULT]) == (2, 17, 0x1003)


def test_add_adds_in_single_precision():
    count = 37
    left = [float(number) for number in range(count)]
    right = [number * 7 % 11 / 4.0 for number in range(count)]
    memory = {
        AT: bytearray(struct.pack("<%df" % count, *left)),
        OTHER: bytearray(struct.pack("<%df" % count, *right)),
        THIRD: bytearray(count * 4),
    }
    ptx.run(PARSED["gpufleet_add"], (2, 1), (8, 1), (AT, OTHER, THIRD, count), memory)
    assert list(struct.unpack("<%df" % count, memory[THIRD])) == [one + other for one, other in zip(left, right)]


@pytest.mark.parametrize("edge", [kernels.TILE, 3 * kernels.TILE])
def test_product_multiplies_and_its_expectation_is_the_product(edge):
    left, right, expected = tests.matrices(edge)
    rows = [struct.unpack_from("<%df" % edge, left, row * edge * 4) for row in range(edge)]
    columns = [struct.unpack_from("<%df" % edge, right, row * edge * 4) for row in range(edge)]
    by_hand = [sum(rows[i][k] * columns[k][j] for k in range(edge)) for i in range(edge) for j in range(edge)]
    assert list(struct.unpack("<%df" % (edge * edge), expected)) == by_hand
    memory = {AT: bytearray(left), OTHER: bytearray(right), THIRD: bytearray(edge * edge * 4)}
    blocks = edge // kernels.TILE
    ptx.run(
        PARSED["gpufleet_product"], (blocks, blocks), (kernels.TILE, kernels.TILE), (AT, OTHER, THIRD, edge), memory
    )
    assert bytes(memory[THIRD]) == expected


def test_the_largest_product_is_exact_in_single_precision():
    largest = max(struct.unpack("<%df" % 256, tests.matrices(256)[2][:1024]))
    assert largest * max(tests.EDGES) / 256 < 2**24
    assert all(edge % kernels.TILE == 0 and edge % tests.PERIOD for edge in tests.EDGES)


def test_the_interpreter_refuses_what_it_does_not_know():
    wrong = kernels.PTX.replace("add.rn.f32", "sub.rn.f32")
    with pytest.raises(KeyError):
        ptx.run(ptx.parse(wrong)[2]["gpufleet_add"], (1, 1), (1, 1), (AT, AT, AT, 1), {AT: bytearray(4)})
    with pytest.raises(AssertionError):
        ptx.parse(kernels.PTX.replace("bra             ADD_NEXT", "bra             NOWHERE"))
    with pytest.raises(AssertionError):
        ptx.parse(kernels.PTX.replace(".reg .f32       %f<4>;", ".reg .f32       %f<2>;"))


@pytest.mark.parametrize("words, blocks", [(1, 1), (256, 1), (257, 2), (1 << 28, 65535)])
def test_grids_cover_the_words_within_the_limits_of_a_launch(words, blocks):
    assert kernels.grid(words) == blocks
