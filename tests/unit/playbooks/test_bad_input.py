# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What whole playbooks refuse before anything is changed; each refusal by itself is a test of the action that makes
it.
"""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible", reason="the variables of the playbooks are known to action plugins")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import heads

OLD, NEW = "1.0.1", "2.0.1"


def refused(result, words, runs_into=("FAILED!",)):
    assert result.rc not in (0, 4), "it was let pass"
    assert words in result.text, words
    assert all(bad not in result.output for bad in ("Traceback", "MODULE FAILURE", "Unexpected failure"))
    assert all(one in result.output for one in runs_into)
    assert result.fleet.touched() == [] and not result.fleet.artifacts.exists()


@pytest.mark.parametrize(
    "variables, arguments, extra, words",
    [
        (
            {"a1": {"rollout_max_down": 1}, "a2": {"rollout_max_down": 2}},
            (),
            {},
            "rollout_max_down is 1 for a1 and 2 for a2, and the whole rollout has one",
        ),
        pytest.param(
            {},
            (),
            {"gpu_node_upgrade_version": "3.0.1"},
            "gpu_node_upgrade_version is set on the command line (-e)",
            marks=pytest.mark.promise,
        ),
        ({}, ("--check",), {"__gpu_node_upgrade_touched": True}, "__gpu_node_upgrade_touched is set, a name that"),
        (
            {"a2": {"gpu_scheduler_backend": ["slurm"]}},
            ("--check",),
            {},
            "gpu_scheduler_backend is no variable of the role gpu_scheduler: did you mean gpu_scheduler_backends?",
        ),
        ({}, ("--check",), {"rollback_hosts": "a1"}, "rollback_hosts is on the command line (-e)"),
    ],
)
def test_an_upgrade_begins_with_a_look_at_its_variables(fleet, variables, arguments, extra, words):
    for name in ("a1", "a2"):
        fleet.add(name)
    fleet.variables = variables
    refused(fleet.run("upgrade", *arguments, **extra), words)


@pytest.mark.parametrize("playbook", ["bringup", "prestage"])
def test_so_do_other_playbooks_for_the_nodes_that_they_are_limited_to(fleet, playbook):
    for name in ("a1", "a2"):
        fleet.add(name)
    fleet.variables = {"a2": {"nvidia_driver_versoin": NEW}}
    refused(
        fleet.run(playbook, "--limit", "a2", "--check"),
        "nvidia_driver_versoin is no variable of the role nvidia_driver: did you mean nvidia_driver_version?",
    )


def test_hosts_are_a_list_or_a_text_with_blanks_and_a_wrong_one_is_told_by_the_variable_that_names_it(fleet):
    for name in ("a1", "a2", "a3"):
        fleet.add(name)
    wrong = fleet.run("rollback", "-e", '{"rollback_hosts": "a1, zz"}', rollout_version="")
    refused(wrong, "rollback_hosts names zz, which is neither a host nor a group of the inventory")
    refused(
        fleet.run("rollback", "--limit", "a2", rollback_hosts="", rollout_version=""),
        "rollback_hosts names no host",
        runs_into=(),
    )
    lost = fleet.run("rollback", "-e", "rollback_hosts=a1, a2", rollout_version="")
    refused(lost, "rollback_hosts is 'a1,', which ends with a comma", runs_into=())
    planned = fleet.run(
        "upgrade",
        "--check",
        upgrade_hosts=["a1", "a3"],
        rollout_max_down=None,
        rollout_windows="",
        rollout_canaries="a3, a1",
    )
    assert planned.rc == 0 and "Rollout upgrade-%s: 2 of 2 nodes" % NEW in planned.output
    assert "1. a3: driver" in planned.output
    shown = fleet.run("holds", holds_hosts="nobody")
    assert shown.rc != 0 and "names nobody, which" in shown.output


def test_a_node_that_could_keep_no_notes_is_refused_ahead_of_its_upgrade_and_others_are_not(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    (fleet.nodes / "a1" / "state").rmdir()
    (fleet.nodes / "a1" / "state").write_text("")
    staged = fleet.run("prestage")
    assert staged.rc == 2 and "state is no directory. An upgrade keeps its notes in" in staged.output
    planned = fleet.run("upgrade", "--check", rollout_failure_budget=2)
    assert "left out: a1, failed, could not be examined: nothing can be kept on it" in planned.output
    assert "1. a2: driver" in planned.output
    assert planned.rc == 2, "a rollout that leaves nodes out is not complete, and check mode says the same"
    counts = re.findall(r"^(\w+) +: .*failed=(\d+)", planned.output, re.M)
    assert {name: int(failed) for name, failed in counts} == {"localhost": 1, "a1": 1, "a2": 0}


@pytest.mark.parametrize("playbook", ["report", "rollout_control"])
def test_a_limit_without_the_controller_is_no_success(fleet, playbook):
    """Ansible itself ends a play without hosts well, and a rollout that was to be stopped would go on."""
    fleet.add("a1")
    result = fleet.run(playbook, "--limit", "a1")
    assert result.rc == 2 and "localhost" in result.output and "no hosts matched" not in result.output


def nothing(playbook, needs):
    """Null for every variable that the head of a playbook names, but for those that it NEEDS and those that the look
    at the variables refuses when they are null, which is a test of its own.
    """
    refused = set(_variable_names.read_defaults()) - set(_variable_names.DEFAULTED)
    names = heads.find_variables(playbook)
    if "rollout_version" in names:
        names |= set(_variable_names.ROLLOUT)
    names -= refused | {"gpufleet_artifact_dir", "rollout_undo"}
    return {**dict.fromkeys(sorted(names)), **needs}


@pytest.mark.parametrize(
    "playbook, needs, told",
    [
        ("upgrade", {"rollout_version": NEW}, ""),
        ("prestage", {"rollout_version": NEW}, ""),
        ("holds", {}, "what it holds is not known: the stub was told nothing"),
        ("quarantine", {"quarantine_hosts": "a1", "quarantine_reason": "XID 79"}, ""),
        ("recover_gpu", {"recover_gpu_hosts": "a1"}, ""),
        ("return_to_service", {"return_to_service_hosts": "a1"}, ""),
        ("rollout_control", {}, "No rollout was ever planned"),
        ("report", {}, "No rollout was ever planned"),
        ("rollback", {"rollback_hosts": "a1"}, "There is no rollout to roll back"),
        ("mig", {}, "nvidia_mig_config of a1 is empty"),
        ("thermal_relief", {"thermal_relief_hosts": "a1"}, "whether it throttles for heat cannot be told"),
    ],
)
def test_null_for_every_variable_at_once_is_the_default_of_each(fleet, playbook, needs, told):
    """What still refuses it is told by what it lacks, and not by what an option of a module cannot be."""
    fleet.add("a1")
    result = fleet.run(playbook, "--check", **nothing(playbook, needs))
    assert result.rc == (2 if told else 0) and told in result.output and result.output.count("[ERROR]") == bool(told)
    assert all(bad not in result.output for bad in ("Traceback", "NoneType", "not iterable", "unable to convert"))
