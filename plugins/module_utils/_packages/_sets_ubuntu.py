# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data: the driver on Ubuntu 22.04 and 24.04. ``_sets`` says what the keys mean.

Of the archive's packages only the ``-server`` ones are used: fabric manager, NSCQ and IMEX depend on exactly those.
"""

from __future__ import annotations

UBUNTU = {
    "name": "Ubuntu's own packages",
    "origin": "distribution",
    "package_manager": "apt",
    "sources": ("nvidia-graphics-drivers-{branch}-server",),
    "members": (
        r"^(nvidia-fabricmanager|libnvidia-nscq|nvidia-imex)(-dev)?-{branch}$",
        r"^linux-(modules|objects)-nvidia-{branch}-server(-open)?-[0-9]",
    ),
    "apart": (),
    "blocked_sources": ("nvidia-graphics-drivers-*", "fabric-manager-*", "libnvidia-nscq-*", "nvidia-imex-*"),
    "blocked_names": ("nvidia-fabricmanager-*", "libnvidia-nscq-*", "nvidia-imex-*", "linux-modules-nvidia-*"),
    "name_pattern": r"nvidia",
    "roots": (
        "libnvidia-compute-{branch}-server",
        "libnvidia-cfg1-{branch}-server",
        "nvidia-utils-{branch}-server",
        "nvidia-compute-utils-{branch}-server",
    ),
    "flavours": {
        "proprietary": {
            "root": "nvidia-dkms-{branch}-server",
            "dkms_name": "nvidia-srv",
            "packages": ("nvidia-dkms-{branch}-server", "nvidia-kernel-source-{branch}-server"),
        },
        "open": {
            "root": "nvidia-dkms-{branch}-server-open",
            "dkms_name": "nvidia",
            "packages": ("nvidia-dkms-{branch}-server-open", "nvidia-kernel-source-{branch}-server-open"),
        },
        "proprietary-prebuilt": {
            "root": "nvidia-kernel-common-{branch}-server",
            "dkms_name": None,
            "per_kernel": "linux-modules-nvidia-{branch}-server-{kernel}",
            "packages": (),
        },
        "open-prebuilt": {
            "root": "nvidia-kernel-common-{branch}-server",
            "dkms_name": None,
            "per_kernel": "linux-modules-nvidia-{branch}-server-open-{kernel}",
            "packages": (),
        },
    },
    "prebuilt_pattern": r"^linux-(modules|objects|signatures)-nvidia-",
    "prebuilt_bound": "nvidia-kernel-common-{branch}-server",
    "impossible": {},
    "components": {
        "fabricmanager": ("nvidia-fabricmanager-{branch}",),
        "nscq": ("libnvidia-nscq-{branch}",),
        "imex": ("nvidia-imex-{branch}",),
        "persistenced": ("nvidia-compute-utils-{branch}-server",),
    },
    "no_component": {},
}

NO_PREBUILT = (
    "NVIDIA's CUDA repository has no prebuilt modules for Ubuntu's kernels: take Ubuntu's own packages, or "
    "kernel_module dkms"
)

# Up to branch 580 the branch is part of the names, from 590 on it is not.
UBUNTU_CUDA = {
    "name": "NVIDIA's CUDA repository for Ubuntu",
    "origin": "cuda",
    "package_manager": "apt",
    "sources": (),
    "members": (
        r"^(lib)?nvidia-.*-{branch}(-open)?$",
        r"^nvidia-firmware-{branch}-{branch}\.",
        r"^(lib)?nvidia-(fabricmanager|nscq|imex)(-dev)?$",
        r"^libnvsdm$",
        r"^nvidia-(modprobe|persistenced|settings|xconfig)$",
        r"^cuda-drivers(-{branch})?$",
        r"^nvidia-open(-{branch})?$",
    ),
    "apart": (r"^nvidia-driver-pinning-",),
    "blocked_sources": ("nvidia-graphics-drivers-*",),
    "blocked_names": (
        "cuda-drivers",
        "cuda-drivers-*",
        "nvidia-open",
        "nvidia-open-*",
        "linux-modules-nvidia-*",
        "/^(lib)?nvidia-.*-[0-9]{3}(-server)?(-open)?$/",
    ),
    "name_pattern": r"nvidia|^libnvsdm|^cuda-drivers|^nvlsm$|^libxnvctrl",
    "roots": (
        "libnvidia-compute-{branch}",
        "libnvidia-cfg1-{branch}",
        "nvidia-utils-{branch}",
        "nvidia-compute-utils-{branch}",
    ),
    "flavours": {
        "proprietary": {
            "root": "nvidia-dkms-{branch}",
            "dkms_name": "nvidia",
            "packages": ("nvidia-dkms-{branch}", "nvidia-kernel-source-{branch}"),
        },
        "open": {
            "root": "nvidia-dkms-{branch}-open",
            "dkms_name": "nvidia",
            "packages": ("nvidia-dkms-{branch}-open", "nvidia-kernel-source-{branch}-open"),
        },
    },
    "impossible": {"proprietary-prebuilt": NO_PREBUILT, "open-prebuilt": NO_PREBUILT},
    "components": {
        "fabricmanager": ("nvidia-fabricmanager", "nvidia-fabricmanager-{branch}"),
        "nscq": ("libnvidia-nscq", "libnvidia-nscq-{branch}"),
        "imex": ("nvidia-imex", "nvidia-imex-{branch}"),
        "persistenced": ("nvidia-compute-utils-{branch}",),
    },
    "no_component": {},
    "eras": (
        (
            590,
            {
                "members": (
                    r"^(lib)?nvidia-(?!container|cuda-(dev|doc|gdb|toolkit|samples)|prime|docker|fs)",
                    r"^libnvsdm$",
                    r"^cuda-drivers$",
                    r"^libxnvctrl",
                ),
                "apart": (r"^nvidia-driver-pinning-", r"^.*-[0-9]{3}(-server)?(-open)?$"),
                "roots": ("libnvidia-compute", "libnvidia-cfg1"),
                "flavours": {
                    "proprietary": {
                        "root": "nvidia-dkms",
                        "dkms_name": "nvidia",
                        "packages": ("nvidia-dkms", "nvidia-kernel-source"),
                    },
                    "open": {
                        "root": "nvidia-dkms-open",
                        "dkms_name": "nvidia",
                        "packages": ("nvidia-dkms-open", "nvidia-kernel-source-open"),
                    },
                },
                "components": {
                    "fabricmanager": ("nvidia-fabricmanager",),
                    "nscq": ("libnvidia-nscq",),
                    "imex": ("nvidia-imex",),
                    "persistenced": ("nvidia-persistenced", "nvidia-compute-utils"),
                },
                "optional_roots": ("nvidia-utils", "nvidia-compute-utils", "nvidia-persistenced"),
            },
        ),
    ),
}
