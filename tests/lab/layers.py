# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image's layers: directories in the cache, named by what went into them, stacked by overlayfs.

A layer is made in a temporary directory beside its final place and renamed when it is whole, under a lock: two builds
at once make it once, and an interrupted one leaves only a temporary directory, which the next build removes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import overlay
from .common import elapsed, locked, run, say, write_json


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
            overlay.mount(lower, root, temporary / "work", merged)
            with overlay.chroot_mounts(merged):
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
