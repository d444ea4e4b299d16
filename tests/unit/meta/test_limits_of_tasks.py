# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that takes connections and never answers ends its task: Ansible itself waits for it without a limit."""

from __future__ import annotations

import pathlib

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
PREFIX = "gpufleet.lifecycle."
PARTS = ("pre_tasks", "tasks", "post_tasks")
ROLE = ROOT / "roles" / "gpu_node_upgrade" / "tasks"
# They are included outside of the block that has a limit for all.
BEFORE = ("request_drain.yml", "preview.yml")


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8")) or []


def tasks_of(items, limited=False):
    """Yield (task, whether it or a block around it has a limit)."""
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            inside = limited or "timeout" in item
            parts = [item[part] for part in (*PARTS, "block", "rescue", "always") if part in item]
            if not parts:
                yield item, inside
            for part in parts:
                yield from tasks_of(part, inside)


def connects(task):
    """Whether a task may wait for a host: a module of the collection, or one that waits for a connection."""
    return any(key.startswith(PREFIX) or key.endswith("wait_for_connection") for key in task)


def test_the_upgrade_of_a_node_has_a_limit_for_every_task():
    (block,) = [task for task in load(ROLE / "main.yml") if "block" in task]
    assert "gpu_node_upgrade_step_timeout" in str(block["timeout"])
    for task, limited in tasks_of(load(ROLE / "request_drain.yml")):
        assert limited or not connects(task), task["name"]


# Actions of the controller that contact no node, and the plays that only run these. The role's own blocks have limits.
CONTROLLER = ("playbook_variables", "rollout_plan", "rollout_node", "rollout_report")
PLAY_OF_THE_ROLE = "Upgrade node after node"


def contacts(task):
    """Return whether a task of a playbook contacts a node: a role, a module, or facts."""
    names = [key for key in task if "." in key]
    return any(
        name.startswith(PREFIX)
        and name[len(PREFIX) :] not in CONTROLLER
        or name.rsplit(".", 1)[-1] in ("include_role", "import_role", "setup", "command", "wait_for_connection")
        for name in names
    )


def plays():
    """Yield (name, play) of all plays of the playbooks that run on nodes."""
    for path in sorted((ROOT / "playbooks").rglob("*.yml")):
        for play in load(path):
            if play.get("hosts", "localhost") != "localhost" and play["name"] != PLAY_OF_THE_ROLE:
                yield "%s: %s" % (path.name, play["name"]), play


@pytest.mark.parametrize("play", [pytest.param(play, id=name) for name, play in plays()])
def test_each_play_limits_what_waits_for_a_node(play):
    """Facts, roles and the handlers of roles have the limit of the play alone."""
    found = [task for part in PARTS for task in play.get(part) or []]
    roles = [task for task, dummy in tasks_of(found) if any(key.endswith("_role") for key in task)]
    whole = play.get("gather_facts", True) or play.get("roles") or roles
    assert "timeout" in play or not whole, "roles, or facts"
    unlimited = [task["name"] for task, limited in tasks_of([play]) if contacts(task) and not limited]
    assert unlimited == []


def test_the_artifact_host_has_a_limit_for_each_task():
    found = [
        (path.name, task["name"], limited)
        for path in sorted((ROOT / "playbooks").rglob("*.yml"))
        for task, limited in tasks_of(load(path))
        if "artifact_host" in str(task.get("delegate_to"))
    ]
    assert len(found) > 4 and [entry for entry in found if not entry[2]] == []


def role_tasks():
    for path in sorted(ROOT.glob("roles/*/tasks/**/*.yml")):
        for task, dummy in tasks_of(load(path)):
            yield "%s: %s" % (path.relative_to(ROOT / "roles"), task["name"]), task


INSTALLS = [pytest.param(task, id=name) for name, task in role_tasks() if "ansible.builtin.apt" in task]


@pytest.mark.parametrize("task", INSTALLS)
def test_an_installation_has_a_limit_of_its_own(task):
    assert "timeout" in task


@pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in role_tasks() if "async" in task])
def test_no_job_is_waited_for_by_ansible(task):
    """Its wait has no limit, and the keyword timeout does not reach it."""
    (module,) = [key for key in task if "." in key]
    assert "timeout" in task and (module.startswith(PREFIX) or task["poll"] == 0)


LONG = {"nvidia_driver": ("packages", "install", "prestage"), "kernel_hold": ("security", "upgrade", "prove")}


@pytest.mark.parametrize("role, entries", LONG.items(), ids=list(LONG))
def test_a_job_has_a_limit_for_each_answer_and_for_all_of_it(role, entries):
    """Ansible's own wait for a job has none: an action plugin of the collection asks for it."""
    found = [
        task for name in entries for task, dummy in tasks_of(load(ROOT / "roles" / role / "tasks" / (name + ".yml")))
    ]
    jobs = [(task, key) for task in found for key in task if "async" in task and key.startswith(PREFIX)]
    assert jobs
    for task, module in jobs:
        assert "timeout" in task, task["name"]
        action = (ROOT / "plugins" / "action" / (module[len(PREFIX) :] + ".py")).read_text(encoding="utf-8")
        assert "_background" in action or "(ModuleAction)" in action, module


@pytest.mark.parametrize("name", ["slurm/drain", "slurm/resume", "kubernetes/drain", "kubernetes/resume"])
def test_a_drain_and_a_resume_have_the_time_of_the_jobs_and_no_more(name):
    (task,) = [
        task
        for task, dummy in tasks_of(load(ROOT / "roles" / "gpu_scheduler" / "tasks" / (name + ".yml")))
        if connects(task)
    ]
    assert "_timeout" in str(task["timeout"])


def test_every_reboot_and_test_of_gpus_has_a_limit_of_its_own():
    found = [task for dummy, task in role_tasks()]
    found += [task for dummy, play in plays() for task, _limited in tasks_of([play])]
    long = [task for task in found if PREFIX + "driver_reload" in task or PREFIX + "gpu_smoke" in task]
    assert len(long) > 3 and [task["name"] for task in long if "timeout" not in task] == []


@pytest.mark.parametrize("name", ["wait_for_connection", "driver_reload", "rollout_gate"])
def test_what_waits_for_longer_has_a_limit_of_its_own(name):
    found = [
        task
        for path in ROLE.glob("*.yml")
        for task, dummy in tasks_of(load(path))
        if any(key.endswith("." + name) for key in task) and task.get("register") != "__gpu_node_upgrade_returned"
    ]
    assert found and [task["name"] for task in found if "timeout" not in task] == []
