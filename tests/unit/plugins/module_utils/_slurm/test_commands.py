# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why Slurm did not do what was asked, in words that say what to do."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers

pytestmark = pytest.mark.pythons


# What clients print about slurm.conf (read_config.c), whatever they are asked.
NOTICE = "scontrol: error: Ignoring obsolete CacheGroups=0 option in slurm.conf.\n"
FORBIDDEN = answers.FORBIDDEN[2]


def slurm(*found, **known):
    """A cluster that answers the same to everything, unless known says otherwise of a command."""

    def run(words, timeout):
        if "--json" in words:
            return answers.NO_JSON
        return known.get(words[0], *found)

    return commands.Slurm(run=run, user="kim", host="login")


@pytest.mark.parametrize(
    ("answer", "kind", "passing", "words"),
    [
        (answers.AWAY, "unreachable", True, "slurmctld does not answer login: see whether it runs (scontrol ping)"),
        (
            (1, "", "slurm_load_node error: Slurm backup controller in standby mode\n"),
            "unreachable",
            True,
            "scontrol ping",
        ),
        ((1, "", "slurm_load_node error: Message receive failure\n"), "unreachable", True, "scontrol ping"),
        ((1, "", "slurm_load_node error: Connection reset by peer\n"), "unreachable", True, "scontrol ping"),
        ((124, "", "scontrol: still running after 60 s, killed"), "unreachable", True, "slurmctld does not answer"),
        (answers.NO_MUNGE, "auth", True, "munge does not run"),
        (answers.SKEW, "auth", True, "their clocks differ by minutes"),
        (answers.NO_CONFIG, "config", False, "login has no configuration of Slurm"),
        (answers.NOT_FOUND, "node", False, "Slurm knows no node nope"),
        ((1, "", "slurm_update error: Invalid node name specified\n"), "node", False, "gpu_scheduler_slurm_node"),
        (answers.FORBIDDEN, "permission", False, "kim may not change nodes in Slurm"),
        ((1, "", "slurm_update error: Access/permission denied\n"), "permission", False, "sacctmgr modify user kim"),
        ((127, "", "scontrol: command not found"), "command", False, "no such command on login. Install Slurm's"),
        (
            (1, "", "slurm_update error: Invalid node state specified\n"),
            "other",
            False,
            "scontrol update nodename=nope answered 1: slurm_update error: Inv",
        ),
        # A notice beside the cause is none.
        ((1, "", NOTICE + FORBIDDEN), "permission", False, "kim may not change nodes in Slurm"),
        ((1, "", NOTICE + "slurm_update error: Invalid node state specified\n"), "other", False, "Invalid node state"),
        ((1, "", NOTICE + "scontrol: error: Unspecified error\n"), "other", False, "Unspecified error"),
    ],
)
def test_what_went_wrong(answer, kind, passing, words):
    for ask in (lambda it: it.update("nope", state="drain", reason="x"), lambda it: it.node("nope")):
        with pytest.raises(commands.SlurmError) as caught:
            ask(slurm(answer))
        assert (caught.value.kind, caught.value.passing) == (kind, passing)
        assert words.replace("scontrol update nodename=nope", "scontrol") in str(caught.value).replace(
            "scontrol update nodename=nope", "scontrol"
        ).replace("scontrol show node", "scontrol")


def test_own_jobs_are_those_of_the_user_that_submits_them():
    """Any user may give a job the name of ours."""
    asked = []

    def run(words, timeout):
        asked.append(words)
        return 0, "7|PENDING\n", ""

    assert commands.Slurm(run=run, host="login").own_jobs("gpufleet-tok-1-n1") == {"7": "PENDING"}
    assert "--user=%d" % os.geteuid() in asked[0] and "--name=gpufleet-tok-1-n1" in asked[0]


@pytest.mark.parametrize(
    ("known", "meant"),
    [
        ("n-one one\nn-two two\n", "it knows n-one"),
        ("gpu-one gpu-one\n", "it knows gpu-one"),
        ("x y\n", None),
        ("", None),
    ],
)
def test_the_node_that_may_have_been_meant(known, meant):
    with pytest.raises(commands.SlurmError) as caught:
        slurm((1, "Node one not found\n", ""), sinfo=(0, known, "")).node("one")
    assert meant in str(caught.value) if meant else "it knows" not in str(caught.value)


def test_notice_beside_usable_answer_is_no_failure():
    printed = {
        "scontrol": (0, answers.DRAINING, NOTICE),
        "squeue": (0, answers.JOBS, "squeue: error: Munge encode failed: retrying\n"),
        "sinfo": (0, "n1\n", "Warning: Permanently added 'login' to the list of known hosts.\n"),
        "sbatch": (0, "77;cluster\n", "sbatch: error: Unable to open slurm.conf.d\n"),
    }
    it = slurm(**printed)
    assert it.node("n1")["name"] == "n1" and len(it.jobs("n1")) == 3 and it.members() == {"n1"}
    it.update("n1", state="resume")
    assert it.submit("x", "n1", 1) == "77"
    assert [line.split(":")[0] for line in it.notices] == ["scontrol", "squeue", "sinfo", "sbatch"]


@pytest.mark.parametrize(("out", "unusable"), [("", ("node", "submit")), ("welcome\n", ("node", "submit", "jobs"))])
def test_return_code_0_without_usable_answer_is_failure(out, unusable):
    it = slurm((0, out, NOTICE))
    ask = {"node": lambda: it.node("n1"), "submit": lambda: it.submit("x", "n1", 1), "jobs": lambda: it.jobs("n1")}
    for name in unusable:
        with pytest.raises(commands.SlurmError) as caught:
            ask[name]()
        assert caught.value.kind == "other"


def test_json_where_there_is_any():
    asked = []

    def run(words, timeout):
        asked.append(words)
        return 0, answers.JSON_23, ""

    it = commands.Slurm(run=run)
    assert it.node("n1")["reason_user"] == "root" and asked == [["scontrol", "show", "node", "n1", "--json"]]
    with pytest.raises(commands.SlurmError, match="Slurm knows no node n2"):
        it.node("n2")


@pytest.mark.parametrize(
    "no_json",
    [
        answers.NO_JSON,
        (1, "", "scontrol: fatal: serializer_required: could not find plugin for application/json\n"),
        (1, "", "scontrol: fatal: Unable to find plugin: serializer/json\n"),
        (1, "", "scontrol: error: cannot find serializer plugin for application/json: not found\n"),
        (134, "", ""),
        (0, "", "scontrol: error: serializer/json is missing\n"),
        (0, '{"nodes": [], "errors": [{"error": "Unspecified error"}]}', ""),
    ],
)
def test_text_where_there_is_no_json_and_that_is_asked_once(no_json):
    asked = []

    def run(words, timeout):
        asked.extend(["--json" in words] if words[0] == "scontrol" else [])
        return no_json if "--json" in words else (0, answers.DRAINING, "")

    it = commands.Slurm(run=run)
    assert it.node("n1")["name"] == it.node("n1")["name"] == "n1"
    assert asked == [True, False, False]


def test_a_reservation_that_is_not_there_and_one_that_cannot_be_told():
    assert slurm((1, "Reservation x not found\n", "")).reservation("x") is False
    assert slurm((0, "No reservations in the system\n", "")).reservation("x") is False
    assert slurm((0, "ReservationName=x\n", "")).reservation("x") is True
    with pytest.raises(commands.SlurmError):
        slurm(answers.AWAY).reservation("x")


def test_the_directory_of_the_commands(tmp_path):
    for name, text in (
        ("scontrol", "echo \"NodeName=n1 State=IDLE $SLURM_TIME_FORMAT\""),
        ("squeue", "echo '1|kim|batch|RUNNING|1:00'"),
    ):
        (tmp_path / name).write_text("#!/bin/sh\n[ \"$4\" = --json ] && exit 0\n" + text + "\n")
        (tmp_path / name).chmod(0o755)
    it = commands.Slurm(bin_dir=str(tmp_path))
    assert it.node("n1")["state"].base == "IDLE" and it.jobs("n1")[0]["user"] == "kim"
