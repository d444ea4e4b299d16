# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages that are the driver's, by name, version and source."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import driver_family

pytestmark = pytest.mark.pythons

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
    assert driver_family.is_driver_package(name, version, source) is expected
