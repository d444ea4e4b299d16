# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Overlay mounts, and running a part of the lab in a mount namespace of its own, so that nothing it mounts outlives
it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .common import LabError, environment, run


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


def isolated(*arguments: str, nice: int = 0) -> int:
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
    command += ["nice", "-n", str(nice), sys.executable, "-m", "tests.lab", *arguments]
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
