# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operating systems whose driver packages are known, which packages are the driver's, and what a node lacks."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems

pytestmark = pytest.mark.pythons


@pytest.mark.parametrize(
    "os_release,supported",
    [
        ({"ID": "debian", "VERSION_ID": "12"}, True),
        ({"ID": "debian", "VERSION_ID": "13"}, True),
        ({"ID": "debian", "VERSION_ID": "11"}, False),
        ({"ID": "rocky", "VERSION_ID": "9.4"}, True),
        ({"ID": "rocky", "VERSION_ID": "8.10"}, False),
        ({}, False),
    ],
)
def test_supported_systems(os_release, supported):
    assert (systems.table_for(os_release) is not None) is supported


@pytest.mark.parametrize(
    ("wanted", "gpus", "headers", "ids"),
    [
        ([], [], {}, []),
        (["gpu"], [{"address": "0000:1b:00.0"}], {}, []),
        (["gpu"], [], {}, ["no_gpu"]),
        (["gpu"], None, {}, ["no_gpu"]),
        (["headers"], None, {"6.1.0-1": True}, []),
        (["headers"], None, {}, ["no_kernel"]),
        (["headers"], None, {"6.1.0-1": True, "6.1.0-2": False}, ["no_headers"]),
        (["gpu", "headers"], [], {"6.1.0-2": False}, ["no_gpu", "no_headers"]),
    ],
)
def test_what_a_node_needs(wanted, gpus, headers, ids):
    found = systems.decide_needs(wanted, gpus, headers)
    assert [item["id"] for item in found] == ids
    assert all(item["message"] and item["found"] and item["expected"] and item["next_step"] for item in found)
    if "no_headers" in ids:
        assert (
            "6.1.0-2" in found[-1]["message"]
            and "linux-headers-6.1.0-2" in found[-1]["next_step"]
            and "6.1.0-1" not in found[-1]["message"]
        )


NEW, OLD, NEWEST = "535.261.03-1", "535.216.03-2~bpo12+1", "535.309.01-0+deb12u1"


@pytest.mark.parametrize(
    "name,version,source,expected",
    [
        ("nvidia-smi", NEW, "nvidia-graphics-drivers", True),
        ("firmware-nvidia-tesla-535-gsp", "535.216.03-3~deb12u1", "nvidia-graphics-drivers-tesla-535", True),
        ("nvidia-open-kernel-dkms", NEW, "nvidia-open-gpu-kernel-modules", True),
        ("nvidia-modprobe", NEWEST, "nvidia-modprobe", False),
        ("nvidia-persistenced", "535.171.04-1", None, False),
        ("nvidia-settings", "535.247.01-1", None, False),
        ("nvidia-container-toolkit", "1.17.8-1", None, False),
        ("nvidia-cuda-dev", "11.8.89~11.8.0-5", "nvidia-cuda-toolkit", False),
        ("nvidia-kernel-common", "20220217+3~deb12u1", "nvidia-support", False),
        ("libnvidia-egl-gbm1", "1.1.0-2", "nvidia-egl-gbm", False),
        ("nvidia-dkms-580-server", "580.178.04-0ubuntu0.24.04.1", None, True),
        ("libnvidia-compute-580-server", "580.178.04-0ubuntu0.24.04.1", None, True),
        ("libcuda1:i386", OLD, None, True),
        ("libc6", "2.36-9", "glibc", False),
    ],
)
def test_what_carries_the_driver_version(name, version, source, expected):
    assert systems.is_driver_package(name, version, source) is expected
