# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DKMS: every format of its status, what interrupted builds leave, its commands and its exit codes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import dkms
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import (
    KERNEL,
    Recorded,
    link,
    recorded,
    write,
)

pytestmark = pytest.mark.pythons

V = "535.261.03"
ROOT = "Name:\tdkms\nUid:\t0\t0\t0\t0\nNSpid:\t5\n"


def entry(state, note="", name="nvidia", version="580.178.04", kernel="6.8.0-149-generic", arch="x86_64", origin=None):
    return {
        "name": name,
        "version": version,
        "kernel": kernel,
        "arch": arch,
        "state": state,
        "note": note,
        "origin": origin,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "nvidia, 470.57.02, 5.4.0-81-generic, x86_64: installed",
            entry("installed", version="470.57.02", kernel="5.4.0-81-generic"),
        ),
        ("nvidia, 470.57.02: added", entry("added", version="470.57.02", kernel=None, arch=None)),
        ("nvidia/580.178.04, 6.8.0-149-generic, x86_64: installed", entry("installed")),
        ("nvidia/580.178.04, 6.8.0-149-generic, x86_64: built", entry("built")),
        ("nvidia/580.178.04: added", entry("added", kernel=None, arch=None)),
        ("nvidia/580.178.04: broken", entry("broken", kernel=None, arch=None)),
        (
            "nvidia/580.178.04, 6.8.0-149-generic, x86_64: installed (original_module exists)",
            entry("installed", "original_module exists"),
        ),
        (
            (
                "nvidia/580.178.04, 6.8.0-149-generic, x86_64: installed (WARNING! Diff between built and "
                "installed module!)"
            ),
            entry("installed", "WARNING! Diff between built and installed module!"),
        ),
        (
            "nvidia/580.178.04, 6.8.0-149-generic, x86_64: installed (Original modules exist)",
            entry("installed", "Original modules exist"),
        ),
        (
            "nvidia/580.178.04, 6.8.0-149-generic, x86_64: installed (Differences between built and installed modules)",
            entry("installed", "Differences between built and installed modules"),
        ),
        (
            (
                "nvidia/580.178.04, 6.8.0-149-generic, x86_64: installed (Original modules exist) (Differences between "
                "built and installed modules)"
            ),
            entry("installed", "Original modules exist; Differences between built and installed modules"),
        ),
        (
            "nvidia, 580.178.04, 5.14.0-570.el9.x86_64, x86_64: installed-weak from 5.14.0-503.el9.x86_64",
            entry("installed-weak", kernel="5.14.0-570.el9.x86_64", origin="5.14.0-503.el9.x86_64"),
        ),
        (
            "nvidia-srv/580.178.04, 6.8.0-149-generic, x86_64: built (WARNING! Missing some built modules!)",
            entry("built", "WARNING! Missing some built modules!", name="nvidia-srv"),
        ),
    ],
)
def test_every_format_of_the_status(line, expected):
    assert dkms.parse_status(line + "\n") == ([expected], [])


def test_a_line_in_no_known_form_is_kept():
    assert dkms.parse_status("something nvidia else\n\n") == ([], ["something nvidia else"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dkms-status-installed.txt", [("535.261.03", "installed")]),
        ("dkms-status-differs.txt", [("535.261.03", "differs")]),
        ("dkms-status-two-versions.txt", [("535.216.03", "added"), ("535.261.03", "installed")]),
    ],
)
def test_recorded_states(name, expected):
    entries, unparsed = dkms.parse_status(recorded(name))
    assert unparsed == []
    assert [
        (item["version"], dkms.state_of(entries, "nvidia-current", item["version"], KERNEL)) for item in entries
    ] == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], "absent"),
        ([entry("installed", version="1")], "absent"),
        ([entry("installed", name="nvidia-open")], "absent"),
        ([entry("added", kernel=None)], "added"),
        ([entry("broken", kernel=None)], "broken"),
        ([entry("installed", kernel="other")], "added"),
        ([entry("built")], "built"),
        ([entry("installed")], "installed"),
        ([entry("installed-weak")], "installed"),
        ([entry("installed", "Original modules exist")], "installed"),
        ([entry("installed", "WARNING! Diff between built and installed module!")], "differs"),
        ([entry("installed", "Differences between built and installed modules")], "differs"),
        ([entry("built", "WARNING! Missing some built modules!")], "incomplete"),
        ([entry("built", "Built modules are missing in the kernel modules folder")], "incomplete"),
        ([entry("installed", "Built modules are missing in the kernel modules folder")], "incomplete"),
        (
            [entry("installed", "Original modules exist; Built modules are missing in the kernel modules folder")],
            "incomplete",
        ),
        ([entry("installed", "original_module exists")], "installed"),
        ([entry("installed", "Modules are signed with a key of another machine")], "unknown"),
        ([entry("installed", "Original modules exist; a word of a later release")], "unknown"),
        ([entry("something")], "unknown"),
        ([entry("something", kernel=None)], "unknown"),
    ],
)
def test_one_word_for_a_state(entries, expected):
    assert dkms.state_of(entries, "nvidia", "580.178.04", "6.8.0-149-generic") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia", True),
        ("nvidia-srv", True),
        ("nvidia-current-open", True),
        ("nvidia-tesla-470", True),
        ("nvidia-legacy-390xx", True),
        ("nvidia-fs", False),
        ("nvidia-peermem", False),
        ("nvidia-peer-memory", False),
        ("nvidia-gdrcopy", False),
        ("nvidia_peermem", False),
        ("zfs", False),
    ],
)
def test_names_of_driver_modules(tmp_path, name, expected):
    assert dkms.is_driver(str(tmp_path), name, "1") is expected


@pytest.mark.parametrize(
    ("name", "conf", "expected"),
    [
        ("site-gpu", 'BUILT_MODULE_NAME[0]="nvidia"\nBUILT_MODULE_NAME[1]="nvidia-uvm"\n', True),
        ("nvidia", 'BUILT_MODULE_NAME[0]="nvidia-peermem"\n', False),
        ("nvidia-fs", 'BUILT_MODULE_NAME="nvidia-fs"\n', False),
        ("nvidia", 'BUILT_MODULE_NAME[0]="${NAME}"\n', True),
        ("nvidia", "PACKAGE_NAME=nvidia\n", True),
    ],
)
def test_what_a_module_builds_tells_more_than_its_name(tmp_path, name, conf, expected):
    write(tmp_path, "/usr/src/%s-1/dkms.conf" % name, conf)
    assert dkms.is_driver(str(tmp_path), name, "1") is expected


@pytest.mark.parametrize(
    ("answer", "available", "error"),
    [
        ((127, "", ""), False, "dkms is not installed"),
        ((1, "", "bad"), False, "dkms status answered rc 1: bad"),
        ((0, "zfs/2.2: added\n", ""), True, None),
    ],
)
def test_reading(tmp_path, answer, available, error):
    found = dkms.read(str(tmp_path), Recorded({"dkms status": answer}))
    assert (found["available"], found["error"], found["entries"]) == (available, error, [])


TREE = "/var/lib/dkms/nvidia-current/%s" % V


def test_an_interrupted_build_is_found_with_its_kernel(tmp_path):
    write(tmp_path, TREE + "/build/make.log", recorded("make.log"))
    found = dkms.leftovers(str(tmp_path), [])
    assert [(item["name"], item["version"], item["kernel"], item["path"]) for item in found] == [
        ("nvidia-current", V, KERNEL, TREE + "/build")
    ]


def test_a_build_without_a_log_is_found_without_a_kernel(tmp_path):
    write(tmp_path, TREE + "/build/nvidia.c")
    assert dkms.leftovers(str(tmp_path), [])[0]["kernel"] is None


def test_the_empty_build_directory_of_add_is_no_leftover(tmp_path):
    (tmp_path / TREE.lstrip("/") / "build").mkdir(parents=True)
    (tmp_path / "var/lib/dkms/zfs/2.2/build").mkdir(parents=True)
    write(tmp_path, "/var/lib/dkms/zfs/2.2/build/x")
    assert dkms.leftovers(str(tmp_path), []) == []


@pytest.mark.parametrize(
    ("files", "entries", "expected"),
    [
        (["log/make.log"], [], True),
        (["module/nvidia-current-uvm.ko"], [], True),
        (["module/nvidia-current.ko"], ["built"], False),
        (["log/make.log"], None, True),
        (["module/nvidia-current.ko"], None, False),
    ],
)
def test_a_half_stored_result_is_found(tmp_path, files, entries, expected):
    base = "%s/%s/x86_64" % (TREE, KERNEL)
    for name in files:
        write(tmp_path, "%s/%s" % (base, name))
    known = (
        None
        if entries is None
        else [entry(state, name="nvidia-current", version=V, kernel=KERNEL) for state in entries]
    )
    assert [item["path"] for item in dkms.leftovers(str(tmp_path), known)] == ([base] if expected else [])


def test_links_of_the_tree_are_no_versions(tmp_path):
    write(tmp_path, "%s/%s/x86_64/module/nvidia-current.ko" % (TREE, KERNEL))
    link(tmp_path, "/var/lib/dkms/nvidia-current/kernel-%s-x86_64" % KERNEL, "%s/%s/x86_64" % (V, KERNEL))
    assert list(dkms.list_trees(str(tmp_path))) == [("nvidia-current", V)]


def test_the_end_of_the_log(tmp_path):
    assert (
        dkms.log_path(str(tmp_path), "nvidia-current", V, KERNEL, "x86_64") is None
        and dkms.log_tail(str(tmp_path), None) == []
    )
    stored = "%s/%s/x86_64/log/make.log" % (TREE, KERNEL)
    write(tmp_path, stored, "".join("line %d\n" % number for number in range(100)))
    assert dkms.log_path(str(tmp_path), "nvidia-current", V, KERNEL, "x86_64") == stored
    assert dkms.log_tail(str(tmp_path), stored)[0] == "line 40" and len(dkms.log_tail(str(tmp_path), stored)) == 60
    write(tmp_path, TREE + "/build/make.log", recorded("make.log"))
    path = dkms.log_path(str(tmp_path), "nvidia-current", V, KERNEL, "x86_64")
    assert (
        path == TREE + "/build/make.log"
        and dkms.log_tail(str(tmp_path), path)[-1] == "make: *** [Makefile:4: modules] Error 2"
    )


def test_the_compilers_command_lines_do_not_hide_what_is_wrong():
    """As the end of the log of nvidia-srv 535.161.08 for Ubuntu's kernel 6.8.0-151."""
    wrong = [
        "nv.o: warning: objtool: __x86_indirect_thunk_rax+0x0: indirect jump found in MITIGATION_RETPOLINE build",
        "make[3]: *** [scripts/Makefile.build:243: nv.o] Error 241",
    ]
    found = dkms.last_lines("\n".join(["# CC [M]  nv.o", "  cc " + "-Wp,-MMD " * 400, *wrong]))
    assert found[2:] == wrong and found[0] == "# CC [M]  nv.o"
    assert found[1].startswith("  cc -Wp,-MMD ") and found[1].endswith(" ...") and len(found[1]) == 244
    assert dkms.last_lines("x" * 240) == ["x" * 240] and dkms.last_lines(None) == []


def test_exit_codes():
    assert (
        "compilation failed" in dkms.meaning(10)
        and "headers" in dkms.meaning(21)
        and "BUILD_EXCLUSIVE" in dkms.meaning(77)
    )
    assert dkms.meaning(99) == "dkms ended with rc 99" and dkms.is_excluded(77) and not dkms.is_excluded(10)


def test_commands():
    assert dkms.make_command("build", "n", "v", "k", "a") == [
        "dkms",
        "build",
        "-m",
        "n",
        "-v",
        "v",
        "-k",
        "k",
        "-a",
        "a",
    ]
    assert dkms.make_command("remove", "n", "v") == ["dkms", "remove", "-m", "n", "-v", "v", "--all"]
    assert dkms.make_command("remove", "n", "v", "k")[-2:] == ["-k", "k"]
    assert dkms.make_command("add", "n", "v") == ["dkms", "add", "-m", "n", "-v", "v"]
    assert dkms.make_command("install", "n", "v", "k", "a", force=True)[-1] == "--force"
    assert dkms.export_command("n", "v", "k", "a", "/x")[-3:] == ["--binaries-only", "--archive", "/x"]


def test_the_name_of_a_tree():
    assert (
        dkms.tree_name("nvidia-current", V, KERNEL, "x86_64", "gcc-12.2.0")
        == "nvidia-current_535.261.03_6.1.0-56-amd64_x86_64_gcc-12.2.0.dkms.tar.gz"
    )


@pytest.mark.parametrize("bad", ["", None, "../x", "a/b", "-x", "a b"])
def test_what_cannot_be_part_of_a_name(bad):
    with pytest.raises(ValueError, match="kernel"):
        dkms.tree_name("nvidia", V, bad, "x86_64", "gcc-12")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"', "gcc-12.2.0"),
        ('CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"', "gcc-13.3.0"),
        ('CONFIG_CC_VERSION_TEXT="gcc (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2)"', "gcc-11.4.1"),
        ('CONFIG_CC_VERSION_TEXT="Debian clang version 14.0.6"', "clang-14.0.6"),
        ('CONFIG_CC_VERSION_TEXT="nonsense"', None),
        ("", None),
        (None, None),
    ],
)
def test_the_compiler_of_a_kernel(text, expected):
    assert dkms.compiler_id(text) == expected


def test_the_recorded_configuration_of_a_kernel(tmp_path):
    assert dkms.kernel_config(str(tmp_path), KERNEL) is None
    write(tmp_path, "/boot/config-%s" % KERNEL, recorded("kernel-config.txt"))
    assert dkms.compiler_id(dkms.kernel_config(str(tmp_path), KERNEL)) == "gcc-12.2.0"


def test_other_processes_of_dkms_are_found(tmp_path):
    for pid, argv in (
        (5, ["/bin/bash", "/usr/sbin/dkms", "build", "x"]),
        (6, ["/bin/sh", "/usr/sbin/dkms", "status"]),
        (7, ["vi", "dkms"]),
        (8, ["dkms"]),
        (9, ["/usr/sbin/dkms", "autoinstall"]),
        (11, ["grep", "-r", "x", "dkms"]),
    ):
        write(tmp_path, "/%d/cmdline" % pid, "\0".join(argv) + "\0")
        write(tmp_path, "/%d/status" % pid, ROOT)
    write(tmp_path, "/10/cmdline", "make\0-j2\0")
    write(tmp_path, "/10/status", ROOT)
    link(tmp_path, "/10/cwd", TREE + "/build")
    write(tmp_path, "/12/cmdline", "bash\0")
    write(tmp_path, "/12/status", ROOT)
    link(tmp_path, "/12/cwd", TREE + "/source")
    assert [item["pid"] for item in dkms.find_running(str(tmp_path))] == [5, 9, 10]


@pytest.mark.parametrize(
    "status",
    [
        "Name:\tdkms\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t5\n",
        "Name:\tdkms\nUid:\t1000\t0\t0\t0\nNSpid:\t5\n",
        "Name:\tUid:\t0\t0\t0\t0\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t5\n",
        "Name:\tdkms\nUid:\t0\t0\t0\t0\nNSpid:\t5\t1\n",
        "Name:\tdkms\n",
    ],
)
def test_processes_of_users_and_of_containers_are_no_dkms(tmp_path, status):
    write(tmp_path, "/5/cmdline", "/bin/bash\0/usr/sbin/dkms\0build\0x\0")
    write(tmp_path, "/5/status", status)
    write(tmp_path, "/6/cmdline", "sh\0")
    write(tmp_path, "/6/status", status)
    link(tmp_path, "/6/cwd", TREE + "/build")
    assert dkms.find_running(str(tmp_path)) == []


def test_a_program_that_users_start_as_root_is_no_dkms(tmp_path):
    write(tmp_path, "/5/cmdline", "dkms\0build\0")
    write(tmp_path, "/5/status", ROOT)
    write(tmp_path, "/bin/sudo", "x")
    os.chmod(str(tmp_path / "bin/sudo"), 0o4755)
    os.symlink(str(tmp_path / "bin/sudo"), str(tmp_path / "5/exe"))
    assert dkms.find_running(str(tmp_path)) == []


def test_a_real_process_is_found(tmp_path):
    script = tmp_path / "dkms"
    script.write_text("sleep 600\n", encoding="utf-8")
    process = subprocess.Popen(["/bin/sh", str(script), "build", "nvidia/1"])
    try:
        # A program that has just begun has no arguments to read for a moment: the kernel closes our pipe first, and
        # notes them after.
        deadline = time.monotonic() + 600
        while not pathlib.Path("/proc/%d/cmdline" % process.pid).read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.pid in [item["pid"] for item in dkms.find_running()]
    finally:
        process.kill()
        process.wait()
