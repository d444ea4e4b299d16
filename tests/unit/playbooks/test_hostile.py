# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that answer lies: the controller's files, and what becomes of the other nodes, stay as they are without them.

Every liar is honest but for the answers of some modules, or of all: so each place where an answer is used is reached.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import tempfile

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, conftest
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.stub.plugins.module_utils import lies
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_mig_rollout import WANTED
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_quarantine import keep_baseline, marker, records
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

pytestmark = pytest.mark.cores

OLD, NEW = "1.0.1", "2.0.1"
HONEST = ("a1", "a2")
# The actions that check and judge what the node answers, in the place of none.
REAL = (
    *("plugins/action/%s.py" % name for name in ("gpu_health", "gpu_info", "gpu_mig", "gpu_settings", "health_report")),
    *("plugins/module_utils/_%s_options.py" % name for name in ("health", "mig", "settings")),
    "plugins/modules/health_report.py",
)
# The modules that an upgrade calls on a node, and the shell.
MODULES = (
    "async_status",
    "boot_kernel",
    "command",
    "copy",
    "dkms_module",
    "driver_audit",
    "driver_packages",
    "driver_reload",
    "gpu_evidence",
    "gpu_health",
    "gpu_info",
    "gpu_settings",
    "node_services",
    "node_state",
    "ping",
    "setup",
    "shell",
    "stat",
)
# These are called on a node that has failed alone.
OF_FAILURE = ("boot_kernel", "gpu_info", "ping")
# These leave what was read as it was: a node may say what it likes beside it.
BESIDE = ("facts", "control", "status", "types")
# Places that every process of Ansible reads.
INSTALLED = (sys.prefix, sys.base_prefix, str(collection.ROOT), "/dev", "/etc", "/lib", "/proc", "/sys", "/usr")
# Where a process of ansible-core 2.21 listens for others of the same run (multiprocessing.connection).
LISTENER = re.compile(r"%s/pymp-\w+(/listener-\w+)?" % re.escape(tempfile.gettempdir()))
# Files of the tests beside the nodes and artifacts.
FILES = ("ansible.cfg", "host-tasks.json", "opened", "started")


class Hostile(conftest.Fleet):
    """A fleet, and files of the controller that its liars aim at."""

    def __init__(self, directory, modules):
        super().__init__(directory, modules)
        for name in REAL:
            collection.link(collection.ROOT / name, self.collection / name)
        self.victim = directory / "controller"
        self.victim.mkdir()
        for name in ("id_ed25519", "known_hosts", "python"):
            (self.victim / name).write_text("%s of the controller\n" % name)
        self.intact = self.victims()
        self.environment.update(
            ANSIBLE_CALLBACKS_ENABLED="gpufleet.lifecycle.hosttasks,gpufleet.lifecycle.opened",
            ANSIBLE_FORKS="30",
            ANSIBLE_REMOTE_TMP=str(self.nodes / "tmp"),  # of the nodes, which are this machine
            GPUFLEET_OPENED=str(directory / "opened"),
        )

    def add(self, name, **fields):
        given = {driver: {"changed": False, "facts": reading(name, driver)} for driver in (OLD, NEW)}
        super().add(name, **dict({"answers": {"gpu_health": given}}, **fields))

    def add_liar(self, name, kinds, modules=(), turn=0, **fields):
        """Add a node that lies of MODULES, or of all; with the TURN-th lie of its kind first."""
        self.add(name, lies={"kinds": kinds, "modules": modules, "victim": str(self.victim), "turn": turn}, **fields)

    def victims(self):
        return {
            path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
            for path in self.victim.iterdir()
        }

    def liars(self):
        return [name for name in self.names if name not in HONEST]

    def lied(self):
        """Return the modules of which some node lied."""
        lines = [line for name in self.liars() for line in told(self, name)]
        return {module for module, kind in (line.split(": ") for line in lines) if kind != "truth"}

    def trespasses(self):
        """Return what the controller's processes used beside the artifacts and what is installed."""
        own = (self.artifacts, self.nodes, self.collections, self.directory / ".ansible", self.modules)
        found = []
        for line in (self.directory / "opened").read_text().splitlines():
            event, path, writes = json.loads(line)
            inside = path.startswith("%s/" % self.directory)
            name = os.path.basename(path)
            if (
                is_below(path, own)
                or path in (str(self.directory), "/dev/null")
                or LISTENER.fullmatch(path)
                or (inside and (name in FILES or name.startswith(("inventory", "login", "output"))))
                or (not inside and not writes and is_below(path, INSTALLED))
            ):
                continue
            found.append((event, path, writes))
        return found

    def assert_untouched(self):
        assert self.victims() == self.intact
        assert self.trespasses() == []


def is_below(path, places):
    return any(path == str(place) or path.startswith("%s/" % place) for place in places)


def reading(name, driver):
    """Return what gpu_health reads on an honest node that runs this driver."""
    found = json.dumps(readings.reading()).replace('"x"', '"boot-%s"' % driver).replace(readings.DRIVER, driver)
    return json.loads(found.replace(readings.uuid(0)[:-1], "GPU-%s-" % name).replace('"16540230', '"%s-' % name))


def failing(name):
    """Return what a node answers that fails with the new driver, so that it is asked what only such a node is."""
    sick = reading(name, NEW)
    del sick["snapshot"]["gpus"][1]
    facts = {OLD: reading(name, OLD), NEW: sick}
    return {"gpu_health": {driver: {"changed": False, "facts": found} for driver, found in facts.items()}}


def told(fleet, name):
    path = fleet.nodes / name / "told"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def hostile(tmp_path, modules):
    return Hostile(tmp_path, modules)


def timeless(value):
    """Return VALUE without what differs from one run to the next."""
    if isinstance(value, dict):
        volatile = ("time", "started", "finished", "ended", "duration_s", "bundle", "ticket")
        return {key: timeless(inner) for key, inner in value.items() if key not in volatile}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def outcomes(fleet, rollout_id):
    """Return what became of the honest nodes, what they were planned for, the limits, and all archives."""
    report = json.loads((fleet.artifacts / "rollouts" / rollout_id / "report.json").read_text())
    view = fleet.view(rollout_id)
    policy = {key: value for key, value in view.policy.items() if key != "fleet"}
    archives = sorted((fleet.artifacts / "dkms").glob("*"))
    return {
        "nodes": {name: timeless(report["nodes"][name]) for name in HONEST},
        "planned": {name: (view.nodes.get(name).from_version, view.nodes.get(name).to_version) for name in HONEST},
        "done": {name: fleet.read(name)["log"] for name in HONEST},
        "policy": policy,
        "limits": {key: value["limit"] for key, value in report["budgets"].items()},
        "archives": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives},
    }


@pytest.mark.promise
def test_precheck_names_liars_and_judges_others_as_without_them(hostile):
    report = hostile.artifacts / "precheck" / "report.json"
    for name in HONEST:
        hostile.add(name)
    honest = hostile.run("precheck", gpu_health_expect=readings.EXPECT)
    assert honest.rc == 0
    # Only the one that stays for the report costs more than its reading.
    tasks = honest.host_tasks["Check the nodes"]
    assert [name for name, started in tasks.items() if len(started) > 1] == [HONEST[0]]
    alone = json.loads(report.read_text())["nodes"]
    kinds = {}
    for (number, kind), turn in itertools.product(enumerate(lies.KINDS), range(3)):
        kinds["l%d-%d" % (number, turn)] = kind
        hostile.add_liar("l%d-%d" % (number, turn), [kind], turn=2 * turn)
    result = hostile.run("precheck", gpu_health_expect=readings.EXPECT)
    assert result.rc == 2
    found = json.loads(report.read_text())["nodes"]
    assert set(found) == set(hostile.names) and set(hostile.lied()) == {"gpu_health"}
    assert {name: timeless(found[name]) for name in HONEST} == timeless(alone)
    passed = [name for name in kinds if found[name]["verdict"] == "pass"]
    assert [name for name in passed if kinds[name] not in BESIDE] == []
    # ansible-core 2.18 says in two lines that it got no JSON.
    assert all(found[name]["message"].replace("\n", "").isprintable() for name in kinds)
    hostile.assert_untouched()


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory, modules):
    """The outcome of an upgrade of honest nodes alone."""
    fleet = Hostile(tmp_path_factory.mktemp("honest"), modules)
    upgrade(fleet)
    return outcomes(fleet, "upgrade-" + NEW)


def upgrade(fleet):
    given = fleet.install_for_real()
    for name in HONEST:
        fleet.add(name)
    return fleet.run(
        "upgrade",
        gpu_health_expect=readings.EXPECT,
        rollout_canaries=[HONEST[0]],
        rollout_common_cause=0,
        rollout_failure_budget=99,
        rollout_max_down=20,
        **given,
    )


@pytest.mark.parametrize("first", [0, 5, 11])
def test_upgrade_names_liars_and_takes_others_as_without_them(hostile, upgraded, first):
    """Each liar is one of a module; its lies begin with another kind than those of the module before."""
    for number, module in enumerate(MODULES):
        begin, name = (first + number) % len(lies.KINDS), "l-" + module.replace("_", "-")
        more = {"answers": failing(name)} if module in OF_FAILURE else {}
        kinds = [kind for kind in lies.KINDS[begin:] + lies.KINDS[:begin] if module != "shell" or kind in lies.SHELL]
        hostile.add_liar(name, kinds, [module], turn=first + number, **more)
    result = upgrade(hostile)
    assert outcomes(hostile, "upgrade-" + NEW) == upgraded
    assert hostile.lied() == set(MODULES)
    for name in hostile.liars():
        node = result.report["nodes"][name]
        assert node["state"] in ("done", "failed", "lost", "rolled_back", "quarantined"), (name, node)
        assert (node["state"] == "done") == (node["reason"] == "") and node["reason"].isprintable(), (name, node)
    hostile.assert_untouched()


def test_mig_rollout_names_liars_and_lays_others_out_as_without_them(hostile, tmp_path_factory, modules):
    given = dict(WANTED, rollout_canaries=[HONEST[0]], rollout_common_cause=0, rollout_max_down=20)
    alone = Hostile(tmp_path_factory.mktemp("honest"), modules)
    for fleet in (alone, hostile):
        for name in HONEST:
            fleet.add(name)
    for number, kind in enumerate(lies.KINDS):
        hostile.add_liar("l%d" % number, [kind], ["gpu_mig"], turn=number)
    alone.run("mig", gpu_health_expect=readings.EXPECT, **given)
    result = hostile.run("mig", gpu_health_expect=readings.EXPECT, **given)
    assert outcomes(hostile, "mig-halves") == outcomes(alone, "mig-halves")
    assert hostile.lied() == {"gpu_mig"}
    assert all(name in result.output for name in hostile.liars())
    hostile.assert_untouched()


def test_quarantine_and_prestage_name_liars_and_keep_records_of_others(hostile):
    for name in HONEST:
        hostile.add(name)
    for number, kind in enumerate(lies.KINDS):
        hostile.add_liar("l%d" % number, [kind], turn=number)
    for name in hostile.names:
        keep_baseline(hostile, name)
    given = hostile.install_for_real()
    staged = hostile.run("prestage", **given)
    assert [hostile.read(name)["downloaded"] for name in HONEST] == [NEW, NEW]
    closed = hostile.run("quarantine", quarantine_hosts="gpu_nodes", quarantine_reason="XID 79", quarantine_user="kim")
    for result in (staged, closed):
        assert result.rc != 0 and all(name in result.output for name in hostile.liars())
    for name in HONEST:
        (record,) = records(hostile, name)
        assert (record["node"], record["reason"], record["user"]) == (name, "XID 79", "kim")
        assert marker(hostile, name)["record"]
    kept = {path.name for path in (hostile.artifacts / "quarantine").iterdir()}
    assert kept <= set(hostile.names)
    hostile.assert_untouched()
