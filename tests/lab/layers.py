# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image's layers: directories in the cache, named by what went into them, stacked by overlayfs.

A layer is made in a temporary directory beside its final place and renamed when it is whole, under a lock: two builds
at once make it once, and an interrupted one leaves only a temporary directory, which the next build removes. What
mounts runs in a mount namespace of its own, so that nothing it mounts outlives it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .common import LabError, elapsed, environment, locked, run, say, write_json


def options(lower: list[Path], upper: Path, work: Path, volatile: bool) -> str:
    """Mount options of an overlay whose upper directory can become a layer itself. The topmost layer stands first."""
    words = [f"lowerdir={':'.join(str(path) for path in lower)}", f"upperdir={upper}", f"workdir={work}"]
    words += ["redirect_dir=off", "metacopy=off", "index=off"]
    if volatile:  # no waiting for the disk: right for what is thrown away after a crash anyway
        words.append("volatile")
    return ",".join(words)


def mount(lower: list[Path], upper: Path, work: Path, target: Path, volatile: bool = True) -> None:
    for path in (upper, work, target):
        path.mkdir(parents=True, exist_ok=True)
    # A volatile overlay leaves this mark and refuses to be mounted again. The lab knows what it does: machines are
    # disposable.
    shutil.rmtree(work / "work" / "incompat", ignore_errors=True)
    done = run("mount", "-t", "overlay", "overlay", "-o", options(lower, upper, work, volatile), target, check=False)
    if done.returncode != 0 and volatile:
        done = run("mount", "-t", "overlay", "overlay", "-o", options(lower, upper, work, False), target, check=False)
    if done.returncode != 0:
        raise LabError(
            f"cannot mount an overlay over {target}: {done.stderr.strip()}. The checkout and the cache have to "
            f"lie on a file system "
            "that overlayfs can write to (ext4, xfs, btrfs, tmpfs; not another overlay)"
        )


@contextlib.contextmanager
def chroot_mounts(root: Path):
    """What programs in a chroot expect beside the files: /proc, /dev and a way to reach the mirror by name."""
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "--rbind", "/dev", root / "dev")
    try:
        yield
    finally:
        for name in ("dev", "proc"):
            run("umount", "--recursive", "--lazy", root / name)


def isolated(*arguments: str) -> int:
    """Run 'python3 -m tests.lab ARGUMENTS' with mounts and processes that end with it."""
    command = [
        "setpriv",
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    command += [sys.executable, "-m", "tests.lab", *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        cwd=Path(__file__).resolve().parents[2],
    ) as child:
        try:
            return child.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, 9)
            raise


@dataclass(frozen=True)
class Layer:
    """What a layer is made of. Equal inputs over equal parents are the same layer."""

    kind: str
    title: str
    inputs: dict[str, str]
    build: Callable[[Path, Path], None]  # takes the root to change and a log file
    parents: tuple["Layer", ...] = ()  # nearest first

    @property
    def name(self) -> str:
        facts = {"inputs": self.inputs, "parents": [parent.name for parent in self.parents]}
        return f"{self.kind}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}"

    def root(self, images: Path) -> Path:
        return images / self.name / "root"

    def ready(self, images: Path) -> bool:
        return (images / self.name / "layer.json").is_file()


def stack(layer: Layer) -> list[Layer]:
    """A layer and all below it, topmost first."""
    return [layer, *layer.parents]


def roots(layer: Layer, images: Path) -> list[Path]:
    return [part.root(images) for part in stack(layer)]


def digest_files(paths: list[Path], base: Path) -> str:
    """One digest of files' names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(base)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def make(layer: Layer, images: Path) -> None:
    """Build one layer unless it is there. Its parents have to be. To be run in a mount namespace of its own."""
    images.mkdir(parents=True, exist_ok=True)
    images.chmod(0o700)
    with locked(images / f".lock-{layer.name}", f"makes {layer.title}"):
        if layer.ready(images):
            return
        temporary = images / f".tmp-{layer.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        root = temporary / "root"
        root.mkdir(parents=True)
        log = images / f"{layer.name}.log"
        log.unlink(missing_ok=True)
        start = time.monotonic()
        say(f"making {layer.title} (once; its log is {log})")
        if layer.parents:
            merged = temporary / "merged"
            lower = [parent.root(images) for parent in layer.parents]
            mount(lower, root, temporary / "work", merged)
            with chroot_mounts(merged):
                layer.build(merged, log)
            run("umount", merged)
            shutil.rmtree(temporary / "work")
            merged.rmdir()
        else:
            layer.build(root, log)
        write_json(
            temporary / "layer.json",
            {"kind": layer.kind, "inputs": layer.inputs, "parents": [parent.name for parent in layer.parents]},
        )
        run("sync", "--file-system", temporary)
        shutil.rmtree(images / layer.name, ignore_errors=True)
        temporary.rename(images / layer.name)
        say(f"{layer.title} is ready after {elapsed(start)}")
