# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles run by Ansible on a simulated node below a directory.

NVML, the PCI bus and what judges them are real; gpu_health reads the directory in the place of the machine, and
systemctl and other programs that would reach the machine are stubs that work on it.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, interpreter
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_health

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
READER = "ansible_collections.gpufleet.lifecycle.tests.unit.roles.simulated_health"
AS_ROOT = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
LIMIT_S = 900
# The messages of a failed task, or of the failed items of a loop.
FAILURES = (
    "ansible_failed_result.results | default([ansible_failed_result]) | selectattr('failed', 'defined') "
    "| selectattr('failed') | map(attribute='msg') | join(' ')"
)
KEPT = ("plugins/module_utils/kept_packages.py", "plugins/module_utils/python_of_nodes.py")
OWN = ("plugins/callback/kept.py", "plugins/connection/simulated.py")
# The one Python of all nodes (connection plugin `simulated`) is outside the namespace of a user who is not root.
CONNECTION = "local" if AS_ROOT else "gpufleet.lifecycle.simulated"


@functools.lru_cache(maxsize=None)
def kept(*what):
    """What Ansible made of the modules of a collection with WHAT, for all runs of this process."""
    place = tempfile.mkdtemp(prefix="gpufleet-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def with_kept(where):
    """Give the collection in WHERE what keeps packages of modules, and runs modules in a ready Python."""
    for name in KEPT:
        collection.link(collection.STUB / name, where / name)
    for name in OWN:
        collection.link(HERE / "stub" / name, where / name)


def whole_collection(where):
    """The checkout as a collection in WHERE, with what with_kept gives."""
    for name in ("galaxy.yml", "meta", "playbooks", "roles"):
        collection.link(ROOT / name, where / name)
    for source in (ROOT / "plugins").glob("*/*"):
        collection.link(source, where / source.relative_to(ROOT))
    with_kept(where)


def environment(base, kept_in, own_modules=()):
    """The environment of a run of Ansible with the collection in BASE, which has what with_kept gives."""
    # Its main process looks for results every millisecond otherwise, at the cost of those that are to bring them.
    (base / "ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.02\ninject_facts_as_vars = False\n")
    return dict(
        os.environ,
        ANSIBLE_LOCALHOST_WARNING="0",
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_LOCAL_TEMP=str(base / "local"),
        ANSIBLE_REMOTE_TEMP=str(base / "remote"),
        ANSIBLE_HOME=str(base / "home"),
        ANSIBLE_COLLECTIONS_PATH=str(base / "collections"),
        ANSIBLE_CONFIG=str(base / "ansible.cfg"),
        ANSIBLE_PIPELINING="1",
        ANSIBLE_CALLBACKS_ENABLED="gpufleet.lifecycle.kept",
        GPUFLEET_MODULES=kept_in,
        GPUFLEET_OWN_MODULES=" ".join(own_modules),
        GPUFLEET_NODE_PYTHON=sys.executable,
        GPUFLEET_STUB_PYTHON="" if AS_ROOT else interpreter.of_nodes().socket,
    )


def ansible_playbook(cwd, environ, *words, before=()):
    """The process of a run that came to its end; BEFORE are the words that start its program in another place."""
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    return subprocess.run(
        [*before, sys.executable, program, *words],
        cwd=str(cwd),
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Result:
    def __init__(self, process):
        self.rc, self.output = process.returncode, process.stdout + process.stderr
        recap = re.search(r"ok=\d+\s+changed=(\d+).*failed=(\d+)", self.output)
        assert recap, self.output
        self.changed, self.failed = int(recap.group(1)), int(recap.group(2))

    @property
    def words(self):
        return re.sub(r"\s+", " ", self.output)


class SimulatedNode:
    """A copy of a world of the scenarios, with programs of its own, and the collection with the named roles."""

    def __init__(self, base, world, roles, real=()):
        self.base, self.world = base, world
        self.root, self.bin = world.root, base / "bin"
        self.bin.mkdir(parents=True)
        collection.make(
            collection.place(base / "collections"), ["roles/" + name for name in roles] + list(real), (HERE / "stub",)
        )
        with_kept(collection.place(base / "collections"))
        self.kept, self.own_modules = kept(*roles, *real), []
        collection.link(ROOT, collection.place(base / "checkout"))  # for the reader, which is no part of the collection
        self.program("systemctl", 'exec "%s" -I -S "%s" "%s" "$@"' % (sys.executable, HERE / "systemctl.py", self.root))
        self.services(units=world.units, daemons=world.daemons, log=[])

    def program(self, name, script):
        path = self.bin / name
        path.write_text("#!/bin/sh\n%s\n" % script)
        path.chmod(0o755)

    def rooted(self, module):
        """The real module, with the directory as its root and a lock of its own."""
        text = (ROOT / "plugins/modules" / (module + ".py")).read_text()
        assert text.count('ROOT = "/"') == text.count("lock.NodeLock(owner") == 1
        text = text.replace('ROOT = "/"', 'ROOT = "%s"' % self.root).replace(
            "lock.NodeLock(owner", 'lock.NodeLock(path=ROOT + "/run/lock", owner'
        )
        (collection.place(self.base / "collections") / "plugins/modules" / (module + ".py")).write_text(text)
        self.own_modules.append(module)

    # ---- its services ----

    @property
    def state(self):
        return json.loads((self.root / simulated_health.STATE).read_text())

    @property
    def log(self):
        return self.state["log"]

    def services(self, **change):
        path = self.root / simulated_health.STATE
        path.write_text(json.dumps(dict(json.loads(path.read_text()) if path.exists() else {}, **change)))

    def unit(self, name, *words):
        self.services(units=dict(self.state["units"], **{name: list(words)}))

    def on_start(self, unit, *commands):
        """What happens when the unit starts: commands of gpusim."""
        path = self.root / "on-start" / unit
        path.parent.mkdir(exist_ok=True)
        sim = 'GPUSIM_ROOT="%s" "%s" "%s" gpusim' % (self.root, sys.executable, ROOT / "tests/sim/main.py")
        path.write_text("".join("%s %s || exit 1\n" % (sim, command) for command in commands) or "exit 1\n")

    # ---- running ----

    def play(self, role, *options, tasks_from="main", **variables):
        return self.run(
            [{"ansible.builtin.include_role": {"name": "gpufleet.lifecycle." + role, "tasks_from": tasks_from}}],
            *options,
            **variables,
        )

    def run(self, tasks, *options, **variables):
        """A play of TASKS."""
        playbook = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
        (self.base / "play.yml").write_text(json.dumps(playbook))
        variables["ansible_python_interpreter"] = sys.executable
        node = {
            "python": sys.executable,
            "reader": READER,
            "root": str(self.root),
            "model": self.world.model,
            "cwd": str(ROOT),
            "path": str(self.base / "checkout"),
        }
        environ = dict(
            environment(self.base, self.kept, self.own_modules),
            GPUFLEET_SIMULATED_NODE=json.dumps(node),
            PATH="%s:%s" % (self.bin, os.environ["PATH"]),
        )
        words = ["-i", "gpu-1,", "-c", CONNECTION, self.base / "play.yml", "-e", json.dumps(variables), *options]
        return Result(ansible_playbook(self.base, environ, *words, before=AS_ROOT))

    def include(self, role, tasks_from="main", **variables):
        """Return the task that runs a role with these variables."""
        return {
            "ansible.builtin.include_role": {"name": "gpufleet.lifecycle." + role, "tasks_from": tasks_from},
            "vars": variables,
        }

    def cases(self, *cases):
        """Run cases, which are lists of tasks, in one play.

        Returns: why each of them failed, in their order, empty if it did not, and the result of the play.
        """
        tasks = []
        for number, case in enumerate(cases):
            said = "CASE %d {{ %s }} END" % (number, FAILURES)
            done = {"ansible.builtin.debug": {"msg": "CASE %d END" % number}}
            tasks.append({"block": [*case, done], "rescue": [{"ansible.builtin.debug": {"msg": said}}]})
        result = self.run(tasks)
        assert result.rc == 0, result.output
        parts = [result.words.partition("CASE %d " % number)[2].partition("END")[0] for number in range(len(cases))]
        return [part.strip() for part in parts], result

    def close(self):
        self.world.close()
        shutil.rmtree(str(self.base / "collections"))
