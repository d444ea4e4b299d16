# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters, and the template of the role that uses one."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.plugins.filter.core import FilterModule as Core
from jinja2 import Environment

from ansible_collections.gpufleet.lifecycle.plugins.filter import device_plugin_config, gpu_node_labels

pytestmark = pytest.mark.cores

ROOT = pathlib.Path(__file__).resolve().parents[4]
TEMPLATE = ROOT / "roles/gpu_scheduler/templates/kubernetes/device-plugin-config.yml.j2"


def test_labels():
    make = gpu_node_labels.FilterModule().filters()["gpu_node_labels"]
    assert set(make({"status": "ok", "gpus": []}).values()) == {None}
    for wrong in ("text", {"failed": True}):
        with pytest.raises(AnsibleFilterError, match="snapshot"):
            make(wrong)


def test_the_template_writes_what_the_device_plugin_reads():
    environment = Environment()
    environment.filters["gpufleet.lifecycle.device_plugin_config"] = device_plugin_config.FilterModule().filters()[
        "device_plugin_config"
    ]
    environment.filters["to_nice_yaml"] = Core().filters()["to_nice_yaml"]
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        ansible_managed="managed",
        gpu_scheduler_device_plugin_namespace="gpu-operator",
        gpu_scheduler_device_plugin_configs={
            "a": {"strategy": "mps", "resources": [{"name": "nvidia.com/gpu", "replicas": 8}]}
        },
    )
    found = yaml.safe_load(text)
    assert (found["apiVersion"], found["kind"], found["metadata"]["name"], found["metadata"]["namespace"]) == (
        "v1",
        "ConfigMap",
        "gpufleet-device-plugin",
        "gpu-operator",
    )
    assert yaml.safe_load(found["data"]["a"])["sharing"]["mps"]["resources"] == [
        {"name": "nvidia.com/gpu", "replicas": 8}
    ]


def test_a_wrong_configuration_is_an_error_of_the_filter():
    with pytest.raises(AnsibleFilterError, match="is refused: a: "):
        device_plugin_config.device_plugin_config({"a": {"strategy": "mps"}})
