# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image the machines start from: a base system, the driver's packages beside it, and the GPU simulator on top."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from . import aptconf, layers, ubuntu
from .common import LabError, list_file, need_root, read_json, run, run_logged, say, write_whole
from .config import CHECKOUT, DRIVER_VERSIONS, LIKE, REGISTRY, SUITE, SUITES, USER, Lab

HERE = Path(__file__).resolve().parent
REVISION = "1"  # raise it when the way an image is made changes; what it is made of is counted by itself
ARCHIVES = Path("var/cache/apt/archives")
LOCAL_CERTIFICATES = Path("/usr/local/share/ca-certificates")
APT_SETTINGS = Path("etc/apt/apt.conf.d/00lab-host")
SOURCES = Path("etc/apt/sources.list.d/debian.sources")
# One binary package of each kind that a compute node installs of the driver; apt adds what they depend on.
DRIVER_PACKAGES = (
    "nvidia-kernel-dkms",
    "nvidia-smi",
    "libnvidia-ml1",
    "libcuda1",
    "libnvidia-cfg1",
    "firmware-nvidia-gsp",
)
OTHER_DRIVER_PACKAGES = ("nvidia-persistenced",)  # of their own sources, with versions of their own

DPKG_SETTINGS = """\
# A lab machine is thrown away after a crash, and nobody reads manuals on it.
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
"""
INITRAMFS_SETTINGS = """\
# These machines never boot from their initramfs, but it is made at every change, \
as on a real one: small and quick will do.
MODULES=list
COMPRESS=zstd
COMPRESSLEVEL=1
"""
SSHD_SETTINGS = """\
UseDNS no
PasswordAuthentication no
PermitRootLogin no
"""
# No timer of the distribution may take apt's lock in the middle of a rehearsal, and a container has no console to log
# in on.
MASKED = (
    "apt-daily.timer",
    "apt-daily.service",
    "apt-daily-upgrade.timer",
    "apt-daily-upgrade.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "console-getty.service",
    "getty@tty1.service",
    "systemd-networkd-wait-online.service",
)


def put(root: Path, path: str | Path, text: str, mode: int = 0o644) -> None:
    write_whole(root / path, text, mode)


def certificates(directory: Path = LOCAL_CERTIFICATES) -> list[Path]:
    """Certificate authorities the host's administrator added: a mirror or proxy may need them."""
    return sorted(directory.rglob("*.crt")) if directory.is_dir() else []


def use_host_network_settings(root: Path, suite: str) -> list[aptconf.Source]:
    """Give a root the host's way to the mirrors; return its sources."""
    sources = aptconf.node_sources(aptconf.read_host(), suite)
    put(root, SOURCES, aptconf.deb822(sources))
    put(root, APT_SETTINGS, aptconf.host_settings())
    for name in aptconf.keyrings(sources):
        if not (root / name.lstrip("/")).exists():
            (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, root / name.lstrip("/"))
    return sources


def use_own_mirrors(root: Path, suite: str) -> None:
    """Give a machine its way to the mirrors: the host's, but for a system that has its repository with it."""
    if suite not in LIKE:
        use_host_network_settings(root, suite)


def use_host_names(root: Path) -> None:
    """Let a chroot find the mirrors by name as the host does."""
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).unlink(missing_ok=True)
        shutil.copyfile(f"/etc/{name}", root / "etc" / name)


def build_base(suite: str, root: Path, log: Path) -> None:
    work = root.parent / "mmdebstrap"
    hook = work / "hook"
    work.mkdir()
    sources = aptconf.node_sources(aptconf.read_host(), suite)
    write_whole(work / "debian.sources", aptconf.deb822(sources))
    write_whole(
        work / "apt.conf", aptconf.host_settings() + 'Acquire::Languages "none";\nAPT::Install-Recommends "false";\n'
    )
    put(hook, "etc/dpkg/dpkg.cfg.d/lab", DPKG_SETTINGS)
    put(hook, "etc/initramfs-tools/conf.d/lab", INITRAMFS_SETTINGS)
    put(hook, "etc/ssh/sshd_config.d/lab.conf", SSHD_SETTINGS)
    for path in certificates():
        put(
            hook,
            Path("usr/local/share/ca-certificates") / path.relative_to(LOCAL_CERTIFICATES),
            path.read_text(encoding="utf-8"),
        )
    words = [
        "mmdebstrap",
        "--mode=root",
        "--format=directory",
        "--variant=minbase",
        f"--include={','.join(list_file(HERE / 'node-packages.txt'))}",
    ]
    words += [f"--aptopt={work / 'apt.conf'}", f"--setup-hook=cp -a {hook}/. \"$1\""]
    words += ["--skip=cleanup/apt/lists", "--skip=check/empty"]
    run_logged("the base system", log, *words, suite, root, work / "debian.sources")
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    for path in (root / "etc/apt/sources.list.d").iterdir():
        path.unlink()
    use_host_network_settings(root, suite)
    for path in (root / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    in_root = ["chroot", root]
    run(*in_root, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    put(root, f"etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    run(*in_root, "update-ca-certificates")
    run(*in_root, "systemctl", "enable", "systemd-networkd.service", "ssh.service")
    run(*in_root, "systemctl", "mask", *MASKED)
    run(*in_root, "systemctl", "set-default", "multi-user.target")
    for name in ("machine-id", "hostname", "resolv.conf"):
        (root / "etc" / name).unlink(missing_ok=True)
    put(root, "etc/machine-id", "")
    shutil.rmtree(work)


def build_packages(suite: str, root: Path, log: Path) -> None:
    """Download the packages of the suite's drivers into the archive directory.

    The sources they come from are not left enabled.
    """
    use_host_names(root)
    own = use_host_network_settings(root, suite)
    kept = root / "var/lib/apt/lists"
    aside = root / "var/lib/apt/lists.lab"
    shutil.copytree(kept, aside, symlinks=True)
    extra, pin = root / "etc/apt/sources.list.d/lab-drivers.sources", root / "etc/apt/preferences.d/lab-drivers"
    write_whole(extra, aptconf.deb822(aptconf.driver_sources(own, suite)))
    apt = [
        "chroot",
        root,
        "apt-get",
        "-q",
        "-y",
        "-o",
        "APT::Install-Recommends=false",
        "-o",
        "Acquire::Languages=none",
    ]
    run_logged("package lists", log, *apt, "update")
    for version in DRIVER_VERSIONS[suite]:
        write_whole(pin, aptconf.driver_pin(version))
        names = [f"{name}={version}" for name in DRIVER_PACKAGES]
        run_logged(f"packages of {version}", log, *apt, "--download-only", "install", *names, *OTHER_DRIVER_PACKAGES)
    for path in (
        extra,
        pin,
        root / "etc/resolv.conf",
        root / "var/cache/apt/pkgcache.bin",
        root / "var/cache/apt/srcpkgcache.bin",
    ):
        path.unlink(missing_ok=True)
    shutil.rmtree(kept)
    aside.rename(kept)
    found = list((root / ARCHIVES).glob("*.deb"))
    if not found:
        raise LabError(f"no package of {' or '.join(DRIVER_VERSIONS[suite])} was downloaded: see {log}")
    say(f"{len(found)} driver packages, {sum(path.stat().st_size for path in found) >> 20} MiB, lie ready in the image")


def build_system(root: Path, log: Path) -> None:
    use_host_names(root)
    ubuntu.build_system(root, log)
    (root / "etc/resolv.conf").unlink()


def build_simulator(root: Path, log: Path) -> None:
    script = CHECKOUT / "tests/sim/install.sh"
    run_logged("the GPU simulator", log, "bash", script, root, cwd=CHECKOUT)


def base_layer(suite: str = SUITE) -> layers.Layer:
    suite = LIKE.get(suite, suite)
    certs = certificates()
    inputs = {
        "revision": REVISION,
        "suite": suite,
        "packages": " ".join(sorted(list_file(HERE / "node-packages.txt"))),
        "settings": DPKG_SETTINGS + INITRAMFS_SETTINGS + SSHD_SETTINGS + " ".join(MASKED),
        "user": USER,
        "certificates": layers.digest_files(certs, LOCAL_CERTIFICATES) if certs else "",
    }
    return layers.Layer("base", f"the base system of the {suite} image", inputs, partial(build_base, suite))


def packages_layer(suite: str = SUITE) -> layers.Layer:
    suite = LIKE.get(suite, suite)
    inputs = {
        "revision": REVISION,
        "versions": " ".join(DRIVER_VERSIONS[suite]),
        "packages": " ".join(DRIVER_PACKAGES + OTHER_DRIVER_PACKAGES),
    }
    return layers.Layer(
        "packages",
        f"the {suite} image's store of driver packages",
        inputs,
        partial(build_packages, suite),
        (base_layer(suite),),
    )


def system_layer(suite: str) -> layers.Layer:
    """What makes the machines of a release those of another system."""
    if suite == "rocky9-like":
        from .rocky import image as rocky  # it takes the base system from here

        return rocky.system_layer()
    below = packages_layer(suite)
    return layers.Layer(
        "system",
        f"the {suite} system over {LIKE[suite]}",
        {"revision": REVISION, "sources": layers.digest_files(ubuntu.sources(), HERE)},
        build_system,
        (below, *below.parents),
    )


def simulator_layer(suite: str = SUITE) -> layers.Layer:
    sources = CHECKOUT / "tests/sim"
    files = [path for path in sources.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    below = system_layer(suite) if suite in LIKE else packages_layer(suite)
    inputs = {"sources": layers.digest_files(files, sources)}
    return layers.Layer(
        "sim", f"the GPU simulator in the {suite} image", inputs, build_simulator, (below, *below.parents)
    )


def node_layer(suite: str = SUITE) -> layers.Layer:
    """The topmost layer of a suite's image."""
    return simulator_layer(suite)


def by_kind(kind: str, suite: str = SUITE) -> layers.Layer:
    for layer in layers.stack(node_layer(suite)):
        if layer.kind == kind:
            return layer
    raise LabError(f"the image has no layer '{kind}'")


def check_host() -> None:
    """Fail with one line when the host lacks what the lab needs."""
    need_root()
    missing = []
    for name in list_file(HERE / "host-packages.txt"):
        if run("dpkg-query", "-W", "-f", "${db:Status-Status}", name, check=False).stdout != "installed":
            missing.append(name)
    if missing:
        raise LabError(f"the host lacks {', '.join(missing)}: run 'make setup'")


def ensure(lab: Lab, suite: str = SUITE, wanted: layers.Layer | None = None) -> layers.Layer:
    """Build what is missing of a suite's image (or of a part of it) and return its topmost layer."""
    wanted = wanted or node_layer(suite)
    for layer in reversed(layers.stack(wanted)):
        if not layer.ready(lab.images):
            check_host()
            if layers.isolated("_layer", suite, layer.kind) != 0:
                raise LabError(f"{layer.title} could not be made")
    return wanted


def must_be_idle() -> None:
    """Layers are not taken away from under running machines, of whichever checkout."""
    busy = sorted(REGISTRY.glob("[0-9]*.json")) if REGISTRY.is_dir() else []
    if busy:
        owners = ", ".join(read_json(path, {}).get("checkout", "?") for path in busy)
        raise LabError(
            f"a lab is up (checkout {owners}): run 'python3 -m tests.lab down' there first, as its "
            f"machines use the image"
        )


def refresh(lab: Lab, suite: str = SUITE) -> None:
    """Forget a suite's present image, so that the next build takes today's packages."""
    must_be_idle()
    for layer in layers.stack(node_layer(suite)):
        shutil.rmtree(lab.images / layer.name, ignore_errors=True)


def in_use(lab: Lab) -> set[str]:
    """The layers of this checkout's images, of whichever suite."""
    return {layer.name for suite in SUITES for layer in layers.stack(node_layer(suite))}


def prune(lab: Lab) -> list[str]:
    """Remove layers that this checkout's images do not consist of."""
    must_be_idle()
    gone = []
    if lab.images.is_dir():
        for path in sorted(lab.images.iterdir()):
            if path.is_dir() and path.name not in in_use(lab):
                shutil.rmtree(path)
                gone.append(path.name)
    return gone


def kernels(root: Path) -> list[str]:
    """Kernels a root can boot and build modules for."""
    modules = root / "lib/modules"
    return (
        sorted(path.name for path in modules.iterdir() if (root / "boot" / f"vmlinuz-{path.name}").exists())
        if modules.is_dir()
        else []
    )
