# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a sick GPU to a message: faults of simulated GPUs, series, rules, routes, and what Alertmanager notified.

Prometheus, Alertmanager, node_exporter and ipmi_exporter are Debian's, with what the playbook monitoring wrote for
them. dcgm-exporter and the BMC are stand-ins, GPUs are simulated, the nodes of the rack are addresses of one machine.
Series are written and scraped more often than in a fleet (inventory, group chain); what alerts and notifications wait
for is as the product has it. The cases build on each other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.parse

import pytest
import yaml

from tests.lab import scenario, slurm
from tests.lab.config import CHECKOUT
from tests.lab.play import environment, play
from tests.lab.scenario import INVENTORY, wait_for

NODES = ("chain-1", "chain-2", "chain-3")
RACK = ["chain-r-%d" % number for number in range(1, 9)]
ALONE = "chain-alone"
SLURM = {"gpu_scheduler_backends": ["slurm"], "gpu_scheduler_slurm_host": "chain-m", "gpu_scheduler_poll": 1}
TICK = "systemctl start gpufleet-textfile.service"
# On which node, what is done to it, and the alerts that follow, each with its GPU.
FAULTS = [
    ("chain-1", "gpusim inject xid 54 --gpu 0", {("GpuXidHold", "0")}),
    ("chain-1", "gpusim inject hw-thermal --gpu 0", {("GpuThrottledThermal", "0")}),
    ("chain-1", "gpusim inject remap-pending --gpu 0", {("GpuRowRemapPending", "0"), ("GpuXidSuspicious", "0")}),
    ("chain-1", "gpusim inject ecc-uncorrectable --gpu 1", {("GpuEccUncorrectable", "1"), ("GpuXidReset", "1")}),
    ("chain-1", "gpusim inject xid 151 --gpu 1", {("GpuXidReboot", "1")}),
    ("chain-1", "gpusim inject nvlink-errors --gpu 1", {("GpuNvlinkErrors", "1")}),
    ("chain-1", "gpusim inject xid 31 --gpu 2", {("GpuXidApplication", "2")}),
    ("chain-1", "gpusim inject pcie-replay --gpu 2", {("GpuPcieReplays", "2")}),
    ("chain-1", "gpusim inject power-brake --gpu 2", {("GpuPowerBrake", "2")}),
    ("chain-1", "gpusim inject gpu-hot --gpu 3", {("GpuHot", "3")}),
    ("chain-1", "gpusim inject remap-failed --gpu 3", {("GpuRowRemapFailed", "3"), ("GpuXidReset", "3")}),
    ("chain-2", "gpusim inject gpu-missing --gpu 3", {("GpuMissing", "")}),
    ("chain-2", "systemctl stop dcgm_standin", {("ExporterDown", "")}),
    ("chain-m", "sed -i '/Fan 2/s/Nominal/Critical/' /srv/sensors.csv", {("NodeFanFailed", "")}),
    ("chain-m", "sed -i '/PSU 1/s/Nominal/Critical/' /srv/sensors.csv", {("NodePsuFailed", "")}),
]
LOSE = "ip -brief address show dev host0 | grep -o '[0-9.]*\\.20[1-9]/24' | xargs -I@ ip address del @ dev host0"
NEW = "535.261.03"  # a stub, and newer than what the machines have
ROLLOUT = (
    "ansible-playbook -i inventory gpufleet.lifecycle.upgrade -e upgrade_hosts=NODE -e rollout_version=%s "
    "-e nvidia_driver_tree_dir="
) % NEW
# The node of whose BMC chain-m tells.
BMC_OF = {"chain-m": "chain-2"}
# Told to no one, since no receiver is set for it.
INFO = {"GpuXidApplication"}


@pytest.fixture(scope="module")
def machines():
    return {name: scenario.machine(name) for name in (*NODES, "chain-r", "chain-m")}


def ask(host, port, path):
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:%d%s').read().decode())" % (port, path)
    return json.loads(host.check_output("python3 -c %s", script))


def query(host, expression):
    return ask(host, 9090, "/api/v1/query?query=" + urllib.parse.quote(expression))["data"]["result"]


def read_alerts(host, state="firing"):
    """The alerts of Prometheus in a state: (node or rack, alert, GPU)."""
    found = [one["labels"] for one in ask(host, 9090, "/api/v1/alerts")["data"]["alerts"] if one["state"] == state]
    return {(one.get("node") or one.get("rack", ""), one["alertname"], one.get("gpu", "")) for one in found}


def read_nodes(host, node):
    """The alerts of a node."""
    return {one for one in read_alerts(host) if one[0] == node}


def read_rules(host):
    return [rule for group in ask(host, 9090, "/api/v1/rules?type=alert")["data"]["groups"] for rule in group["rules"]]


def wait_for_rules(host):
    """Wait until every rule has been evaluated on what was scraped by now."""
    now = host.check_output("date --utc +%FT%T")
    wait_for(lambda: all(rule["lastEvaluation"] > now for rule in read_rules(host)), "the rules are not evaluated")


def read_notifications(host):
    """What the receivers were sent."""
    return [json.loads(line) for line in host.check_output("cat /var/lib/notified.jsonl").splitlines()]


def list_told(host):
    """Each alert that was notified as firing: (receiver, node or rack, alert, GPU)."""
    return {
        (
            told["receiver"],
            one["labels"].get("node") or one["labels"].get("rack", ""),
            one["labels"]["alertname"],
            one["labels"].get("gpu", ""),
        )
        for told in read_notifications(host)
        for one in told["body"]["alerts"]
        if one["status"] == "firing"
    }


def read_page(name):
    """The commands of an alert on its page, as they are written, by the title of their block."""
    family = next(
        text
        for path in (CHECKOUT / "docs/runbooks/alerts").glob("*.md")
        for text in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)
        if text.startswith(name + "\n")
    )
    blocks = re.findall(r"^(\w+):\n\n```\n(.*?)^```", family, re.MULTILINE | re.DOTALL)
    return {title: [line.split("    #")[0] for line in text.splitlines()] for title, text in blocks}


def test_healthy_nodes_are_seen_and_nothing_is_told(host, machines):
    for machine in machines.values():
        if machine is not machines["chain-m"]:
            machine.run_expect([0], TICK)
    wanted = {(name, job) for name in (*NODES, *RACK, ALONE) for job in ("gpufleet-node", "gpufleet-dcgm")}
    wanted.add(("chain-2", "gpufleet-ipmi"))

    def scraped():
        return {(one["metric"]["node"], one["metric"]["job"]) for one in query(host, 'up{node!=""} == 1')}

    wait_for(lambda: scraped() == wanted, "not every target answers: %s" % (wanted ^ scraped()))
    assert {one["metric"]["node"] for one in query(host, "gpufleet_gpus_present == 4")} == {*NODES, *RACK, ALONE}
    assert read_alerts(host) == set() and read_alerts(host, "pending") == set()
    assert read_notifications(host) == []


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """run_page(command, node): start a command of a page as it is written, with the fleet's inventory and the node's
    name."""
    place = tmp_path_factory.mktemp("operator")
    owner = {"all": {"vars": {"gpufleet_artifact_dir": str(place)}}, "gpu_nodes": {"hosts": {"chain-3": SLURM}}}
    (place / "owner.yml").write_text(yaml.safe_dump(owner))

    def start(command, node):
        given = command.replace("-i inventory", "-i %s -i %s" % (INVENTORY, place / "owner.yml"))
        log = place / ("%d.log" % len(list(place.iterdir())))
        with log.open("w") as out:
            process = subprocess.Popen(
                ["sh", "-c", given.replace("NODE", node)],
                cwd=CHECKOUT,
                env={**os.environ, **environment()},
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        return scenario.Controller(process, log)

    return start


@pytest.fixture
def run_role():
    """run_role(entry): one entry point of role gpu_scheduler for chain-3, which has to end well."""

    def run(entry):
        role = {"name": "gpufleet.lifecycle.gpu_scheduler", "tasks_from": entry}
        tasks = [{"ansible.builtin.include_role": role, "vars": {**SLURM, "gpu_scheduler_token": "fan"}}]
        outcome = play([{"hosts": "chain-3", "become": True, "gather_facts": False, "tasks": tasks}], INVENTORY)
        assert outcome.rc == 0, outcome.tail()

    return run


def test_faults_are_injected_and_a_rack_is_lost(host, machines):
    # No series between two faults: an alert of another GPU of the node would be told an hour after the first.
    for name in {name for name, *dummy in FAULTS}:
        commands = " && ".join(command for where, command, dummy in FAULTS if where == name)
        paused = "systemctl stop gpufleet-textfile.timer; %s && systemctl start gpufleet-textfile.timer"
        machines[name].run_expect([0], commands if name == "chain-m" else paused % commands)
    machines["chain-r"].run_expect([0], LOSE)


def test_the_page_of_xid_79_brings_the_node_back_and_its_job_is_requeued(host, machines, run_page):
    node = machines["chain-3"]
    number = slurm.submit(host, "chain-3", "sleep 3600", "--gres=gpu:1", "--requeue")
    boot = scenario.boot_id(node)
    node.run_expect([0], "gpusim inject gpu-lost --gpu 1")
    told = ("page", "chain-3", "GpuFallenOffBus", "1")
    wait_for(lambda: told in list_told(host), "XID 79 was not told")
    recover, back = read_page("GpuFallenOffBus")["Repair"]
    going = run_page(recover, "chain-3")
    going.waits_for(lambda: "DRAIN" in slurm.state(host, "chain-3"), "the node is not drained", 600)
    requeue = re.search(r"`(scontrol requeue) JOB`", (CHECKOUT / "docs/runbooks/recovery.md").read_text()).group(1)
    host.run_expect([0], "%s %s" % (requeue, number))
    going.ends(1200)
    run_page(back, "chain-3").ends()
    assert scenario.boot_id(node) != boot
    wait_for(lambda: slurm.job(host, number) == "RUNNING", "the job does not run again: " + slurm.job(host, number))
    host.run_expect([0], "scancel " + number)
    write_series(host, node)
    assert read_nodes(host, "chain-3") == set()
    assert {one for one in list_told(host) if one[1] == "chain-3"} == {told}


def test_each_fault_fires_its_alerts_and_no_other(host):
    wanted = {(BMC_OF.get(name, name), *alert) for name, dummy, alerts in FAULTS for alert in alerts}
    wanted |= {("r2", "RackLost", ""), *((name, "NodeUnreachable", "") for name in (*RACK, ALONE))}
    wait_for(lambda: read_alerts(host) >= wanted, "not every alert fires: %s" % (wanted - read_alerts(host)))
    assert read_alerts(host) == wanted


def test_each_is_told_to_the_receiver_of_its_severity_and_a_lost_rack_once(host):
    severities = {rule["name"]: rule["labels"]["severity"] for rule in read_rules(host)}
    wanted = {(severities[alert], node, alert, gpu) for node, alert, gpu in read_alerts(host) if alert not in INFO}
    wanted -= {("page", name, "NodeUnreachable", "") for name in RACK}
    wanted.add(("page", "chain-3", "GpuFallenOffBus", "1"))
    wait_for(lambda: list_told(host) >= wanted, "not every alert is told: %s" % (wanted - list_told(host)))
    assert list_told(host) == wanted
    lost = [told for told in read_notifications(host) if told["body"]["groupLabels"].get("rack") == "r2"]
    assert len(lost) == 1 and [one["labels"]["alertname"] for one in lost[0]["body"]["alerts"]] == ["RackLost"]


def list_passing(host, node):
    """The alerts of a node without those that come and go, which stay for an hour and are not told again."""
    kept = {rule["name"] for rule in read_rules(host) if rule.get("keepFiringFor")}
    return {one for one in read_nodes(host, node) if one[1] not in kept}


def wait_for_silence(host, node):
    wait_for(lambda: not list_passing(host, node), "%s is not silent: %s" % (node, list_passing(host, node)))


def write_series(host, node):
    """Have a node write its series, and wait until the rules have been evaluated on them."""
    since = int(node.check_output("date +%s"))
    node.run_expect([0], TICK)
    seen = 'gpufleet_textfile_timestamp_seconds{node="%s"} >= %d' % (node.backend.host.name, since)
    wait_for(lambda: query(host, seen), "the series are not scraped")
    # Alerts read what was recorded before.
    wait_for_rules(host)
    wait_for_rules(host)


def log_xid(host, node, code, gpu):
    node.run_expect([0], "gpusim inject xid %d --gpu %d" % (code, gpu))
    write_series(host, node)


def test_a_node_in_quarantine_is_silent_whatever_happens_to_it(host, machines, run_page):
    run_page(read_page("GpuXidHold")["Repair"][0], "chain-1").ends(1200)
    write_series(host, machines["chain-1"])
    wait_for_silence(host, "chain-1")
    before = list_told(host)
    log_xid(host, machines["chain-1"], 79, 2)
    assert query(host, 'gpufleet_xid_code_total{node="chain-1",gpu="2"} == 1')
    assert (list_passing(host, "chain-1"), list_told(host)) == (set(), before)


def test_a_drained_node_is_silent_until_it_serves_again(host, machines, run_role):
    node = machines["chain-3"]
    run_role("drain")
    write_series(host, node)
    log_xid(host, node, 62, 0)
    assert read_nodes(host, "chain-3") == set()
    run_role("resume")
    write_series(host, node)
    assert read_nodes(host, "chain-3") == set(), "what was logged while it was drained is no news"
    log_xid(host, node, 62, 0)
    wait_for(lambda: read_nodes(host, "chain-3") == {("chain-3", "GpuXidReset", "0")}, "a new XID is not heard")


def test_a_rollout_is_silent_with_its_reboot(host, machines, run_page):
    node = machines["chain-2"]
    node.run_expect([0], "gpusim clear; systemctl start dcgm_standin; " + TICK)
    machines["chain-m"].run_expect([0], "sed -i s/Critical/Nominal/ /srv/sensors.csv")
    gone = {("chain-2", "GpuMissing", "")}
    wait_for(lambda: not gone & read_nodes(host, "chain-2"), "what was repaired is heard")
    boot, before = scenario.boot_id(node), list_told(host)
    run_page(ROLLOUT, "chain-2").ends(2400)
    assert scenario.boot_id(node) != boot and NEW in node.check_output("nvidia-smi")
    write_series(host, node)
    assert list_passing(host, "chain-2") == set() and list_told(host) == before
