# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""awx/controller.yml, run with awx.awx against a stand-in for AWX's API. That AWX takes it is not shown here."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from tests.unit.awx import api, data, environment
from tests.unit.playbooks import collection

# awx.awx is installed for it; that surveys and templates fit the playbooks needs none.
pytestmark = pytest.mark.slow
TOKEN = "token-of-the-test"
# As their modules' own code reads them: what is not in argument_spec is refused by AnsibleModule, and so is a word
# that is no choice.
MODULES = (
    "team",
    "notification_template",
    "execution_environment",
    "project",
    "inventory",
    "inventory_source",
    "job_template",
    "workflow_job_template",
    "workflow_job_template_node",
    "schedule",
    "role",
)


def tasks():
    (play,) = yaml.safe_load((data.AWX / "controller.yml").read_text())
    return play["tasks"]


def module(task):
    return next(key.rpartition(".")[2] for key in task if key.startswith("awx.awx."))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The stand-in after two runs, and what Ansible counted in each: ({counts}, {counts}, output, api)."""
    home = tmp_path_factory.mktemp("awx")
    # Its main process looks for results every millisecond otherwise, at the cost of those that are to bring them.
    (home / "ansible.cfg").write_text(
        "[defaults]\nstdout_callback = ansible.builtin.json\ninternal_poll_interval = 0.02\n"
    )
    # What every module imports is there compiled already.
    python = home / "python"
    python.write_text(
        '#!/bin/sh\nexec "%s" "%s" "$@"\n'
        % (environment.place() / "bin" / "python", collection.STUB / "interpreter.py")
    )
    python.chmod(0o755)
    server = api.Server(TOKEN)
    organization = server.api.add("organizations", name="Default")
    for name in ("gpufleet machine", "gpufleet ledger"):
        server.api.add("credentials", name=name, organization=organization["id"])
    environ = environment.variables(
        home, ANSIBLE_CONFIG=str(home / "ansible.cfg"), CONTROLLER_HOST=server.url, CONTROLLER_OAUTH_TOKEN=TOKEN
    )
    found = []
    try:
        for dummy in range(2):
            before = len(server.api.requests)
            done = subprocess.run(
                [
                    str(environment.place() / "bin" / "ansible-playbook"),
                    "-i",
                    "localhost,",
                    str(data.AWX / "controller.yml"),
                    "-e",
                    json.dumps({"ansible_python_interpreter": str(python)}),
                ],
                cwd=str(home),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
                timeout=1800,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-6000:]
            answer = json.loads(done.stdout[done.stdout.index("{") :])
            found.append((answer["stats"]["localhost"], server.api.requests[before:], answer))
        yield found, server.api
    finally:
        server.stop()


def test_the_first_run_makes_what_the_files_name(runs):
    found, state = runs
    assert found[0][0]["failures"] == 0 and found[0][0]["changed"] == len(tasks())
    for kind, variable in (
        ("teams", "aap_teams"),
        ("projects", "controller_projects"),
        ("inventories", "controller_inventories"),
        ("job_templates", "controller_templates"),
        ("workflow_job_templates", "controller_workflows"),
        ("schedules", "controller_schedules"),
        ("notification_templates", "controller_notifications"),
        ("execution_environments", "controller_execution_environments"),
        ("inventory_sources", "controller_inventory_sources"),
    ):
        assert {one["name"] for one in state.objects[kind].values()} == set(data.named(variable)), kind
    assert state.strange == [], "it asked for what AWX does not have"
    schedules = {one["name"]: one for one in state.objects["schedules"].values()}
    assert {name for name, one in schedules.items() if not one["enabled"]} == {"gpufleet capacity every month"}
    templates = {one["name"]: one for one in state.objects["job_templates"].values()}
    assert "capacity_prometheus_url" in str(templates["gpufleet capacity"]["extra_vars"])


def test_the_second_run_changes_nothing(runs):
    found, dummy = runs
    stats, sent, answer = found[1]
    changed = [
        task["task"]["name"]
        for play in answer["plays"]
        for task in play["tasks"]
        if task["hosts"]["localhost"].get("changed")
    ]
    assert changed == [] and stats["changed"] == 0
    # A patch may be sent and change nothing, as AWX leaves out of its answers what a module says; nothing is made or
    # linked.
    assert [request for request in sent if request[0] == "POST"] == []


def test_the_workflow_is_linked_as_it_is_written(runs):
    dummy, state = runs
    nodes = {one["id"]: one for one in state.objects["workflow_job_template_nodes"].values()}
    workflows = {one["id"]: one["name"] for one in state.objects["workflow_job_templates"].values()}
    for name, workflow in data.named("controller_workflows").items():
        for node in workflow["simplified_workflow_nodes"]:
            (one,) = [
                each
                for each in nodes.values()
                if each["identifier"] == node["identifier"] and workflows[each["workflow_job_template"]] == name
            ]
            for kind in ("success_nodes", "failure_nodes", "always_nodes"):
                linked = {nodes[number]["identifier"] for number in state.associated.get(one["url"] + kind + "/", [])}
                assert linked == set(node.get(kind, [])), (name, node["identifier"], kind)


def test_surveys_and_credentials_arrive(runs):
    dummy, state = runs
    wanted = data.named("controller_templates")
    for one in state.objects["job_templates"].values():
        assert state.surveys[one["url"] + "survey_spec/"] == wanted[one["name"]]["survey_spec"]
        assert len(state.associated[one["url"] + "credentials/"]) == 2


def test_the_stand_in_refuses_who_has_no_token(tmp_path):
    server = api.Server(TOKEN)
    try:
        environ = environment.variables(tmp_path, CONTROLLER_HOST=server.url, CONTROLLER_OAUTH_TOKEN="another")
        done = subprocess.run(
            [
                str(environment.place() / "bin" / "ansible-playbook"),
                "-i",
                "localhost,",
                str(data.AWX / "controller.yml"),
            ],
            cwd=str(tmp_path),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 2 and "401" in done.stdout and server.api.requests == []
    finally:
        server.stop()


def test_every_option_of_every_task_is_one_of_its_module():
    """Also those that no entry uses at the moment; the run above has AnsibleModule judge their types and choices."""
    plugins = next(environment.place().glob("lib/python*/site-packages/ansible_collections/awx/awx/plugins/modules"))
    assert {module(task) for task in tasks()} == set(MODULES)
    for task in tasks():
        source = (plugins / (module(task) + ".py")).read_text()
        spec = re.search(r"argument_spec = dict\((.*?)^    \)", source, re.M | re.S).group(1)
        known = set(re.findall(r"^        (\w+)=dict\(", spec, re.M))
        assert len(known) > 3 and set(task["awx.awx." + module(task)]) <= known, task["name"]


def test_every_key_of_the_data_is_used_by_a_task():
    """What is only in the files would be applied by the role of infra.aap_configuration and not here."""
    used = {}
    for task in tasks():
        variable = re.search(r"\w+", task["loop"].strip("{} ")).group()
        used.setdefault(variable, set()).update(
            re.findall(r"item(?:\.[01])?\.(\w+)", json.dumps(task["awx.awx." + module(task)]))
        )
    found = data.everything()
    for variable, keys in used.items():
        entries = found[variable]
        inner = [node for entry in entries for node in entry.get("simplified_workflow_nodes", [])]
        present = {key for entry in entries + inner for key in entry} - {"simplified_workflow_nodes"}
        assert present <= keys, (variable, present - keys)
    assert set(used) == {name for name in found if name.startswith(("controller_", "aap_"))}
