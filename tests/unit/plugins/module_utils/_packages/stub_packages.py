# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's packages as archives have them: names, versions, epochs, sources and dependencies, without content.

One list serves the tests of pure functions (as an index) and the tests with the real package managers (as
repositories).
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt


def package(name, version, depends="", provides="", source=None, conflicts="", size=4096, installed=64, replaces=""):
    return {
        "name": name,
        "version": version,
        "depends": depends,
        "provides": provides,
        "source": source or name,
        "conflicts": conflicts,
        "size": size,
        "installed": installed,
        "replaces": replaces,
    }


# --- Ubuntu's archive ------------------------------------------------------------------------------------------------


def ubuntu_server(branch, version, revision="0ubuntu0.24.04.1"):
    """A ``-server`` branch of Ubuntu's archive."""
    full, mark, source = (
        "%s-%s" % (version, revision),
        "%s-server" % branch,
        "nvidia-graphics-drivers-%s-server" % branch,
    )
    common = "nvidia-kernel-common-%s" % mark
    found = [
        package("libnvidia-cfg1-" + mark, full, source=source),
        package(
            "libnvidia-compute-" + mark,
            full,
            source=source,
            conflicts="libnvidia-compute",
            provides="libnvidia-compute",
        ),
        package("libnvidia-decode-" + mark, full, "libnvidia-compute-%s (= %s)" % (mark, full), source=source),
        package("nvidia-utils-" + mark, full, "libnvidia-compute-%s (= %s)" % (mark, full), source=source),
        package("nvidia-compute-utils-" + mark, full, "libnvidia-compute-%s (= %s)" % (mark, full), source=source),
        package("nvidia-firmware-%s-%s" % (mark, version), full, source=source),
        package(common, full, "nvidia-firmware-%s-%s" % (mark, version), "%s-%s" % (common, version), source=source),
    ]
    for suffix in ("", "-open"):
        kernel_source, dkms = "nvidia-kernel-source-%s%s" % (mark, suffix), "nvidia-dkms-%s%s" % (mark, suffix)
        no_dkms = "nvidia-headless-no-dkms-%s%s" % (mark, suffix)
        found += [
            package(kernel_source, full, source=source),
            package(
                dkms,
                full,
                "dkms, %s (= %s), %s (= %s)" % (kernel_source, full, common, full),
                "nvidia-dkms-kernel",
                source=source,
                conflicts="nvidia-dkms-kernel",
            ),
            package(
                no_dkms,
                full,
                "libnvidia-cfg1-%s (= %s), libnvidia-compute-%s (= %s), nvidia-compute-utils-%s (= %s), %s (= %s)"
                % (mark, full, mark, full, mark, full, common, full),
                source=source,
            ),
            package(
                "nvidia-headless-%s%s" % (mark, suffix),
                full,
                "%s (= %s), %s (= %s)" % (no_dkms, full, dkms, full),
                source=source,
            ),
        ]
    exact = "%s-%s" % (common, version)
    found += [
        package("%s-%s" % (name, branch), full, exact, source="%s-%s" % (origin, branch))
        for name, origin in (
            ("nvidia-fabricmanager", "fabric-manager"),
            ("libnvidia-nscq", "libnvidia-nscq"),
            ("nvidia-imex", "nvidia-imex"),
        )
    ]
    return found


def ubuntu_transitional(branch, version, to, revision="0ubuntu0.24.04.2"):
    """A branch that has ended: its packages keep their version and bring the branch after it."""
    names = [
        "libnvidia-cfg1-%s-server",
        "libnvidia-compute-%s-server",
        "nvidia-utils-%s-server",
        "nvidia-compute-utils-%s-server",
        "nvidia-kernel-common-%s-server",
        "nvidia-kernel-source-%s-server",
        "nvidia-dkms-%s-server",
        "nvidia-headless-no-dkms-%s-server",
        "nvidia-headless-%s-server",
    ]
    found = [
        package(
            name % branch, "%s-%s" % (version, revision), name % to, source="nvidia-graphics-drivers-%s-server" % branch
        )
        for name in names
    ]
    return found + [
        package(
            "nvidia-fabricmanager-%s" % branch,
            "%s-%s" % (version, revision),
            "nvidia-fabricmanager-%s" % to,
            source="fabric-manager-%s" % branch,
        )
    ]


def ubuntu_prebuilt(branch, version, kernel, build, flavour="-open"):
    """Signed modules for one kernel: their version is the kernel's, the driver's is in their dependencies."""
    abi = kernel.rsplit("-", 1)[0]
    full = "%s.%s%s" % (abi, abi.rsplit("-", 1)[1], build)
    mark, source = "%s-server" % branch, "linux-restricted-modules"
    common = "nvidia-kernel-common-%s" % mark
    return [
        package("linux-objects-nvidia-%s%s-%s" % (mark, flavour, kernel), full, source=source),
        package("linux-signatures-nvidia-%s" % kernel, full, source="linux-restricted-signatures"),
        package(
            "linux-modules-nvidia-%s%s-%s" % (mark, flavour, kernel),
            full,
            "linux-image-%s | linux-image-unsigned-%s, linux-signatures-nvidia-%s (= %s), linux-objects-nvidia-%s%s-%s "
            "(= %s), %s (<= %s-1), %s (>= %s)"
            % (kernel, kernel, kernel, full, mark, flavour, kernel, full, common, version, common, version),
            "nvidia-dkms-%s%s" % (mark, flavour),
            source=source,
        ),
    ]


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
