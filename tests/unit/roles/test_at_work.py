# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When gpu_scheduler leaves a node alone because somebody may work on it: the truth table of its variable."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("ansible.template", reason="the variables of a role are templates")

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

pytestmark = pytest.mark.cores

FREE, BUSY, LOST = {"value": [], "rc": 0}, {"value": [{"pid": 4711}], "rc": 0}, {"value": None, "rc": 15}
SERVICE = {"pid": 7, "comm": "nvidia-persiste", "unit": "nvidia-persistenced.service"}
OTHER = {"pid": 4712, "comm": "python3", "unit": None}
NOBODY_TELLS = "it cannot be told whether processes compute on its GPUs: "


def answer(*gpus, **more):
    return dict({"snapshot": {"gpus": [{"compute_processes": gpu} for gpu in gpus]}}, **more)


@pytest.mark.parametrize("jobs, words", [
    (answer(FREE, FREE, holders=[]), None),
    (answer(FREE, FREE, holders=[OTHER]), None),  # NVML tells: who only has a device file open does not compute
    (answer(FREE, BUSY, holders=[]), "processes compute on its GPUs, and no job is stopped: pid 4711."),
    (answer(LOST, BUSY, holders=[]), "processes compute on its GPUs, and no job is stopped: pid 4711."),
    (answer(FREE, LOST, holders=[]), None),
    (answer(FREE, LOST, holders=[SERVICE]), None),
    (answer(FREE, LOST, holders=[SERVICE, OTHER]), "have its device files open: python3 4712. End them"),
    (answer(FREE, LOST, holders=None), NOBODY_TELLS + "/proc cannot be listed."),
    (answer(FREE, LOST), NOBODY_TELLS + "/proc cannot be listed."),
    (answer(holders=[]), None),
    (answer(holders=[OTHER]), "have its device files open: python3 4712."),
    ({"snapshot": {"gpus": [{"index": 0}]}, "holders": [OTHER]}, "have its device files open: python3 4712."),
    ({"unreachable": True, "msg": "gpu-1 does not answer"}, NOBODY_TELLS + "gpu-1 does not answer."),
    ({}, NOBODY_TELLS + "/proc cannot be listed."),
])
def test_who_works_on_the_gpus(collection_root, jobs, words):
    loader = DataLoader()
    trusted = {"trusted_as_template": True} if "trusted_as_template" in inspect.signature(loader.load_from_file).parameters else {}
    variables = loader.load_from_file(str(collection_root / "roles/gpu_scheduler/vars/main.yml"), **trusted)
    services = ["nvidia-dcgm.service", "nvidia-persistenced.service"]
    given = dict(variables, __gpu_scheduler_jobs=jobs, gpu_scheduler_services=services)
    said = Templar(loader, variables=given).template(variables["__gpu_scheduler_at_work"])
    if words is None:
        assert said == ""
    else:
        assert words in said and "run again" in said
