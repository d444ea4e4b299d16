# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as AWX starts them, without AWX: a private data directory laid out as its own, sent to a worker and taken in.

What AWX does around that is not here: surveys are not asked, a workflow is not run, and there is no container and
no Receptor.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import conftest, interpreter

RUNNER = str(pathlib.Path(sys.executable).parent / "ansible-runner")
# As AWX writes it: a program that prints what it knows of the inventory.
HOSTS = "#!%s\nprint(r'''%s''')\n"
HERE = {
    "ansible_connection": "ansible.builtin.local",
    "ansible_python_interpreter": sys.executable,
    "ansible_become": False,
}


def cut(inventory, part=None):
    """The inventory of a job, as AWX cuts it: one host in so many of all by name, with groups pared down to it, and the
    variables of groups as they are. INVENTORY: as `ansible-inventory --list --export` prints it. PART: (number of the
    slice, from 1; slices).
    """
    number, slices = part or (1, 1)
    hostvars = inventory["_meta"]["hostvars"]
    kept = sorted(hostvars)[number - 1 :: slices]
    found = {"_meta": {"hostvars": {name: hostvars[name] for name in kept}}}
    for name, group in inventory.items():
        if name != "_meta":
            found[name] = dict(group, hosts=[host for host in group.get("hosts", []) if host in kept])
    return found


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


class Running:
    """A job that was sent to a worker."""

    def __init__(self, base, ident, playbook):
        self.base, self.ident = base, ident
        sent = self.command("transmit", str(base / "private"), "-p", playbook, "-i", ident)
        assert sent.returncode == 0, sent.stderr.decode()[-2000:]
        (base / "sent").write_bytes(sent.stdout)
        with open(base / "sent", "rb") as stdin, open(base / "answer", "wb") as stdout:
            self.worker = subprocess.Popen(
                [RUNNER, "worker", "--private-data-dir", str(base / "worker")],
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.DEVNULL,
                env=self.bare(),
                start_new_session=True,
            )

    @staticmethod
    def bare():
        return {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}

    def command(self, *words, **more):
        return subprocess.run(
            [RUNNER, *words],
            env=self.bare(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=600,
            check=False,
            **more,
        )

    def kill(self):
        """End the worker and all that it started, as the end of its container does."""
        self.worker.kill()
        self.worker.wait()
        place = os.fsencode(self.base)
        for pid in conftest.processes():  # ansible-runner names the directory in the environment of what it starts
            if pid != os.getpid() and place in conftest.environment_of(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end(self):
        """Wait for its end, and take its result in."""
        try:
            self.worker.wait(timeout=1800)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        kept = self.base / "kept"
        kept.mkdir()
        with open(self.base / "answer", "rb") as stdin:
            # What the worker and process answer is the status of the job.
            self.command("process", str(kept), "-i", self.ident, stdin=stdin)
        job = Job(kept, self.ident)
        print(job.output)
        return job


class Awx:
    """Starts jobs on a fleet of stand-in nodes. TEMPLATES: {name: entry of controller_templates}."""

    JOB_TIMEOUT_S = 600  # after which ansible-runner ends a job

    def __init__(self, fleet, project, templates):
        self.fleet, self.project, self.templates = fleet, project, templates
        self.number = 100
        self.variables = {}  # of every host, as an inventory has them
        # Hosts that are no nodes, with their variables: the one that keeps files.
        self.services = {"store": HERE}

    def answers(self, name, given):
        """Extra variables as a survey sends them: texts, also empty ones, and numbers unless they are left out.

        A question without an answer and without a default sets nothing.
        """
        spec = self.templates[name]["survey_spec"]["spec"]
        known = {question["variable"]: question for question in spec}
        assert set(given) <= set(known), "the survey of %s does not ask for %s" % (name, set(given) - set(known))
        found = {}
        for variable, question in known.items():
            if variable not in given and "default" not in question:
                assert not question["required"], "the survey of %s demands %s" % (name, variable)
                continue
            value = given.get(variable, question.get("default"))
            if question["type"] in ("integer", "float"):
                if value != "":
                    kind = int if question["type"] == "integer" else float
                    assert isinstance(value, kind) and question["min"] <= value <= question["max"], variable
                    found[variable] = value
            else:
                assert isinstance(value, str) and len(value) <= question.get("max", 253), variable
                assert value in question.get("choices", [value]), variable
                found[variable] = value
        return found

    def inventory(self, part=None):
        """The inventory of a job. PART: as for cut."""
        inner = json.loads(self.fleet.inventory().read_text())["all"]
        nodes = inner["children"]["gpu_nodes"]["hosts"]
        variables = {key: value for key, value in inner["vars"].items() if key != "rollout_version"}
        everything = {
            "all": {"hosts": list(self.services), "children": ["gpu_nodes"], "vars": dict(variables, **self.variables)},
            "gpu_nodes": {"hosts": list(nodes)},
            "_meta": {"hostvars": dict(nodes, **self.services)},
        }
        return cut(everything, part)

    def run(self, name, *arguments, **given):
        """One job of a template, to its end; as start."""
        return self.start(name, *arguments, **given).end()

    def start(self, name, artifacts=None, limit="", part=None, workflow=None, **given):
        """Start one job of a template. ARTIFACTS: what jobs before it in a workflow left. PART: as for the inventory.
        WORKFLOW: the answers to the survey of the workflow, which count before those of the template.
        """
        entry = self.templates[name]
        self.number += 1
        ident = str(self.number)
        base = self.fleet.directory / "awx" / ident
        private, worker = base / "private", base / "worker"
        for path in (private / "env", private / "inventory", worker):
            path.mkdir(parents=True)
        shutil.copytree(self.project, private / "project")
        hosts = private / "inventory" / "hosts"
        hosts.write_text(HOSTS % (sys.executable, json.dumps(self.inventory(part))))
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
        extra.update(artifacts or {})
        extra.update(workflow or {})
        (private / "env" / "extravars").write_text(json.dumps(dict(extra, **meta)))
        (private / "env" / "envvars").write_text(json.dumps(self.environment()))
        (private / "env" / "settings").write_text(json.dumps({"job_timeout": self.JOB_TIMEOUT_S}))
        check = "--check " if entry["job_type"] == "check" else ""
        (private / "env" / "cmdline").write_text(
            "%s--forks %d%s" % (check, entry["forks"], " --limit " + limit if limit else "")
        )
        return Running(base, ident, entry["playbook"])

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
