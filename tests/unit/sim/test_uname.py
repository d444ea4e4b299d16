# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preloaded uname(): the simulated release, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(command, build, root=None, text=None):
    environment = dict(os.environ, LD_PRELOAD=str(build / "libgpusim-uname.so"))
    environment.pop("GPUSIM_ROOT", None)
    if root is not None:
        environment["GPUSIM_ROOT"] = str(root)
    if text is not None:
        place = root / "run/gpusim"
        place.mkdir(parents=True)
        (place / "release").write_text(text)
    return subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=600,
        check=True,
    ).stdout


@pytest.mark.parametrize("text", ["6.1.0-50-amd64\n", "6.1.0-50-amd64", "6.1.0-50-amd64 \n\n"])
def test_the_release_of_the_file(tmp_path, build, text):
    assert run(["uname", "-r"], build, tmp_path, text) == "6.1.0-50-amd64\n"


def test_programs_that_ask_otherwise(tmp_path, build):
    code = "import os, platform; print(os.uname().release, platform.release())"
    assert run([sys.executable, "-c", code], build, tmp_path, "1.2.3-sim\n") == "1.2.3-sim 1.2.3-sim\n"


def test_everything_else_stays(tmp_path, build):
    real = subprocess.run(["uname", "-snvm"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    assert run(["uname", "-snvm"], build, tmp_path, "1.2.3-sim\n") == real


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_without_a_release_it_is_the_real_one(tmp_path, build, text):
    assert run(["uname", "-r"], build, tmp_path, text) == os.uname().release + "\n"


def test_a_release_that_is_too_long_is_cut(tmp_path, build):
    assert run(["uname", "-r"], build, tmp_path, "x" * 500) == "x" * 64 + "\n"


def test_errno_is_kept(tmp_path, build):
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ctypes.set_errno(33)
buffer = ctypes.create_string_buffer(400)
print(libc.uname(buffer), ctypes.get_errno())
"""
    assert run([sys.executable, "-c", code], build, tmp_path) == "0 33\n"


def test_it_needs_nothing_but_libc(build):
    needed = subprocess.run(
        ["readelf", "-d", str(build / "libgpusim-uname.so")],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    ).stdout
    assert [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line] == ["libc.so.6"]
