# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""Data: which packages make an NVIDIA driver on which operating system.

``sources`` are the source packages whose binaries carry the driver's own version; a package belongs to the driver when
it was built from one of them, whatever its name is. ``blocked_sources`` are the other driver families of the archive,
which a pin keeps away. ``name_pattern`` finds the binaries worth reading in the package index.
"""

from __future__ import annotations

DEBIAN = {
    "package_manager": "apt",
    "sources": ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules"),
    "blocked_sources": ("nvidia-graphics-drivers-*", "nvidia-open-gpu-kernel-modules-*"),
    "name_pattern": r"nvidia|^libcuda(1|debugger1)$|^libnv(cuvid|optix)1$",
    "roots": ("nvidia-smi", "libnvidia-ml1", "libcuda1", "libnvidia-cfg1"),
    "flavours": {
        "proprietary": {
            "root": "nvidia-kernel-dkms",
            "dkms_name": "nvidia-current",
            "packages": ("nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-kernel-source"),
        },
        "open": {
            "root": "nvidia-open-kernel-dkms",
            "dkms_name": "nvidia-current-open",
            "packages": ("nvidia-open-kernel-dkms", "nvidia-open-kernel-support", "nvidia-open-kernel-source"),
        },
    },
}

# (ID, VERSION_ID) of /etc/os-release
SETS = {
    ("debian", "12"): DEBIAN,
    ("debian", "13"): DEBIAN,
}

# A package of any driver family, by its source package.
DRIVER_SOURCE_PATTERN = r"^nvidia-(graphics-drivers|open-gpu-kernel-modules)(-.*)?$"

# The same by name and version, for a package whose source is not known.
DRIVER_NAME_PATTERN = r"^(lib|firmware-|xserver-xorg-video-|linux-modules-)?nvidia(-|$)|^libcuda(1|debugger1)$|^libnv(cuvid|optix)1$"
DRIVER_VERSION_PATTERN = r"^[0-9]{3}\.[0-9]{2,3}(\.[0-9]{2})?$"

# Tools with version numbers like the driver's that are released apart from it.
APART_NAME_PATTERN = r"^nvidia-(modprobe|persistenced|settings|xconfig|container.*|prime)(-|$)"

KERNEL_NAME_PATTERN = r"^linux-(image|headers|modules|kbuild|generic|virtual|lowlatency|aws|azure|gcp|oem|signed)(-|$)"

# Room a DKMS build of the driver takes below /var/lib/dkms and /lib/modules, per kernel (MiB; seen: 330 and 75).
DKMS_BUILD_MIB = 400
DKMS_MODULES_MIB = 100
