# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernels as text and at work, in an interpreter: no GPU is needed to see that they do what their names say."""

from __future__ import annotations

import re
import struct

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import kernels, tests

pytestmark = pytest.mark.pythons

# An interpreter of PTX, thread by thread: as much of it as the collection's kernels use, by the rules of the PTX ISA.
# It refuses what it does not know: a kernel with a new instruction fails its test until the instruction is here.
ENTRY = re.compile(r"\.visible \.entry (?P<name>\w+)\(\s*(?P<parameters>[^)]*)\)\s*\{(?P<body>[^}]*)\}")
PARAMETER = re.compile(r"^\.param \.(?P<kind>[us]\d+) (?P<name>\w+)$")
MASK = (1 << 32) - 1
LONG = (1 << 64) - 1
SHARED_BASE = 1 << 40


class Kernel:
    """One entry: parameters [(kind, name)], instructions, labels, and shared memory by name."""

    def __init__(self, name, parameters, body):
        self.name = name
        self.parameters = []
        for line in parameters.split(","):
            match = PARAMETER.match(line.strip())
            assert match, "no parameter: %r" % line
            self.parameters.append((match.group("kind"), match.group("name")))
        self.code, self.labels, self.shared, self.registers = [], {}, {}, set()
        shared_at = SHARED_BASE
        for line in re.sub(r"//[^\n]*", "", body).replace(";", ";\n").splitlines():
            line = " ".join(line.split())
            if not line:
                continue
            if line.startswith(".reg"):
                match = re.match(r"^\.reg \.(\w+) %(\w+)<(\d+)>;$", line)
                assert match, line
                self.registers.update("%%%s%d" % (match.group(2), number) for number in range(int(match.group(3))))
            elif line.startswith(".shared"):
                match = re.match(r"^\.shared \.align 4 \.b8 (\w+)\[(\d+)\];$", line)
                assert match, line
                self.shared[match.group(1)] = shared_at
                shared_at += int(match.group(2))
            elif line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            else:
                assert line.endswith(";"), "no end: %r" % line
                guard, rest = re.match(r"^(?:@(%p\d+) )?(.*);$", line).groups()
                operation, dummy, operands = rest.partition(" ")
                self.code.append((guard, operation, [word.strip() for word in operands.split(",")] if operands else []))
        for dummy, operation, operands in self.code:
            for word in operands:
                for register in re.findall(r"%(?:p|r|rd|f)\d+", word):
                    assert register in self.registers, "%s uses %s, which is not declared" % (operation, register)
            if operation == "bra":
                assert operands[0] in self.labels, "no label %s" % operands[0]


def parse(text):
    """(version, target, {name: Kernel}) of a PTX text; all of the text has to be understood."""
    header = re.match(r"^\.version (\d+\.\d+)\n\.target (\w+)\n\.address_size 64\n", text)
    assert header, "no header"
    rest = re.sub(r"//[^\n]*", "", text[header.end() :])
    kernels = {}
    for match in ENTRY.finditer(rest):
        kernels[match.group("name")] = Kernel(match.group("name"), match.group("parameters"), match.group("body"))
    assert not ENTRY.sub("", rest).strip(), "not understood: %r" % ENTRY.sub("", rest).strip()[:80]
    return header.group(1), header.group(2), kernels


def run(kernel, grid, block, values, memory):
    """Run all threads; MEMORY is {address: bytearray}, the GPU's, and is changed."""
    shared_size = 1 << 16
    for block_y in range(grid[1]):
        for block_x in range(grid[0]):
            space = dict(memory)
            space[SHARED_BASE] = bytearray(shared_size)
            special = {
                "%ctaid.x": block_x,
                "%ctaid.y": block_y,
                "%ntid.x": block[0],
                "%ntid.y": block[1],
                "%nctaid.x": grid[0],
                "%nctaid.y": grid[1],
            }
            threads = [
                _thread(kernel, dict(special, **{"%tid.x": x, "%tid.y": y}), values, space)
                for y in range(block[1])
                for x in range(block[0])
            ]
            while threads:
                # Each runs to the next barrier or to its end; all have to meet.
                met = [next(thread, None) for thread in threads]
                assert len(set(met)) == 1, "not all threads of a block meet at a barrier"
                if met[0] is None:
                    break


def _thread(kernel, special, values, space):
    registers = dict(special)
    registers.update(kernel.shared)
    parameters = dict((name, value) for (dummy, name), value in zip(kernel.parameters, values))
    place = 0
    while True:
        guard, operation, operands = kernel.code[place]
        place += 1
        if guard and not registers[guard]:
            continue
        if operation == "ret":
            return
        if operation == "bra":
            place = kernel.labels[operands[0]]
        elif operation == "bar.sync":
            yield place
        else:
            _step(operation, operands, registers, parameters, space)


def _value(word, registers):
    if word in registers:
        return registers[word]
    if word.startswith("0f"):
        return struct.unpack(">f", bytes.fromhex(word[2:]))[0]
    return int(word, 0)


def _single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def _place(word, registers, space):
    """(bytes, offset) of [register+offset]."""
    register, dummy, offset = word.strip("[]").partition("+")
    address = registers[register] + int(offset or 0)
    for start, data in space.items():
        if start <= address and address + 4 <= start + len(data):
            assert address % 4 == 0, "not aligned"
            return data, address - start
    raise AssertionError("access outside of memory: %#x" % address)


def _step(operation, operands, registers, parameters, space):
    if operation.startswith("ld.param."):
        registers[operands[0]] = parameters[operands[1].strip("[]")]
    elif operation in ("ld.global.f32", "ld.shared.f32", "ld.global.u32"):
        data, at = _place(operands[1], registers, space)
        registers[operands[0]] = struct.unpack_from("<f" if operation.endswith("f32") else "<I", data, at)[0]
    elif operation in ("st.global.f32", "st.shared.f32", "st.global.u32"):
        data, at = _place(operands[0], registers, space)
        struct.pack_into("<f" if operation.endswith("f32") else "<I", data, at, _value(operands[1], registers))
    elif operation in ("red.global.add.u32", "red.global.min.u32", "red.global.or.b32"):
        data, at = _place(operands[0], registers, space)
        old, new = struct.unpack_from("<I", data, at)[0], _value(operands[1], registers)
        struct.pack_into(
            "<I", data, at, {"add": (old + new) & MASK, "min": min(old, new), "or": old | new}[operation.split(".")[2]]
        )
    else:
        words = [_value(word, registers) for word in operands[1:]]
        registers[operands[0]] = ARITHMETIC[operation](*words)


ARITHMETIC = {
    "mov.u32": lambda a: a & MASK,
    "mov.u64": lambda a: a & LONG,
    "mov.f32": lambda a: a,
    "cvta.to.global.u64": lambda a: a,
    "add.u32": lambda a, b: (a + b) & MASK,
    "add.u64": lambda a, b: (a + b) & LONG,
    "mul.lo.u32": lambda a, b: (a * b) & MASK,
    "mul.wide.u32": lambda a, b: a * b,
    "mad.lo.u32": lambda a, b, c: (a * b + c) & MASK,
    "xor.b32": lambda a, b: a ^ b,
    "setp.ge.u32": lambda a, b: a >= b,
    "setp.eq.u32": lambda a, b: a == b,
    "add.rn.f32": lambda a, b: _single(a + b),
    # Exact in double precision for the small numbers of the tests; rounded once, as fused.
    "fma.rn.f32": lambda a, b, c: _single(a * b + c),
}


# ---- the kernels ----

VERSION, TARGET, PARSED = parse(kernels.PTX)
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
    run(PARSED["gpufleet_fill"], (grid, 1), (block, 1), (AT, words, base, step), memory)
    found = struct.unpack("<%dI" % (words + 2), memory[AT])
    assert found == tuple((base + i * step) & 0xFFFFFFFF for i in range(words)) + (0xEEEEEEEE,) * 2


def test_verify_counts_what_differs_and_tells_the_first_place_and_the_bits():
    words, base, step = 50, 0x12345678, 0x9E3779B9
    memory = {AT: bytearray(words * 4), RESULT: bytearray(struct.pack("<3I", 0, 0xFFFFFFFF, 0))}
    run(PARSED["gpufleet_fill"], (2, 1), (8, 1), (AT, words, base, step), memory)
    run(PARSED["gpufleet_verify"], (2, 1), (8, 1), (AT, words, base, step, RESULT), memory)
    assert struct.unpack("<3I", memory[RESULT]) == (0, 0xFFFFFFFF, 0)
    memory[AT][4 * 41 + 1] ^= 0x10
    memory[AT][4 * 17] ^= 0x03
    run(PARSED["gpufleet_verify"], (2, 1), (8, 1), (AT, words, base, step, RESULT), memory)
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
    run(PARSED["gpufleet_add"], (2, 1), (8, 1), (AT, OTHER, THIRD, count), memory)
    assert list(struct.unpack("<%df" % count, memory[THIRD])) == [one + other for one, other in zip(left, right)]


@pytest.mark.parametrize("edge", [kernels.TILE, 2 * kernels.TILE])
def test_product_multiplies_and_its_expectation_is_the_product(edge):
    left, right, expected = tests.make_matrices(edge)
    rows = [struct.unpack_from("<%df" % edge, left, row * edge * 4) for row in range(edge)]
    columns = [struct.unpack_from("<%df" % edge, right, row * edge * 4) for row in range(edge)]
    by_hand = [sum(rows[i][k] * columns[k][j] for k in range(edge)) for i in range(edge) for j in range(edge)]
    assert list(struct.unpack("<%df" % (edge * edge), expected)) == by_hand
    memory = {AT: bytearray(left), OTHER: bytearray(right), THIRD: bytearray(edge * edge * 4)}
    blocks = edge // kernels.TILE
    run(PARSED["gpufleet_product"], (blocks, blocks), (kernels.TILE, kernels.TILE), (AT, OTHER, THIRD, edge), memory)
    assert bytes(memory[THIRD]) == expected


def test_the_largest_product_is_exact_in_single_precision():
    largest = max(struct.unpack("<%df" % 256, tests.make_matrices(256)[2][:1024]))
    assert largest * max(tests.EDGES) / 256 < 2**24
    assert all(edge % kernels.TILE == 0 and edge % tests.PERIOD for edge in tests.EDGES)


def test_the_interpreter_refuses_what_it_does_not_know():
    wrong = kernels.PTX.replace("add.rn.f32", "sub.rn.f32")
    with pytest.raises(KeyError):
        run(parse(wrong)[2]["gpufleet_add"], (1, 1), (1, 1), (AT, AT, AT, 1), {AT: bytearray(4)})
    with pytest.raises(AssertionError):
        parse(kernels.PTX.replace("bra             ADD_NEXT", "bra             NOWHERE"))
    with pytest.raises(AssertionError):
        parse(kernels.PTX.replace(".reg .f32       %f<4>;", ".reg .f32       %f<2>;"))


@pytest.mark.parametrize("words, blocks", [(1, 1), (256, 1), (257, 2), (1 << 28, 65535)])
def test_grids_cover_the_words_within_the_limits_of_a_launch(words, blocks):
    assert kernels.choose_grid(words) == blocks
