# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of one GPU: what is done, how often, and what counts as right. Nothing is judged here.

Each test is repeated, and each repetition is a sample: wrong words for what must be right, a rate for what must not get
slower. A rate is taken of work that lasts some milliseconds, timed by the GPU's own clock, after the GPU has left its
idle clocks.
"""

from __future__ import annotations

import array
import collections
import contextlib
import statistics
import struct
import time

from . import kernels
from .cuda import CudaError

MIB = 1 << 20
GIB = 1 << 30

# What a level does. Sizes of timed work are the same in all levels, so that their rates can be compared.
Level = collections.namedtuple("Level", ["repetitions", "memory_share", "memory_limit", "sum_words", "product"])
LEVELS = {
    "t0": Level(5, 0.05, GIB, 1 << 18, False),
    "t1": Level(7, 0.50, 16 * GIB, 1 << 20, True),
    "t2": Level(15, 0.90, None, 1 << 22, True),
    "t3": Level(15, 0.90, None, 1 << 22, True),
}
ERRORS, RATE, SPEED = "errors", "GB/s", "GFLOP/s"
# In the order of running; the first wakes the GPU up.
NAMES = ("memory_pattern", "vector_add", "device_copy", "host_to_device", "device_to_host", "matrix_product")
UNITS = {
    "memory_pattern": ERRORS,
    "vector_add": ERRORS,
    "device_copy": RATE,
    "host_to_device": RATE,
    "device_to_host": RATE,
    "matrix_product": SPEED,
}

# First word and step: all bits off and on, alternating both ways, and each word another one.
PATTERNS = ((0, 0), (0xFFFFFFFF, 0), (0xAAAAAAAA, 0), (0x55555555, 0), (0x12345678, 0x9E3779B9))
CHUNK = GIB
COPY_LIMIT, HOST_LIMIT = 256 * MIB, 64 * MIB
COPY_TRAFFIC, HOST_TRAFFIC = 4 * GIB, 256 * MIB
EDGES = (2048, 1024, 512, 256)
EDGE_SHARE = 64
PRODUCT_WORK = 1 << 36
WARM_S = 0.25
# No period of the matrices and vectors divides the size of a block or of a tile: a block that lands in another's place
# is noticed.
PERIOD = 31
OUT_OF_MEMORY = 2


def list_names(level) -> list[str]:
    return [name for name in NAMES if name != "matrix_product" or LEVELS[level].product]


def make_blank(name, error=None) -> dict:
    """A test without samples, and why."""
    return {
        "unit": UNITS[name],
        "samples": [],
        "median": None,
        "mad": None,
        "ok": False,
        "error": error,
        "parameters": {},
        "detail": "",
        "temperature_c": [],
        "clock_sm_mhz": [],
    }


def run(gpu, level, conditions, progress=None, wanted=None):
    """{name: test} for all tests of LEVEL, or those WANTED.

    CONDITIONS() answers temperature and SM clock, None for what is not known.

    What the GPU refuses is in the test's error. After an error other than a lack of memory nothing more is asked of the
    GPU.
    """
    progress = progress or (lambda where: None)
    results = {}
    spoiled = None
    with gpu.stopwatch() as seconds:
        for name in list_names(level):
            if wanted and name not in wanted:
                continue
            if spoiled:
                results[name] = make_blank(name, {"call": None, "rc": None, "name": "NOT_RUN", "after": spoiled})
                continue
            progress(name)
            try:
                results[name] = _TESTS[name](Trial(gpu, LEVELS[level], conditions, seconds, name))
            except CudaError as exc:
                results[name] = make_blank(name, exc.data())
                if exc.rc != OUT_OF_MEMORY:
                    spoiled = name
    return results


class Trial:
    """One test while it runs: collects samples, each with the conditions it was taken under."""

    def __init__(self, gpu, level, conditions, seconds, name) -> None:
        self.gpu, self.level, self.seconds = gpu, level, seconds
        self._conditions = conditions
        self.result = make_blank(name)

    @property
    def repetitions(self):
        return range(self.level.repetitions)

    def sample(self, value) -> None:
        self.result["samples"].append(value)
        temperature, clock = self._conditions()
        self.result["temperature_c"].append(temperature)
        self.result["clock_sm_mhz"].append(clock)

    def measure_rate(self, work, amount) -> None:
        """Samples of AMOUNT per second, after the GPU was busy for a moment."""
        begun = time.monotonic()
        busy = 0.0
        while busy < WARM_S and time.monotonic() - begun < WARM_S:
            busy += self.seconds(work)
        for dummy in self.repetitions:
            self.rate(self.seconds(work), amount)

    def rate(self, seconds, amount) -> None:
        self.sample(round(amount / seconds / 1e9, 4) if seconds > 0 else 0.0)

    def finish(self, wrong=0, detail="", **parameters):
        samples = self.result["samples"]
        middle = statistics.median(samples)
        self.result.update(
            median=middle,
            mad=round(statistics.median([abs(sample - middle) for sample in samples]), 4),
            ok=wrong == 0,
            parameters=parameters,
            detail=detail,
        )
        return self.result


def memory_pattern(trial):
    """Patterns over a share of the free memory, written and read by the GPU."""
    gpu, level = trial.gpu, trial.level
    free, dummy = gpu.free_memory()
    wanted = max(MIB, int(free * level.memory_share))
    wanted = min(wanted, level.memory_limit or wanted)
    wrong, detail = 0, ""
    with contextlib.ExitStack() as held:
        answer = held.enter_context(gpu.memory(kernels.RESULT_WORDS * 4))
        chunks = _allocate_chunks(gpu, held, wanted)
        for number in trial.repetitions:
            base, step = PATTERNS[number % len(PATTERNS)]
            # All chunks are written before the first is read, each with words of its own where the words differ at all.
            for place, (address, size) in enumerate(chunks):
                gpu.linear(kernels.FILL, size // 4, address, size // 4, _first_word(base, step, place), step)
            gpu.finish()
            found = 0
            for place, (address, size) in enumerate(chunks):
                gpu.write(answer, struct.pack("<3I", 0, 0xFFFFFFFF, 0))
                gpu.linear(kernels.VERIFY, size // 4, address, size // 4, _first_word(base, step, place), step, answer)
                gpu.finish()
                words, first, bits = struct.unpack("<3I", gpu.copy_out(answer, kernels.RESULT_WORDS * 4))
                found += words
                if words and not detail:
                    detail = (
                        "pattern 0x%08x step 0x%08x: %d words differ, the first at byte %d of the tested "
                        "memory, bits 0x%08x" % (base, step, words, place * CHUNK + first * 4, bits)
                    )
            wrong += found
            trial.sample(found)
        return trial.finish(wrong, detail, bytes=sum(size for dummy, size in chunks))


def _first_word(base, step, place):
    return (base + (place * 0x01000193 if step else 0)) & 0xFFFFFFFF


def _allocate_chunks(gpu, held, wanted):
    """[(address, bytes)] of WANTED bytes; what is free may be less than was said, but not nothing."""
    chunks = []
    while wanted >= MIB:
        size = min(wanted, CHUNK) // MIB * MIB
        try:
            chunks.append((held.enter_context(gpu.memory(size)), size))
        except CudaError as exc:
            if exc.rc != OUT_OF_MEMORY or not chunks:
                raise
            break
        wanted -= size
    return chunks


def vector_add(trial):
    """left + right of numbers whose sum single precision holds exactly."""
    gpu, count = trial.gpu, trial.level.sum_words
    left = _repeat_pattern(array.array("f", [float(number) for number in range(8191)]), count)
    right = _repeat_pattern(array.array("f", [number * 7 % 4093 / 4.0 for number in range(4093)]), count)
    expected = array.array("f", [one + other for one, other in zip(left, right)]).tobytes()
    size = count * 4
    wrong, detail = 0, ""
    with gpu.memory(size) as left_at, gpu.memory(size) as right_at, gpu.memory(size) as sum_at:
        gpu.write(left_at, left.tobytes())
        gpu.write(right_at, right.tobytes())
        for dummy in trial.repetitions:
            # No earlier result is taken for this one.
            gpu.linear(kernels.FILL, count, sum_at, count, 0xFFFFFFFF, 0)
            gpu.linear(kernels.ADD, count, left_at, right_at, sum_at, count)
            gpu.finish()
            found, text = count_differences(gpu.copy_out(sum_at, size), expected)
            wrong += found
            detail = detail or text
            trial.sample(found)
        return trial.finish(wrong, detail, words=count)


def device_copy(trial):
    """Copies within the GPU's memory; each byte is read once and written once."""
    gpu = trial.gpu
    size = _choose_buffer(gpu, COPY_LIMIT)
    times = max(1, COPY_TRAFFIC // (2 * size))
    with gpu.memory(size) as source, gpu.memory(size) as target:
        gpu.linear(kernels.FILL, size // 4, source, size // 4, 1, 3)

        def work() -> None:
            for dummy in range(times):
                gpu.driver.call("cuMemcpyDtoDAsync_v2", target, source, size, None)

        trial.measure_rate(work, 2 * size * times)
        return trial.finish(bytes=size, times=times)


def host_to_device(trial):
    return _host_copy(
        trial, lambda gpu, host, device, size: gpu.driver.call("cuMemcpyHtoDAsync_v2", device, host, size, None)
    )


def device_to_host(trial):
    return _host_copy(
        trial, lambda gpu, host, device, size: gpu.driver.call("cuMemcpyDtoHAsync_v2", host, device, size, None)
    )


def _host_copy(trial, copy):
    gpu = trial.gpu
    size = _choose_buffer(gpu, HOST_LIMIT)
    times = max(1, HOST_TRAFFIC // size)
    with gpu.memory(size) as device, gpu.host_memory(size) as host:

        def work() -> None:
            for dummy in range(times):
                copy(gpu, host, device, size)

        trial.measure_rate(work, size * times)
        return trial.finish(bytes=size, times=times)


def matrix_product(trial):
    """left * right of small whole numbers: every sum on the way is one that single precision holds, so the result is
    exact.
    """
    gpu = trial.gpu
    free, dummy = gpu.free_memory()
    edge = next((edge for edge in EDGES if 3 * edge * edge * 4 <= free // EDGE_SHARE), EDGES[-1])
    left, right, expected = make_matrices(edge)
    size = edge * edge * 4
    blocks = edge // kernels.TILE
    times = max(1, PRODUCT_WORK // (2 * edge**3))
    wrong, detail = 0, ""
    with gpu.memory(size) as left_at, gpu.memory(size) as right_at, gpu.memory(size) as product_at:
        gpu.write(left_at, left)
        gpu.write(right_at, right)

        def work() -> None:
            for dummy in range(times):
                gpu.launch(
                    kernels.PRODUCT, (blocks, blocks), (kernels.TILE, kernels.TILE), left_at, right_at, product_at, edge
                )

        trial.seconds(work)
        for dummy in trial.repetitions:
            gpu.linear(kernels.FILL, edge * edge, product_at, edge * edge, 0xFFFFFFFF, 0)
            trial.rate(trial.seconds(work), 2.0 * edge**3 * times)
            found, text = count_differences(gpu.copy_out(product_at, size), expected)
            wrong += found
            detail = detail or text
        return trial.finish(wrong, detail, edge=edge, times=times)


def make_matrices(edge) -> tuple[bytes, bytes, bytes]:
    """Two matrices and their product, as bytes: left[i][k] and right[k][j] depend on the remainders of i, k and j by
    the period.
    """
    left = [[(3 * i + 5 * k) % PERIOD for k in range(PERIOD)] for i in range(PERIOD)]
    right = [[(7 * k + 2 * j + 1) % PERIOD for j in range(PERIOD)] for k in range(PERIOD)]
    # How many of the sum's terms have each remainder.
    terms = [len(range(rest, edge, PERIOD)) for rest in range(PERIOD)]
    product = [
        [sum(terms[k] * left[i][k] * right[k][j] for k in range(PERIOD)) for j in range(PERIOD)] for i in range(PERIOD)
    ]
    return _make_rows(left, edge), _make_rows(right, edge), _make_rows(product, edge)


def _make_rows(pattern, edge) -> bytes:
    rows = [_repeat_pattern(array.array("f", [float(number) for number in row]), edge).tobytes() for row in pattern]
    return b"".join(rows[i % PERIOD] for i in range(edge))


def _repeat_pattern(period, count) -> array.array:
    return (period * (count // len(period) + 1))[:count]


def _choose_buffer(gpu, limit):
    free, dummy = gpu.free_memory()
    return max(MIB, min(limit, free // 8 // MIB * MIB))


def count_differences(found, expected):
    """Return how many words differ, and the first of them."""
    if found == expected:
        return 0, ""
    one, other = array.array("f", found), array.array("f", expected)
    places = [place for place, (left, right) in enumerate(zip(one, other)) if left != right]
    return len(places), "%d values differ, the first at %d: %r instead of %r" % (
        len(places),
        places[0],
        one[places[0]],
        other[places[0]],
    )


_TESTS = {
    "memory_pattern": memory_pattern,
    "vector_add": vector_add,
    "device_copy": device_copy,
    "host_to_device": host_to_device,
    "device_to_host": device_to_host,
    "matrix_product": matrix_product,
}
