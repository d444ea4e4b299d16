# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recording of a real machine, tried on a simulated one."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._smoke import smokenode

pytestmark = pytest.mark.pythons

CHECKOUT = pathlib.Path(smokenode.__file__).resolve().parents[5]


@pytest.fixture
def node(tmp_path, tmp_path_factory):
    node = smokenode.make(tmp_path / "root", tmp_path_factory.mktemp("nodes"))
    yield node
    node.close()


def record(node, out, *arguments):
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.record_smoke", str(out)] + list(arguments),
        env=environment,
        cwd=str(CHECKOUT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=600,
        check=False,
    )


def test_a_recording_holds_the_measurements_and_no_identity(node, tmp_path):
    done = record(node, tmp_path / "out.json", "t0", smokenode.library(node))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.json").read_text()
    recorded = json.loads(text)["smoke"]
    assert (
        recorded["boot_id"] is None
        and [gpu["uuid"] for gpu in recorded["gpus"]] == ["GPU-00000000-0000-0000-0000-000000000000"] * 2
    )
    assert all(len(test["samples"]) == 5 for gpu in recorded["gpus"] for test in gpu["tests"].values())


def test_a_machine_that_cannot_be_tested_leaves_no_recording(node, tmp_path):
    node.library(None)
    done = record(node, tmp_path / "out.json", "t0", smokenode.library(node))
    assert done.returncode == 1 and "nothing was recorded" in done.stderr
    assert not (tmp_path / "out.json").exists()
