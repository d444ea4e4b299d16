# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of roles and playbooks: limits for hosts that do not answer, modes of directories, and who compiles modules."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import files

ROOT = pathlib.Path(__file__).resolve().parents[3]
PREFIX = "gpufleet.lifecycle."
PARTS = ("pre_tasks", "tasks", "post_tasks")
ROLE = ROOT / "roles" / "gpu_node_upgrade" / "tasks"
# They are included outside of the block that has a limit for all.
BEFORE = ("request_drain.yml", "preview.yml")


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8")) or []


def limited_tasks(items, limited=False):
    """Yield (task, whether it or a block around it has a limit)."""
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            inside = limited or "timeout" in item
            parts = [item[part] for part in (*PARTS, "block", "rescue", "always") if part in item]
            if not parts:
                yield item, inside
            for part in parts:
                yield from limited_tasks(part, inside)


def connects(task):
    """Whether a task may wait for a host: a module of the collection, or one that waits for a connection."""
    return any(key.startswith(PREFIX) or key.endswith("wait_for_connection") for key in task)


def test_the_upgrade_of_a_node_has_a_limit_for_every_task():
    (block,) = [task for task in load(ROLE / "main.yml") if "block" in task]
    assert "gpu_node_upgrade_step_timeout" in str(block["timeout"])
    for task, limited in limited_tasks(load(ROLE / "request_drain.yml")):
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
    roles = [task for task, dummy in limited_tasks(found) if any(key.endswith("_role") for key in task)]
    whole = play.get("gather_facts", True) or play.get("roles") or roles
    assert "timeout" in play or not whole, "roles, or facts"
    unlimited = [task["name"] for task, limited in limited_tasks([play]) if contacts(task) and not limited]
    assert unlimited == []


def test_every_play_names_its_strategy():
    """With strategy = free in ansible.cfg a task with run_once runs on every host, or is refused."""
    found = [play for path in sorted((ROOT / "playbooks").rglob("*.yml")) for play in load(path) if "hosts" in play]
    assert len(found) > 30
    for play in found:
        tasks = [task for part in PARTS for task, dummy in limited_tasks(play.get(part))]
        once = any(task.get("run_once") for task in tasks)
        apart = () if once else ("ansible.builtin.host_pinned", "ansible.builtin.free")
        assert play.get("strategy") in ("ansible.builtin.linear", *apart), play["name"]


def test_the_artifact_host_has_a_limit_for_each_task():
    found = [
        (path.name, task["name"], limited)
        for path in sorted((ROOT / "playbooks").rglob("*.yml"))
        for task, limited in limited_tasks(load(path))
        if "artifact_host" in str(task.get("delegate_to"))
    ]
    assert len(found) > 4 and [entry for entry in found if not entry[2]] == []


def role_tasks():
    for path in sorted(ROOT.glob("roles/*/tasks/**/*.yml")):
        for task, dummy in limited_tasks(load(path)):
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
        task
        for name in entries
        for task, dummy in limited_tasks(load(ROOT / "roles" / role / "tasks" / (name + ".yml")))
    ]
    jobs = [(task, key) for task in found for key in task if "async" in task and key.startswith(PREFIX)]
    assert jobs
    for task, module in jobs:
        assert "timeout" in task, task["name"]
        action = (ROOT / "plugins" / "action" / (module[len(PREFIX) :] + ".py")).read_text(encoding="utf-8")
        assert "Background(self)" in action or "(ModuleAction)" in action, module


@pytest.mark.parametrize(
    "name", ["slurm/drain", "slurm/resume", "kubernetes/ask", "kubernetes/drain", "kubernetes/resume"]
)
def test_a_drain_and_a_resume_have_the_time_of_the_jobs_and_no_more(name):
    (task,) = [
        task
        for task, dummy in limited_tasks(load(ROOT / "roles" / "gpu_scheduler" / "tasks" / (name + ".yml")))
        if connects(task)
    ]
    assert "_timeout" in str(task["timeout"])


def test_every_reboot_and_test_of_gpus_has_a_limit_of_its_own():
    found = [task for dummy, task in role_tasks()]
    found += [task for dummy, play in plays() for task, _limited in limited_tasks([play])]
    long = [task for task in found if PREFIX + "driver_reload" in task or PREFIX + "gpu_smoke" in task]
    assert len(long) > 3 and [task["name"] for task in long if "timeout" not in task] == []


@pytest.mark.parametrize("name", ["wait_for_connection", "driver_reload", "rollout_gate"])
def test_what_waits_for_longer_has_a_limit_of_its_own(name):
    found = [
        task
        for path in ROLE.glob("*.yml")
        for task, dummy in limited_tasks(load(path))
        if any(key.endswith("." + name) for key in task) and task.get("register") != "__gpu_node_upgrade_returned"
    ]
    assert found and [task["name"] for task in found if "timeout" not in task] == []


# Directories of the collection's own and of units, whose paths no variable of a role changes.
OWN = {
    "roles/gpu_health/tasks/boot_check.yml",
    "roles/gpu_log_shipping/tasks/journal_upload.yml",
    "roles/gpu_log_shipping/tasks/journald.yml",
    "roles/gpu_scheduler/tasks/join.yml",
    "roles/nvidia_container_toolkit/tasks/login.yml",
    "roles/nvidia_container_toolkit/tasks/unit_of_toolkit.yml",
    "roles/nvidia_dcgm/tasks/unit.yml",
    "roles/nvidia_mig/tasks/boot.yml",
    "roles/nvidia_persistenced/tasks/unit.yml",
    "roles/nvidia_repository/tasks/setup.yml",
}
CHOSEN = re.compile(r"\{\{\s*(?!__)\w+(?:_dir|_directory|_file)\b")
TASKS = sorted(
    str(path.relative_to(ROOT)) for place in ("roles", "playbooks") for path in (ROOT / place).rglob("*.yml")
)


def walk_tasks(items):
    """Yield every task, those of blocks and plays too."""
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            yield item
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                yield from walk_tasks(item.get(part))


def makers(text):
    """The tasks that make a directory with a mode, an owner or a group."""
    for task in walk_tasks(yaml.safe_load(text)):
        args = task.get("ansible.builtin.file")
        if isinstance(args, dict) and args.get("state") == "directory" and set(args) & {"mode", "owner", "group"}:
            yield task


def made_alone(task):
    """Whether a task is left out where the directory is there."""
    when = task.get("when")
    return any(
        "not" in str(words) and ".stat.exists" in str(words) for words in (when if isinstance(when, list) else [when])
    )


@pytest.mark.parametrize("name", TASKS)
def test_a_directory_gets_a_mode_only_where_it_is_made(name):
    found = [task["name"] for task in makers((ROOT / name).read_text(encoding="utf-8")) if not made_alone(task)]
    assert bool(found) == (name in OWN), found


@pytest.mark.parametrize("name", sorted(OWN))
def test_the_collections_own_directories_are_at_no_path_of_a_variable(name):
    for task in makers((ROOT / name).read_text(encoding="utf-8")):
        assert not CHOSEN.search("%s %s" % (task["ansible.builtin.file"]["path"], task.get("loop", "")))


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("before", [0o700, 0o750, 0o1777])
def test_a_store_that_is_there_keeps_its_mode(tmp_path, before):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(before)
    files.own_directory(str(tmp_path), "/place")
    assert mode(place) == before
    files.own_directory(str(tmp_path), "/place/below/store")
    assert mode(place) == before and mode(place / "below") == mode(place / "below" / "store") == 0o755


CASES = [
    ("gpu_health", "save", {"__gpu_health_file": "{place}/b.json"}, 0o700),
    ("gpu_health", "verdict", {"__gpu_health_state_dir": "{place}"}, 0o1777),
    ("gpu_monitoring", "optional", {"gpu_monitoring_dashboard_dir": "{place}"}, 0o750),
]
VALUES = {
    "__gpu_health_host": "localhost",
    "__gpu_health_become": False,
    "__gpu_monitoring_group": "root",
    "gpu_health_result": {"baseline": {}, "health": {}},
}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the roles write files of root")
def test_a_chosen_directory_keeps_its_mode_and_a_new_one_gets_one(tmp_path):
    """As the roles run it, on this machine."""
    collections = subprocess.run(
        ["bash", str(ROOT / "tests" / "tools" / "collections.sh")], capture_output=True, text=True, check=True
    ).stdout.strip()
    tasks, places = [], []
    for number, (role, entry, variables, before) in enumerate(CASES):
        there = tmp_path / str(number)
        there.mkdir()
        there.chmod(before)
        places.append((there, before))
        for place in (there, there / "new"):
            given = {key: value.format(place=place) for key, value in variables.items()}
            include = {"name": "gpufleet.lifecycle." + role, "tasks_from": entry}
            tasks.append({"ansible.builtin.include_role": include, "vars": dict(VALUES, **given)})
    book = tmp_path / "play.yml"
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    python = sys.executable
    inventory = "all: {hosts: {localhost: {ansible_connection: local, ansible_python_interpreter: %s}}}" % python
    (tmp_path / "inventory.yml").write_text(inventory)
    done = subprocess.run(
        [str(pathlib.Path(python).with_name("ansible-playbook")), "-i", "inventory.yml", str(book)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=collections, ANSIBLE_HOME=str(tmp_path / "home")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for there, before in places:
        assert (mode(there), mode(there / "new")) == (before, 0o755)
        assert len(list(there.iterdir())) > 1 and list((there / "new").iterdir())


UPGRADE, DRIVER = (ROOT / "roles" / name for name in ("gpu_node_upgrade", "nvidia_driver"))


def evaluate(text, **variables):
    try:
        from ansible.template import trust_as_template
    except ImportError:  # before ansible-core 2.19
        trust_as_template = str
    trusted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in variables.items()}
    return Templar(loader=DataLoader(), variables=trusted).template(trust_as_template(text))


def task_of(path, module):
    """Return the task of a file, at any depth, that has a key."""
    (found,) = [task for task in walk_tasks(load(path)) if module in task]
    return found


@pytest.mark.parametrize(
    "canaries, order, expected",
    [
        (["c", "d"], ["c", "d", "a"], "c"),
        ([], ["b", "a"], "b"),
        (["c"], ["a", "b"], None),  # the canary is done, or another controller has it
    ],
)
def test_the_first_canary_of_the_plan_compiles_for_the_others(canaries, order, expected):
    (play,) = [play for play in load(ROOT / "playbooks" / "upgrade.yml") if "gpu_node_upgrade_builder" in str(play)]
    text = play["vars"]["gpu_node_upgrade_builder"]
    plan = {"canaries": canaries, "order": order}
    found = [name for name in order if evaluate(text, inventory_hostname=name, __rollout_plan=plan)]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    "groups, chosen, expected",
    [
        ({}, True, True),
        ({}, False, False),
        ({"gpufleet_builders": []}, True, True),
        ({"gpufleet_builders": ["x"]}, True, False),
    ],
)
def test_where_there_are_builders_no_canary_compiles_for_the_others(groups, chosen, expected):
    text = load(UPGRADE / "vars" / "main.yml")["__gpu_node_upgrade_builds"]
    assert evaluate(text, groups=groups, gpu_node_upgrade_builder=chosen) is expected


@pytest.mark.parametrize("name, expected", [("builder-1", True), ("a1", False)])
def test_a_host_of_the_group_is_a_builder_and_no_other(name, expected):
    text = load(DRIVER / "defaults" / "main.yml")["nvidia_driver_builder"]
    assert evaluate(text, inventory_hostname=name, groups={"gpufleet_builders": ["builder-1"]}) is expected
    assert evaluate(text, inventory_hostname=name, groups={}) is False


def test_a_canary_compiles_for_the_others_only_after_it_was_drained():
    """Ahead of the drain it prepares no module: what it has then is never taken home."""
    install = [task for task in load(UPGRADE / "tasks" / "install.yml") if task.get("name") == "Install the driver"]
    assert install[0]["vars"]["__nvidia_driver_drained"] == "{{ __gpu_node_upgrade_builds }}"
    ahead = task_of(UPGRADE / "tasks" / "preflight.yml", "ansible.builtin.include_role")
    assert ahead["vars"]["__nvidia_driver_prepares"] == "{{ not __gpu_node_upgrade_builds }}"
    prepared = task_of(DRIVER / "tasks" / "prestage.yml", "gpufleet.lifecycle.dkms_module")
    assert "__nvidia_driver_prepares" in prepared["when"]
    defaults = load(DRIVER / "vars" / "main.yml")
    assert (defaults["__nvidia_driver_drained"], defaults["__nvidia_driver_prepares"]) == (False, True)
    told = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "roles").rglob("tasks/**/*.yml")
        if "__nvidia_driver_drained:" in path.read_text(encoding="utf-8")
    }
    assert told == {"roles/gpu_node_upgrade/tasks/install.yml"}


def test_every_use_of_the_modules_says_who_may_give_them():
    places = [path for path in (ROOT / "roles").rglob("tasks/**/*.yml") if "dkms_module:" in path.read_text("utf-8")]
    assert len(places) == 3
    for path in places:
        args = task_of(path, "gpufleet.lifecycle.dkms_module")["gpufleet.lifecycle.dkms_module"]
        assert "builder" in args and "ledger" in args, path


def test_role_of_the_upgrade_resets_the_results_that_its_decisions_read():
    """A second run of the role in one play would decide by the results of the first."""
    (reset,) = [task for task in load(ROLE / "begin.yml") if "ansible.builtin.set_fact" in task]
    registered = {
        task["register"]
        for path in ROLE.glob("*.yml")
        for task, _limited in limited_tasks(load(path))
        if "register" in task
    }
    lists = [ROLE / name for name in ("main.yml", "upgrade.yml", "change.yml", "put_back.yml", "undo.yml")]
    read = "".join(path.read_text("utf-8") for path in [*lists, ROLE.parent / "vars" / "main.yml"])
    used = {name for name in registered if name.startswith("__") and re.search(r"\b%s\b" % name, read)}
    assert used - set(reset["ansible.builtin.set_fact"]) == set()


def test_gate_compares_the_ticket_with_the_default_of_the_drain():
    (request,) = [task for task in load(ROLE / "request_drain.yml") if PREFIX + "rollout_gate" in task]
    default = load(ROOT / "roles" / "gpu_scheduler" / "defaults" / "main.yml")["gpu_scheduler_drain_timeout"]
    given = request[PREFIX + "rollout_gate"]["drain_s"]
    assert "gpu_scheduler_drain_timeout | default(%d, true)" % default in given


def variables_of(item):
    """Yield (name, text) of the variables that plays, blocks and tasks below an item of YAML set."""
    if isinstance(item, dict):
        own = item.get("vars")
        yield from own.items() if isinstance(own, dict) else ()
    for part in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        yield from variables_of(part)


def names_itself(name, text):
    """Whether a template reads the variable that it defines: Ansible evaluates it until the memory is used up."""
    return isinstance(text, str) and re.search(r"(?<![\w.])%s\b" % re.escape(name), text) is not None


@pytest.mark.parametrize(
    "path",
    sorted(path for place in ("playbooks", "roles") for path in (ROOT / place).rglob("*.yml")),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_variable_is_defined_by_itself(path):
    if path.parent.name == "defaults" or "argument_specs" in path.name:
        return
    assert [name for name, text in variables_of(load(path)) if names_itself(name, text)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ x | default('') }}", True),
        ("{{ lookup('ansible.builtin.vars', 'x', default='') }}", True),
        ("{{ y.x }}", False),
        ("{{ __x }}", False),
        ("{{ xy }}", False),
        (7, False),
    ],
)
def test_variable_that_is_defined_by_itself_is_found(text, expected):
    assert names_itself("x", text) is expected
