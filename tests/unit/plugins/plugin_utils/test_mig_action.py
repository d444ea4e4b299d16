# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of gpu_mig: what it sends to the node, and what it refuses before the node is asked."""

from __future__ import annotations

import copy
import json
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_mig
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

pytestmark = pytest.mark.cores

DIGEST = "d" * 64
OFF = [{"devices": "all", "mig-enabled": False}]
ON = [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]
DOCUMENT = {"version": "v1", "mig-configs": {"off": OFF, "on": ON}}


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "shipped", lambda: _binding.Archive(b"zip", DIGEST, "1", None))


def act(args, *answers):
    """(result, calls) of the action whose node gives ANSWERS one after the other."""
    task = mock.Mock(args=args, async_val=0, check_mode=False, diff=False, action="x", environment=None)
    action = gpu_mig.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), None)
    action._load_name = "x"
    calls, left = [], list(copy.deepcopy(answers))

    def execute(module_name, module_args, task_vars):
        calls.append((module_name, dict(module_args)))
        return left.pop(0)

    action._execute_module = execute
    return action.run(task_vars={"inventory_hostname": readings.NODE}), calls


def sent(args):
    ((name, given),) = act(args, {"changed": False})[1]
    assert name == "gpufleet.lifecycle.gpu_mig" and given["binding_digest"] == DIGEST
    return given


def refused(args):
    with pytest.raises(AnsibleActionFail) as caught:
        act(args)
    assert readings.NODE in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("where", ["option", "yaml", "json"])
def test_of_a_configuration_the_wanted_layout_travels(tmp_path, where):
    path = tmp_path / ("mig." + where)
    path.write_text(
        json.dumps(DOCUMENT)
        if where == "json"
        else "version: v1\nmig-configs:\n  disabled: [{devices: all, mig-enabled: false}]\n"
        '  "on":\n    - devices: all\n      mig-enabled: true\n      mig-devices: {"1g.10gb": 7}\n'
    )
    given = sent(dict({"config": DOCUMENT} if where == "option" else {"config_file": str(path)}, config_name="on"))
    assert (
        given["config"] == {"version": "v1", "mig-configs": {"on": ON}}
        and "config_file" not in given
        and given["config_name"] == "on"
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("version: v1\nmig-configs:\n  one: [{devices: all, mig-enabled: false, mig-enabled: true}]\n", "mig-enabled"),
        ("version: v2\n", "v2"),
        ("version: v1\nmig-configs: [", "line"),
        ("version: v1\nmig-configs:\n  on: []\n", "key on "),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, named):
    path = tmp_path / "mig.yml"
    path.write_text(text)
    message = refused({"config_file": str(path), "config_name": "on"})
    assert str(path) in message and named in message


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "none.yml") in refused({"config_file": str(tmp_path / "none.yml"), "config_name": "on"})


def test_a_misspelt_layout_is_refused_before_the_node_is_asked():
    assert "off, on" in refused({"config": DOCUMENT, "config_name": "onn"})


def test_a_list_is_looked_through_before_the_node_is_asked():
    assert "layout[1]" in refused(
        {"layout": [{"mig_enabled": False}, {"mig_enabled": True, "mig_devices": {"bogus": 1}}]}
    )
    assert sent({"layout": [{"mig_enabled": False}]})["layout"][0]["mig_enabled"] is False


@pytest.mark.parametrize("where", ["option", "file"])
def test_a_baseline_becomes_a_list_by_uuid(tmp_path, where):
    found = readings.baseline()
    path = tmp_path / "b.json"
    path.write_text(json.dumps(found))
    given = sent(
        dict({"state": "restored"}, **({"baseline": found} if where == "option" else {"baseline_file": str(path)}))
    )
    assert given["state"] == "present" and "baseline" not in given
    assert [entry["gpus"] for entry in given["layout"]] == [[gpu["uuid"]["value"]] for gpu in found["snapshot"]["gpus"]]


def test_a_baseline_that_does_not_tell_the_layout_is_refused():
    found = readings.baseline()
    found["snapshot"]["gpus"][0]["mig_mode_current"] = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}
    assert "mig_mode_current" in refused({"state": "restored", "baseline": found})


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"config": DOCUMENT},
        {"state": "restored"},
        {"state": "cleared", "config": DOCUMENT},
        {"config": DOCUMENT, "layout": [{"mig_enabled": False}]},
        {"state": "gone"},
        {"layout": [{}]},
        {"config": DOCUMENT, "config_name": "on", "binding_digest": DIGEST},
    ],
)
def test_options_that_do_not_go_together_are_refused(args):
    with pytest.raises(AnsibleActionFail):
        act(args)


def test_what_changes_nothing_needs_nothing():
    assert (
        sent({"state": "cleared"})["state"] == "cleared"
        and sent({"state": "exported", "config_name": "now"})["config_name"] == "now"
    )
