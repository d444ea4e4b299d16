# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory that an operator chose keeps its owner and its mode: /root is not opened, and /tmp stays sticky."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import files

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Directories of the collection's own and of units, whose paths no variable of a role changes.
OWN = {
    "roles/gpu_health/tasks/boot_check.yml",
    "roles/gpu_log_shipping/tasks/journal_upload.yml",
    "roles/gpu_log_shipping/tasks/journald.yml",
    "roles/gpu_scheduler/tasks/slurm/join.yml",
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


def tasks_of(items):
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            yield item
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                yield from tasks_of(item.get(part))


def makers(text):
    """The tasks that make a directory with a mode, an owner or a group."""
    for task in tasks_of(yaml.safe_load(text)):
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
    ("gpu_monitoring", "dashboards", {"gpu_monitoring_dashboard_dir": "{place}"}, 0o750),
]
VALUES = {
    "__gpu_health_host": "localhost",
    "__gpu_health_become": False,
    "__gpu_monitoring_group": "root",
    "gpu_health_result": {"baseline": {}, "health": {}},
}


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
