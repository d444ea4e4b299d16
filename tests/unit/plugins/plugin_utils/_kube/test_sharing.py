# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import sharing
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError


def gpu(replicas=4, name="nvidia.com/gpu"):
    return {"name": name, "replicas": replicas}


def rendered(**wanted):
    found = sharing.make_config_map({"one": wanted})
    return yaml.safe_load(found["data"]["one"])


def test_time_slicing_as_the_device_plugin_reads_it():
    assert rendered(strategy="time_slicing", resources=[gpu()]) == {
        "version": "v1",
        "flags": {"migStrategy": "none"},
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
            }
        },
    }


def test_mps_has_no_word_about_requests_for_more_than_one():
    assert rendered(strategy="mps", rename=False, resources=[gpu(10)])["sharing"] == {
        "mps": {"renameByDefault": False, "resources": [{"name": "nvidia.com/gpu", "replicas": 10}]}
    }


def test_nothing_shared():
    assert rendered(mig_strategy="mixed") == {"version": "v1", "flags": {"migStrategy": "mixed"}}


def test_mig_devices_are_shared_with_the_strategy_that_offers_them():
    assert rendered(strategy="time_slicing", mig_strategy="mixed", resources=[gpu(), gpu(2, "nvidia.com/mig-1g.10gb")])[
        "sharing"
    ]


def test_a_config_map_of_several():
    found = sharing.make_config_map({"b": {}, "a": {}}, "shared", "gpu-operator")
    assert (found["kind"], found["metadata"]["name"], found["metadata"]["namespace"]) == (
        "ConfigMap",
        "shared",
        "gpu-operator",
    )
    assert list(found["data"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ({"strategy": "both"}, "strategy is 'both'"),
        ({"strategy": "mps"}, "shares nothing"),
        ({"resources": [gpu()]}, "strategy none"),
        ({"mig_strategy": "all"}, "mig_strategy is 'all'"),
        ({"strategy": "time_slicing", "resources": gpu()}, "no list"),
        ({"strategy": "time_slicing", "resources": ["nvidia.com/gpu"]}, "no list"),
        ({"strategy": "time_slicing", "resources": [gpu(1)]}, "replicas 1"),
        ({"strategy": "time_slicing", "resources": [gpu("4")]}, "replicas '4'"),
        ({"strategy": "time_slicing", "resources": [gpu(True)]}, "replicas True"),
        ({"strategy": "time_slicing", "resources": [gpu(name="gpu")]}, "'gpu' is no resource"),
        ({"strategy": "time_slicing", "resources": [gpu(), gpu()]}, "twice"),
        ({"strategy": "time_slicing", "resources": [gpu(name="nvidia.com/mig-1g.10gb")]}, "mixed"),
        ({"strategy": "time_slicing", "resources": [dict(gpu(), rename="x")]}, "unknown keys rename"),
        ({"strategy": "mps", "mig_strategy": "mixed", "resources": [gpu(name="nvidia.com/mig-1g.10gb")]}, "whole GPUs"),
        ({"strategy": "mps", "mig_strategy": "single", "resources": [gpu()]}, "whole GPUs"),
        ({"strategy": "mps", "resources": [gpu(49)]}, "48 clients"),
        ({"strategy": "mps", "fail_requests_greater_than_one": False, "resources": [gpu()]}, "always fails"),
        ({"strategy": "time_slicing", "rename": "yes", "resources": [gpu()]}, "rename is 'yes'"),
        ({"replicas": 4}, "unknown keys replicas"),
        ([], "no mapping"),
    ],
)
def test_what_is_wrong_is_named(wanted, word):
    with pytest.raises(KubeError, match="is refused: one: ") as caught:
        sharing.make_config_map({"one": wanted})
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("configs", "more", "word"),
    [
        ({}, {}, "empty"),
        ([1], {}, "no mapping"),
        ({"a b": {}}, {}, "its name"),
        ({"a": {}}, {"name": "A_b"}, "name 'A_b'"),
        ({"a": {}}, {"namespace": ""}, "namespace ''"),
    ],
)
def test_names(configs, more, word):
    with pytest.raises(KubeError) as caught:
        sharing.make_config_map(configs, **more)
    assert word in str(caught.value)


def test_texts_and_numbers_of_ansible_are_written_too():
    class Text(str):
        """As Ansible gives a value that it knows the origin of."""

    class Number(int):
        """The same."""

    wanted = {
        Text("a"): {
            Text("strategy"): Text("time_slicing"),
            "mig_strategy": Text("mixed"),
            "resources": [{"name": Text("nvidia.com/gpu"), "replicas": Number(4)}],
        }
    }
    found = yaml.safe_load(sharing.make_config_map(wanted)["data"]["a"])
    assert found["flags"] == {"migStrategy": "mixed"} and found["sharing"]["timeSlicing"]["resources"] == [
        {"name": "nvidia.com/gpu", "replicas": 4}
    ]
