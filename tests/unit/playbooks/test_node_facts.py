# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No playbook runs where facts that a node reports become variables of the play."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

pytest.importorskip("ansible", reason="runs playbooks")

pytestmark = [pytest.mark.cores, pytest.mark.promise]

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
HOSTS = "{{ 'localhost:all' | gpufleet.lifecycle.host_pattern('hosts') }}"
CHECK = "Fail if facts of nodes become variables of the play"
SETTING = "inject_facts_as_vars"
CONFIGURATIONS = ("ansible.cfg", "awx/project/ansible.cfg")


def plays(path):
    """Return the plays of a playbook in the order in which Ansible runs them."""
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        imported = play.get("ansible.builtin.import_playbook")
        yield from plays(path.parent / imported) if imported else [play]


@pytest.fixture
def run(tmp_path):
    def start(playbook, *arguments, **environment):
        env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        (tmp_path / "ansible.cfg").write_text("[defaults]\n")
        env.update(
            HOME=str(tmp_path),
            ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".lab" / "collections"),
            ANSIBLE_CONFIG=str(tmp_path / "ansible.cfg"),
            ANSIBLE_LOCALHOST_WARNING="false",
            ANSIBLE_NOCOLOR="true",
            **environment,
        )
        command = [sys.executable, "-m", "ansible", "playbook", "-i", "gpu-a-1,", str(playbook), *arguments]
        return subprocess.run(
            command, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    return start


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_playbook_begins_with_check_of_facts(path):
    first = next(plays(path))
    assert first["hosts"] == HOSTS and first["gather_facts"] is False
    assert [task["name"] for task in first["tasks"]] == [CHECK]


@pytest.mark.parametrize("name", ["bringup", "upgrade"])
def test_playbook_is_refused_with_default_configuration(run, name):
    result = run(ROOT / "playbooks" / (name + ".yml"))
    assert result.returncode == 2, result.stdout + result.stderr
    assert re.findall(r"^TASK \[(.*?)\]", result.stdout, re.M) == [CHECK]
    assert SETTING + " = false" in " ".join(result.stdout.split()), result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--start-at-task", "no such task"),
        ("--start-at-task", "Install the driver"),
        ("--skip-tags", "always,untagged"),
        ("--tags", "nothing"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["precheck", "upgrade"])
def test_run_without_tasks_fails(run, name, arguments):
    result = run(ROOT / "playbooks" / (name + ".yml"), *arguments, ANSIBLE_INJECT_FACT_VARS="false")
    assert result.returncode not in (0, 2) and "TASK [" not in result.stdout
    assert "%s %s leaves out tasks" % arguments in " ".join(result.stderr.split())


@pytest.mark.parametrize("arguments", [("--limit", "gpu-a-1"), ("--check",)], ids=" ".join)
def test_check_of_facts_cannot_be_left_out(run, arguments):
    result = run(ROOT / "playbooks" / "precheck.yml", *arguments)
    assert result.returncode == 2 and re.findall(r"^TASK \[(.*?)\]", result.stdout, re.M) == [CHECK], result.stdout


@pytest.mark.parametrize("value", ["false", "no", "0"])
def test_playbook_goes_on_where_facts_stay_in_ansible_facts(run, value):
    result = run(ROOT / "playbooks" / "quarantine.yml", ANSIBLE_INJECT_FACT_VARS=value)
    assert len(re.findall(r"^TASK \[(.*?)\]", result.stdout, re.M)) == 2, result.stdout


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_keeps_facts_out_of_variables(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.search(r"^inject_facts_as_vars *= *false$", text, re.M | re.I)


@pytest.mark.parametrize("name", ["ansible.cfg", "README.md"])
def test_configuration_connects_again_after_an_error_of_ssh(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.search(r"^\[ssh_connection\]\n(?:[^[\n].*\n)*?retries *= *[1-9]", text, re.M)


def test_no_role_or_playbook_reads_injected_fact():
    """An injected fact vanishes with the setting: a role that reads one would not find it."""
    facts = "distribution|distribution_release|distribution_version|distribution_major_version|os_family|architecture|"
    facts += "kernel|hostname|fqdn|nodename|pkg_mgr|service_mgr|default_ipv4|memtotal_mb|date_time|env|local|python"
    injected = re.compile(r"(?<![\w.'\"])ansible_(%s)\b(?! *[:=])" % facts)
    found = [
        "%s: %s" % (path.relative_to(ROOT), match.group())
        for place in ("roles", "playbooks")
        for path in sorted((ROOT / place).rglob("*"))
        if path.suffix in (".yml", ".j2")
        for match in injected.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found
