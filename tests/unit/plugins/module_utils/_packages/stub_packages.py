# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's packages as archives have them: names, versions, epochs, sources and dependencies, without content.

One list serves the tests of pure functions (as an index) and the tests with the real package managers (as
repositories).
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt
from ansible_collections.gpufleet.lifecycle.tests.lab.ubuntu_archive import (
    package,
    ubuntu_prebuilt,
    ubuntu_server,
    ubuntu_transitional,
)

# --- Ubuntu's archive (its packages are those of the lab) -------------------------------------------------------------

KERNEL = "6.8.0-149-generic"
OLD_KERNEL = "6.8.0-148-generic"
BASE = [
    package("dkms", "3.0.11-1ubuntu13"),
    package("linux-image-" + KERNEL, "6.8.0-149.149"),
    package("linux-image-" + OLD_KERNEL, "6.8.0-148.148"),
]
NOBLE = (
    BASE
    + ubuntu_server("580", "580.178.04")
    + ubuntu_server("595", "595.91.07")
    + ubuntu_transitional("570", "570.211.01", "580")
    + ubuntu_prebuilt("580", "580.178.04", KERNEL, "+1")
    + ubuntu_prebuilt("580", "580.173.02", OLD_KERNEL, "")
)


# --- NVIDIA's CUDA repository, as Debian packages ------------------------------------------------------------------


def cuda_ubuntu(branch, version):
    """Up to branch 580: the branch is part of the names."""
    full = "%s-1ubuntu1" % version
    found = [
        package("libnvidia-cfg1-%s" % branch, full),
        package("libnvidia-compute-%s" % branch, full),
        package("nvidia-utils-%s" % branch, full, "libnvidia-compute-%s" % branch),
        package("nvidia-compute-utils-%s" % branch, full, "libnvidia-compute-%s" % branch),
        package("nvidia-firmware-%s-%s" % (branch, version), full),
        package(
            "nvidia-kernel-common-%s" % branch,
            full,
            "nvidia-firmware-%s-%s, nvidia-modprobe (>= %s)" % (branch, version, full),
        ),
        package("nvidia-modprobe", full),
        package("nvidia-fabricmanager", full),
        package("libnvidia-nscq", full),
        package("nvidia-imex", full),
        package("cuda-drivers-%s" % branch, full, "nvidia-dkms-%s" % branch),
    ]
    for suffix in ("", "-open"):
        found += [
            package("nvidia-kernel-source-%s%s" % (branch, suffix), full),
            package(
                "nvidia-dkms-%s%s" % (branch, suffix),
                full,
                "dkms, nvidia-kernel-source-%s%s (= %s), nvidia-kernel-common-%s (= %s)"
                % (branch, suffix, full, branch, full),
            ),
        ]
    return found


def cuda_ubuntu_plain(version):
    """From branch 590 on: no branch in any name."""
    full = "%s-1ubuntu1" % version
    found = [
        package(name, full)
        for name in (
            "libnvidia-cfg1",
            "libnvidia-compute",
            "nvidia-firmware",
            "nvidia-modprobe",
            "nvidia-fabricmanager",
            "libnvidia-nscq",
            "nvidia-imex",
            "nvidia-kernel-source",
            "nvidia-kernel-source-open",
        )
    ]
    found += [
        package(name, full, "libnvidia-compute (= %s)" % full) for name in ("nvidia-utils", "nvidia-compute-utils")
    ]
    found += [package("nvidia-kernel-common", full, "nvidia-firmware (= %s), nvidia-modprobe (= %s)" % (full, full))]
    for suffix in ("", "-open"):
        found.append(
            package(
                "nvidia-dkms%s" % suffix,
                full,
                "dkms, nvidia-kernel-source%s (= %s), nvidia-kernel-common (= %s)" % (suffix, full, full),
            )
        )
    return found


def cuda_debian(version):
    full = "%s-1" % version
    kernel = "firmware-nvidia-gsp (= %s), nvidia-modprobe (>= %s)" % (full, full)
    return [
        package("nvidia-kernel-dkms", full, "dkms, nvidia-kernel-support (= %s)" % full),
        package("nvidia-kernel-open-dkms", full, "dkms, nvidia-kernel-support (= %s)" % full),
        package("nvidia-kernel-support", full, kernel),
        package("firmware-nvidia-gsp", full),
        package("nvidia-modprobe", full),
        package(
            "nvidia-driver-cuda",
            full,
            "libcuda1 (= %s), libnvidia-ml1 (= %s), nvidia-persistenced (= %s), nvidia-smi (= %s)"
            % (full, full, full, full),
        ),
        package("libcuda1", full, "libnvidia-ml1 (= %s)" % full),
        package("libnvidia-ml1", full),
        package("nvidia-persistenced", full),
        package("nvidia-smi", full),
        package("nvidia-fabricmanager", full),
        package("libnvidia-nscq", full),
        package("nvidia-imex", full),
    ]


# --- NVIDIA's CUDA repository, as rpm packages ----------------------------------------------------------------------

EL_KERNEL = "5.14.0-503.22.1.el9_5.x86_64"


def redhat(version, dist="el9", release="1", prebuilt_for=()):
    """The driver of epoch 3, and the fabric manager's family without an epoch."""
    full, same = "3:%s-%s.%s" % (version, release, dist), "= 3:%s" % version
    kmod = "nvidia-kmod (= 3:%s)" % version

    def need(*names):
        return ", ".join("%s (%s)" % (name, same) for name in names)

    found = [
        package("nvidia-kmod-common", full, need("nvidia-kmod") + ", nvidia-modprobe", source="nvidia-kmod-common"),
        package("nvidia-modprobe", full),
        package("nvidia-persistenced", full, need("libnvidia-cfg")),
        package("libnvidia-ml", full, source="nvidia-driver"),
        package("libnvidia-cfg", full, source="nvidia-driver"),
        package("nvidia-driver-cuda-libs", full, need("libnvidia-ml", "libnvidia-cfg"), source="nvidia-driver"),
        package(
            "nvidia-driver-cuda",
            full,
            need("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"),
            source="nvidia-driver",
        ),
        package(
            "kmod-nvidia-latest-dkms",
            full,
            need("nvidia-kmod-common") + ", dkms",
            kmod,
            source="dkms-nvidia",
            conflicts="kmod-nvidia-open-dkms",
        ),
        package(
            "kmod-nvidia-open-dkms",
            full,
            need("nvidia-kmod-common") + ", dkms",
            kmod,
            source="dkms-nvidia-open",
            conflicts="kmod-nvidia-latest-dkms",
        ),
        package("nvidia-fabricmanager", "%s-1" % version),
        package("libnvidia-nscq", "%s-1" % version),
        package("nvidia-imex", "%s-1" % version),
        package("nvidia-open", full, need("kmod-nvidia-open-dkms", "nvidia-driver-cuda")),
    ]
    for kernel in prebuilt_for:
        short, dist_tag = kernel.rsplit(".", 2)[0], kernel.rsplit(".", 2)[1]
        found.append(
            package(
                "kmod-nvidia-%s-%s" % (version, short),
                "3:%s-3.%s" % (version, dist_tag),
                need("nvidia-kmod-common"),
                kmod,
                conflicts="kmod-nvidia-latest-dkms",
            )
        )
    return found


EL_BASE = [package("dkms", "3.2.1-1.el9")]


# --- in the forms that tests need ----------------------------------------------------------------------------------


def index(packages):
    """What the resolver reads, out of either kind of archive."""
    found = {}
    for item in packages:
        relations = apt.parse_relations(item["depends"])
        found.setdefault(item["name"], []).append(
            {
                "name": item["name"],
                "version": item["version"],
                "source": item["source"],
                "architecture": "amd64",
                "relations": relations,
                "depends": [[name for name, operator, version in group] for group in relations],
                "provides": [group[0][0] for group in apt.parse_relations(item["provides"])],
                "size": item["size"],
                "installed_kib": item["installed"],
                "downloadable": True,
            }
        )
    return found


def installed(packages, hold=False):
    return dict(
        (
            item["name"],
            {
                "version": item["version"],
                "source": item["source"],
                "status": "ii",
                "hold": hold,
                "size_kib": item["installed"],
                "installed": True,
                "ok": True,
            },
        )
        for item in packages
    )


def named(packages, *names):
    chosen = [item for item in packages if item["name"] in names]
    assert len(chosen) == len(names)
    return chosen
