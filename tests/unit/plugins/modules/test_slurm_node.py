# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_node as a task calls it: what it returns when all went well, when it had to fail, and when Slurm did not do
what was asked.
"""

from __future__ import annotations

import io
import json
import sys

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.modules import slurm_node
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm.fake_slurm import Cluster

pytestmark = pytest.mark.cores


@pytest.fixture(name="run")
def run_module(monkeypatch, capsys, tmp_path):
    def run(cluster, **options):
        arguments = {"ANSIBLE_MODULE_ARGS": dict(options, _ansible_remote_tmp=str(tmp_path))}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode("utf-8"))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        own = cluster.slurm()
        with monkeypatch.context() as patched, pytest.raises(SystemExit):
            patched.setattr(slurm_node.commands, "Slurm", lambda **dummy: own)
            slurm_node.main()
        return json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    return run


def test_a_drain_with_its_difference(run):
    cluster = Cluster()
    result = run(cluster, node_name="n1", state="drained", token="tok-1", _ansible_diff=True)
    assert result["changed"] and result["drained"] and result["mark"]["owner"] == "ours" and not result.get("failed")
    assert result["diff"]["after"] == {"state": "IDLE+DRAIN", "reason": "gpufleet:tok-1 maintenance"}
    again = run(cluster, node_name="n1", state="drained", token="tok-1")
    assert not again["changed"] and "diff" not in again and "trouble" not in again


def test_check_mode_changes_nothing(run):
    cluster = Cluster()
    assert (
        run(cluster, node_name="n1", state="drained", token="tok-1", _ansible_check_mode=True)["changed"]
        and cluster.calls == []
    )


def test_a_refusal_says_how_the_node_is(run):
    result = run(Cluster(), node_name="n1", state="drained", token="tok-1", expected_gpus=8)
    assert (
        result["failed"]
        and "and the node has 8" in result["msg"]
        and (result["state"], result["gres"]["gpus"]) == ("IDLE", 4)
    )


def test_what_slurm_does_not_do_is_named(run):
    result = run(Cluster(), node_name="n2", state="drained", token="tok-1")
    assert result["failed"] and result["trouble"] == "node" and result["msg"].startswith("n2: Slurm knows no node n2")


def test_options_that_make_no_sense(run):
    cluster = Cluster()
    result = run(cluster, node_name="n1", state="drained")
    assert result["failed"] and "needs a token" in result["msg"] and cluster.calls == []


def test_the_documentation_says_what_the_options_are():
    yaml = pytest.importorskip("yaml")
    documented = yaml.safe_load(slurm_node.DOCUMENTATION)["options"]
    assert sorted(documented) == sorted(slurm_node.ARGUMENT_SPEC)
    for name, spec in slurm_node.ARGUMENT_SPEC.items():
        assert documented[name]["type"] == spec["type"] and documented[name].get("default") == spec.get("default"), name
        assert sorted(documented[name].get("choices", [])) == sorted(spec.get("choices", [])), name
