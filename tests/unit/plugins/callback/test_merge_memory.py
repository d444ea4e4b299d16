# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the kernel, and what is said where it does not merge."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

pytest.importorskip("ansible", reason="a callback lives in Ansible; nodes have none")

from ansible_collections.gpufleet.lifecycle.plugins.callback import merge_memory


@pytest.mark.parametrize(
    "refused, switch, words",
    [
        (0, "1", ""),
        (errno.EINVAL, "1", "the kernel merges no memory of a process as a whole (prctl: Invalid argument), expected Linux 6.4"),
        (errno.EINVAL, "0", "the kernel merges no memory of a process as a whole"),
        (0, "0", "the kernel merges nothing now (/sys/kernel/mm/ksm/run is 0, expected 1): as root, echo 1 > /sys/kernel/mm/ksm/run"),
        (0, "2", "/sys/kernel/mm/ksm/run is 2, expected 1"),
        (0, "", "/sys/kernel/mm/ksm/run is not there, expected 1"),
    ],
)
def test_why_nothing_is_merged(monkeypatch, refused, switch, words):
    assert merge_memory.complaint(refused, switch) == words or words and words in merge_memory.complaint(refused, switch)
    said = []
    monkeypatch.setattr(merge_memory, "ask", lambda: refused)
    monkeypatch.setattr(merge_memory, "running", lambda: switch)
    monkeypatch.setattr(merge_memory.CallbackBase, "__init__", lambda self: None)
    callback = merge_memory.CallbackModule()
    callback._display = type("Display", (), {"display": staticmethod(lambda text, stderr: said.append((text, stderr)))})
    callback.v2_playbook_on_start(None)
    assert said == ([("merge_memory: %s. Workers take the memory that they take without it." % merge_memory.complaint(refused, switch), True)] if words else [])


def test_the_switch_of_the_kernel_is_read(tmp_path):
    assert merge_memory.running(str(tmp_path / "run")) == ""
    (tmp_path / "run").write_text("1\n")
    assert merge_memory.running(str(tmp_path / "run")) == "1"


def test_the_kernel_is_asked_for_this_process_and_those_that_it_starts():
    """In a process of its own, whose memory may be merged afterwards: asked with PR_GET_MEMORY_MERGE, in a fork."""
    program = (
        "import ctypes, os, runpy, sys\n"
        "refused = runpy.run_path(sys.argv[1])['ask']()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    zero = ctypes.c_ulong(0)\n"
        "    os._exit(ctypes.CDLL(None).prctl(68, zero, zero, zero, zero) & 255)\n"
        "print(refused, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    process = subprocess.run([sys.executable, "-c", program, merge_memory.__file__], check=True, stdout=subprocess.PIPE, text=True)
    refused, merged = process.stdout.split()
    assert (refused, merged) in (("0", "1"), (str(errno.EINVAL), "255")), "it is merged, or the kernel has no such thing and says so"
