# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node holds, by whose packages they are, since when, and what that keeps out."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds, kernel_set

pytestmark = pytest.mark.pythons

DAY = 24 * 3600
NOW = 1000 * DAY


class Manager:
    name = "apt"

    def __init__(self, root, held):
        self.root = str(root)
        self.held = held
        self.asked = []

    def path(self, name):
        return os.path.join(self.root, name.lstrip("/"))

    def list_installed(self):
        return dict(
            (name, {"installed": True, "hold": hold, "version": version, "source": source})
            for name, (version, source, hold) in self.held.items()
        )

    def index(self, pattern, also=()):
        self.asked.append(sorted(also))
        return dict((name, [{"version": "999"}, {"version": self.held[name][0]}]) for name in also)

    def security(self, names):
        return dict((name, ["999"]) for name in names if name != "vim")


@pytest.mark.parametrize(
    "name, source, group",
    [
        ("linux-image-amd64", "linux-signed-amd64", "kernel"),
        ("linux-headers-6.1.0-56-amd64", "linux", "kernel"),
        ("nvidia-smi", "nvidia-graphics-drivers", "driver"),
        ("libcuda1", None, "driver"),
        ("anything", "nvidia-open-gpu-kernel-modules", "driver"),
        ("nvidia-persistenced", "nvidia-persistenced", "driver"),
        ("vim", "vim", "other"),
        ("libnvme1", "libnvme", "other"),
    ],
)
def test_whose_package_it_is(name, source, group):
    assert holds.group_of(name, source, list(kernel_set.PATTERNS["apt"])) == group


def test_holds_by_group_with_their_age(tmp_path):
    manager = Manager(
        tmp_path,
        {
            "linux-image-amd64": ("6.1", "linux-signed-amd64", True),
            "nvidia-smi": ("535", "nvidia-graphics-drivers", True),
            "vim": ("8", "vim", True),
            "bash": ("5", "bash", False),
        },
    )
    os.makedirs(str(tmp_path / "var/lib/gpufleet"))
    for path, name, version, days in (
        (holds.KERNEL_RECORD, "linux-image-amd64", "6.1", 40),
        (holds.RECORD, "nvidia-smi", "534", 7),
    ):
        (tmp_path / path.lstrip("/")).write_text(
            json.dumps({name: {"version": version, "since": NOW - days * DAY, "exact": True}})
        )
    found = holds.read_holds(manager, NOW)
    told = dict(
        (group, [(row["package"], row["age_days"], row["newer"], row["security"]) for row in rows])
        for group, rows in found.items()
    )
    # The record of nvidia-smi is of another version than the one that is held.
    assert told == {
        "kernel": [("linux-image-amd64", 40, ["999"], ["999"])],
        "driver": [("nvidia-smi", None, ["999"], ["999"])],
        "other": [("vim", None, ["999"], [])],
    }
    assert manager.asked == [["linux-image-amd64", "nvidia-smi", "vim"]]


def test_nothing_held_asks_nobody(tmp_path):
    manager = Manager(tmp_path, {"bash": ("5", "bash", False)})
    assert holds.read_holds(manager, NOW) == {"kernel": [], "driver": [], "other": []} and manager.asked == []
