# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with container runtimes below a directory: stubs of the runtimes, and the stand-in for nvidia-ctk on the
simulator's NVML.
"""

from __future__ import annotations

import os
import pathlib
import sys

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner

ROOT = pathlib.Path(__file__).resolve().parents[5]
STAND_IN = ROOT / "tests/lab/nvidia_ctk_standin.py"
# What the real programs print, with the version in its place.
ANSWERS = {
    "containerd": "containerd github.com/containerd/containerd/v2 %s 6c4c7d0c3b3a0f9b1b0f2a1a2b7d8f8f1c6f3a11",
    "crio": "crio version %s\nGitCommit: unknown\nGoVersion: go1.21.7",
    "dockerd": "Docker version %s, build 4debf41",
    "podman": "podman version %s",
}


def program(root, name, script):
    path = pathlib.Path(str(root)) / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n%s\n" % script)
    path.chmod(0o755)


def runtime(root, binary, version):
    program(root, binary, "cat <<'END'\n%s\nEND" % (ANSWERS[binary] % version))


def toolkit(root, version):
    """The stand-in as its package would bring it: in this version, and with its data below the directory."""
    text = STAND_IN.read_text().replace('VERSION = "0.0.0"', 'VERSION = "%s"' % version)
    place = pathlib.Path(str(root)) / "usr/lib/nvidia-ctk-standin.py"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    program(root, "nvidia-ctk", 'GPUSIM_ROOT="%s" exec "%s" -I -S "%s" "$@"' % (root, sys.executable, place))


class NodeRunner:
    """Runs the programs below the root for real, and answers for systemctl: units by name to their states."""

    def __init__(self, units=(), after_restart="active"):
        self.units = dict(units)
        self.after_restart = after_restart
        self.calls = []
        self.run = Runner()

    def __call__(self, argv, timeout=60):
        self.calls.append([os.path.basename(argv[0])] + list(argv[1:]))
        if os.path.basename(argv[0]) != "systemctl":
            return self.run(argv, timeout)
        if argv[1] == "restart":
            self.units[argv[-1]] = self.after_restart
            return (0, "", "") if self.after_restart == "active" else (1, "", "Job failed.")
        return 0, self.units.get(argv[-1], "inactive") + "\n", ""

    def made(self, *words):
        """Calls that begin so."""
        return [call for call in self.calls if call[: len(words)] == list(words)]
