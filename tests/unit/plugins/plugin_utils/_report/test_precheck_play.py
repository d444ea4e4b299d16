# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook precheck on stub nodes: what it fails for, what it reports, and how many tasks a node has."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import heads
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._report import samples

pytestmark = pytest.mark.cores

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[4]
TASKS = 2
# A host that is no node, such as one that keeps files.
OTHER = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


class Run:
    """One run and what it left."""

    def __init__(self, rc, output, results, reports):
        self.rc = rc
        self.output = output
        self.reports = reports
        started = results / "started.json"
        self.started = json.loads(started.read_text()) if started.exists() else {}
        self.arguments = {path.stem: json.loads(path.read_text()) for path in results.glob("*.args")}

    @property
    def report(self):
        return json.loads((self.reports / "report.json").read_text())

    @property
    def verdicts(self):
        return {name: node["verdict"] for name, node in self.report["nodes"].items()}


def player(base):
    """player(base)(results by node, *arguments, **variables): a run of the real playbook with a stub in place of
    gpu_health.
    """
    collection = base / "collections" / "ansible_collections" / "gpufleet" / "lifecycle"
    for name in (
        "galaxy.yml",
        "meta",
        "playbooks",
        "plugins/plugin_utils",
        "plugins/module_utils",
        "plugins/doc_fragments",
        "plugins/modules",
        "plugins/action/artifact_store.py",
        "plugins/action/health_report.py",
        "plugins/action/driver_audit.py",
        "plugins/action/playbook_variables.py",
        "plugins/filter",
    ):
        target = collection / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ROOT / name)
    for source in sorted((HERE / "stub").rglob("*.py")):
        target = collection / source.relative_to(HERE / "stub")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)

    def running(results, *arguments, others=(), **variables):
        answers = base / "results"
        answers.mkdir(exist_ok=True)
        for old in answers.iterdir():
            old.unlink()
        for name, result in results.items():
            (answers / (name + ".json")).write_text(json.dumps(result))
        hosts = {name: {"ansible_connection": "local", "ansible_become": False} for name in results}
        inventory = base / "inventory.json"
        inventory.write_text(
            json.dumps(
                {"all": {"hosts": {name: dict(OTHER) for name in others}, "children": {"gpu_nodes": {"hosts": hosts}}}}
            )
        )
        # Its main process looks for results every millisecond otherwise.
        (base / "ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.02\n")
        environment = {key: text for key, text in os.environ.items() if not key.startswith("ANSIBLE_")}
        environment.update(
            ANSIBLE_COLLECTIONS_PATH=str(base / "collections"),
            ANSIBLE_CONFIG=str(base / "ansible.cfg"),
            ANSIBLE_INJECT_FACT_VARS="false",
            ANSIBLE_NOCOLOR="true",
            ANSIBLE_LOCALHOST_WARNING="false",
            ANSIBLE_INVENTORY_UNPARSED_WARNING="false",
            ANSIBLE_CALLBACKS_ENABLED="gpufleet.lifecycle.host_tasks",
            GPUFLEET_STUB_RESULTS=str(answers),
            HOME=str(base),
            PYTHONDONTWRITEBYTECODE="1",
        )
        command = [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "-i",
            str(inventory),
            str(collection / "playbooks" / "precheck.yml"),
        ]
        for key, content in variables.items():
            command += ["-e", json.dumps({key: content})]
        done = subprocess.run(
            command + list(arguments),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=1800,
            check=False,
        )
        print(done.stdout)
        return Run(done.returncode, done.stdout, answers, base / ".gpufleet" / "precheck")

    return running


@pytest.fixture
def precheck(tmp_path):
    return player(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run over the whole fleet, beside a host that is no node; no test changes what it left."""
    return player(tmp_path_factory.mktemp("whole"))(fleet(), others=["cpu-1"])


def fleet():
    return {
        "gpu-a-1": samples.healthy("gpu-a-1"),
        "gpu-a-2": samples.broken(samples.healthy("gpu-a-2"), "gpu.pcie_width", observed=8, expected=16),
        "gpu-a-3": samples.broken(samples.healthy("gpu-a-3"), "gpu.row_remap", "unknown"),
        "gpu-a-4": samples.unreachable(),
        "gpu-a-5": samples.failed(),
    }


VERDICTS = {"gpu-a-1": "pass", "gpu-a-2": "fail", "gpu-a-3": "unknown", "gpu-a-4": "unknown", "gpu-a-5": "unknown"}


def test_every_node_is_in_the_report_and_the_bad_ones_fail(whole):
    run = whole
    assert run.rc == 2
    assert run.verdicts == VERDICTS
    assert list(run.report)[:2] == ["verdict", "schema"] and run.report["verdict"] == "fail"
    assert {name: node["state"] for name, node in run.report["nodes"].items() if node["state"] != "judged"} == {
        "gpu-a-4": "unreachable",
        "gpu-a-5": "failed",
    }
    assert run.report["failed_nodes"] == ["gpu-a-2", "gpu-a-3", "gpu-a-4", "gpu-a-5"]
    for name in run.report["failed_nodes"]:
        assert "[%s]: FAILED!" % name in run.output
    assert "[gpu-a-1]: FAILED!" not in run.output
    assert sorted(path.name for path in run.reports.iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
        "report.md",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in run.reports.iterdir()} == {0o600}


def test_the_run_ends_with_the_table_and_the_paths(whole):
    run = whole
    end = run.output[run.output.index("TASK [Write the report about all nodes]") : run.output.index("PLAY RECAP")]
    assert run.output.rindex("FAILED!") < run.output.index(end), "nothing stands between the table and the recap"
    for name, verdict in VERDICTS.items():
        row = next(line for line in end.splitlines() if line.startswith(name + " "))
        assert row.split()[1] == ("unreachable" if name == "gpu-a-4" else verdict)
    assert "FAIL: 1 fail, 3 unknown, 1 pass (1 unreachable, 1 failed) of 5 nodes" in end
    for name in ("report.html", "report.md", "report.json", "junit.xml"):
        assert str(run.reports / name) in end
    assert len(end.splitlines()) < 20


@pytest.mark.slow
@pytest.mark.parametrize("fits", [True, False], ids=["pass", "fail"])
def test_each_report_is_kept_on_the_artifact_host_also_of_a_fleet_that_fails(precheck, fits):
    found = {"gpu-a-1": samples.healthy("gpu-a-1")} if fits else {"gpu-a-2": fleet()["gpu-a-2"]}
    run = precheck(found, others=["keeper"], gpufleet_artifact_host="keeper", awx_job_id=42)
    assert run.rc == (0 if fits else 2)
    (kept,) = (path for path in run.reports.iterdir() if path.is_dir())
    files = [path.name for path in run.reports.iterdir() if path.is_file()]
    assert len(files) == 4
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        name: (run.reports / name).read_bytes() for name in files
    }
    assert "AWX job 42" not in run.output and "changed=1" not in run.output, "a look changes nothing"


def test_in_a_job_of_awx_that_forgets_the_report_the_verdict_counts_and_a_warning_says_so(precheck):
    run = precheck({"gpu-a-1": samples.healthy("gpu-a-1")}, awx_job_id=42)
    assert run.rc == 0 and run.report["verdict"] == "pass"
    words = " ".join(run.output.split())
    assert "AWX job 42" in words and "gpufleet_artifact_host" in words


@pytest.mark.slow
def test_an_artifact_host_that_is_away_changes_no_verdict(precheck):
    run = precheck({"gpu-a-1": samples.healthy("gpu-a-1")}, gpufleet_artifact_host="192.0.2.1", ansible_timeout=3)
    assert run.rc == 0 and run.report["verdict"] == "pass"
    assert "was not kept on the artifact host 192.0.2.1" in " ".join(run.output.split())


def test_a_node_that_hangs_fails_after_its_time_and_the_others_are_judged(precheck):
    nodes = {"gpu-a-%d" % number: samples.healthy("gpu-a-%d" % number) for number in (1, 2, 3)}
    nodes["gpu-a-2"] = dict(nodes["gpu-a-2"], hangs_s=1500)
    run = precheck(nodes, gpufleet_answer_timeout=10)
    assert run.rc == 2 and run.verdicts == {"gpu-a-1": "pass", "gpu-a-2": "unknown", "gpu-a-3": "pass"}
    assert run.report["failed_nodes"] == ["gpu-a-2"] and run.report["verdict"] != "pass"


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, ""])
def test_nothing_given_is_the_default_of_every_variable(precheck, whole, value):
    given = dict.fromkeys(heads.find_variables("precheck"), value)
    assert {"gpu_health_fail_on", "gpu_health_policy", "precheck_hosts", "gpufleet_answer_timeout"} <= set(given)
    run = precheck(fleet(), others=["cpu-1"], **given)
    assert (run.rc, run.verdicts, run.report["failed_nodes"]) == (2, VERDICTS, whole.report["failed_nodes"])


def test_at_most_three_tasks_a_node(whole):
    """Every task that is started on a host counts, whatever becomes of it."""
    run = whole
    assert {name for name in run.started if name.startswith("gpu")} == set(VERDICTS)
    counts = {name: len(tasks) for name, tasks in run.started.items()}
    # The first one has what is done once for all: the comparison of the nodes, the report, and its copy.
    assert counts.pop("gpu-a-1") == TASKS + 3 and max(counts.values()) <= TASKS
    assert [name for name, tasks in run.started.items() if "Write the report about all nodes" in tasks] == ["gpu-a-1"]


def test_a_healthy_fleet_passes_and_is_compared_with_the_version_of_the_inventory(precheck):
    nodes = {name: samples.healthy(name) for name in ("gpu-a-1", "gpu-a-2")}
    run = precheck(nodes, nvidia_driver_version="535.216.03", precheck_expected_driver_version=None)
    assert (run.rc, run.report["verdict"], run.report["failed_nodes"]) == (0, "pass", [])
    assert "changed=0" in run.output and "changed=1" not in run.output
    assert {given["expected_driver_version"] for given in run.arguments.values()} == {"535.216.03"}


@pytest.mark.slow
def test_cards_that_come_in_any_number_are_counted_against_other_nodes(precheck):
    """Three nodes tell each other how many there should be, and the one with fewer fails; one of another model stays
    unknown.
    """
    nodes = {
        "gpu-b-%d" % number: samples.uncounted("gpu-b-%d" % number, count)
        for number, count in ((1, 4), (2, 4), (3, 4), (4, 3))
    }
    nodes["gpu-c-1"] = samples.uncounted("gpu-c-1", 4, samples.L40S)
    run = precheck(nodes)
    assert run.verdicts == {
        "gpu-b-1": "pass",
        "gpu-b-2": "pass",
        "gpu-b-3": "pass",
        "gpu-b-4": "fail",
        "gpu-c-1": "unknown",
    }
    assert {name for name in nodes if "[%s]: FAILED!" % name in run.output} == {"gpu-b-4", "gpu-c-1"}
    assert [(one["id"], one["status"], one["source"]) for one in run.report["nodes"]["gpu-b-4"]["findings"]] == [
        ("node.hardware", "fail", "peers")
    ]
    assert run.report["nodes"]["gpu-b-4"]["counts"]["fail"] == 1


@pytest.mark.parametrize(
    "answer, verdict",
    [
        (lambda name: samples.unreachable(), "unknown"),
        pytest.param(lambda name: samples.failed(), "unknown", marks=pytest.mark.slow),
        pytest.param(lambda name: samples.broken(samples.healthy(name), "gpu.present"), "fail", marks=pytest.mark.slow),
    ],
    ids=["unreachable", "failed", "broken"],
)
def test_the_report_is_there_when_no_node_passes(precheck, answer, verdict):
    run = precheck({name: answer(name) for name in ("gpu-a-1", "gpu-a-2")})
    assert (run.rc, run.report["verdict"], set(run.verdicts.values())) == (2, verdict, {verdict})
    suites = ElementTree.parse(str(run.reports / "junit.xml")).getroot()
    assert {suite.get("failures" if verdict == "fail" else "errors") for suite in suites} == {"1"}


@pytest.mark.slow
def test_limit_looks_at_those_nodes_alone(precheck):
    run = precheck(fleet(), "--limit", "gpu-a-1")
    assert (run.rc, run.verdicts) == (0, {"gpu-a-1": "pass"})
    assert set(run.started) == {"gpu-a-1"}


@pytest.mark.slow
def test_a_limited_run_leaves_what_is_known_of_other_nodes_alone(precheck, whole, tmp_path):
    before = {path.name: path.read_bytes() for path in whole.reports.iterdir()}
    shutil.copytree(str(whole.reports), str(tmp_path / ".gpufleet" / "precheck"))
    run = precheck(fleet(), "--limit", "gpu-a-1")
    assert run.rc == 0 and {path.name: path.read_bytes() for path in run.reports.iterdir() if path.is_file()} == before
    own = run.reports / "limited"
    assert (
        set(json.loads((own / "report.json").read_text())["nodes"]) == {"gpu-a-1"}
        and str(own / "report.html") in run.output
    )
    assert "knows %d other nodes of the inventory" % (len(fleet()) - 1) in run.output
    assert set(precheck(fleet()).verdicts) == set(fleet()), "and the next whole run replaces it"


@pytest.mark.slow
def test_check_mode_and_one_fork_do_the_same(precheck, whole):
    page = (whole.reports / "report.md").read_text().splitlines()[4:]
    for arguments in (("--check",), ("--forks", "1")):
        run = precheck(fleet(), *arguments)
        assert (run.rc, run.verdicts) == (2, VERDICTS)
        assert (run.reports / "report.md").read_text().splitlines()[4:] == page
        shutil.rmtree(str(run.reports))


@pytest.mark.slow
def test_node_fails_with_the_finding_that_leads(precheck):
    result = samples.healthy("gpu-a-1")
    for index in range(8):
        result = samples.broken(
            result, "gpu.pcie_width", "unknown", entity=samples.uuid("gpu-a-1", index), message="Number %d." % index
        )
    result = samples.broken(result, "gpu.row_remap", message="The worst.")
    run = precheck({"gpu-a-1": result})
    assert "gpu-a-1: fail: The worst. Beside it: gpu.pcie_width." in run.output


@pytest.mark.slow
def test_the_options_arrive(precheck, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "gpu-a-1.json").write_text("{}")
    waivers = [{"check": "gpu.power_limit", "reason": "cooling", "expires": "2026-12-31"}]
    run = precheck(
        {name: samples.healthy(name) for name in ("gpu-a-1", "gpu-a-2")},
        precheck_expected_driver_version="535.1",
        precheck_baseline_dir=str(tmp_path / "kept"),
        precheck_report_dir=str(tmp_path / "elsewhere"),
        precheck_report_mode="0640",
        gpu_health_policy={"x": 1},
        gpu_health_policy_file="/p.json",
        gpu_health_waivers=waivers,
        gpu_health_timeout=7,
    )
    assert run.rc == 0
    given = run.arguments["gpu-a-1"]
    expected = {
        "phase": "adhoc",
        "expected_driver_version": "535.1",
        "baseline_file": str(tmp_path / "kept" / "gpu-a-1.json"),
        "policy": {"x": 1},
        "policy_file": "/p.json",
        "waivers": waivers,
        "fail_on": [],
    }
    assert {key: given[key] for key in expected} == expected and int(given["timeout_s"]) == 7
    assert "baseline_file" not in run.arguments["gpu-a-2"], "no baseline of it is kept"
    report = tmp_path / "elsewhere" / "report.html"
    assert stat.S_IMODE(report.stat().st_mode) == 0o640
    assert not run.reports.exists()


def test_what_only_a_comparison_of_nodes_shows_fails_the_run(precheck):
    """One machine has two names. Half of a board may be a partition of it, which only the other nodes show."""
    nodes = {
        "gpu-b-%d" % number: samples.healthy("gpu-b-%d" % number, count) for number, count in enumerate((8, 8, 8, 4))
    }
    nodes.update({"gpu-a-%d" % number: samples.healthy("gpu-a-1", name=samples.A100) for number in (1, 2)})
    run = precheck(nodes)
    assert run.rc == 2 and run.report["verdict"] == "fail"
    assert run.report["failed_nodes"] == ["gpu-a-1", "gpu-a-2", "gpu-b-3"] and run.report["nodes"]["gpu-b-3"]["lacks"]
    end = run.output[run.output.index("TASK [Write the report") :]
    assert "gpu-a-1 and gpu-a-2 are one machine under two names of the inventory: both have GPU GPU-gpu-a-1-0." in end
    assert "gpu-b-3 has 4 of the GPUs" in end
