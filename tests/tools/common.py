# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checkout's own commands share: where things are, and copies of the checkout."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLLECTION = ("gpufleet", "lifecycle")


def cache_root():
    """The directory outside the checkout that keeps what is costly to make again."""
    given = os.environ.get("GPUFLEET_CACHE")
    if given:
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "gpufleet"


def environment(name: str) -> pathlib.Path:
    """Return the directory of an environment of noxfile.py, which is made first if need be."""
    command = [str(ROOT / "tests/tools/nox.sh"), "-s", name, "--", "python", "-c", "import sys; print(sys.prefix)"]
    done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, check=True)
    return pathlib.Path(done.stdout.strip())


def checkout_digest():
    """A short name for this checkout, the same every time, so that two checkouts on one machine never share a place."""
    return hashlib.sha256(str(ROOT).encode()).hexdigest()[:10]


def collections_path():
    """Return the path under which Ansible's commands and Python find this checkout as the collection."""
    script = str(ROOT / "tests" / "tools" / "collections.sh")
    answer = subprocess.run([script], stdout=subprocess.PIPE, universal_newlines=True, check=True)
    return answer.stdout.strip()


def tracked_files():
    """Every file of the checkout that git tracks, or would if it were added: what is not ignored.

    Relative paths, sorted.
    """
    answer = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        stdout=subprocess.PIPE,
        check=True,
    )
    names = sorted(set(name for name in answer.stdout.decode().split("\0") if name))
    # A file that was deleted but not yet committed is still listed.
    return [name for name in names if os.path.lexists(str(ROOT / name))]


def copy_checkout(target):
    """Make `target` an exact copy of the checkout's files, and nothing else."""
    target = pathlib.Path(target)
    if target.exists():
        shutil.rmtree(str(target))
    for name in tracked_files():
        source, copy = ROOT / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(source), str(copy), follow_symlinks=False)
    return target
