# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job of AWX, as its variables tell it, and what a rollout in one needs. Pure.

The container of a job forgets everything at its end, and another one may go on with the rollout: its ledger and its
files lie elsewhere.
"""

from __future__ import annotations

import typing as t

KEYS = ("id", "template", "workflow", "workflow_name", "user")
HERE = ("", "localhost", "127.0.0.1", "::1")
# The first that a node has says where its evidence goes, as the defaults of role gpu_node_upgrade do.
ARTIFACT_HOST = ("gpu_node_upgrade_artifact_host", "gpufleet_artifact_host")


def job(given: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    """The job, without what AWX did not say; empty outside AWX."""
    found = {key: str(given.get(key) or "").strip() for key in KEYS}
    return {key: text for key, text in found.items() if text} if found["id"] else {}


def artifact_host(variables: t.Mapping[str, t.Any]) -> str:
    """Return the host for a node's files."""
    return next((str(variables[name]).strip() for name in ARTIFACT_HOST if variables.get(name)), "")


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
    lost = sorted(name for name, host in artifact_hosts.items() if host in HERE)
    if lost:
        return (
            "This is AWX job %s, and the baselines and evidence of %s%s would be kept in a container that is thrown "
            "away with the job. Set "
            "gpufleet_artifact_host to a host of the inventory that keeps them. Nothing was changed."
            % (running["id"], ", ".join(lost[:5]), " and %d more" % (len(lost) - 5) if len(lost) > 5 else "")
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
