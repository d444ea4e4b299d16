# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as AWX starts them, without AWX: a private data directory laid out as its own, sent to a worker and taken in.

What AWX does around that is not here: surveys are not asked, a workflow is not run, and there is no container and
no Receptor.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import interpreter

RUNNER = str(pathlib.Path(sys.executable).parent / "ansible-runner")
# As AWX writes it: a program that prints what it knows of the inventory.
HOSTS = "#!%s\nprint(r'''%s''')\n"


class Job:
    """What AWX keeps of a job that has ended."""

    def __init__(self, place, ident):
        artifacts = place / "artifacts" / ident
        self.rc = int((artifacts / "rc").read_text())
        self.status = (artifacts / "status").read_text()
        self.output = (artifacts / "stdout").read_text()
        events = [json.loads(path.read_text()) for path in (artifacts / "job_events").glob("*.json")]
        self.events = sorted(events, key=lambda event: event["counter"])

    @property
    def words(self):
        return " ".join(self.output.split())

    @property
    def artifacts(self):
        """What set_stats left for the next job of a workflow."""
        return next(
            (
                event["event_data"].get("artifact_data") or {}
                for event in self.events
                if event["event"] == "playbook_on_stats"
            ),
            {},
        )

    def changed(self):
        """The hosts on which something was changed."""
        return sorted(
            next(event["event_data"]["changed"] for event in self.events if event["event"] == "playbook_on_stats")
        )


class Awx:
    """Starts jobs on a fleet of stand-in nodes. TEMPLATES: {name: entry of controller_templates}."""

    def __init__(self, fleet, project, templates):
        self.fleet, self.project, self.templates = fleet, project, templates
        self.number = 100
        self.variables = {}  # of every host, as an inventory has them

    def answers(self, name, given):
        """Extra variables as a survey sends them: texts, also empty ones, and whole numbers unless they are left
        out.
        """
        spec = self.templates[name]["survey_spec"]["spec"]
        known = {question["variable"]: question for question in spec}
        assert set(given) <= set(known), "the survey of %s does not ask for %s" % (name, set(given) - set(known))
        found = {}
        for variable, question in known.items():
            value = given.get(variable, question["default"])
            if question["type"] == "integer":
                if value != "":
                    assert isinstance(value, int) and question["min"] <= value <= question["max"], variable
                    found[variable] = value
            else:
                assert isinstance(value, str) and len(value) <= question.get("max", 253), variable
                assert value in question.get("choices", [value]), variable
                found[variable] = value
        return found

    def inventory(self):
        inner = json.loads(self.fleet.inventory().read_text())["all"]
        hosts = inner["children"]["gpu_nodes"]["hosts"]
        store = {
            "ansible_connection": "ansible.builtin.local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        variables = {key: value for key, value in inner["vars"].items() if key != "rollout_version"}
        return {
            "all": {"hosts": ["store"], "children": ["gpu_nodes"], "vars": dict(variables, **self.variables)},
            "gpu_nodes": {"hosts": sorted(hosts)},
            "_meta": {"hostvars": dict(hosts, store=store)},
        }

    def run(self, name, artifacts=None, limit="", **given):
        """One job of a template, to its end. ARTIFACTS: what jobs before it in a workflow left."""
        entry = self.templates[name]
        self.number += 1
        ident = str(self.number)
        base = self.fleet.directory / "awx" / ident
        private, worker, kept = base / "private", base / "worker", base / "kept"
        for path in (private / "env", private / "inventory", worker, kept):
            path.mkdir(parents=True)
        shutil.copytree(self.project, private / "project")
        hosts = private / "inventory" / "hosts"
        hosts.write_text(HOSTS % (sys.executable, json.dumps(self.inventory())))
        hosts.chmod(0o755)
        meta = {
            "awx_job_id": self.number,
            "awx_job_launch_type": "workflow",
            "awx_job_template_name": name,
            "awx_user_name": "kim",
            "awx_workflow_job_id": 7,
            "awx_workflow_job_name": "gpufleet driver upgrade",
            "awx_inventory_name": entry["inventory"],
        }
        extra = dict(entry.get("extra_vars") or {}, **self.answers(name, given))
        (private / "env" / "extravars").write_text(json.dumps(dict(extra, **(artifacts or {}), **meta)))
        (private / "env" / "envvars").write_text(json.dumps(self.environment()))
        (private / "env" / "settings").write_text(json.dumps({"job_timeout": 600}))
        check = "--check " if entry["job_type"] == "check" else ""
        (private / "env" / "cmdline").write_text(
            "%s--forks %d%s" % (check, entry["forks"], " --limit " + limit if limit else "")
        )
        bare = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        commands = (
            ["transmit", str(private), "-p", entry["playbook"], "-i", ident],
            ["worker", "--private-data-dir", str(worker)],
            ["process", str(kept), "-i", ident],
        )
        said = b""
        for words in commands:
            done = subprocess.run(
                [RUNNER, *words],
                input=said,
                env=bare,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                timeout=1800,
                check=False,
            )
            # What the worker and process answer is the status of the job.
            assert words[0] != "transmit" or done.returncode == 0, done.stderr.decode()[-2000:]
            said = done.stdout
        job = Job(kept, ident)
        print(job.output)
        return job

    def environment(self):
        fleet = self.fleet
        return {
            "PATH": "%s%s%s" % (pathlib.Path(sys.executable).parent, os.pathsep, os.environ["PATH"]),
            "ANSIBLE_CALLBACKS_ENABLED": "gpufleet.lifecycle.hosttasks",
            "ANSIBLE_COLLECTIONS_PATH": str(fleet.collections),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_NOCOLOR": "true",
            "GPUFLEET_CHEAP": "true",
            "GPUFLEET_HOST_TASKS": str(fleet.directory / "host-tasks.json"),
            "GPUFLEET_MODULES": str(fleet.modules),
            "GPUFLEET_STUB_NODES": str(fleet.nodes),
            "GPUFLEET_STUB_PYTHON": interpreter.of_nodes().socket,
            "HOME": str(fleet.directory),
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        }
