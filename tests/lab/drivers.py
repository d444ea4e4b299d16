# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compile a driver once for an image's kernel, as a node would with dkms, and keep the built tree in the cache."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path

from plugins.module_utils._dkms import dkms, tree_archives

from . import aptconf, image, layers
from .common import LabError, elapsed, locked, run, run_logged, say, write_whole
from .config import CHECKOUT, DRIVER_VERSIONS, LIKE, SUITE, Lab

PACKAGE = "nvidia-kernel-dkms"
MODULE = "nvidia-current"  # the name Debian gives this package's module in the DKMS tree


def upstream(version: str) -> str:
    """The driver's own version in a Debian version: 535.216.03 of 535.216.03-2~bpo12+1."""
    return version.split(":", 1)[-1].split("-", 1)[0]


def choose(wanted: str, available: list[str]) -> str:
    """The Debian version that was meant: exactly this one, or the only one with this driver version."""
    if wanted in available:
        return wanted
    fitting = sorted({version for version in available if upstream(version) == wanted})
    if len(fitting) == 1:
        return fitting[0]
    offered = ", ".join(sorted(set(available))) or "none"
    raise LabError(
        f"driver version {wanted} is {'ambiguous' if fitting else 'not available'}; of {PACKAGE} there is: {offered}"
    )


def stored_versions(archives: list[str]) -> dict[str, str]:
    """Versions of the driver's kernel package among package file names, and the file each is in."""
    found = {}
    for name in archives:
        match = re.fullmatch(rf"{PACKAGE}_([^_]+)_[a-z0-9]+\.deb", name)
        if match:
            found[match[1].replace("%3a", ":")] = name
    return found


def madison(output: str) -> list[str]:
    """The versions in what 'apt-cache madison' prints."""
    return [line.split("|")[1].strip() for line in output.splitlines() if line.count("|") >= 2]


def tree_name(root: Path, version: str, kernel: str) -> str:
    """The file a built tree is kept in: the collection's own name for it, so that nodes find it."""
    compiler = dkms.compiler_id(dkms.kernel_config(str(root), kernel))
    if not compiler:
        raise LabError(f"cannot tell which compiler kernel {kernel} of the image was built with")
    return dkms.tree_name(MODULE, upstream(version), kernel, platform.machine(), compiler)


def _archives(lab: Lab, suite: str) -> Path:
    return image.packages_layer(suite).root(lab.images) / image.ARCHIVES


def directory(lab: Lab, suite: str, version: str) -> Path:
    """Where the trees of a version are kept.

    Their name tells no package's revision: of two revisions, the later one's are kept apart.
    """
    same = [each for each in DRIVER_VERSIONS[suite] if upstream(each) == upstream(version)]
    return lab.trees / version if version in same[1:] else lab.trees


def present(trees: Path, name: str) -> bool:
    return (trees / name).is_file() and (trees / f"{name}.sha256").is_file()


def ensure(lab: Lab, wanted: list[str], suite: str = SUITE) -> list[Path]:
    """Have built trees of these driver versions (all the image keeps, if none is named) for each kernel of a suite's
    image; return their files.
    """
    if suite in LIKE:
        say(f"machines of {suite} build their modules themselves, in seconds")
        return []
    image.ensure(lab, suite, image.packages_layer(suite))
    base = image.base_layer(suite).root(lab.images)
    stored = list(stored_versions(os.listdir(_archives(lab, suite))))
    found = []
    for version in wanted or DRIVER_VERSIONS[suite]:
        chosen = choose(version, stored) if version in stored + [upstream(each) for each in stored] else version
        for kernel in image.kernels(base):
            name, trees = tree_name(base, chosen, kernel), directory(lab, suite, chosen)
            if present(trees, name):
                say(f"driver {chosen} for kernel {kernel}: already compiled, {trees / name}")
            else:
                image.check_host()
                if layers.isolated("_driver", suite, chosen, kernel) != 0:
                    raise LabError(f"driver {chosen} could not be compiled for kernel {kernel}")
            found.append(trees / name)
    for trees in sorted({path.parent for path in found}):
        record(trees)
    return found


def record(trees: Path, url: str = "") -> None:
    """Record the archives of a directory as a builder's: no node is sent another. URL: the ledger, if not its own."""
    run(str(CHECKOUT / "tests/tools/collections.sh"))
    sys.path.insert(0, str(CHECKOUT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, store

    database = store.Store(url or store.default_url(str(trees.parent)))
    promised = ((path.name, tree_archives.read_promised_digest(str(path))) for path in trees.glob("*.dkms.tar.gz"))
    found = {name: digest for name, digest in promised if digest}
    try:
        others.find_builders(database, found)
    except store.StoreError:
        # Of another version of the collection. The lab's own ledger has nothing but these records.
        if url:
            raise
        Path(database.file).unlink()
    for name, digest in sorted(found.items()):
        others.record_archive(database, "lab", name, digest)


def _fetch(suite: str, root: Path, version: str, log: Path) -> str:
    """Download the kernel package of a version the image does not keep; return its path in the root."""
    own = image.use_host_network_settings(root, suite)
    image.use_host_names(root)
    write_whole(root / "etc/apt/sources.list.d/lab-drivers.sources", aptconf.deb822(aptconf.driver_sources(own, suite)))
    run_logged("package lists", log, "chroot", root, "apt-get", "-q", "update")
    offered = madison(run("chroot", root, "apt-cache", "madison", PACKAGE).stdout)
    chosen = choose(version, offered)
    run_logged(
        f"package of {chosen}",
        log,
        "chroot",
        root,
        "sh",
        "-c",
        f"cd /var/tmp && apt-get -q download {PACKAGE}={chosen}",
    )
    (package,) = (root / "var/tmp").glob(f"{PACKAGE}_*.deb")
    return f"/var/tmp/{package.name}"


def compile_one(lab: Lab, suite: str, version: str, kernel: str) -> None:
    """Compile in a throw-away copy of the image. To be run in a mount namespace of its own."""
    base = image.base_layer(suite).root(lab.images)
    name, trees = tree_name(base, version, kernel), directory(lab, suite, version)
    trees.mkdir(parents=True, exist_ok=True)
    with locked(trees / f".lock-{name}", f"compiles driver {version}"):
        if present(trees, name):
            say(f"driver {version} for kernel {kernel}: compiled meanwhile, {trees / name}")
            return
        start = time.monotonic()
        work = lab.cache / "build" / f"{version}-{kernel}"
        shutil.rmtree(work, ignore_errors=True)
        root = work / "root"
        layers.mount(
            [layer.root(lab.images) for layer in layers.stack(image.packages_layer(suite))],
            work / "upper",
            work / "work",
            root,
        )
        log = trees / f"{name.removesuffix('.dkms.tar.gz')}.log"
        log.unlink(missing_ok=True)
        try:
            with layers.chroot_mounts(root):
                package = stored_versions(os.listdir(_archives(lab, suite))).get(version)
                path = f"/{image.ARCHIVES}/{package}" if package else _fetch(suite, root, version, log)
                say(f"driver {version} for kernel {kernel}: compiling (once; its log is {log})")
                run_logged("unpacking the driver's source", log, "chroot", root, "dpkg-deb", "-x", path, "/")
                _build(root, upstream(version), kernel, log)
            _keep(trees, root / "var/tmp" / name, tree_archives.source_digest(str(root), MODULE, upstream(version)))
        finally:
            run("umount", "--recursive", "--lazy", root)
            shutil.rmtree(work, ignore_errors=True)
        say(f"driver {version} for kernel {kernel}: compiled in {elapsed(start)}, {trees / name}")


def _keep(trees: Path, made: Path, source: str | None) -> None:
    """Put a tree and its checksum into the cache; the tree comes last, and all at once."""
    temporary = trees / f".{made.name}.tmp"
    shutil.copyfile(made, temporary)
    tree_archives.write_sha256(str(trees / made.name), tree_archives.sha256_of(str(temporary)), source)
    run("sync", "--file-system", temporary)
    temporary.rename(trees / made.name)


def _build(root: Path, version: str, kernel: str, log: Path) -> None:
    arch = platform.machine()
    pair = ["-m", MODULE, "-v", version, "-k", kernel, "-a", arch]
    if not (root / "usr/src" / f"{MODULE}-{version}" / "dkms.conf").is_file():
        raise LabError(f"the package of {version} holds no source {MODULE}-{version}")
    run_logged("dkms add", log, "chroot", root, "dkms", "add", "-m", MODULE, "-v", version)
    try:
        run_logged(
            f"compiling {version} for {kernel}", log, "chroot", root, "dkms", "build", *pair, "-j", os.cpu_count() or 1
        )
    except LabError as error:
        inner = root / "var/lib/dkms" / MODULE / version / "build/make.log"
        lines = dkms.last_lines(inner.read_text(errors="replace"), 25) if inner.exists() else []
        raise LabError("\n".join([str(error), f"the end of the compiler's log ({inner.name}):", *lines])) from error
    target = (
        f"/var/"
        f"tmp/{dkms.tree_name(MODULE, version, kernel, arch, dkms.compiler_id(dkms.kernel_config(str(root), kernel)))}"
    )
    run_logged(
        "packing the tree", log, "chroot", root, "dkms", "mktarball", *pair, "--binaries-only", "--archive", target
    )
