# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_monitoring with the real promtool, amtool and Prometheus; hosts of one run stand for several cases."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import sys

import pytest
import yaml

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import webserver
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring import servers
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node

# One ansible-core: what differs between them is in the plugins that the role asks, and in copy and uri.

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLAY = """
- hosts: prometheus
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: gpufleet.lifecycle.gpu_monitoring
        tasks_from: "{{ monitoring_tasks | default('main') }}"
"""
PLAYBOOK = "gpufleet.lifecycle.monitoring"
SECRET = "https://hooks.example/T0/B0/secret"
SCRAPE_SECRET = "s3cr3t-of-the-scrape"
SCRAPE = {"scheme": "https", "basic_auth": {"username": "prometheus", "password": SCRAPE_SECRET}}
RECEIVERS = [{"name": "pager", "webhook_configs": [{"url": SECRET}]}]


class Fleet:
    """A directory with an inventory, and the directories of the hosts in it."""

    def __init__(self, base):
        self.base = base
        self.hosts = {}
        (base / "play.yml").write_text(PLAY, encoding="utf-8")
        simulated_node.whole_collection(collection.place(base / "collections"))

    def host(self, name, **variables):
        place = self.base / name
        place.mkdir(exist_ok=True)
        self.hosts[name] = {
            "gpu_monitoring_config_dir": str(place / "gpufleet"),
            "gpu_monitoring_prometheus_service": "",
            "gpu_monitoring_alertmanager_service": "",
            "gpu_monitoring_retries": 1,
            "gpu_monitoring_delay": 0,
            **variables,
        }
        return place

    def run(self, *options, play=None):
        inventory = {
            "all": {
                "children": {
                    "prometheus": {"hosts": self.hosts},
                    "gpu_nodes": {
                        "children": {"rack_a1": {"hosts": {"gpu-1": {"ansible_host": "10.0.0.1"}, "gpu-2": {}}}}
                    },
                }
            }
        }
        (self.base / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        words = ["-i", self.base / "hosts.yml", "-c", simulated_node.CONNECTION, play or self.base / "play.yml"]
        words += ["-e", json.dumps({"ansible_python_interpreter": sys.executable}), *options]
        environ = simulated_node.environment(self.base, simulated_node.kept("gpu_monitoring"))
        done = simulated_node.ansible_playbook(self.base, environ, *words)
        output = done.stdout + done.stderr
        recap = {
            name: (int(changed), int(failed))
            for name, changed, failed in re.findall(
                r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=0 +failed=(\d+)", output, re.MULTILINE
            )
        }
        assert set(recap) - {"localhost"} == set(self.hosts), output
        return recap, re.sub(r"\s+", " ", output.replace("\\n", "\n"))


def files(place):
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Check mode, the first run, and the second run beside a Prometheus that has loaded what the first one wrote."""
    fleet = Fleet(tmp_path_factory.mktemp("monitoring"))
    one = fleet.base / "one"
    whole = {
        "gpu_monitoring_prometheus_config": str(one / "prometheus.yml"),
        "gpu_monitoring_alertmanager_config": str(one / "alertmanager.yml"),
        "gpu_monitoring_receivers": RECEIVERS,
        "gpu_monitoring_scrape_options": SCRAPE,
        "gpu_monitoring_receiver_page": "pager",
        "gpu_monitoring_receiver_ticket": "pager",
    }
    # Each file costs its modules in every run: these are written in one.
    once = {
        "gpu_monitoring_dashboard_dir": str(one / "dashboards"),
        "gpu_monitoring_manifest_dir": str(one / "manifests"),
    }
    fleet.host("one", **whole)
    checked = fleet.run("--check", "--diff", "-e", "monitoring_hosts=prometheus", play=PLAYBOOK) + (files(one),)
    fleet.host("one", **whole, **once)
    # What cannot be rendered, what promtool refuses, and a fleet that is not in the inventory.
    fleet.host("threshold", gpu_monitoring_thresholds={"no_such": 1})
    refused = fleet.host("scrape", gpu_monitoring_scrape_options={"no_such": 1, "sample_limit": SCRAPE_SECRET})
    (refused / "gpufleet").mkdir()
    (refused / "gpufleet/gpufleet.scrape.yml").write_text("old", encoding="utf-8")
    fleet.host("nodes", gpu_monitoring_nodes=["gpu-1", "gpu-9"])
    first = fleet.run("--diff", "-vvv") + ({name: files(fleet.base / name) for name in fleet.hosts},)
    empty = fleet.base / "empty.yml"
    empty.write_text("global: {}\n", encoding="utf-8")
    (fleet.base / "other").mkdir()
    with servers.prometheus(one / "prometheus.yml", one) as url, servers.prometheus(
        empty, fleet.base / "other"
    ) as other:
        before = files(one / "gpufleet")
        fleet.hosts.clear()
        fleet.host("one", gpu_monitoring_prometheus_url=url, **whole)
        fleet.host("elsewhere", gpu_monitoring_prometheus_url=other, monitoring_tasks="prove")
        second = fleet.run() + (before, files(one / "gpufleet"))
    with webserver.serving() as api:
        api.answer = lambda number: (200, b'{"data": {"groups": []}}', {"Content-Type": "application/json"})
        fleet.hosts.clear()
        address = api.url.replace("//", "//u:%s@" % SCRAPE_SECRET)
        fleet.host("behind", gpu_monitoring_prometheus_url=address, monitoring_tasks="prove")
        third = fleet.run("-vvv") + ([headers.get("Authorization") for dummy, headers, dummy2 in api.requests],)
    return checked, first, second, third


@pytest.mark.slow
def test_check_mode_says_what_would_be_and_writes_nothing(story):
    recap, output, there = story[0]
    changed, failed = recap["one"]
    assert changed > 5 and not failed and there == {}
    assert "+ - alert: GpuFallenOffBus" in output and SECRET not in output


def test_the_playbook_refuses_an_inventory_without_a_prometheus(tmp_path):
    recap, output = Fleet(tmp_path).run(play=PLAYBOOK)
    assert recap == {"localhost": (0, 1)} and "No host of the inventory matches gpu_monitoring" in output


@pytest.mark.slow
def test_the_files_are_there_and_hold_what_the_inventory_says(story):
    recap, output, there = story[1]
    changed, failed = recap["one"]
    mine = there["one"]
    assert changed > 5 and not failed
    assert {
        "gpufleet/gpufleet.rules.yml",
        "gpufleet/gpufleet.scrape.yml",
        "gpufleet/targets/node.yml",
        "gpufleet/targets/dcgm.yml",
        "gpufleet/targets/ipmi.yml",
        "prometheus.yml",
        "alertmanager.yml",
        "manifests/service_monitor.yml",
        "manifests/prometheus_rule.yml",
    } <= set(mine)
    assert yaml.safe_load(mine["gpufleet/targets/dcgm.yml"]) == [
        {"targets": ["10.0.0.1:9400"], "labels": {"node": "gpu-1", "rack": "a1"}},
        {"targets": ["gpu-2:9400"], "labels": {"node": "gpu-2", "rack": "a1"}},
    ]
    assert b"{{ $labels.node }}" in mine["gpufleet/gpufleet.rules.yml"] and SECRET.encode() in mine["alertmanager.yml"]
    assert SECRET not in output and "RackPowerNearLimit is left out" in output and "is not known" in output


@pytest.mark.slow
def test_password_of_the_scrape_is_in_its_files_and_in_no_output(story):
    """With -vvv Ansible prints what its callbacks, and with them AWX, get of each task at any verbosity."""
    dummy, output, there = story[1]
    assert [SCRAPE_SECRET.encode() in there["one"][name] for name in ("gpufleet/gpufleet.scrape.yml", "prometheus.yml")]
    assert SCRAPE_SECRET not in output and SCRAPE_SECRET not in story[0][1]
    assert SCRAPE_SECRET[:7] not in output, "promtool quotes the beginning of a value that it refuses"


@pytest.mark.slow
def test_user_and_password_of_prometheus_are_sent_and_in_no_output(story):
    dummy, output, requests = story[3]
    assert requests == ["Basic " + base64.b64encode(("u:" + SCRAPE_SECRET).encode()).decode()] * len(requests) != []
    assert SCRAPE_SECRET not in output


@pytest.mark.slow
def test_every_dashboard_is_there(story):
    names = {pathlib.PurePosixPath(name).name for name in story[1][2]["one"] if name.startswith("dashboards/")}
    assert names == {path.name for path in (ROOT / "roles/gpu_monitoring/files/dashboards").glob("*.json")}
    assert len(names) == 7


@pytest.mark.slow
@pytest.mark.parametrize("host, word", [("threshold", "no_such"), ("scrape", "failed to validate"), ("nodes", "gpu-9")])
def test_what_is_wrong_fails_for_its_host(story, host, word):
    recap, output, dummy = story[1]
    assert recap[host][1] == 1 and word in output


@pytest.mark.slow
def test_what_is_refused_leaves_the_old_files(story):
    there = story[1][2]
    assert there["threshold"] == {} and there["nodes"] == {}
    assert there["scrape"]["gpufleet/gpufleet.scrape.yml"] == b"old"


def test_every_configuration_is_checked_before_it_takes_its_place():
    tasks = [
        task
        for name in ("prometheus", "optional")
        for entry in yaml.safe_load((ROOT / "roles/gpu_monitoring/tasks" / (name + ".yml")).read_text(encoding="utf-8"))
        for task in entry.get("block", [entry])
    ]
    checked = {
        task["ansible.builtin.copy"]["dest"]: task["ansible.builtin.copy"].get("validate", "")
        for task in tasks
        if "ansible.builtin.copy" in task
    }
    assert {dest.strip("{} ") for dest, validate in checked.items() if validate.endswith("%s")} == {
        "gpu_monitoring_config_dir }}/gpufleet.rules.yml",
        "gpu_monitoring_config_dir }}/gpufleet.scrape.yml",
        "gpu_monitoring_prometheus_config",
        "gpu_monitoring_alertmanager_config",
    }


@pytest.mark.slow
def test_a_second_run_changes_nothing_and_proves_what_is_loaded(story):
    recap, output, before, after = story[2]
    assert recap["one"] == (0, 0) and before == after
    assert "dcgm-exporter: none of its series is there" in output


@pytest.mark.slow
def test_a_prometheus_without_the_rules_fails(story):
    recap, output, dummy, dummy_too = story[2]
    assert recap["elsewhere"][1] == 1 and "elsewhere: Prometheus at" in output
