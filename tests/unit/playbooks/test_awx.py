# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every wrapper of awx/project as a job that ansible-runner sends to a worker, on stand-in nodes; no AWX takes part."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger
from ansible_collections.gpufleet.lifecycle.tests.unit.awx import data
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import awxrunner, collection, test_quarantine
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import NEW, OLD, Fleet
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._capacity import standin

ROLLOUT = "upgrade-" + NEW
# What the other playbooks have beside an upgrade.
MORE = (
    "playbooks",
    "roles/gpu_monitoring",
    "plugins/action/health_report.py",
    "plugins/modules/health_report.py",
    "plugins/module_utils/_health",
    "plugins/action/capacity_report.py",
    "plugins/modules/capacity_report.py",
)


@pytest.fixture(scope="module")
def url(postgresql):
    return postgresql.database("awx%d" % time.monotonic_ns())


@pytest.fixture(scope="module")
def awx(tmp_path_factory, modules):
    place = tmp_path_factory.mktemp("collections")
    collection.make(collection.place(place), MORE)
    fleet = Fleet(tmp_path_factory.mktemp("awx"), modules, place)
    for name in ("a1", "a2"):
        fleet.add(name, holds={}, gpus=[name + "-GPU-0", name + "-GPU-1"])
    return awxrunner.Awx(fleet, data.AWX / "project", data.named("controller_templates"))


def drivers(fleet):
    return [fleet.read(name)["loaded"] for name in fleet.names]


@pytest.fixture(scope="module")
def jobs(awx, url):
    """The jobs of the workflow, and those around it, one after the other on the same nodes."""
    found = {}

    def job(key, name, **more):
        found[key] = awx.run("gpufleet " + name, **more)
        found[key].drivers = drivers(awx.fleet)

    job("no ledger", "plan", rollout_version=NEW)
    job("no store", "recover_gpu", recover_gpu_hosts="a1")
    awx.variables["rollout_ledger"] = url
    awx.variables["gpufleet_artifact_host"] = "store"
    job("precheck", "precheck", precheck_expected_driver_version=OLD)
    job("plan", "plan", rollout_version=NEW)
    job(
        "another plan",
        "upgrade",
        rollout_version=NEW,
        artifacts=dict(found["plan"].artifacts, rollout_approve="0" * 64),
    )
    job("check", "approval check", artifacts=found["plan"].artifacts)
    job("upgrade", "upgrade", rollout_version=NEW, artifacts=found["plan"].artifacts)
    job("report", "report", artifacts=found["plan"].artifacts)
    job("plan of nothing", "plan", rollout_version=NEW)
    job("check of nothing", "approval check", artifacts=found["plan of nothing"].artifacts)
    job("report of nothing", "report", artifacts=found["plan of nothing"].artifacts)
    job("status", "rollout_control")
    job("holds", "holds")
    job("prestage", "prestage", rollout_version=NEW)
    job("rollback", "rollback", rollback_hosts="a1", rollback_of=ROLLOUT)
    job("mig", "mig")
    job("bringup", "bringup", nvidia_driver_version="9.9.9")
    for name in awx.fleet.names:
        test_quarantine.keep_baseline(awx.fleet, name, gpus=[name + "-GPU-0", name + "-GPU-1"])
    job("quarantine", "quarantine", quarantine_hosts="a2", quarantine_reason=test_quarantine.REASON)
    found["quarantine"].marker = test_quarantine.marker(awx.fleet, "a2")
    job("return", "return_to_service", return_to_service_hosts="a2")
    job("recover", "recover_gpu", recover_gpu_hosts="a1")
    for name in awx.fleet.names:
        gpus = awx.fleet.read(name)["gpus"]
        awx.fleet.change(name, power=dict.fromkeys(gpus, 500000), reasons={gpus[0]: 0x40} if name == "a1" else {})
    job("relief", "thermal_relief", thermal_relief_hosts="a1,a2", thermal_relief_percent=30.0, thermal_relief_hours=8)
    job("monitoring", "monitoring")
    with standin.serving(standin.Api(standin.Fleet())) as prometheus:
        price = {"capacity_price_gpu_hour": "2.10", "capacity_lead_days": 120}
        # What gpufleet_awx_prometheus_url of the settings becomes; no survey may choose it.
        awx.templates["gpufleet capacity"]["extra_vars"]["capacity_prometheus_url"] = prometheus
        job("capacity", "capacity", capacity_days=2, **price)
    # Last, since the next upgrade of this rollout has to join this plan.
    job("several", "plan for several controllers", rollout_version=NEW)
    return found


def test_in_a_job_a_ledger_in_a_file_is_refused_with_nothing_touched(jobs):
    """That files need a host as well is a row in the tests of rollout_plan."""
    job = jobs["no ledger"]
    assert (job.rc, job.drivers) == (2, [OLD, OLD]) and "rollout_ledger" in job.words and job.changed() == []
    assert job.artifacts == {}


def test_a_job_that_would_lose_the_evidence_of_what_it_destroys_is_refused_with_nothing_touched(jobs):
    job = jobs["no store"]
    assert (job.rc, job.changed(), job.drivers) == (2, [], [OLD, OLD])
    assert "gpufleet_artifact_host" in job.words and "AWX job" in job.words


def test_reports_are_on_the_artifact_host_when_the_container_is_gone(jobs, awx):
    """The host that keeps files has the directory of the jobs here."""
    place = awx.fleet.artifacts
    (looked,) = (place / "precheck").glob("*/report.json")
    assert sorted(json.loads(looked.read_text())["nodes"]) == ["a1", "a2"]
    told = json.loads((place / "reports" / ROLLOUT / "report.json").read_text())
    assert (told["rollout_id"], told["verdict"]) == (ROLLOUT, "complete")
    assert len(list((place / "capacity").glob("*/capacity.html"))) == 1


def test_a_precheck_looks_and_changes_nothing(jobs):
    job = jobs["precheck"]
    assert (job.rc, job.status) == (0, "successful") and job.changed() == []


def test_the_plan_hands_its_id_and_digest_on_and_changes_nothing(jobs, awx):
    job = jobs["plan"]
    assert job.rc == 0 and job.drivers == [OLD, OLD]
    assert job.artifacts["rollout_id"] == ROLLOUT and len(job.artifacts["rollout_approve"]) == 64
    table = job.artifacts["rollout_table"]
    assert table[0].startswith("Rollout %s" % ROLLOUT) and job.artifacts["rollout_approve"][:12] in table[0]
    assert [line.split(":")[0] for line in table if "driver %s -> %s" % (OLD, NEW) in line] == ["  1. a1", "  2. a2"]
    assert " ".join(" ".join(table).split()) in job.words, "it is the one that was printed"


def test_a_plan_that_was_not_approved_is_not_carried_out(jobs):
    job = jobs["another plan"]
    assert job.rc != 0 and job.drivers == [OLD, OLD] and "waits for approval" in job.words


def test_the_plan_that_was_approved_is_carried_out(jobs):
    job = jobs["upgrade"]
    assert (job.rc, job.drivers) == (0, [NEW, NEW])


def test_a_plan_that_leaves_no_node_ends_in_its_report_without_an_approval(jobs):
    assert (jobs["check"].rc, jobs["check of nothing"].rc, jobs["report of nothing"].rc) == (0, 2, 0)
    assert jobs["plan"].artifacts["rollout_nodes_left"] == 2 and jobs["plan"].artifacts["rollout_left_out"] == []
    assert jobs["plan of nothing"].artifacts["rollout_nodes_left"] == 0


def test_the_ledger_names_job_workflow_and_user(jobs, awx, url):
    plans = [
        event for event in ledger.Ledger(str(awx.fleet.artifacts), ROLLOUT, url).events() if event["event"] == "plan"
    ]
    # The last plan is the one for several controllers.
    assert [plan["job"]["template"] for plan in plans[-2:]] == [
        "gpufleet upgrade",
        "gpufleet plan for several controllers",
    ]
    for plan in plans[-2:]:
        assert (plan["job"]["user"], plan["job"]["workflow"]) == ("kim", "7")
        assert plan["job"]["workflow_name"] == "gpufleet driver upgrade" and plan["job"]["id"].isdigit()


def test_the_report_and_a_word_to_the_rollout_need_no_node(jobs):
    assert jobs["report"].rc == jobs["status"].rc == 0
    assert ROLLOUT in jobs["report"].words and "a2" in jobs["report"].words and "a2" in jobs["status"].words


def test_holds_and_prestage_end_well_and_leave_the_driver_that_runs(jobs):
    assert (jobs["holds"].rc, jobs["prestage"].rc) == (0, 0)
    assert jobs["prestage"].drivers == [NEW, NEW]


def test_a_rollback_takes_the_node_back_that_was_named(jobs):
    assert (jobs["rollback"].rc, jobs["rollback"].drivers) == (0, [OLD, NEW])


def test_a_layout_that_the_inventory_does_not_name_is_refused(jobs):
    """A whole rollout of one is in test_mig_rollout.py."""
    job = jobs["mig"]
    assert job.rc == 2 and job.drivers == [OLD, NEW] and "nvidia_mig_config" in job.words


def test_bringup_refuses_nodes_that_run_a_driver(jobs):
    """The stand-ins have no bare system; bringup as a whole runs on the lab's machines, not through a worker."""
    job = jobs["bringup"]
    assert job.rc == 2 and job.drivers == [OLD, NEW] and "9.9.9" in job.words


def test_a_node_goes_into_quarantine_and_comes_back(jobs, awx):
    """Who wanted it is AWX's user."""
    assert jobs["quarantine"].rc == 0 and jobs["quarantine"].marker["reason"] == test_quarantine.REASON
    assert jobs["quarantine"].marker["user"] == "kim"
    assert jobs["return"].rc == 0 and test_quarantine.marker(awx.fleet, "a2") is None


def test_a_healthy_node_is_not_recovered_and_no_prometheus_is_no_success(jobs):
    assert jobs["recover"].drivers == [OLD, NEW] and jobs["recover"].changed() == []
    assert jobs["monitoring"].rc == 2 and "gpu_monitoring" in jobs["monitoring"].words


def test_the_power_limit_of_the_gpu_that_is_too_hot_is_lowered(jobs, awx):
    assert jobs["relief"].rc == 0 and jobs["relief"].changed() == ["a1"]
    assert list(awx.fleet.read("a1")["power"].values()) == [350000, 500000]


def test_capacity_is_told_in_the_output_of_the_job(jobs):
    assert jobs["capacity"].rc == 0 and jobs["capacity"].changed() == []
    words = jobs["capacity"].words
    assert "no_lead_time" not in words and "unknown: " in words
    assert "1,209.60" in words, "what 576 hours of a GPU cost"


def test_a_plan_for_several_controllers_is_handed_on_and_changes_nothing(jobs, awx, url):
    job = jobs["several"]
    assert job.rc == 0 and job.changed() == [] and job.drivers == jobs["capacity"].drivers
    found = ledger.Ledger(str(awx.fleet.artifacts), ROLLOUT, url)
    assert {key: job.artifacts[key] for key in ("rollout_id", "rollout_approve")} == {
        "rollout_id": ROLLOUT,
        "rollout_approve": found.view().sha256,
    }
    assert set(job.artifacts) == {"rollout_id", "rollout_approve", *_variable_names.HANDED_ON}
    assert ROLLOUT in job.artifacts["rollout_table"][0]
    assert found.controllers()[0]["shared"] and found.controllers()[1:] == ([], [])


def test_every_template_was_run(jobs, awx):
    ran = {
        event["event_data"]["playbook"]
        for job in jobs.values()
        for event in job.events
        if event["event"] == "playbook_on_start"
    }
    assert ran == {entry["playbook"] for entry in awx.templates.values()}
