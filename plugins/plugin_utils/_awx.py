# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job of AWX, as its variables tell it, and what a rollout or another playbook in one needs. Pure.

The container of a job forgets everything at its end, and another one may go on with the rollout: its ledger and its
files lie elsewhere.
"""

from __future__ import annotations

import typing as t

KEYS = ("awx", "id", "template", "workflow", "workflow_name", "user")
HERE = ("", "localhost", "127.0.0.1", "::1")
# The first that a node has says where its evidence goes, as the defaults of role gpu_node_upgrade do.
ARTIFACT_HOST = ("gpu_node_upgrade_artifact_host", "gpufleet_artifact_host")


def job(given: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    """The job, without what AWX did not say; empty outside AWX."""
    found = {key: str(given.get(key) or "").strip() for key in KEYS}
    return {key: text for key, text in found.items() if text} if found["id"] else {}


class Kept(t.NamedTuple):
    """The files that a playbook other than those of a rollout keeps on the controller."""

    words: str
    # The first that a node has says where it goes as well.
    artifact_host: t.Tuple[str, ...]
    # Whether a job in which it would be lost is refused: if what was done cannot be understood without it.
    needed: bool


KEPT = {
    # The verdict or the figures are in the output of the job, and its exit status tells them too.
    "report": Kept("the files of the report", ("gpufleet_artifact_host",), False),
    # A sick node must not be given work, whatever becomes of files: its marker, with the reason, the checks and the
    # serial numbers, is on the node itself.
    "record": Kept(
        "evidence and the record for the vendor", ("gpu_quarantine_artifact_host", "gpufleet_artifact_host"), False
    ),
    # A reset or a reboot destroys what the evidence has a copy of, and nothing is in such a hurry.
    "evidence": Kept(
        "the evidence that a reset or a reboot destroys",
        ("gpu_quarantine_artifact_host", "gpufleet_artifact_host"),
        True,
    ),
}


def artifact_host(variables: t.Mapping[str, t.Any], names: t.Sequence[str] = ARTIFACT_HOST) -> str:
    """Return the host for a node's files."""
    return next((str(variables[name]).strip() for name in names if variables.get(name)), "")


def find_lost_files(artifact_hosts: t.Mapping[str, str]) -> str:
    """Name the nodes whose files would be in the container of the job alone, by node and its artifact host."""
    found = sorted(name for name, host in artifact_hosts.items() if host in HERE)
    return ", ".join(found[:5]) + (" and %d more" % (len(found) - 5) if len(found) > 5 else "")


def forgets(job_id: t.Any, keeps: str, artifact_hosts: t.Mapping[str, str]) -> str:
    """Return what a job would lose of what a playbook KEEPS, one of KEPT; empty if nothing, and outside AWX."""
    names = find_lost_files(artifact_hosts)
    if not str(job_id or "").strip() or not keeps or not names:
        return ""
    return (
        "This is AWX job %s, and %s of %s would be kept in a container that is thrown away with the job. Set "
        "gpufleet_artifact_host to a host of the inventory that keeps files." % (job_id, KEPT[keeps].words, names)
    )


def refusal(running: t.Mapping[str, str], local_ledger: bool, ledger: str, artifact_hosts: t.Mapping[str, str]) -> str:
    """Return why a rollout may not be planned in this job; empty if it may, and outside AWX."""
    if not running:
        return ""
    if local_ledger:
        return (
            "This is AWX job %s, and the ledger would be %s, in a container that is thrown away with the job: the "
            "rollout would be forgotten in its "
            "middle. Set rollout_ledger to a PostgreSQL that all jobs reach, such as "
            "postgresql+psycopg://user@host/database. Nothing was changed." % (running["id"], ledger)
        )
    names = find_lost_files(artifact_hosts)
    if names:
        return (
            "This is AWX job %s, and the baselines and evidence of %s would be kept in a container that is thrown "
            "away with the job. Set "
            "gpufleet_artifact_host to a host of the inventory that keeps them. Nothing was changed."
            % (running["id"], names)
        )
    return ""


def text(running: t.Mapping[str, str]) -> str:
    """The job in a few words; empty outside AWX."""
    if not running:
        return ""
    workflow = running.get("workflow_name") or running.get("workflow")
    words = ["AWX job %s" % running["id"]]
    words += ["of workflow %s" % workflow] if workflow else []
    words += ["started by %s" % running["user"]] if running.get("user") else []
    return ", ".join(words)
