# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ubuntu 24.04's archive has of kernels and of NVIDIA's drivers: names, splits, versions, dependencies, pockets.

Data, for the repository of the lab's machines (``ubuntu.py``) and for tests of the collection, which also run on old
Pythons. What the packages hold is not said here. Only ``-server`` branches: NVIDIA's fabric manager depends on exactly
those.
"""

from __future__ import annotations


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


def ubuntu_server(branch, version, revision="0ubuntu0.24.04.1"):
    """A ``-server`` branch of Ubuntu's archive."""
    full, mark, source = (
        "%s-%s" % (version, revision),
        "%s-server" % branch,
        "nvidia-graphics-drivers-%s-server" % branch,
    )
    common = "nvidia-kernel-common-%s" % mark

    def only(name, depends="", provides=""):
        """A package of which a machine has one branch's."""
        kind = name[: name.index("-" + mark)]
        return package(
            name, full, depends, ", ".join(filter(None, (kind, provides))), source, conflicts=kind, replaces=kind
        )

    compute = "libnvidia-compute-%s (= %s)" % (mark, full)
    firmware = "nvidia-firmware-%s-%s" % (mark, version)
    found = [
        only("libnvidia-cfg1-" + mark),
        only("libnvidia-compute-" + mark),
        only("libnvidia-decode-" + mark, compute),
        only("nvidia-utils-" + mark, compute),
        only("nvidia-compute-utils-" + mark, compute),
        package(firmware, full, source=source),
        only(common, firmware, "%s-%s" % (common, version)),
    ]
    for suffix in ("", "-open"):
        kernel_source, dkms = "nvidia-kernel-source-%s%s" % (mark, suffix), "nvidia-dkms-%s%s" % (mark, suffix)
        no_dkms = "nvidia-headless-no-dkms-%s%s" % (mark, suffix)
        found += [
            only(kernel_source),
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


def ubuntu_desktop(branch, version, revision="0ubuntu0.24.04.1"):
    """What a ``-server`` branch has beside that for machines with a screen. No compute node needs it."""
    full, mark, source = (
        "%s-%s" % (version, revision),
        "%s-server" % branch,
        "nvidia-graphics-drivers-%s-server" % branch,
    )
    found = [
        package("libnvidia-common-" + mark, full, source=source),
        package("libnvidia-encode-" + mark, full, "libnvidia-decode-%s (= %s)" % (mark, full), source=source),
        package("libnvidia-extra-" + mark, full, source=source),
        package("libnvidia-fbc1-" + mark, full, "libnvidia-gl-%s (= %s)" % (mark, full), source=source),
        package("libnvidia-gl-" + mark, full, "libnvidia-common-%s" % mark, source=source),
        package("xserver-xorg-video-nvidia-" + mark, full, "libnvidia-cfg1-%s (= %s)" % (mark, full), source=source),
    ]
    for suffix in ("", "-open"):
        names = ["libnvidia-%s-%s" % (part, mark) for part in ("gl", "compute", "extra", "decode", "encode", "fbc1")]
        names += ["nvidia-%s-%s" % (part, mark) for part in ("compute-utils", "utils")]
        names += ["nvidia-dkms-%s%s" % (mark, suffix), "xserver-xorg-video-nvidia-" + mark]
        # The modules may be another build's: the metapackage wants the branch's own version, prebuilt or not.
        depends = ", ".join(
            "%s (<= %s-1), %s (>= %s)" % (name, version, name, version)
            if "-dkms-" in name
            else "%s (= %s)" % (name, full)
            for name in names
        )
        found.append(package("nvidia-driver-%s%s" % (mark, suffix), full, depends, source=source))
    return found


def ubuntu_kernel(kernel):
    """The packages of one kernel, such as 6.8.0-31-generic, without its metapackages."""
    abi = kernel.rsplit("-", 1)[0]
    version = kernel_version(kernel)
    return [
        package("linux-image-" + kernel, version, "kmod, linux-base, linux-modules-" + kernel, source="linux-signed"),
        package("linux-modules-" + kernel, version, source="linux"),
        package("linux-headers-" + abi, version, source="linux"),
        package("linux-headers-" + kernel, version, "linux-headers-" + abi, source="linux"),
    ]


def ubuntu_kernel_metas(kernel):
    """What follows the newest kernel of the release's own series."""
    version = kernel_version(kernel)
    both = "linux-image-generic (= %s), linux-headers-generic (= %s)" % (version, version)
    return [
        package("linux-image-generic", version, "linux-image-" + kernel, source="linux-meta"),
        package("linux-headers-generic", version, "linux-headers-" + kernel, source="linux-meta"),
        package("linux-generic", version, both, source="linux-meta"),
    ]


def ubuntu_prebuilt_meta(branch, kernel, flavour="-open"):
    """What follows the newest kernel with the branch's prebuilt modules."""
    name = "linux-modules-nvidia-%s-server%s-" % (branch, flavour)
    return package(name + "generic", kernel_version(kernel), name + kernel, source="linux-restricted-modules")


def kernel_version(kernel):
    """The version of a kernel's packages: 6.8.0-31.31 of 6.8.0-31-generic."""
    abi = kernel.rsplit("-", 1)[0]
    return "%s.%s" % (abi, abi.rsplit("-", 1)[1])


# --- the archive of the lab's machines -------------------------------------------------------------------------------

RELEASE_KERNEL, UPDATED_KERNEL = "6.8.0-31-generic", "6.8.0-149-generic"
# The branch that machines have, as it was and as it is, and the one after it.
OLD, NEW, NEXT = "570.172.08", "570.211.01", "580.178.04"
FLAVOURS = ("", "-open")
# What a machine has installed that has nothing to do with either, and its security update.
OTHER, OTHER_OLD, OTHER_NEW = "lab-security-note", "1.0", "1.1"
# The drivers that a kernel has prebuilt modules of: those of the day on which it came.
PREBUILT = {RELEASE_KERNEL: (OLD,), UPDATED_KERNEL: (NEW, NEXT)}


def ubuntu_modules(kernel):
    """A kernel's prebuilt modules, and the metapackages that lead to them."""
    found = []
    for driver in PREBUILT[kernel]:
        for flavour in FLAVOURS:
            branch = driver.split(".")[0]
            found += ubuntu_prebuilt(branch, driver, kernel, "", flavour) + [
                ubuntu_prebuilt_meta(branch, kernel, flavour)
            ]
    return list({(item["name"], item["version"]): item for item in found}.values())


def pockets():
    """The packages of each pocket.

    The real archive keeps the newest version of a driver alone, which leaves none to upgrade from: here the release
    has one of an ended life, as a site's own mirror would.
    """
    release = ubuntu_kernel(RELEASE_KERNEL) + ubuntu_kernel_metas(RELEASE_KERNEL)
    release += (
        [package(OTHER, OTHER_OLD)]
        + ubuntu_server("570", OLD)
        + ubuntu_desktop("570", OLD)
        + ubuntu_modules(RELEASE_KERNEL)
    )
    security = ubuntu_kernel(UPDATED_KERNEL) + ubuntu_kernel_metas(UPDATED_KERNEL)
    security += [package(OTHER, OTHER_NEW)] + ubuntu_server("570", NEW) + ubuntu_desktop("570", NEW)
    security += ubuntu_modules(UPDATED_KERNEL)
    security += ubuntu_server("580", NEXT) + ubuntu_desktop("580", NEXT)
    updates = ubuntu_server("595", "595.91.07") + ubuntu_desktop("595", "595.91.07")
    for branch, version, following in (("565", "565.77", "570"), ("590", "590.48.01", "595")):
        updates += [dict(item, section="oldlibs") for item in ubuntu_transitional(branch, version, following)]
    return {"noble": release, "noble-updates": security + updates, "noble-security": security}


def section(item):
    """The section of a package, with the component of the archive that it is in."""
    name = item["name"]
    if "section" in item:
        return "restricted/" + item["section"]
    if name.startswith(("nvidia-fabricmanager-", "libnvidia-nscq-", "nvidia-imex-")):
        return "multiverse/libs"
    if name.startswith(("linux-modules-nvidia-", "linux-objects-nvidia-", "linux-signatures-nvidia-")):
        return "restricted/kernel"
    return "kernel" if name.startswith("linux-") else "restricted/libs"
