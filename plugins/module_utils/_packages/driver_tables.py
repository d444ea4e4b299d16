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

Of Ubuntu's archive only the ``-server`` packages are used: fabric manager, NSCQ and IMEX depend on exactly those. In
NVIDIA's rpm repository the driver's packages have epoch 3, the fabric manager has none: no version in here or anywhere
else is written without the epoch that the repository gives it.
"""

from __future__ import annotations

NO_PREBUILT_DEBIAN = "there are no prebuilt modules of the driver for Debian's kernels: use kernel_module dkms"

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
    "impossible": {"proprietary-prebuilt": NO_PREBUILT_DEBIAN, "open-prebuilt": NO_PREBUILT_DEBIAN},
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
    "impossible": {"proprietary-prebuilt": NO_PREBUILT_DEBIAN, "open-prebuilt": NO_PREBUILT_DEBIAN},
    "components": {
        "fabricmanager": ("nvidia-fabricmanager", "nvidia-fabricmanager-{branch}"),
        "nscq": ("libnvidia-nscq", "libnvidia-nscq-{branch}"),
        "imex": ("nvidia-imex", "nvidia-imex-{branch}"),
        "persistenced": ("nvidia-persistenced",),
    },
    "no_component": {},
}


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
    "blocked_names": ("nvidia-fabricmanager-*", "libnvidia-nscq-*", "nvidia-imex-*", "linux-modules-nvidia-[0-9]*"),
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
    "prebuilt_pattern": r"^linux-(modules|objects|signatures)-nvidia-[0-9]",
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

NO_PREBUILT_UBUNTU = (
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
        "linux-modules-nvidia-[0-9]*",
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
    "impossible": {"proprietary-prebuilt": NO_PREBUILT_UBUNTU, "open-prebuilt": NO_PREBUILT_UBUNTU},
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

# Prebuilt modules of any driver family: their version says nothing of the driver's, or nothing but it. Those of
# GPUDirect Storage, linux-modules-nvidia-fs-KERNEL, have no branch and are the kernel's.
PREBUILT_PATTERN = r"^(linux-(modules|objects)-nvidia-[0-9]|kmod-nvidia-[0-9])"

# Tools with version numbers like the driver's that are released apart from it.
APART_NAME_PATTERN = r"^nvidia-(modprobe|persistenced|settings|xconfig|container.*|prime)(-|$)"

# A kernel of RHEL's family, of any flavour and vendor: kernel-core, kernel-64k-modules-core, kernel-uki-virt.
EL_KERNEL = r"kernel(?:-(?!headers|tools|srpm-|rpm-|doc|abi-).*)?"

KERNEL_NAME_PATTERN = (
    r"^linux-(?!modules-nvidia-[0-9]|modules-extra-nvidia-)(image|headers|modules|kbuild|generic|virtual|lowlatency|aws|"
    r"azure|gcp|oem|signed)(-|$)"
    r"|^%s$" % EL_KERNEL
)

# Room the modules of a DKMS build take below /lib/modules, per kernel (MiB; seen: 75).
DKMS_MODULES_MIB = 100
