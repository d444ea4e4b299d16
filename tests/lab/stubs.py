# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A flat apt repository of stub driver packages under the real names, for the failure paths.

The packages carry the names, versions and dependencies of Debian's driver packages and a kernel module of a few
lines instead of the driver, so that a DKMS build takes seconds. What each version is for stands in ``RELEASES``.
None of it drives a GPU, and every file says so.

Usage: ``python3 -m tests.lab.stubs DIRECTORY``, which writes DIRECTORY.tar too; then on a node
``deb [trusted=yes] file:DIRECTORY ./``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REVISION = "0stub1"

# version -> what the release does. Every release is complete unless it says otherwise; "parts" are the modules beside
# the first.
RELEASES = {
    "535.216.03": {"about": "a good release", "parts": ("-modeset", "-drm", "-uvm")},
    "535.261.03": {"about": "a good, newer release", "parts": ("-modeset", "-drm", "-uvm")},
    # The dkms of Debian 13 takes none older than 535.230.
    "535.274.02": {"about": "a good release, newer still", "parts": ("-modeset", "-drm", "-uvm")},
    "535.555.01": {"about": "its DKMS build takes long: something to kill", "build_seconds": 45},
    "535.556.01": {"about": "dpkg takes long over it: something to kill", "postinst_seconds": 45},
    "535.666.01": {"about": "nvidia-smi of this release was never published", "without": ("nvidia-smi",)},
    "535.777.01": {
        "about": "its packages install well and bring no module, as a skipped DKMS build does",
        "dkms": False,
    },
    "535.888.01": {"about": "its userland belongs to another branch (transitional package)", "userland": "550.54.14"},
    "535.999.01": {"about": "its module does not compile", "broken": True},
    "550.54.14": {"about": "the other branch, as the transitional release pulls it in"},
}

DKMS_NAME = "nvidia-current"
RELEASED_APART = ("nvidia-modprobe",)  # no part of the driver's source package

MODULE = """\
/* Stub under the driver's name, for tests: it has the version and the license tag of the driver and does nothing. */
#include <linux/module.h>
#include <linux/init.h>
{broken}
static int __init stub_init(void) {{ return 0; }}
static void __exit stub_exit(void) {{ }}
module_init(stub_init);
module_exit(stub_exit);
MODULE_LICENSE("NVIDIA");
MODULE_VERSION("{version}");
MODULE_DESCRIPTION("gpufleet test stub, not a driver");
"""

MAKEFILE = """\
obj-m := {objects}
all:
\t{slow}
\t$(MAKE) -C $(KERNEL_SOURCE) M=$(CURDIR) modules
clean:
\t$(MAKE) -C $(KERNEL_SOURCE) M=$(CURDIR) clean
"""

DKMS_CONF = """\
PACKAGE_NAME="{name}"
PACKAGE_VERSION="{version}"
{modules}MAKE[0]="make KERNEL_SOURCE=$kernel_source_dir all"
CLEAN="make KERNEL_SOURCE=$kernel_source_dir clean"
AUTOINSTALL="yes"
"""

DKMS_MODULE = """\
BUILT_MODULE_NAME[{number}]="nvidia{part}"
DEST_MODULE_NAME[{number}]="{name}{part}"
DEST_MODULE_LOCATION[{number}]="/updates/dkms"
"""

POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
sleep {seconds}
/usr/lib/dkms/common.postinst {name} {version} /usr/share/{name} amd64 "$2"
"""

PRERM = """\
#!/bin/sh
set -e
case "$1" in remove|upgrade|deconfigure)
    [ -z "$(dkms status -m {name} -v {version})" ] || dkms remove -m {name} -v {version} --all
esac
"""


def full(version):
    """The Debian version of an upstream one."""
    return "%s-%s" % (version, REVISION)


def packages_of(version, release):
    """Name -> (dependencies, files {path: text}, scripts {name: text}) of one release."""
    user = full(release.get("userland", version))
    same = full(version)
    library = "/usr/lib/x86_64-linux-gnu/nvidia/current/"
    note = "gpufleet test stub of %s, not NVIDIA's file\n" % version
    source, parts = "/usr/src/%s-%s/" % (DKMS_NAME, version), ("", *release.get("parts", ()))
    text = MODULE.format(
        version=version, broken='#error "this release does not compile"' if release.get("broken") else ""
    )
    modules = "".join(DKMS_MODULE.format(number=number, name=DKMS_NAME, part=part) for number, part in enumerate(parts))
    dkms_source = {
        **{source + "nvidia%s.c" % part: text for part in parts},
        source + "Makefile": MAKEFILE.format(
            objects=" ".join("nvidia%s.o" % part for part in parts), slow="sleep %d" % release.get("build_seconds", 0)
        ),
        source + "dkms.conf": DKMS_CONF.format(name=DKMS_NAME, version=version, modules=modules),
    }
    scripts = {
        "prerm": PRERM.format(name=DKMS_NAME, version=version),
        "postinst": POSTINST.format(name=DKMS_NAME, version=version, seconds=release.get("postinst_seconds", 0)),
    }
    if not release.get("dkms", True):
        dkms_source, scripts = {}, {}
    table = {
        "nvidia-legacy-check": ("", {}, {}),
        "nvidia-modprobe": ("", {}, {}),
        "nvidia-alternative": ("nvidia-legacy-check (>= 495)", {}, {}),
        "nvidia-kernel-support": ("nvidia-alternative (= %s), nvidia-modprobe (>= 535)" % same, {}, {}),
        "firmware-nvidia-gsp": (
            "",
            {
                "/lib/firmware/nvidia/%s/gsp_ga10x.bin" % version: note,
                "/lib/firmware/nvidia/%s/gsp_tu10x.bin" % version: note,
            },
            {},
        ),
        "nvidia-kernel-dkms": (
            "dkms, firmware-nvidia-gsp (= %s), nvidia-kernel-support (= %s)" % (same, same),
            dkms_source,
            scripts,
        ),
        "libnvidia-ml1": ("nvidia-alternative (= %s)" % same, {library + "libnvidia-ml.so." + version: note}, {}),
        "libnvidia-cfg1": ("nvidia-alternative (= %s)" % same, {library + "libnvidia-cfg.so." + version: note}, {}),
        "libnvidia-ptxjitcompiler1": (
            "nvidia-alternative (= %s)" % same,
            {library + "libnvidia-ptxjitcompiler.so." + version: note},
            {},
        ),
        "libnvidia-pkcs11-openssl3": ("nvidia-alternative (= %s)" % same, {}, {}),
        "libcuda1": (
            "nvidia-alternative (= %s), libnvidia-ptxjitcompiler1 (= %s), libnvidia-pkcs11-openssl3 (= %s)"
            % (same, same, same),
            {library + "libcuda.so." + version: note},
            {},
        ),
        "nvidia-smi": ("libnvidia-ml1 (= %s)" % user, {}, {}),
    }
    return {name: entry for name, entry in table.items() if name not in release.get("without", ())}


def build(name, version, depends, files, scripts, out):
    """One .deb by dpkg-deb; returns its path."""
    with tempfile.TemporaryDirectory() as tree:
        root = Path(tree, "root")
        (root / "DEBIAN").mkdir(parents=True)
        root.chmod(0o755)
        fields = [
            "Package: %s" % name,
            "Version: %s" % full(version),
            "Architecture: amd64",
            "Section: non-free/libs",
            "Maintainer: gpufleet contributors <gpufleet@example.invalid>",
            "Description: gpufleet test stub, not a driver",
        ]
        if name not in RELEASED_APART:
            fields.insert(1, "Source: nvidia-graphics-drivers")
        if depends:
            fields.append("Depends: %s" % depends)
        (root / "DEBIAN/control").write_text("\n".join(fields) + "\n")
        for script, text in scripts.items():
            (root / "DEBIAN" / script).write_text(text)
            (root / "DEBIAN" / script).chmod(0o755)
        doc = {
            "/usr/share/doc/%s/README.stub" % name: "A test stub of the gpufleet lab: %s\n" % RELEASES[version]["about"]
        }
        for path, text in {**files, **doc}.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        deb = Path(out, "%s_%s_amd64.deb" % (name, full(version)))
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(deb)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return deb


def index_entry(deb):
    """The stanza of a Packages file for one .deb."""
    control = subprocess.run(
        ["dpkg-deb", "--field", str(deb)], check=True, capture_output=True, text=True
    ).stdout.strip()
    return "%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n" % (
        control,
        deb.name,
        deb.stat().st_size,
        hashlib.sha256(deb.read_bytes()).hexdigest(),
    )


def repository(directory):
    """Builds the repository; it appears whole or not at all. Returns the number of packages."""
    directory = Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".stubs-", dir=directory.parent))
    try:
        debs = [
            build(name, version, depends, files, scripts, fresh)
            for version, release in RELEASES.items()
            for name, (depends, files, scripts) in packages_of(version, release).items()
        ]
        (fresh / "Packages").write_text("\n".join(index_entry(deb) for deb in debs))
        fresh.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        os.rename(fresh, directory)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return len(debs)


if __name__ == "__main__":
    print("%d stub packages in %s and %s.tar" % (repository(sys.argv[1]), sys.argv[1], sys.argv[1]))
    shutil.make_archive(sys.argv[1], "tar", sys.argv[1])
