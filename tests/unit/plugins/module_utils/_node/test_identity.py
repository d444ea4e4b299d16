# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine a node is; what says nothing is not known."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import identity
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import write

pytestmark = pytest.mark.pythons

MACHINE = "0f3c5e6a7b8c4d9e8f7a6b5c4d3e2f1a"
ONE, OTHER = "GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10", "GPU-6d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10"
TOLD = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.89.00.01\n"


def test_what_a_node_tells(tmp_path):
    write(tmp_path, "/etc/machine-id", MACHINE + "\n")
    write(tmp_path, "/sys/class/dmi/id/board_serial", " QTFCOU1234  5678 \n")
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:c1:00.0/information", TOLD % OTHER)
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:1b:00.0/information", TOLD % ONE.upper().replace("GPU", "GPU"))
    assert identity.read(str(tmp_path)) == {
        "machine_id": MACHINE,
        "board_serial": "QTFCOU1234 5678",
        "gpus": [ONE, OTHER],
    }


@pytest.mark.parametrize(
    "path, text, key",
    [
        ("/etc/machine-id", "", "machine_id"),
        ("/etc/machine-id", "uninitialized\n", "machine_id"),
        ("/etc/machine-id", "0" * 32, "machine_id"),
        *(
            ("/sys/class/dmi/id/board_serial", text, "board_serial")
            for text in (
                "",
                " ",
                "None",
                "To Be Filled By O.E.M.",
                "Default string",
                "0",
                "0000000000",
                "123456789",
                "0123456789",
                "Not Specified",
                "....",
            )
        ),
        (
            "/proc/driver/nvidia/gpus/0000:1b:00.0/information",
            TOLD % "GPU-????????-????-????-????-????????????",
            "gpus",
        ),
        ("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: x\n", "gpus"),
    ],
)
def test_what_says_nothing_is_not_known(tmp_path, path, text, key):
    write(tmp_path, path, text)
    assert identity.read(str(tmp_path))[key] is None


def test_gpus_are_known_only_when_all_are(tmp_path):
    assert identity.read(str(tmp_path)) == {"machine_id": None, "board_serial": None, "gpus": None}
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:1b:00.0/information", TOLD % ONE)
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:c1:00.0/registry", "Binary: \"\"\n")
    assert identity.read(str(tmp_path))["gpus"] is None
