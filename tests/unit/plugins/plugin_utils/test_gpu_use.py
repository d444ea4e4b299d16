# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth table of whether the GPUs of a node are in use.

The number of them is tested with the filter schedulable_gpus.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use

FREE, USED = {"value": [], "rc": 0}, {"value": [{"pid": 4711}, {"pid": 12}], "rc": 0}
SILENT = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}


def gpus(*answers):
    return [{"index": index, "compute_processes": answer} for index, answer in enumerate(answers)]


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (gpus(FREE), None),
        (gpus(FREE, FREE), None),
        (gpus(FREE, USED), ["pid 12, 4711"]),
        (gpus(USED, USED), ["pid 12, 4711"]),
        (gpus(SILENT, USED), ["pid 12, 4711"]),
        (gpus(FREE, SILENT), ["GPU 1", "GPU_IS_LOST"]),
        (gpus(SILENT, SILENT), ["GPU 0, 1", "NVML: GPU_IS_LOST"]),
        (gpus({"value": [], "rc": 3}), ["GPU 0", "no answer"]),
        (gpus({}), ["GPU 0", "no answer"]),
        ([{"index": 5}], ["GPU 5", "no answer"]),
        ([], ["none was read"]),
        (None, ["none was read"]),
        ({}, ["none was read"]),
    ],
)
def test_a_node_is_idle_only_if_each_gpu_says_so(read, named):
    said = _gpu_use.in_use(read)
    assert (said == "") == (named is None)
    assert all(words in said for words in named or [])


SERVICE = {"pid": 7, "comm": "nvidia-persiste", "unit": "nvidia-persistenced.service"}
OTHER = {"pid": 4712, "comm": "python3", "unit": None}
NOT_TOLD = "it cannot be told"


def answer(*answers, **more):
    return dict({"snapshot": {"gpus": gpus(*answers)}}, **more)


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (answer(FREE, FREE, holders=[]), None),
        # NVML tells: a process that only has a device file open does not compute
        (answer(FREE, FREE, holders=[OTHER]), None),
        (answer(FREE, USED, holders=[]), ["pid 12, 4711"]),
        (answer(SILENT, USED, holders=[]), ["pid 12, 4711"]),
        (answer(FREE, SILENT, holders=[]), None),
        (answer(FREE, SILENT, holders=[SERVICE]), None),
        (answer(FREE, SILENT, holders=[SERVICE, OTHER]), ["python3 4712"]),
        (answer(FREE, SILENT, holders=None), [NOT_TOLD, "/proc"]),
        (answer(FREE, SILENT), [NOT_TOLD, "/proc"]),
        (answer(holders=[]), None),
        (answer(holders=[OTHER]), ["python3 4712"]),
        ({"snapshot": {"gpus": [{"index": 0}]}, "holders": [OTHER]}, ["python3 4712"]),
        ({"unreachable": True, "msg": "gpu-1 does not answer"}, [NOT_TOLD, "gpu-1 does not answer"]),
        ({}, [NOT_TOLD, "/proc"]),
    ],
)
def test_a_drained_node_is_idle_by_nvml_or_by_its_device_files(read, named):
    said = _gpu_use.in_use_when_drained(read, ["nvidia-dcgm.service", "nvidia-persistenced.service"])
    assert (said == "") == (named is None)
    assert all(words in said for words in named or [])


def partitioned(*names, mode=1):
    return {
        "mig_mode_current": {"value": mode, "rc": 0},
        "mig_instances": {"value": [{"name": name} for name in names], "rc": 0},
    }


@pytest.mark.parametrize(
    ("snapshot", "devices"),
    [
        (None, {}),
        ({"gpus": [{}]}, {}),
        ({"gpus": [partitioned(mode=0)]}, {}),
        (
            {"gpus": [partitioned("X MIG 1g.10gb", "X MIG 1g.10gb+me"), partitioned("X MIG 1g.10gb")]},
            {"1g.10gb": 2, "1g.10gb+me": 1},
        ),
        ({"gpus": [partitioned("")]}, {"unknown": 1}),
    ],
)
def test_mig_devices_are_counted_by_profile(snapshot, devices):
    assert _gpu_use.mig_devices(snapshot) == devices
