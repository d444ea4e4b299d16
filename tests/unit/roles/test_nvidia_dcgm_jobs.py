# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prolog and epilog that tell dcgm-exporter which job has which GPU, run by sh over the table of the role."""

from __future__ import annotations

import os
import subprocess

import pytest

pytest.importorskip("ansible.template", reason="the scripts are templates of a role")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import engine
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import Role

SNAPSHOT = {
    "gpus": [
        {"uuid": {"value": "GPU-a"}, "minor_number": {"value": 4}, "mig_instances": {"value": []}},
        {"uuid": {"value": "GPU-b"}, "minor_number": {"value": 0}, "mig_instances": {"value": []}},
        {
            "uuid": {"value": "GPU-c"},
            "minor_number": {"value": 1},
            "mig_instances": {"value": [{"uuid": "MIG-1", "gpu_instance": 7}, {"uuid": "MIG-2", "gpu_instance": 9}]},
        },
        # not in the engine, and without a minor number
        {"uuid": {"value": "GPU-d"}, "minor_number": {"value": 2}, "mig_instances": {"value": []}},
        {"uuid": {"value": "GPU-e"}, "minor_number": {"value": None}, "mig_instances": {"value": None}},
    ]
}
IDS = {"GPU-a": 0, "GPU-b": 6, "GPU-c": 2, "GPU-e": 3}


def test_gpus_are_joined_by_uuid_and_not_by_order():
    lines = engine.render_job_table(SNAPSHOT, IDS).splitlines()[1:]
    assert lines == ["GPU-a 0", "minor:4 0", "GPU-b 6", "minor:0 6", "MIG-1 2.7", "MIG-2 2.9", "GPU-e 3"]


@pytest.mark.parametrize("snapshot, ids", [(SNAPSHOT, {}), ({}, IDS), ({"gpus": []}, IDS)])
def test_a_table_that_is_not_known_is_empty(snapshot, ids):
    assert engine.render_job_table(snapshot, ids) == ""


@pytest.fixture(name="node")
def _node(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "table").write_text(engine.render_job_table(SNAPSHOT, IDS))
    role = Role(
        "nvidia_dcgm_exporter",
        nvidia_dcgm_exporter_job_mapping_dir=str(tmp_path / "jobs"),
        __nvidia_dcgm_exporter_table=str(tmp_path / "table"),
    )
    for name in ("prolog", "epilog"):
        (tmp_path / name).write_text(role.render(name + ".sh.j2"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/logger").write_text('#!/bin/sh\necho "$@" >> "%s/log"\n' % tmp_path)
    (tmp_path / "bin/logger").chmod(0o755)
    return tmp_path


def run(node, script, **environment):
    path = "%s:%s" % (node / "bin", os.environ["PATH"])
    done = subprocess.run(
        ["sh", str(node / script)], env=dict(environment, PATH=path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {file.name: file.read_text() for file in (node / "jobs").glob("*")}


@pytest.mark.parametrize(
    "environment, files",
    [
        # the minor number, and not the order: minor 0 is GPU 6 of DCGM
        ({"SLURM_JOB_GPUS": "0,4"}, {"6", "0"}),
        ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0,1"}, {"6"}),
        ({"SLURM_JOB_GPUS": "4", "CUDA_VISIBLE_DEVICES": "GPU-b"}, {"6"}),
        ({"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "MIG-2"}, {"2.9"}),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2,GPU-a"}, {"2.7", "2.9", "0"}),
        ({}, set()),
        # the minor number of a GPU with MIG devices says of none of them which it is
        ({"SLURM_JOB_GPUS": "1"}, set()),
        ({"CUDA_VISIBLE_DEVICES": "MIG-gone"}, set()),
    ],
)
def test_a_prolog_names_the_job(node, environment, files):
    found = run(node, "prolog", SLURM_JOB_ID="42", **environment)
    assert found == dict.fromkeys(files, "42\n")
    assert (node / "log").exists() == (bool(environment) and not files)


def test_stale_files_are_cleared(node):
    """By the next job on the GPU, and by the epilog, whatever GPUs its environment names."""
    (node / "jobs/6").write_text("41\n")
    assert run(node, "prolog", SLURM_JOB_ID="42", SLURM_JOB_GPUS="0,4") == {"6": "42\n", "0": "42\n"}
    assert run(node, "prolog", SLURM_JOB_ID="43", SLURM_JOB_GPUS="4") == {"6": "42\n", "0": "43\n"}
    assert run(node, "epilog", SLURM_JOB_ID="42") == {"0": "43\n"}
    assert run(node, "epilog", SLURM_JOB_ID="4") == {"0": "43\n"}
    assert run(node, "epilog", SLURM_JOB_ID="43", SLURM_JOB_GPUS="0") == {}


@pytest.mark.parametrize("gone", ["jobs", "table"])
def test_a_job_starts_and_ends_whatever_is_missing(node, gone):
    (node / gone).rename(node / "away")
    assert run(node, "prolog", SLURM_JOB_ID="42", SLURM_JOB_GPUS="0") == run(node, "epilog", SLURM_JOB_ID="42") == {}
    assert (node / "jobs").exists() == (gone == "table")


def test_without_a_job_nothing_is_written(node):
    assert run(node, "prolog", SLURM_JOB_GPUS="0") == run(node, "epilog") == {}
