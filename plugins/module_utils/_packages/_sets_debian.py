# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data: the driver on Debian 12 and 13. ``_sets`` says what the keys mean."""

from __future__ import annotations

NO_PREBUILT = "there are no prebuilt modules of the driver for Debian's kernels: use kernel_module dkms"

DEBIAN = {
    "name": "Debian's own packages",
    "origin": "distribution",
    "package_manager": "apt",
    "sources": ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules"),
    "members": (),
    "apart": (),
    "blocked_sources": ("nvidia-graphics-drivers-*", "nvidia-open-gpu-kernel-modules-*"),
    "blocked_names": (),
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
    "impossible": {"proprietary-prebuilt": NO_PREBUILT, "open-prebuilt": NO_PREBUILT},
    "components": {},
    "no_component": {
        "fabricmanager": "Debian has no fabric manager: take the packages of NVIDIA's CUDA repository",
        "nscq": "Debian has no NSCQ library: take the packages of NVIDIA's CUDA repository",
        "imex": "Debian has no IMEX daemon: take the packages of NVIDIA's CUDA repository",
        "persistenced": (
            "Debian releases nvidia-persistenced apart from the driver, with versions of its own: role "
            "nvidia_persistenced installs it"
        ),
    },
}

# The names are without a branch. Everything that carries the driver's version belongs to the set.
DEBIAN_CUDA = {
    "name": "NVIDIA's CUDA repository for Debian",
    "origin": "cuda",
    "package_manager": "apt",
    "sources": (),
    "members": (
        (
            r"^(lib|firmware-|xserver-xorg-video-)?nvidia-(?!container|cuda-(dev|doc|gdb|toolkit|samples)|prime|vaapi|"
            r"visual|docker|fs)"
        ),
        r"^libcuda(1|debugger1)$",
        r"^libnv(cuvid|optix|sdm)1?$",
        r"^cuda-drivers",
        r"^libxnvctrl",
    ),
    "apart": (r"^nvidia-driver-pinning-", r"^nvidia-(cuda-toolkit|installer-cleanup|support|kernel-common)$"),
    "blocked_sources": ("nvidia-graphics-drivers-*", "nvidia-open-gpu-kernel-modules-*"),
    "blocked_names": ("cuda-drivers", "cuda-drivers-*"),
    "name_pattern": r"nvidia|^libcuda(1|debugger1)$|^libnv(cuvid|optix)1$|^libnvsdm|^cuda-drivers|^nvlsm$|^libxnvctrl",
    "roots": ("nvidia-driver-cuda",),
    "flavours": {
        "proprietary": {
            "root": "nvidia-kernel-dkms",
            "dkms_name": "nvidia",
            "packages": ("nvidia-kernel-dkms", "nvidia-kernel-source", "cuda-drivers"),
        },
        "open": {
            "root": "nvidia-kernel-open-dkms",
            "dkms_name": "nvidia",
            "packages": (
                "nvidia-kernel-open-dkms",
                "nvidia-open",
                "nvidia-open-kernel-dkms",
                "nvidia-open-kernel-support",
            ),
        },
    },
    "impossible": {"proprietary-prebuilt": NO_PREBUILT, "open-prebuilt": NO_PREBUILT},
    "components": {
        "fabricmanager": ("nvidia-fabricmanager", "nvidia-fabricmanager-{branch}"),
        "nscq": ("libnvidia-nscq", "libnvidia-nscq-{branch}"),
        "imex": ("nvidia-imex", "nvidia-imex-{branch}"),
        "persistenced": ("nvidia-persistenced",),
    },
    "no_component": {},
}
