# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of stub nodes, and the real playbooks run on it.

What decides runs for real: the playbooks, the role gpu_node_upgrade, the rollout actions, Ansible's own reboot. What
would touch a machine is replaced: the modules that read or install a driver, systemctl, and the connection, which
reboots or loses a node.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger, others, store
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, interpreter
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.stub.plugins.module_utils import stubnode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest as ledger_tests

# The server of the ledger's own tests, one for all courses; pytest takes a fixture by the name under which it stands
# here.
postgresql = ledger_tests.postgresql
OLD, NEW = "1.0.1", "2.0.1"


def wait_for(condition, seconds=1800):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.2)


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment_of(pid):
    """What a process was started with; empty of one that has ended."""
    with contextlib.suppress(OSError), open("/proc/%d/environ" % pid, "rb") as stream:
        return stream.read()
    return b""


def directory_of(pid):
    """Where a process works; empty of one that has ended."""
    with contextlib.suppress(OSError):
        return os.readlink(b"/proc/%d/cwd" % pid)
    return b""


def naps(pid):
    """How often a process has slept so far."""
    with contextlib.suppress(OSError), open("/proc/%d/status" % pid, encoding="ascii") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("voluntary_ctxt_switches:"))
    return 0


def workers(pid):
    """Ansible's workers of a playbook's process: its children that have its command line."""
    with contextlib.suppress(OSError), open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as stream:
        return [int(child) for child in stream.read().split() if command_line(int(child)) == command_line(pid) != b""]
    return []


def command_line(pid):
    """What a process was started with; empty of one that has ended."""
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as stream:
        return stream.read()
    return b""


class Result:
    def __init__(self, fleet, process, output):
        self.rc = process.returncode
        self.output = output
        self.fleet = fleet

    @property
    def text(self):
        """The output without the line ends with which Ansible wraps a message."""
        return " ".join(self.output.split())

    @property
    def report(self):
        return json.loads((self.fleet.artifacts / "rollouts" / ("upgrade-" + NEW) / "report.json").read_text())

    @property
    def host_tasks(self):
        """{play: {host: [task, ...]}} of the last run."""
        return json.loads((self.fleet.directory / "host-tasks.json").read_text())

    @property
    def states(self):
        return {name: node["state"] for name, node in self.report["nodes"].items()}


class Fleet:
    REAL = ("playbooks",)  # what is the checkout's own beside collection.REAL
    before = ()  # what starts the playbook

    def __init__(self, directory, modules, shared=None):
        """SHARED is a collection that other fleets use too, and which nobody changes; without one it has its own."""
        self.directory = directory
        self.modules = modules
        self.nodes = directory / "nodes"
        self.artifacts = directory / "artifacts"
        self.collections = shared
        if shared is None:
            self.own_collection()
        self.python = self.nodes / "bin" / "python-of-node"
        (self.nodes / "bin").mkdir(parents=True)
        self.python.write_text(
            '#!/bin/sh\nexec "%s" "%s" "$@"\n' % (sys.executable, collection.STUB / "interpreter.py")
        )
        self.python.chmod(0o755)
        systemctl = self.nodes / "bin" / "systemctl"
        systemctl.write_text(
            '#!/bin/sh\nexec "%s" -I -S "%s" "$@"\n' % (sys.executable, collection.STUB / "systemctl.py")
        )
        systemctl.chmod(0o755)
        self.names = []
        self.variables = {}  # more variables of a node, by its name
        self.environment = {}

    @property
    def collection(self):
        return collection.place(self.collections)

    def own_collection(self):
        """Have a collection that is no other fleet's, to be changed."""
        if self.collections != self.directory / "collections":
            self.collections = self.directory / "collections"
            collection.make(self.collection, self.REAL)

    def install_for_real(self):
        """The real role nvidia_driver in the place of its stub; its files are the nodes' own, and the controller has
        what they would compile.
        """
        self.own_collection()
        role = self.collection / "roles" / "nvidia_driver"
        shutil.rmtree(role)
        shutil.copytree(collection.ROOT / "roles" / "nvidia_driver", role)
        own, file = role / "vars" / "main.yml", "/etc/modprobe.d/gpufleet-nouveau.conf"
        assert file in own.read_text()
        own.write_text(own.read_text().replace(file, '"{{ gpu_node_upgrade_state_dir }}/nouveau.conf"'))
        cached = self.artifacts / "dkms" / stubnode.archive(NEW)
        cached.parent.mkdir(parents=True)
        cached.write_text("")
        digest = hashlib.sha256(b"").hexdigest()
        tree_archives.write_sha256(str(cached), digest)
        others.record_archive(store.Store(store.default_url(str(self.artifacts))), "builder", cached.name, digest)
        own = {"find": "exit 0", "update-initramfs": "echo it would be asked of this machine >&2; exit 1"}
        for name, what in own.items():
            (self.nodes / "bin" / name).write_text("#!/bin/sh\n%s\n" % what)
            (self.nodes / "bin" / name).chmod(0o755)
        return {"nvidia_driver_flavour": "open"}

    def use_slurm(self):
        """Slurm gives every node work, under another name than the inventory's; what a run needs to know of it."""
        login = self.directory / "login.json"
        host = {
            "ansible_connection": "ansible.builtin.local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        login.write_text(json.dumps({"all": {"hosts": {"login": host}}}))
        for name in ("scontrol", "squeue"):
            command = self.nodes / "bin" / name
            command.write_text(
                '#!/bin/sh\nexec "%s" -I -S "%s" "%s" %s "$@"\n'
                % (sys.executable, collection.STUB / "slurm.py", self.nodes, name)
            )
            command.chmod(0o755)
        return ("-i", str(login)), {
            "gpu_scheduler_backends": ["slurm"],
            "gpu_scheduler_slurm_host": "login",
            "gpu_scheduler_slurm_node": "n-{{ inventory_hostname }}",
            "gpu_scheduler_slurm_bin_dir": str(self.nodes / "bin"),
            "gpu_scheduler_poll": 0.2,
            "gpu_scheduler_drain_timeout": 60,
            "gpu_scheduler_resume_timeout": 1,
        }

    def use_gres(self, *names):
        """slurmctld reads these nodes from files of their own, which this collection may write; what a run needs to
        know of it.
        """
        self.own_collection()
        role, files = self.collection / "roles" / "gpu_scheduler", self.directory / "slurm"
        role.unlink()
        shutil.copytree(collection.ROOT / "roles" / "gpu_scheduler", role)
        own, file = role / "vars" / "main.yml", "/proc/driver/nvidia-caps/mig-minors"
        assert file in own.read_text()
        own.write_text(own.read_text().replace(file, str(files / "minors")))
        for name in ("nodes", "now"):
            (files / name).mkdir(parents=True)
        files.joinpath("minors").write_text(
            "".join(
                "gpu%d/gi%d/%s %d\n" % (gpu, instance, access, 100 * gpu + 10 * instance + number)
                for gpu in range(2)
                for instance in range(7)
                for number, access in enumerate(("access", "ci0/access"))
            )
        )
        for name in names:
            gres = self.read(name)["slurm"]["gres"]
            (files / "nodes" / ("n-%s.conf" % name)).write_text("NodeName=n-%s CPUs=2 Gres=%s\n" % (name, gres))
        for name, end in (("slurm.conf", ".conf"), ("gres.conf", ".gres.conf")):
            (files / name).write_text("".join("Include nodes/n-%s%s\n" % (node, end) for node in names))
        return {"gpu_scheduler_slurm_gres_dir": str(files / "nodes"), "gpu_scheduler_slurm_reconfigure": True}

    def gres(self, name):
        """Each Gres that slurmctld was given for the node, and how many MIG devices each GPU had then; and the lines of
        its gres.conf.
        """
        files = self.directory / "slurm"
        now, lines = files / "now" / ("n-" + name), files / "nodes" / ("n-%s.gres.conf" % name)
        told = (
            [(gres, int(devices)) for gres, devices in map(str.split, now.read_text().splitlines())]
            if now.exists()
            else []
        )
        return told, lines.read_text().splitlines()[1:] if lines.exists() else []

    def slurm(self, name):
        """The state of the node in Slurm, and what was done to it there."""
        found = self.read(name).get("slurm", {})
        return found.get("state", "IDLE"), found.get("reason", ""), found.get("log", [])

    def add(self, name, **fields):
        service = "nvidia-persistenced.service"
        (self.nodes / name / "state").mkdir(parents=True)
        node = {"loaded": OLD, "disk": OLD, "boots": 0, "enabled": [service], "running": [service], "log": []}
        self.write(name, dict(node, **fields))
        self.names.append(name)

    def write(self, name, node):
        path = self.nodes / name / "node.json"
        path.with_name("node.json.new").write_text(json.dumps(node))
        path.with_name("node.json.new").rename(path)

    def read(self, name):
        return json.loads((self.nodes / name / "node.json").read_text())

    def change(self, name, **fields):
        self.write(name, dict(self.read(name), **fields))

    def states(self, rollout_id):
        """What the report says of every node now."""
        try:
            report = json.loads((self.artifacts / "rollouts" / rollout_id / "report.json").read_text())
        except FileNotFoundError:
            return {}
        return {name: node["state"] for name, node in report["nodes"].items()}

    def touched(self):
        return [name for name in self.names if self.read(name)["log"]]

    def went(self):
        """Nodes that were given leave to begin, whether or not anything came of it."""
        return [node.name for node in self.view().nodes.list_all() if node.went is not None]

    def view(self, rollout_id="upgrade-" + NEW, url=""):
        """What the ledger says."""
        return ledger.Ledger(str(self.artifacts), rollout_id, url).view()

    def document(self, node, name):
        """What the ledger keeps of a node."""
        return ledger.Ledger(str(self.artifacts), "upgrade-" + NEW, "").load(node, name)

    def recorded(self, url=""):
        """The state of every node in the ledger."""
        return {node.name: node.state for node in self.view(url=url).nodes.list_all()}

    def at_work(self):
        """Processes that work on a node of this fleet: a module works in the node's directory, and what was started by
        a shell was given its name.
        """
        nodes = os.fsencode(self.nodes) + b"/"
        return [
            pid
            for pid in processes()
            if directory_of(pid).startswith(nodes) or b"GPUFLEET_STUB_NODE=" + nodes in environment_of(pid)
        ]

    def controllers(self):
        """Ansible's processes of this fleet, its workers among them, and what they started."""
        nodes = os.fsencode(self.nodes)
        return [pid for pid in processes() if b"GPUFLEET_STUB_NODES=%s\0" % nodes in environment_of(pid)]

    def began(self, name, task):
        """How often this task was started on a node, in all runs so far."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.directory / "started").read_text().splitlines()
            return sum(line.partition(" ")[0] == name and line.rpartition(" : ")[2] == task for line in lines)
        return 0

    def inventory(self, only=None):
        """The inventory; ONLY: of these nodes and no others, as a slice of a job has it."""
        hosts = {
            name: {
                **self.variables.get(name, {}),
                "ansible_connection": "gpufleet.lifecycle.stubnode",
                "ansible_python_interpreter": str(self.python),
                "ansible_become": False,
                "ansible_async_dir": str(self.nodes / name / "async"),
                "gpu_node_upgrade_state_dir": str(self.nodes / name / "state"),
            }
            for name in (self.names if only is None else only)
        }
        variables = {
            "gpufleet_artifact_dir": str(self.artifacts),
            "gpu_node_upgrade_reboot_timeout": 10,
            "gpu_quarantine_scrape_interval": 1,
            "gpu_node_upgrade_reconnect_timeout": 5,
            "gpu_node_upgrade_quarantine_timeout": 2,
            "gpu_node_upgrade_health_retries": 1,
            "gpu_node_upgrade_health_delay": 0,
            "gpu_node_upgrade_gate_patience": 3,
            "gpu_node_upgrade_gate_patience_max": 6,
            "gpu_node_upgrade_gate_poll": 0.5,
            "kernel_hold_poll": 1,
            "nvidia_driver_poll": 1,
            "rollout_version": NEW,
        }
        part = "" if only is None else "-" + hashlib.sha256(json.dumps(only).encode()).hexdigest()[:12]
        path = self.directory / ("inventory%s.json" % part)
        path.write_text(json.dumps({"all": {"children": {"gpu_nodes": {"hosts": hosts}}, "vars": variables}}))
        return path

    def step_through(self, playbook, decide, turns=1500, limit_s=1800):
        """Run it with --step and answer what DECIDE(task) says; the tasks that were asked about, and the answers.

        A host whose task was declined is never taken up again by the strategy host_pinned (nor by free): Ansible then
        asks nothing more and waits for ever. It is interrupted when its main loop has made TURNS turns since the last
        declined task, without output and without a task at work. The kernel counts the turns, as the loop sleeps in
        each; on a busy machine they take longer.
        """
        process = self.start(playbook, "--step", stdin=subprocess.PIPE)
        asked, length = [], 0
        began, changed = time.monotonic(), 0
        try:
            while process.poll() is None:
                assert time.monotonic() - began < limit_s, (
                    "it asked for %d tasks and neither went on nor came to an end" % len(asked)
                )
                process.log.seek(0)
                text = process.log.read()
                if len(text) != length or workers(process.pid):
                    length, changed = len(text), naps(process.pid)
                prompts = re.findall(r"Perform task: TASK: (.*?) (?:on \S+ )?\(N\)o/\(y\)es/\(c\)ontinue: ", text)
                # Every prompt is printed once more, as a banner, when it was answered.
                if len(prompts) == 2 * len(asked) + 1:
                    asked.append((prompts[-1], decide(prompts[-1])))
                    process.stdin.write(asked[-1][1].encode() + b"\n")
                    process.stdin.flush()
                elif "n" in [answer for task, answer in asked] and naps(process.pid) - changed > turns:
                    process.send_signal(signal.SIGINT)
                    process.wait(timeout=300)
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.log.close()
        return asked

    def playbook(self, name):
        """A playbook of the collection, or one that a test wrote beside the inventory."""
        own = self.directory / (name + ".yml")
        return own if own.exists() else self.collection / "playbooks" / (name + ".yml")

    def start(self, playbook, *arguments, stdin=subprocess.DEVNULL, only=None, **extra):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        environment.update(
            ANSIBLE_COLLECTIONS_PATH=str(self.collections),
            ANSIBLE_CONFIG=str(self.directory / "ansible.cfg"),
            ANSIBLE_FORKS="10",
            ANSIBLE_PIPELINING="true",
            ANSIBLE_INJECT_FACT_VARS="false",
            ANSIBLE_NOCOLOR="true",
            ANSIBLE_LOCALHOST_WARNING="false",
            ANSIBLE_INVENTORY_ENABLED="ansible.builtin.yaml",
            ANSIBLE_CALLBACKS_ENABLED="gpufleet.lifecycle.hosttasks",
            GPUFLEET_CHEAP="true",
            GPUFLEET_HOST_TASKS=str(self.directory / "host-tasks.json"),
            GPUFLEET_MODULES=str(self.modules),
            GPUFLEET_STARTED=str(self.directory / "started"),
            GPUFLEET_STUB_NODES=str(self.nodes),
            GPUFLEET_STUB_PYTHON=interpreter.of_nodes().socket,
            HOME=str(self.directory),
        )
        environment.update(self.environment)
        environment = {key: value for key, value in environment.items() if value is not None}
        # Its main process looks for results every millisecond otherwise, at the cost of those that are to bring them.
        (self.directory / "ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.02\n")
        command = [
            *self.before,
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "-i",
            str(self.inventory(only)),
            str(self.playbook(playbook)),
        ]
        for key, value in extra.items():
            command += ["-e", json.dumps({key: value})]
        number = len(list(self.directory.glob("output*")))
        log = open(self.directory / ("output%d" % number), "w+", encoding="utf-8")
        # A session of its own: what a signal makes Ansible do to its process group stays away from the tests.
        process = subprocess.Popen(
            # Where nohup started the tests, what they start would ignore a hangup too.
            ["env", "--default-signal=HUP"] + command + list(arguments),
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=stdin,
            start_new_session=True,
        )
        process.log = log
        return process

    @staticmethod
    def ended(process):
        """End a run that was started, if it has not ended, and answer what it said; a test that fails shows it."""
        process.kill()
        process.wait()
        process.log.seek(0)
        output = process.log.read()
        process.log.close()
        print(output)
        return output

    @contextlib.contextmanager
    def going(self, playbook, *arguments, **extra):
        """A run that is under way in the block, and is ended with it."""
        process = self.start(playbook, *arguments, **extra)
        try:
            yield process
        finally:
            process.output = self.ended(process)

    @contextlib.contextmanager
    def killed(self, playbook, *arguments, **extra):
        """A run that is under way in the block, and is killed with it and with its workers, which would go on."""
        with self.going(playbook, *arguments, **extra) as process:
            try:
                yield process
            finally:
                self.kill_controllers()

    def kill_controllers(self):
        for pid in self.controllers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, playbook, *arguments, only=None, **extra):
        with self.going(playbook, *arguments, only=only, **extra) as process:
            process.wait(timeout=1800)
        return Result(self, process, process.output)


def pytest_collection_modifyitems(items):
    """Every course is slow but for those that are marked as the proof of a promise, which `make test` runs."""
    for item in items:
        if item.path.parent == collection.HERE and item.get_closest_marker("promise") is None:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    """The modules as Ansible packed them, for all runs."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """The collection of all fleets that change nothing in it."""
    place = tmp_path_factory.mktemp("collections")
    collection.make(collection.place(place), ["playbooks"])
    return place


@pytest.fixture
def fleet(tmp_path, modules, shared):
    return Fleet(tmp_path, modules, shared)
