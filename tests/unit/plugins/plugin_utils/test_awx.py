# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job of AWX: what it is called, and when a rollout may be planned in one."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _awx

JOB = {"id": "42"}


@pytest.mark.parametrize(
    "given, found",
    [
        ({}, {}),
        ({"id": ""}, {}),
        ({"id": None, "user": "kim"}, {}),
        ({"user": "kim", "workflow": "7"}, {}),
        ({"id": 42}, {"id": "42"}),
        ({"id": "42", "user": "", "workflow": 7}, {"id": "42", "workflow": "7"}),
        (
            {"id": 42, "template": "t", "workflow": 7, "workflow_name": "w", "user": "kim", "other": "x"},
            {"id": "42", "template": "t", "workflow": "7", "workflow_name": "w", "user": "kim"},
        ),
    ],
)
def test_a_job_is_what_has_an_id(given, found):
    assert _awx.job(given) == found


@pytest.mark.parametrize(
    "variables, host",
    [
        ({}, ""),
        ({"gpufleet_artifact_host": "store"}, "store"),
        ({"gpu_node_upgrade_artifact_host": "other", "gpufleet_artifact_host": "store"}, "other"),
        ({"gpu_node_upgrade_artifact_host": "", "gpufleet_artifact_host": " store "}, "store"),
        ({"gpufleet_artifact_host": None}, ""),
    ],
)
def test_where_the_files_of_a_node_go(variables, host):
    assert _awx.artifact_host(variables) == host


# The job; whether the ledger is local; where files go; words of the refusal, none where it may be planned.
CASES = [
    ({}, True, {"a": ""}, ""),
    ({}, True, {"a": "localhost"}, ""),
    (JOB, False, {"a": "store"}, ""),
    (JOB, False, {}, ""),
    (JOB, True, {"a": "store"}, "rollout_ledger"),
    (JOB, True, {"a": ""}, "rollout_ledger"),
    (JOB, False, {"a": ""}, "gpufleet_artifact_host"),
    (JOB, False, {"a": "localhost"}, "gpufleet_artifact_host"),
    (JOB, False, {"a": "127.0.0.1"}, "gpufleet_artifact_host"),
    (JOB, False, {"a": "::1"}, "gpufleet_artifact_host"),
    (JOB, False, {"a": "store", "b": ""}, "gpufleet_artifact_host"),
]


@pytest.mark.parametrize("running, local, places, variable", CASES)
def test_in_a_job_the_ledger_and_the_files_lie_elsewhere(running, local, places, variable):
    why = _awx.refusal(running, local, "sqlite:////x", places)
    assert bool(why) is bool(variable) and variable in why
    assert not why or ("42" in why and "Nothing was changed" in why)


@pytest.mark.parametrize(
    "job, keeps, places, lost",
    [
        (None, "evidence", {"a": ""}, ()),
        ("", "evidence", {"a": ""}, ()),
        (42, "", {"a": ""}, ()),
        (42, "evidence", {}, ()),
        (42, "evidence", {"a": "store"}, ()),
        (42, "evidence", {"a": "store", "b": "", "c": "localhost"}, ("b, c",)),
        ("42", "record", {"a": "127.0.0.1"}, ("a",)),
        ("42", "report", {"localhost": ""}, ("localhost",)),
    ],
)
def test_what_another_playbook_would_lose_with_its_job(job, keeps, places, lost):
    said = _awx.forgets(job, keeps, places)
    assert bool(said) is bool(lost)
    assert not said or all(words in said for words in ("AWX job 42", "gpufleet_artifact_host", *lost))


def test_only_a_playbook_that_destroys_what_it_keeps_is_refused():
    assert {name for name, kept in _awx.KEPT.items() if kept.needed} == {"evidence"}


def test_nodes_without_a_place_for_their_files_are_named():
    why = _awx.refusal(JOB, False, "", dict({"n%d" % number: "" for number in range(9)}, well="store"))
    assert "n0, n1, n2, n3, n4 and 4 more" in why and "well" not in why


@pytest.mark.parametrize(
    "running, words",
    [
        ({}, ""),
        (JOB, "AWX job 42"),
        (dict(JOB, user="kim"), "AWX job 42, started by kim"),
        (dict(JOB, workflow="7"), "AWX job 42, of workflow 7"),
        (dict(JOB, workflow="7", workflow_name="w"), "AWX job 42, of workflow w"),
    ],
)
def test_a_job_in_words(running, words):
    assert _awx.text(running) == words
