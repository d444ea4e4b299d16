# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_mig refuses, when it resets GPUs, and when the CDI file follows."""

from __future__ import annotations

import json
import pathlib

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.roles import recorded_node

MANAGER, UNIT = "nvidia-mig-manager.service", "gpufleet-mig.service"
CDI = {"health": {"checks": [{"id": "node.cdi", "status": "pass", "message": ""}]}}
CONFIGS = {
    "version": "v1",
    "mig-configs": {"sevenths": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]},
}
NAMED = {"nvidia_mig_config": "sevenths", "nvidia_mig_configs": CONFIGS}
THERE = {"gpus": [{"changed": False}], "config": CONFIGS, "reset_required": False}
WAITS = dict(THERE, reset_required=True)


@pytest.fixture(name="node")
def _node(tmp_path):
    """A node that has its layout."""
    node = recorded_node.RecordedNode(
        tmp_path,
        ["nvidia_mig", "nvidia_container_toolkit"],
        gpu_mig=THERE,
        gpu_reset={},
        gpu_health=CDI,
        nvidia_ctk={"changed": True},
        node_program={"sha256": "0"},
    )
    node.unit(UNIT, "loaded", "inactive", "dead", "success", "disabled")
    yield node
    node.close()


def variables_of(node, **given):
    root = pathlib.Path(str(node.root))
    known = dict(
        __nvidia_mig_units=str(root / "units"),
        __nvidia_mig_program=str(root / "lib/program"),
        __nvidia_mig_file=str(root / "mig.json"),
        nvidia_mig_boot=False,
    )
    return dict(known, **given)


def play(node, *options, tasks_from="main", **given):
    return node.play("nvidia_mig", *options, tasks_from=tasks_from, **variables_of(node, **given))


def test_a_layout_that_is_named_in_no_way_or_in_two(node):
    wrong = [
        {"nvidia_mig_config": "", "nvidia_mig_configs": CONFIGS},
        {"nvidia_mig_config": "sevenths"},
        dict(NAMED, nvidia_mig_config_file="/x/mig.yml"),
    ]
    reasons, result = node.cases(*([node.include("nvidia_mig", **variables_of(node, **given))] for given in wrong))
    assert all("nvidia_mig_config_file" in reason and "gpu-1" in reason for reason in reasons), result.output
    assert node.asked("gpu_mig") == node.asked("gpu_mig", check=True) == [] and node.log == []


@pytest.mark.slow
def test_two_managers_at_boot(node):
    """Refused before the layout is written or made; or the other one is disabled, where the variable says so."""
    node.unit(MANAGER, "loaded", "active", "exited", "success", "enabled")
    refused = play(node, nvidia_mig_boot=True, **NAMED)
    assert refused.rc != 0 and MANAGER in refused.words and "nvidia_mig_replace_manager" in refused.words, (
        refused.output
    )
    assert node.asked("gpu_mig") == [] and node.log == [] and not (node.root / "units").exists()
    assert not (node.root / "mig.json").exists()
    replaced = play(node, nvidia_mig_boot=True, nvidia_mig_replace_manager=True, **NAMED)
    assert replaced.rc == 0 and (node.root / "units" / UNIT).exists() and "enable " + UNIT in node.log, replaced.output
    assert node.state["units"][MANAGER][1] == "inactive" and node.state["units"][MANAGER][4] == "masked"


def test_the_layout_its_unit_and_the_drop_ins_are_written_once(node):
    units, layout = node.root / "units", node.root / "mig.json"
    foreseen = play(node, "--check", nvidia_mig_boot=True, **NAMED)
    assert foreseen.rc == 0 and foreseen.changed > 0 and not units.exists() and not layout.exists(), foreseen.output
    assert play(node, nvidia_mig_boot=True, **NAMED).rc == 0
    assert json.loads(layout.read_text()) == {"config": CONFIGS, "config_name": "sevenths"}
    assert layout.read_text().endswith("}\n")
    unit = (units / UNIT).read_text()
    assert "mig apply --config %s\n" % layout in unit and "Before=nvidia-dcgm.service " in unit
    assert "slurmd.service" in unit
    lines = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    assert lines["After"].split() == ["nvidia-persistenced.service", "nvidia-fabricmanager.service"]
    assert set(lines["Before"].split()) >= {
        "nvidia-dcgm.service",
        "nvidia-dcgm-exporter.service",
        "slurmd.service",
        "kubelet.service",
    }
    assert int(lines["TimeoutStartSec"]) > 0 and lines["Type"] == "oneshot"
    # A unit that starts another at boot, or waits for one, can wait for ever.
    assert not {"Wants", "Requires", "BindsTo", "Requisite"} & set(lines) and "systemctl" not in unit
    drop_ins = [units / (name + ".d") / "gpufleet-mig.conf" for name in ("slurmd.service", "kubelet.service")]
    assert all("Requires=%s\nAfter=%s\n" % (UNIT, UNIT) in path.read_text() for path in drop_ins)
    assert [path.stat().st_mode & 0o777 for path in [layout, units / UNIT] + drop_ins] == [0o644] * 4
    reloads = node.log.count("daemon-reload")
    again = play(node, nvidia_mig_boot=True, **NAMED)
    assert again.rc == 0 and again.changed == 0 and node.log.count("daemon-reload") == reloads == 1, again.output
    by_gpu = [{"gpus": ["GPU-a"], "mig_enabled": True, "mig_devices": {"1g.10gb": 7}}]
    other = play(node, tasks_from="keep", nvidia_mig_boot=True, __nvidia_mig_layout={"layout": by_gpu})
    assert other.rc == 0 and json.loads(layout.read_text()) == {"layout": by_gpu}, other.output


@pytest.mark.slow
def test_a_reset_is_the_variables_choice(node):
    """Without it no GPU is reset; with it those that wait are, and the layout is made after it."""
    node.answer(gpu_mig=WAITS)
    left = play(node, **NAMED)
    assert left.rc == 0 and node.asked("gpu_reset") == [] and len(node.asked("gpu_mig")) == 1, left.output
    # checked, made, made again after the reset
    node.answer(gpu_mig=[WAITS, WAITS, THERE])
    done = play(node, nvidia_mig_reset=True, **NAMED)
    assert done.rc == 0, done.output
    (reset,) = node.asked("gpu_reset")
    assert (reset["gpus"], reset["when_needed"]) == (["all"], True) and "destroy_mig" not in reset
    assert len(node.asked("gpu_mig")) == 3
    node.answer(gpu_mig=WAITS, gpu_reset={"failed": True, "msg": "GPU 0 is in use"})
    failed = play(node, nvidia_mig_reset=True, **NAMED)
    assert failed.rc != 0 and "GPU 0 is in use" in failed.words and len(node.asked("gpu_mig")) == 4, (
        "the layout is not tried again"
    )


@pytest.mark.slow
def test_the_cdi_file_follows_a_layout_that_changed(node):
    """Only then, only where the toolkit is, and a file that does not fit what NVML has fails the role."""
    toolkit = {"__nvidia_container_toolkit_program": str(node.root / "nvidia-ctk")}
    (node.root / "nvidia-ctk").write_text("")
    assert play(node, **dict(NAMED, **toolkit)).rc == 0 and node.asked("nvidia_ctk") == []
    node.answer(gpu_mig=dict(THERE, changed=True))
    assert play(node, **dict(NAMED, **toolkit)).rc == 0
    assert [call["state"] for call in node.asked("nvidia_ctk")] == ["refreshed"]
    node.answer(
        gpu_health={"health": {"checks": [{"id": "node.cdi", "status": "fail", "message": "MIG-gone is named"}]}}
    )
    stale = play(node, **dict(NAMED, **toolkit))
    assert stale.rc != 0 and "MIG-gone is named" in stale.words, stale.output
    (node.root / "nvidia-ctk").unlink()
    without = play(node, **dict(NAMED, **toolkit))
    assert without.rc == 0 and len(node.asked("nvidia_ctk")) == 2, without.output
