# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA library is loaded, and that nobody but root has a say in it."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import cuda

pytestmark = pytest.mark.pythons

CACHE = """1234 libs found in cache `/etc/ld.so.cache'
\tlibcudart.so.11.0 (libc6,x86-64) => /usr/lib/libcudart.so.11.0
\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6,x86-64) => /usr/local/lib/libcuda.so.1
\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so
\tlibcuda.so.1 (libc6,AArch64) => /usr/lib/aarch64-linux-gnu/libcuda.so.1
"""


@pytest.mark.parametrize(
    "machine, path", [("x86_64", "/usr/local/lib/libcuda.so.1"), ("aarch64", "/usr/lib/aarch64-linux-gnu/libcuda.so.1")]
)
def test_the_loaders_first_of_this_word_length(machine, path):
    assert cuda.find_cached(CACHE, machine) == path
    assert cuda.find_cached("", machine) is None


def place(root, name):
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_without_a_cache_the_usual_directories_and_without_a_file_nothing(tmp_path):
    assert cuda.find_library(str(tmp_path), lambda argv, timeout: (127, "", "")) is None
    place(tmp_path, "/usr/lib64/libcuda.so.1")
    assert cuda.find_library(str(tmp_path), lambda argv, timeout: (1, CACHE, "")) == "/usr/lib64/libcuda.so.1"
    # What the cache names and is gone is not taken.
    assert cuda.find_library(str(tmp_path), lambda argv, timeout: (0, CACHE, ""), "x86_64") == "/usr/lib64/libcuda.so.1"
    place(tmp_path, "/usr/local/lib/libcuda.so.1")
    assert (
        cuda.find_library(str(tmp_path), lambda argv, timeout: (0, CACHE, ""), "x86_64")
        == "/usr/local/lib/libcuda.so.1"
    )


def test_a_link_to_a_file_of_root_is_followed_to_its_version(tmp_path):
    real = place(tmp_path, "libcuda.so.535.216.03")
    link = tmp_path / "libcuda.so.1"
    link.symlink_to(real.name)
    assert cuda.require_trusted(str(link)) == str(real.resolve())
    assert cuda.library_version(str(real)) == "535.216.03"
    assert cuda.library_version("/x/libcuda.so.1") is None


@pytest.mark.parametrize("what, mode", [("file", 0o666), ("file", 0o664), ("directory", 0o777), ("directory", 0o775)])
def test_what_others_can_change_is_refused(tmp_path, what, mode):
    directory = tmp_path / "lib"
    directory.mkdir()
    path = place(directory, "libcuda.so.1")
    assert cuda.require_trusted(str(path))
    os.chmod(str(path if what == "file" else directory), mode)
    with pytest.raises(cuda.Untrusted, match="can be changed by other users"):
        cuda.require_trusted(str(path))


def test_a_file_of_another_user_is_refused(tmp_path):
    path = place(tmp_path, "libcuda.so.1")
    other = os.geteuid() + 1
    if os.geteuid() == 0:
        os.chown(str(path), 12345, 12345)
        other = 0
    with pytest.raises(cuda.Untrusted, match="belongs to uid"):
        cuda.require_trusted(str(path), other)


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(cuda.Untrusted):
            cuda.require_trusted(str(path))


def test_the_loaders_variables_may_name_paths_of_root_only(tmp_path):
    assert cuda.loader_problem({}) is None
    assert cuda.loader_problem({"LD_LIBRARY_PATH": "/usr/lib:%s" % tmp_path}) is None
    os.chmod(str(tmp_path), 0o777)
    assert "LD_LIBRARY_PATH is set for this task" in cuda.loader_problem({"LD_LIBRARY_PATH": "/usr/lib:%s" % tmp_path})
    assert "no absolute path" in cuda.loader_problem({"LD_PRELOAD": "evil.so"})


def test_nothing_of_the_environment_steers_the_test():
    environment = {
        "CUDA_VISIBLE_DEVICES": "-1",
        "CUDA_INJECTION64_PATH": "/tmp/x.so",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps",
        "NVIDIA_VISIBLE_DEVICES": "none",
        "LD_LIBRARY_PATH": "/tmp",
        "LD_PRELOAD": "/tmp/x",
        "HOME": "/root",
        "PATH": "/bin",
        "LDAP": "kept",
    }
    cuda.clean_environment(environment, "GPU-1")
    assert environment == {
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_CACHE_DISABLE": "1",
        "HOME": "/root",
        "PATH": "/bin",
        "LDAP": "kept",
    }
