# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data: which packages make an NVIDIA driver on which operating system, and where they come from.

A *table* describes one system with one source of packages. Text in it may hold ``{branch}`` (580), ``{version}``
(580.178.04) and ``{kernel}``, which :func:`systems.instantiate` fills in. Keys:

``name``, ``origin``, ``package_manager``
    what it is called in messages, ``distribution`` or ``cuda``, ``apt`` or ``dnf``.
``sources``, ``members``
    a package belongs to the driver when it was built from one of these source packages, or when its name matches one of
    these expressions; ``apart`` are names that match and do not belong.
``blocked_sources``, ``blocked_names``
    the other driver families of the archive, which a pin keeps away.
``name_pattern``
    finds the packages worth reading in the package index.
``flavours``
    what kernel modules there are: ``proprietary``, ``open`` and the same with ``-prebuilt``. ``root`` is the package
    whose versions are the versions that can be had, ``packages`` belong to this flavour alone, ``per_kernel`` is
    installed for every kernel, ``stream`` is the module stream that has to be enabled.
``impossible``
    flavours that do not exist here, and why not.
``roots``, ``optional_roots``, ``components``
    packages that every set has, those that it has where they exist, and those of the parts that only some nodes need
    (of a tuple the first one that there is). ``no_component`` says why a part cannot be had.
``eras``
    ``(first branch, changes)``: how the table differs from that branch on.
``module``, ``kernel_suffix``
    dnf's module of the streams; what the names of prebuilt modules leave out of the kernel's release.
``prebuilt_pattern``, ``prebuilt_bound``
    packages of prebuilt modules, whose version is the kernel's; the bound is the package in whose dependency they name
    the driver's version.
"""

from __future__ import annotations

from ._sets_debian import DEBIAN, DEBIAN_CUDA
from ._sets_redhat import REDHAT9_CUDA, REDHAT10_CUDA, REDHAT_OWN
from ._sets_ubuntu import UBUNTU, UBUNTU_CUDA

# (ID, VERSION_ID) of /etc/os-release, the version as a whole or up to its first dot; the first source is the default
# one.
SYSTEMS = {
    ("debian", "12"): {"distribution": DEBIAN, "cuda": DEBIAN_CUDA},
    ("debian", "13"): {"distribution": DEBIAN, "cuda": DEBIAN_CUDA},
    ("ubuntu", "22.04"): {"distribution": UBUNTU, "cuda": UBUNTU_CUDA},
    ("ubuntu", "24.04"): {"distribution": UBUNTU, "cuda": UBUNTU_CUDA},
    ("rhel", "9"): {"cuda": REDHAT9_CUDA},
    ("rhel", "10"): {"cuda": REDHAT10_CUDA},
    ("rocky", "9"): {"cuda": REDHAT9_CUDA},
    ("rocky", "10"): {"cuda": REDHAT10_CUDA},
}

# Sources that a system does not have, and why.
NO_SOURCE = {
    ("rhel", "9", "distribution"): REDHAT_OWN,
    ("rhel", "10", "distribution"): REDHAT_OWN,
    ("rocky", "9", "distribution"): REDHAT_OWN,
    ("rocky", "10", "distribution"): REDHAT_OWN,
}

# A package of any driver family, by its source package.
DRIVER_SOURCE_PATTERN = r"^nvidia-(graphics-drivers|open-gpu-kernel-modules)(-.*)?$"

# The same by name and version, for a package whose source is not known.
DRIVER_NAME_PATTERN = (
    r"^(lib|firmware-|xserver-xorg-video-|linux-modules-|kmod-|xorg-x11-)?nvidia(-|$)|^libcuda(1|debugger1)$|"
    r"^libnv(cuvid|optix)1$"
)
DRIVER_VERSION_PATTERN = r"^[0-9]{3}\.[0-9]{2,3}(\.[0-9]{2})?$"

# Prebuilt modules of any driver family: their version says nothing of the driver's, or nothing but it.
PREBUILT_PATTERN = r"^(linux-(modules|objects)-nvidia-|kmod-nvidia-[0-9])"

# Tools with version numbers like the driver's that are released apart from it.
APART_NAME_PATTERN = r"^nvidia-(modprobe|persistenced|settings|xconfig|container.*|prime)(-|$)"

# A kernel of RHEL's family, of any flavour and vendor: kernel-core, kernel-64k-modules-core, kernel-uki-virt.
EL_KERNEL = r"kernel(?:-(?!headers|tools|srpm-|rpm-|doc|abi-).*)?"

KERNEL_NAME_PATTERN = (
    r"^linux-(?!modules-nvidia-|modules-extra-nvidia-)(image|headers|modules|kbuild|generic|virtual|lowlatency|aws|"
    r"azure|gcp|oem|signed)(-|$)"
    r"|^%s$" % EL_KERNEL
)

# Room the modules of a DKMS build take below /lib/modules, per kernel (MiB; seen: 75).
DKMS_MODULES_MIB = 100
