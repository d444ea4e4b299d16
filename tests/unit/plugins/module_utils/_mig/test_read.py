# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles of a GPU, from a library that answers as the driver of a real one did."""

from __future__ import annotations

import ctypes

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import fit, names, read, structures
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import calls, codes

pytestmark = pytest.mark.pythons

# NVIDIA H100 80GB HBM3, driver 580.159.04, MIG off, by the numbers of nvml.h: id, slices, instances, multiprocessors,
# copy engines, decoders, encoders, JPEG, OFA, MiB and name.
H100 = {
    0: (19, 1, 7, 16, 1, 1, 0, 1, 0, 9984, "1g.10gb"),
    1: (14, 2, 3, 32, 2, 2, 0, 2, 0, 20096, "2g.20gb"),
    2: (9, 3, 2, 60, 3, 3, 0, 3, 0, 40448, "3g.40gb"),
    3: (5, 4, 1, 64, 4, 4, 0, 4, 0, 40448, "4g.40gb"),
    4: (0, 7, 1, 132, 8, 7, 0, 7, 1, 81152, "7g.80gb"),
    7: (20, 1, 1, 16, 1, 1, 0, 1, 1, 9984, "1g.10gb+me"),
    9: (15, 1, 4, 26, 1, 1, 0, 1, 0, 20096, "1g.20gb"),
}
# Of the same GPU, by the id of the profile: starts and size.
PLACEMENTS = {
    19: (range(7), 1),
    14: ((0, 2, 4), 2),
    9: ((0, 4), 4),
    5: ((0,), 4),
    0: ((0,), 8),
    20: (range(7), 1),
    15: ((0, 2, 4, 6), 2),
}
TOTAL_BYTES = 81559 << 20
# Up to this number the driver says that the GPU has no such profile, from it on that there is none.
KNOWN_NUMBERS = 17


class Refused(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


class Binding:
    """The function pointers of a driver that knows the structures of the VERSIONS."""

    NVMLError = Refused

    def __init__(self, versions, placements=codes.SUCCESS):
        self.versions, self.placements = versions, placements

    def _nvmlGetFunctionPointer(self, symbol):
        known = {
            "nvmlDeviceGetGpuInstanceProfileInfoV": self.versioned if self.versions else None,
            "nvmlDeviceGetGpuInstanceProfileInfo": self.plain,
            "nvmlDeviceGetGpuInstancePossiblePlacements_v2": self.places,
        }
        if not known.get(symbol):
            raise Refused(codes.FUNCTION_NOT_FOUND)
        return known[symbol]

    def _row(self, number):
        if number.value >= KNOWN_NUMBERS:
            return codes.INVALID_ARGUMENT, None
        return (codes.SUCCESS, H100[number.value]) if number.value in H100 else (codes.NOT_SUPPORTED, None)

    @staticmethod
    def _fill(content, row):
        names_of_counts = [name for name, kind in structures.ProfileInfo._fields_ if name != "isP2pSupported"]
        for name, value in zip(names_of_counts, row):
            setattr(content, name, value)

    def plain(self, handle, number, pointer):
        rc, row = self._row(number)
        if row:
            self._fill(pointer._obj, row)
        return rc

    def versioned(self, handle, number, pointer):
        given = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint))[0]
        if given not in [structures.version(structures.ProfileInfoV2, code << 24) for code in self.versions]:
            return codes.INVALID_ARGUMENT
        rc, row = self._row(number)
        if row:
            self._fill(pointer._obj, row)
            # That driver writes the name of the third version where the second one has it, and no version in either.
            pointer._obj.name = b"MIG " + row[-1].encode("ascii") if given >> 24 == 2 else b""
            pointer._obj.version = 0
        return rc

    def places(self, handle, profile, table, count):
        if self.placements == codes.SUCCESS:
            starts, size = PLACEMENTS[profile.value]
            count._obj.value = len(starts)
            for index, start in enumerate(starts if table else ()):
                table[index].start, table[index].size = start, size
        return self.placements


def profiles(versions, placements=codes.SUCCESS):
    reader = calls.Reader(Binding(versions, placements))
    gpu = {"memory_total_bytes": codes.value(TOTAL_BYTES)}
    return read.read_profiles(reader, ctypes.c_void_p(1), gpu, enabled=False)


@pytest.mark.parametrize("versions", [(2, 3), (2,), ()], ids=["580", "520", "without-names"])
def test_every_profile_has_a_name_of_its_own(versions):
    found = dict((profile["id"], profile["name"]) for profile in profiles(versions))
    assert found == dict((row[0], row[-1]) for row in H100.values())


def test_seven_and_the_one_with_media_engines_are_told_apart():
    found = profiles((2, 3))
    plain, media = [names.resolve(names.parse(name), found) for name in ("1g.10gb", "1g.10gb+me")]
    assert (plain["id"], plain["count"], plain["engines"]["ofa"]) == (19, 7, 0)
    assert (media["id"], media["count"], media["engines"]["ofa"]) == (20, 1, 1)
    assert (media["memory_mib"], media["multiprocessors"]) == (9984, 16)


def test_placements_that_the_driver_tells_while_mig_is_off_are_used():
    for profile in profiles((2, 3)):
        starts, size = PLACEMENTS[profile["id"]]
        assert profile["placements"] == [[start, size] for start in starts]


def test_placements_derived_for_a_driver_that_does_not_tell_them_are_those_of_a_real_gpu():
    found = profiles((2, 3), placements=codes.NOT_SUPPORTED)
    for profile in found:
        starts, size = PLACEMENTS[profile["id"]]
        assert profile["placements"] is None
        assert fit.placements(profile, found) == [(start, size) for start in starts]


def test_with_mig_on_a_layout_without_placements_is_not_known():
    gpu = {"memory_total_bytes": codes.value(TOTAL_BYTES), "mig_mode_current": codes.value(1)}
    reader = calls.Reader(Binding((2, 3), placements=codes.NOT_SUPPORTED))
    read.read_layout(reader, ctypes.c_void_p(1), gpu)
    assert gpu[read.KEY]["rc"] == codes.NOT_SUPPORTED and gpu[read.KEY]["value"] is None
