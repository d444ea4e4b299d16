# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timer of the node's own series as role gpu_health installs and removes it; systemctl runs the real program."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, notes
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node

pytestmark = pytest.mark.slow

UNITS = SERVICE, RESTART, TIMER, PATH = [
    "gpufleet-textfile" + kind for kind in (".service", "-restart.service", ".timer", ".path")
]
PROGRAM = [
    "plugins/action/node_program.py",
    "plugins/modules/node_program.py",
    "plugins/module_utils/_mig",
    "plugins/module_utils/_program",
]


@pytest.fixture(name="node")
def _node(healthy, tmp_path):
    node = simulated_node.SimulatedNode(tmp_path / "node", healthy().copy(tmp_path / "root"), ["gpu_health"], PROGRAM)
    units(node).mkdir()
    for unit in UNITS:
        node.unit(
            unit, "loaded", "inactive", "dead", "success", "disabled"
        )  # as systemd has them once the files are there
    starts(node)
    yield node
    node.close()


def starts(node):
    """What systemd does when the service starts: the command of the unit that was written."""
    hook = node.root / "on-start" / SERVICE
    hook.parent.mkdir(exist_ok=True)
    command = "$(sed -n 's/^ExecStart=//p' '%s')" % (units(node) / SERVICE)
    library = node.root / "usr/local/lib"
    hook.write_text(
        "exec env GPUSIM_ROOT='%s' LD_LIBRARY_PATH='%s' %s --lock-file '%s'\n"
        % (node.root, library, command, node.root / "lock")
    )


def units(node):
    return pathlib.Path(str(node.root)) / "systemd"


def play(node, *options, tasks_from="textfile", textfile=True, **variables):
    root = pathlib.Path(str(node.root))
    given = dict(
        __gpu_health_units=str(units(node)),
        __gpu_health_program=str(root / "lib/gpufleet-node.pyz"),
        __gpu_health_digests=str(root / "etc/gpufleet/gpu_health.sha256"),
        __gpu_health_python=sys.executable,
        gpu_node_upgrade_state_dir=str(root / "state"),
        gpu_health_textfile_directory=str(root / "node-exporter"),
        gpu_health_textfile=textfile,
        gpu_health_expect={"hardware": {"gpus": 2}},
    )
    return node.play("gpu_health", *options, tasks_from=tasks_from, **dict(given, **variables))


def series(node):
    return (node.root / "node-exporter/gpufleet.prom").read_text().splitlines()


def settings(path):
    """{name: value} of a unit; of a name that stands there more than once, all values."""
    found = {}
    for line in path.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, dummy, value = line.partition("=")
            found[name] = " ".join([found[name], value] if name in found else [value])
    return found


@pytest.mark.cores
def test_done_and_nothing_left_to_do(node):
    done = play(node)
    assert done.rc == 0, done.output
    assert {
        "gpufleet_nvml_answers 1",
        "gpufleet_gpus_present 2",
        "gpufleet_gpus_expected 2",
        "gpufleet_changed_files 0",
    } <= set(series(node))
    begun = [line for unit in (TIMER, PATH) for line in ("daemon-reload", "enable " + unit, "start " + unit)]
    assert node.log == [*begun, "start " + SERVICE]
    listed = (node.root / "etc/gpufleet/gpu_health.sha256").read_text()
    assert listed == "".join(
        "%s  %s\n" % (hashlib.sha256((units(node) / unit).read_bytes()).hexdigest(), units(node) / unit)
        for unit in UNITS
    )
    again = play(node)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_foreseen_as_the_variables_have_it_and_taken_away_again(node):
    chosen = {"gpu_health_textfile_interval": 120, "gpu_health_textfile_delay": 7, "gpu_health_textfile_timeout": 9}
    foreseen = play(node, "--check", **chosen)
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert foreseen.changed and list(units(node).iterdir()) == [] and node.log == []
    assert play(node, **chosen).rc == 0
    assert_units(node)
    timer = units(node) / TIMER
    timer.write_text(timer.read_text() + "# by hand\n")
    hook = ["sh", str(node.root / "on-start" / SERVICE)]
    assert subprocess.run(hook, check=False, stdin=subprocess.DEVNULL).returncode == 0
    assert "gpufleet_changed_files 1" in series(node), "a unit that somebody changed is told"

    gone = play(node, textfile=False)
    assert gone.rc == 0, gone.output
    for path in (
        *(units(node) / unit for unit in UNITS),
        node.root / "node-exporter/gpufleet.prom",
        node.root / "etc/gpufleet/gpu_health.sha256",
        node.root / "state/textfile.json",
    ):
        assert not path.exists(), path
    assert (node.root / "node-exporter").is_dir() and (node.root / "lib/gpufleet-node.pyz").exists(), "others use them"
    assert {"%s %s" % (verb, unit) for verb in ("disable", "stop") for unit in (TIMER, PATH)} <= set(node.log)
    again = play(node, textfile=False)
    assert (again.rc, again.changed) == (0, 0), again.output


def assert_units(node):
    service, timer = settings(units(node) / SERVICE), settings(units(node) / TIMER)
    assert {"nvidia-persistenced.service", "nvidia-fabricmanager.service", "gpufleet-mig.service"} <= set(
        service["After"].split()
    )
    assert service["Type"] == "oneshot" and not set(service) & {"Requires", "Wants", "RemainAfterExit", "WantedBy"}
    assert int(service["TimeoutStartSec"]) > 9 and service["KillMode"] == "process"
    assert " --timeout 9" in service["ExecStart"] and "--gpus 2" in service["ExecStart"]
    assert service["ExecStartPre"].endswith(str(node.root / "lib/gpufleet-node.pyz.sha256"))
    # It may write its file and what it counts, and nothing else; a driver that is not loaded stays so.
    assert service["ProtectSystem"] == "strict"
    writes = {path.lstrip("-") for path in service["ReadWritePaths"].split()}
    assert {path for path in writes if "dnf" not in path and "hawkey" not in path} == {
        str(node.root / "node-exporter"),
        str(node.root / "state"),
        "/run",
    }
    assert service["CapabilityBoundingSet"].startswith("~") and "CAP_SYS_MODULE" in service["CapabilityBoundingSet"]
    # With these it would read neither the driver's devices nor the kernel log nor its modules.
    assert not set(service) & {
        "PrivateDevices",
        "ProtectClock",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "DevicePolicy",
    }
    assert (timer["OnUnitActiveSec"], timer["RandomizedDelaySec"], timer["WantedBy"]) == ("120", "7", "timers.target")
    assert int(timer["OnBootSec"]) > 0
    # What puts the node out of service is told at once: it may reboot before the next run.
    path, state = settings(units(node) / PATH), str(node.root / "state")
    marks = {os.path.join(state, claim.NAME), *(notes.path_of(state, name) for name in ("drain", "quarantine"))}
    assert set(path["PathChanged"].split()) == marks
    assert (path["Unit"], path["WantedBy"]) == (RESTART, "paths.target")
    restart = settings(units(node) / RESTART)
    # What is under way may have read them before: systemd would not start it again.
    assert restart["ExecStart"].endswith(" --no-block restart " + SERVICE) and service["SuccessExitStatus"] == "SIGTERM"
    assert [one["StartLimitIntervalSec"] for one in (service, restart)] == ["0", "0"]


def test_a_service_that_leaves_no_series_fails_the_role(node):
    (node.root / "on-start" / SERVICE).write_text("exit 0\n")
    result = play(node)
    assert result.rc != 0 and "gpu-1" in result.words and "journalctl" in result.words, result.output


# Stands in for gpu_health: its verdict is the content of a file.
JUDGE = """
import json
import os
from ansible.module_utils.basic import AnsibleModule
names = ("phase", "baseline_file", "expected_driver_version", "policy_file")
module = AnsibleModule(supports_check_mode=True, argument_spec=dict(
    {name: dict(type="str") for name in names}, fail_on=dict(type="list", elements="str"), policy=dict(type="dict"),
    expect=dict(type="dict"), waivers=dict(type="list", elements="dict"), since=dict(type="dict"),
    full=dict(type="bool"), timeout_s=dict(type="int")))
health = json.load(open(%r))
with open(%r, "w") as stream:
    json.dump(module.params, stream)
result = dict(changed=False, health=health, baseline={}, msg=health["verdict"])
(module.fail_json if health["verdict"] in module.params["fail_on"] else module.exit_json)(**result)
"""


def judge(node, verdict, time):
    checks = [] if verdict == "pass" else [{"id": "gpu.xid", "entity": "node", "status": verdict}]
    (node.root / "judged.json").write_text(
        json.dumps({"schema": "gpufleet.health/1", "verdict": verdict, "time": time, "checks": checks})
    )
    path = collection.place(node.base / "collections") / "plugins/modules/gpu_health.py"
    path.unlink()
    path.write_text(JUDGE % (str(node.root / "judged.json"), str(node.root / "asked.json")))
    node.own_modules.append("gpu_health")


def test_the_role_keeps_its_verdict_whatever_it_is(node):
    judge(node, "fail", "2026-01-01T00:00:00Z")
    kept = node.root / "state/verdict.json"
    result = play(node, tasks_from="main")
    assert result.rc != 0 and json.loads(kept.read_text()) == json.loads((node.root / "judged.json").read_text()), (
        result.output
    )
    assert kept.stat().st_mode & 0o777 == 0o600
    assert play(node, tasks_from="main", gpu_health_fail_on=[]).rc == 0
    assert 'gpufleet_health_verdict{verdict="fail"} 1' in series(node)
    assert 'gpufleet_health_check_failed{check="gpu.xid"} 1' in series(node)
    judge(node, "pass", "2026-01-02T00:00:00Z")
    again = play(node, tasks_from="main")
    assert (again.rc, again.changed) == (0, 0), again.output
    assert 'gpufleet_health_verdict{verdict="pass"} 1' in series(node), "a reading is no change of the node"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"gpu_health_expect": {}}, {"mig_hidden": "all"}),
        ({"gpu_health_expect": {"mig_hidden": "none", "reboot": True}}, {"mig_hidden": "none", "reboot": True}),
        ({"gpu_health_expect": {"hardware": {"gpus": 8}}}, {"hardware": {"gpus": 8}, "mig_hidden": "all"}),
    ],
)
def test_a_node_in_mig_mode_is_judged_by_what_it_tells_unless_somebody_expects_more(node, given, expected):
    judge(node, "pass", "2026-01-01T00:00:00Z")
    result = play(node, tasks_from="main", **given)
    assert result.rc == 0, result.output
    assert json.loads((node.root / "asked.json").read_text())["expect"] == expected


@pytest.mark.parametrize(
    "given, hosts", [([], []), (["-e", "monitoring_textfile_hosts=gpu_nodes"], ["gpu-1", "gpu-2"])]
)
def test_the_playbook_monitoring_reaches_the_nodes_that_are_asked_for_alone(tmp_path, given, hosts):
    nodes = {
        "children": {"gpu_nodes": {"hosts": {"gpu-1": {}, "gpu-2": {}}}, "gpu_monitoring": {"hosts": {"prom": {}}}}
    }
    (tmp_path / "inventory.json").write_text(json.dumps({"all": nodes}))
    playbook = simulated_node.ROOT / "playbooks/monitoring.yml"
    collection.make(collection.place(tmp_path / "collections"), ["roles/gpu_monitoring"])
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"), ANSIBLE_HOME=str(tmp_path))
    words = ["-i", tmp_path / "inventory.json", playbook, "--list-hosts", *given]
    done = simulated_node.ansible_playbook(tmp_path, environment, *words)
    (own,) = [part for part in done.stdout.split("play #") if "Install the textfile metrics of the GPU nodes" in part]
    assert sorted(line.strip() for line in own.splitlines() if line.startswith("      ")) == hosts, done.stdout
