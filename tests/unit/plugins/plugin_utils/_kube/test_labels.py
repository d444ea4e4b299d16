# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, labels
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import find_value_problem

UNREADABLE = {"value": None, "rc": 999, "error": "UNKNOWN"}
UNSUPPORTED = {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def known(value):
    return {"value": value, "rc": 0}


def instance(profile):
    return {"name": "NVIDIA H100 80GB HBM3 MIG " + profile}


def gpu(name="NVIDIA H100 80GB HBM3", memory=85520809984, mig=0, cut=()):
    return {
        "name": known(name),
        "memory_total_bytes": known(memory),
        "mig_mode_current": known(mig),
        "mig_instances": known([instance(p) for p in cut]),
    }


def snapshot(*gpus, driver=None, status="ok"):
    return {"status": status, "system": {"driver_version": driver or known("535.261.03")}, "gpus": list(gpus)}


def found(*gpus, **more):
    return dict((key.split("/")[1], value) for key, value in labels.make_labels(snapshot(*gpus, **more)).items())


def test_a_whole_node():
    assert found(gpu(), gpu()) == {
        "gpu-model": "NVIDIA-H100-80GB-HBM3",
        "gpu-count": "2",
        "gpu-memory-gib": "79",
        "driver-version": "535.261.03",
        "mig-layout": "disabled",
    }


@pytest.mark.parametrize(
    ("gpus", "key", "value"),
    [
        ([gpu(), gpu("NVIDIA A100-SXM4-80GB")], "gpu-model", "mixed"),
        ([gpu(), dict(gpu(), name=UNREADABLE)], "gpu-model", None),
        ([gpu(), {}], "gpu-model", None),
        ([], "gpu-model", None),
        ([], "gpu-count", None),
        ([], "mig-layout", None),
        ([gpu(), gpu(memory=1 << 30)], "gpu-memory-gib", "mixed"),
        ([dict(gpu(), memory_total_bytes=UNREADABLE)], "gpu-memory-gib", None),
        ([gpu(mig=1, cut=["1g.10gb"] * 2 + ["3g.40gb"])], "mig-layout", "1x3g.40gb_2x1g.10gb"),
        ([gpu(mig=1, cut=["1g.10gb+me"])], "mig-layout", "1x1g.10gb.me"),
        ([gpu(mig=1)], "mig-layout", "empty"),
        ([gpu(mig=1, cut=["7g.80gb"]), gpu()], "mig-layout", "mixed"),
        ([gpu(mig=1, cut=["7g.80gb"]), gpu(mig=1, cut=["7g.80gb"])], "mig-layout", "1x7g.80gb"),
        ([dict(gpu(), mig_mode_current=UNSUPPORTED, mig_instances=UNSUPPORTED)], "mig-layout", "disabled"),
        ([dict(gpu(), mig_mode_current=UNREADABLE)], "mig-layout", None),
        ([dict(gpu(mig=1), mig_instances=UNREADABLE)], "mig-layout", None),
    ],
)
def test_a_label(gpus, key, value):
    assert found(*gpus)[key] == value


def test_what_could_not_be_read_takes_the_label_away():
    assert found(gpu(), driver=UNREADABLE)["driver-version"] is None
    assert set(found(gpu(), status="nvml_error").values()) == {None, "535.261.03"}


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "-odd-", "ü", "A" * 80, "a/b c (rev 2)", ""])
def test_values_are_ones_that_the_server_takes(name):
    assert find_value_problem(labels.make_value(name)) == ""


def test_labels_are_ones_that_the_server_takes():
    change.wanted(labels.make_labels(snapshot(gpu())), {}, [])
