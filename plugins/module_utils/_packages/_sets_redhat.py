# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data: the driver on RHEL and Rocky Linux 9 and 10. ``_sets`` says what the keys mean.

The driver's packages have epoch 3, the fabric manager has none: no version in here or anywhere else is written without
the epoch that the repository gives it.
"""

from __future__ import annotations

REDHAT_OWN = "the distribution has no packages of the driver: take those of NVIDIA's CUDA repository, or a mirror of it"
NO_OPEN_PREBUILT = (
    "NVIDIA's CUDA repository has prebuilt modules of the proprietary flavour only: use kernel_module dkms, or "
    "flavour proprietary"
)
NO_PREBUILT_10 = "NVIDIA's CUDA repository has no prebuilt modules for this release: use kernel_module dkms"

REDHAT9_CUDA = {
    "name": "NVIDIA's CUDA repository for RHEL 9",
    "origin": "cuda",
    "package_manager": "dnf",
    "sources": (),
    "members": (
        (
            r"^nvidia-(driver|kmod-common|modprobe|persistenced|settings|xconfig|libXNVCtrl|imex|"
            r"fabric-?manager|open)(-|$)"
        ),
        r"^kmod-nvidia-",
        r"^libnvidia-(ml|cfg|fbc|gpucomp|nscq)(-[0-9]{3})?$",
        r"^libnvsdm$",
        r"^xorg-x11-nvidia$",
        r"^cuda-drivers(-|$)",
    ),
    "apart": (),
    "blocked_sources": (),
    "blocked_names": (),
    "name_pattern": r"nvidia|^libnvsdm|^cuda-drivers|^nvlsm$",
    "roots": ("nvidia-driver-cuda", "nvidia-kmod-common", "nvidia-persistenced", "nvidia-modprobe"),
    "flavours": {
        "proprietary": {
            "root": "kmod-nvidia-latest-dkms",
            "dkms_name": "nvidia",
            "stream": "{branch}-dkms",
            "rolling_stream": "latest-dkms",
            "packages": ("kmod-nvidia-latest-dkms", "cuda-drivers"),
        },
        "open": {
            "root": "kmod-nvidia-open-dkms",
            "dkms_name": "nvidia-open",
            "stream": "{branch}-open",
            "rolling_stream": "open-dkms",
            "packages": ("kmod-nvidia-open-dkms", "nvidia-open"),
        },
        "proprietary-prebuilt": {
            "root": "nvidia-kmod-common",
            "dkms_name": None,
            "stream": "{branch}",
            "rolling_stream": "latest",
            "per_kernel": "kmod-nvidia-{version}-{kernel}",
            "packages": (),
        },
    },
    "prebuilt_pattern": r"^kmod-nvidia-[0-9]{3}\.",
    # the kernel in the name of a prebuilt module is without the distribution and the architecture
    "kernel_suffix": r"\.el[0-9]+(_[0-9]+)*(\.[a-z0-9_]+)?$",
    "module": "nvidia-driver",
    "impossible": {"open-prebuilt": NO_OPEN_PREBUILT},
    "components": {
        "fabricmanager": ("nvidia-fabricmanager", "nvidia-fabric-manager"),
        "nscq": ("libnvidia-nscq", "libnvidia-nscq-{branch}"),
        "imex": ("nvidia-imex", "nvidia-imex-{branch}"),
        "persistenced": ("nvidia-persistenced",),
    },
    "no_component": {},
}

REDHAT10_CUDA = dict(
    REDHAT9_CUDA,
    name="NVIDIA's CUDA repository for RHEL 10",
    module=None,
    flavours={
        "proprietary": {
            "root": "kmod-nvidia-latest-dkms",
            "dkms_name": "nvidia",
            "packages": ("kmod-nvidia-latest-dkms", "cuda-drivers"),
        },
        "open": {
            "root": "kmod-nvidia-open-dkms",
            "dkms_name": "nvidia-open",
            "packages": ("kmod-nvidia-open-dkms", "nvidia-open"),
        },
    },
    impossible={"proprietary-prebuilt": NO_PREBUILT_10, "open-prebuilt": NO_PREBUILT_10},
)
