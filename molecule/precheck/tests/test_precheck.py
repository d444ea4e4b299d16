# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look before a maintenance, run as an operator would: what it leaves on the machines, what it says, and what it
fails for.
"""

from __future__ import annotations

import json
import stat
from xml.etree import ElementTree

import pytest

from tests.lab.play import play
from tests.lab.scenario import INVENTORY, machine, unchanged_but

DRIVER = "535.216.03"
# Looked at with a driver, without any, and not there at all: an address of the lab's own network that no machine has.
GOOD, BARE, GONE = "pre-1", "pre-2", "pre-9"
TASKS = 3
# The binding of NVML in a directory named by its digest, its bytecode, and the directories on the way to them.
CACHE = r"/root/\.ansible(/tmp(/gpufleet-0(/[0-9a-f]{64}(/pynvml\.(py|[\w.-]+\.pyc))?)?)?)?"
# What is in memory and not a service's: where a module might leave something.
VOLATILE = """find /tmp /dev/shm /var/tmp -mindepth 1 -not -path '*/systemd-private-*' -printf '%p %y %m %u\\n' | sort
ls /run | grep -i -e gpufleet -e ansible; true"""


class Looked:
    """One run: its outcome, what was reported, and the tasks that were started on each host."""

    def __init__(self, directory, **variables):
        self.directory = directory
        self.started = {}
        check = variables.pop("check", False)
        limit = variables.pop("limit", None)
        inventory = directory / "gone.yml"
        inventory.write_text("precheck: {hosts: {%s: {lab_address: 249, ansible_ssh_timeout: 3}}}\n" % GONE)
        self.outcome = play(
            "gpufleet.lifecycle.precheck",
            [INVENTORY, inventory],
            {"precheck_hosts": "precheck", "gpufleet_artifact_dir": str(directory), **variables},
            limit=limit,
            check=check,
            on_event=self.count,
        )
        self.reports = directory / "precheck"

    def count(self, data):
        if data["event"] == "runner_on_start":
            self.started.setdefault(data["event_data"]["host"], []).append(data["event_data"]["task"])

    @property
    def report(self):
        return json.loads((self.reports / "report.json").read_text())

    @property
    def nodes(self):
        return {name: (node["verdict"], node["state"]) for name, node in self.report["nodes"].items()}


@pytest.fixture(scope="module")
def good():
    return machine(GOOD)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first run ever on these machines, with their disks compared."""
    machines = [machine(GOOD), machine(BARE)]
    volatile = [host.check_output(VOLATILE) for host in machines]
    with unchanged_but(*machines, allowed=[CACHE]) as changes:
        run = Looked(tmp_path_factory.mktemp("first"), precheck_expected_driver_version=DRIVER)
    run.changes = changes
    assert [host.check_output(VOLATILE) for host in machines] == volatile
    return run


def test_it_leaves_nothing_but_the_cached_binding(first):
    for name, paths in first.changes.items():
        assert "/root/.ansible/tmp/gpufleet-0" in paths and any(path.endswith("/pynvml.py") for path in paths), (
            name + ": the comparison was to see the cache"
        )
    assert not any(first.outcome.changed.values())


def test_every_node_is_in_the_report_and_the_bad_ones_fail(first):
    assert first.nodes == {GOOD: ("pass", "judged"), BARE: ("fail", "judged"), GONE: ("unknown", "unreachable")}
    assert list(first.report)[:2] == ["verdict", "schema"]
    assert (first.report["verdict"], first.report["schema"]) == ("fail", "gpufleet.precheck/1")
    assert first.outcome.rc == 2
    assert sorted(first.outcome.failed) == [BARE, GONE]
    assert "NVML did not start" in first.report["nodes"][BARE]["worst"]["message"]


def test_at_most_three_tasks_were_started_on_each_node(first):
    assert {GOOD, BARE, GONE} <= set(first.started)
    # The look at the variables, the comparison of the nodes and the copy of the report are done once for all of them,
    # on the first one.
    once = (
        "Check the variables",
        "Compare the nodes with each other",
        "Keep the report where it outlives the controller",
    )
    started = {name: [task for task in tasks if task not in once] for name, tasks in first.started.items()}
    assert sum(len(tasks) for tasks in first.started.values()) - sum(len(tasks) for tasks in started.values()) == 3
    assert max(len(tasks) for tasks in started.values()) == TASKS


def test_the_run_ends_with_a_table_and_the_reports_are_whole(first):
    end = first.outcome.output[first.outcome.output.index("TASK [Write the report about all nodes]") :]
    for name, verdict in ((GOOD, "pass"), (BARE, "fail"), (GONE, "unreachable")):
        assert any(line.split()[:2] == [name, verdict] for line in end.splitlines() if line.strip())
    assert sorted(path.name for path in first.reports.iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
        "report.md",
    ]
    for path in first.reports.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert str(path) in end
    suites = {suite.get("name"): suite for suite in ElementTree.parse(str(first.reports / "junit.xml")).getroot()}
    assert sorted(suites) == [GOOD, BARE, GONE]
    assert (suites[GOOD].get("failures"), suites[GOOD].get("errors")) == ("0", "0")
    assert int(suites[GOOD].get("tests")) > 20
    page = (first.reports / "report.html").read_text()
    for text in (GOOD, BARE, GONE, "LIBRARY_NOT_FOUND", DRIVER):
        assert text in page
    serials = {gpu["serial"] for gpu in first.report["nodes"][GOOD]["gpus"]}
    assert len(serials) == 4


def test_a_healthy_node_alone_passes_also_in_check_mode(tmp_path, good):
    with unchanged_but(good, allowed=[CACHE]):
        run = Looked(tmp_path, limit=GOOD, check=True)
    assert (run.outcome.rc, run.nodes) == (0, {GOOD: ("pass", "judged")}), run.outcome.tail()
    assert set(run.started) == {GOOD}


def test_no_node_that_answers_still_leaves_a_report(tmp_path):
    run = Looked(tmp_path, limit=GONE)
    assert run.outcome.rc != 0
    assert (run.report["verdict"], run.nodes) == ("unknown", {GONE: ("unknown", "unreachable")})
    assert Looked(tmp_path, limit=GONE, gpu_health_fail_on=["fail"]).outcome.rc != 0, (
        "accepting unknown accepts no node that is not there"
    )


def test_another_driver_than_the_expected_one_fails(tmp_path):
    run = Looked(tmp_path, limit=GOOD, precheck_expected_driver_version="535.261.03")
    assert (run.outcome.rc, run.nodes[GOOD][0]) == (2, "fail")
    assert "535.261.03" in run.outcome.why(GOOD)


def test_a_waived_check_passes_and_is_shown_with_its_end(tmp_path, good):
    found = Looked(tmp_path, limit=GOOD, precheck_expected_driver_version="535.261.03").report["nodes"][GOOD][
        "findings"
    ]
    waivers = [
        {"check": check, "reason": "the upgrade is on Monday", "expires": "2099-12-31"}
        for check in sorted({entry["id"] for entry in found if entry["status"] == "fail"})
    ]
    run = Looked(tmp_path, limit=GOOD, precheck_expected_driver_version="535.261.03", gpu_health_waivers=waivers)
    assert (run.outcome.rc, run.nodes[GOOD][0]) == (0, "pass"), run.outcome.tail()
    for name in ("report.html", "report.md"):
        assert "2099-12-31" in (run.reports / name).read_text()
        assert "the upgrade is on Monday" in (run.reports / name).read_text()
    old = [dict(waiver, expires="2020-01-01") for waiver in waivers]
    assert (
        Looked(tmp_path, limit=GOOD, precheck_expected_driver_version="535.261.03", gpu_health_waivers=old).outcome.rc
        == 2
    )


def test_each_node_is_compared_with_its_own_baseline_where_one_is_kept(tmp_path, good):
    kept = tmp_path / "kept"
    kept.mkdir()

    def keep(data):
        result = data.get("event_data", {}).get("res") or {}
        if data["event"] == "runner_on_ok" and "baseline" in result:
            (kept / (GOOD + ".json")).write_text(json.dumps(result["baseline"]))

    tasks = [{"gpufleet.lifecycle.gpu_health": {"phase": "baseline", "expect": "{{ gpu_health_expect }}"}}]
    taken = play([{"hosts": GOOD, "gather_facts": False, "become": True, "tasks": tasks}], INVENTORY, on_event=keep)
    assert taken.rc == 0, taken.tail()
    run = Looked(tmp_path, limit="%s,%s" % (GOOD, BARE), precheck_baseline_dir=str(kept))
    assert {name: node["compared"] for name, node in run.report["nodes"].items()} == {GOOD: True, BARE: False}
    assert run.nodes[GOOD][0] == "pass"
    (kept / (GOOD + ".json")).write_text('{"schema": "gpufleet.baseline/1",\n "node": }')
    # A directory of its own: the report of more nodes stays as it is.
    (tmp_path / "broken").mkdir()
    broken = Looked(tmp_path / "broken", limit=GOOD, precheck_baseline_dir=str(kept))
    assert (broken.outcome.rc, broken.nodes[GOOD]) == (2, ("unknown", "failed"))
    assert str(kept / (GOOD + ".json")) in broken.outcome.why(GOOD)


def test_a_policy_that_cannot_be_followed_passes_no_node(tmp_path):
    run = Looked(tmp_path, limit=GOOD, gpu_health_policy={"no_such_limit": 1})
    assert (run.outcome.rc, run.nodes[GOOD]) == (2, ("unknown", "failed"))
    assert "no_such_limit" in run.outcome.why(GOOD)


def test_a_lost_gpu_is_named_with_its_place(tmp_path, good):
    address = (
        good.check_output("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader").splitlines()[1].strip().lower()
    )
    good.run_expect([0], "gpusim inject gpu-lost --gpu 1")
    try:
        run = Looked(tmp_path, limit=GOOD)
        assert (run.outcome.rc, run.nodes[GOOD][0]) == (2, "fail")
        assert address[4:] in (run.reports / "report.html").read_text()
        assert address[4:] in (run.reports / "report.md").read_text()
    finally:
        good.run_expect([0], "gpusim clear")
    remembered = Looked(tmp_path, limit=GOOD)
    assert remembered.nodes[GOOD][0] == "fail", "the kernel's log says what has happened"
    back = play(
        [{"hosts": GOOD, "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.reboot": {}}]}], INVENTORY
    )
    assert back.rc == 0, back.tail()
    assert Looked(tmp_path, limit=GOOD).nodes[GOOD][0] == "pass"
