# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of stages hangs together."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.tools import stages
from tests.tools.common import ROOT


def test_every_group_has_stages():
    assert {stage.group for stage in stages.all_stages()} == set(stages.GROUPS)


def test_every_environment_has_requirements():
    wanted = {stage.environment for stage in stages.all_stages() if stage.environment}
    assert {
        name for name in wanted if not (ROOT / "tests" / "tools" / "requirements" / (name + ".txt")).exists()
    } == set()


def test_one_sanity_stage_looks_at_everything_and_the_oldest_python_of_nodes_is_looked_at():
    scripts = {stage.name: stage.script.splitlines() for stage in stages.all_stages() if stage.group == "sanity"}
    # Everything but two tests, and these two on the oldest and the newest Python that it knows.
    left_out = re.findall(r"--skip-test (\S+)", scripts["sanity-newest"][0])
    assert left_out == ["compile", "import"]
    for line in scripts["sanity-newest"][1:]:
        assert re.findall(r"--test (\S+)", line) == left_out and "--python" in line
    assert len(scripts["sanity-newest"]) == 3
    assert any("--test compile --test import --python 3.8" in line for lines in scripts.values() for line in lines)


def test_documentation_and_arguments_are_judged_by_the_oldest_and_the_newest_core():
    requires = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    oldest = (ROOT / "tests" / "tools" / "requirements" / "core218.txt").read_text(encoding="utf-8")
    assert "\nansible-core=={0}.".format(requires.removeprefix(">=").rpartition(".")[0]) in oldest
    assert {stage.name: stage.environment for stage in stages.all_stages() if stage.group == "sanity"} == {
        "sanity-core218": "core218",
        "sanity-newest": "newest",
    }
    assert set(re.findall(r"--test (\S+)", "\n".join(stages.SANITY["core218"]))) == {
        "compile",
        "import",
        "ansible-doc",
        "validate-modules",
    }


@pytest.mark.parametrize("slow", [False, True])
def test_names_are_unique_and_references_exist(slow):
    everything = stages.all_stages(slow)
    names = [stage.name for stage in everything]
    assert len(names) == len(set(names))
    for stage in everything:
        assert set(stage.after) | set(stage.needs) <= set(names), stage.name


def test_a_need_is_also_waited_for():
    for stage in stages.all_stages():
        assert set(stage.needs) <= set(stage.after), stage.name


@pytest.mark.parametrize("stage", stages.all_stages(everything=True), ids=lambda stage: stage.name)
def test_every_script_is_good_bash(stage):
    done = subprocess.run(
        ["bash", "-n", "-c", stages.command_line(stage)[-1]],
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_what_stages_name_exists():
    assert [
        path
        for path in (stages.TESTS, stages.SCENARIOS, stages.SIMULATOR_TESTS, stages.COURSES)
        if not (ROOT / path).is_dir()
    ] == []
    file, name = stages.ONE_COURSE.split("::")
    assert "def {0}(".format(name) in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("environment", "mark"), [("core218", "cores"), ("newest", "cores"), ("py38", "pythons"), ("pynewest", "pythons")]
)
def test_each_environment_runs_what_can_differ_there(environment, mark):
    script = {stage.name: stage.script for stage in stages.all_stages(everything=True)}["unit-" + environment]
    assert " -m '{0}' ".format(mark) in script and " tests/unit " in script


def test_what_is_slow_runs_with_everything_and_not_without():
    usual, everything = ({stage.name: stage.script for stage in stages.all_stages(whole)} for whole in (False, True))
    assert set(everything) - set(usual) == {
        "apiserver",
        "drivers-trixie",
        "molecule-interrupt",
        "molecule-kernel",
        "molecule-schedulers",
        "molecule-trixie",
        "unit-ee",
        "unit-kube",
        "unit-newest",
        "unit-pynewest",
    }
    assert set(usual) - set(everything) == {"course-more"}
    tests = {
        name for name in usual if "pytest" in usual[name] or "verify" in usual[name] or "molecule test" in usual[name]
    }
    assert tests >= {"course-main", "unit-main", "molecule-bringup"}
    for name in tests:
        assert "not slow" in usual[name] and "slow" not in everything.get(name, ""), name


def test_optional_stages_come_last_and_with_everything_there_are_none():
    usual = stages.all_stages()
    assert [stage.name for stage in usual if stage.optional] == list(stages.OPTIONAL)
    assert [stage.name for stage in usual][-len(stages.OPTIONAL) :] == list(stages.OPTIONAL)
    assert not [stage for stage in stages.all_stages(everything=True) if stage.optional]
    assert set(stages.COSTS) <= {stage.name for stage in usual}
    assert not {name for stage in usual if not stage.optional for name in stage.needs} & set(stages.OPTIONAL)


def test_the_failure_budget_is_tried_in_every_run():
    with_it = [stage for stage in stages.all_stages() if stages.MATRIX in stage.script.split()]
    assert with_it and not [stage.name for stage in with_it if stage.optional]


def test_the_courses_of_both_stages_are_all():
    scripts = {stage.name: stage.script.split() for stage in stages.all_stages()}
    first = {word for word in scripts["course-main"] if word.endswith(".py")}
    left_out = {word.partition("=")[2] for word in scripts["course-more"] if word.startswith("--ignore=")}
    assert first - {"--ignore=" + stages.MATRIX} == set(stages.UPGRADE_COURSES)
    assert left_out == set(stages.UPGRADE_COURSES) | {stages.MATRIX} and stages.COURSES in scripts["course-more"]
    assert all((ROOT / path).is_file() for path in stages.UPGRADE_COURSES)


def test_the_site_is_built_as_make_site_builds_it():
    stage = {stage.name: stage for stage in stages.all_stages()}["site"]
    assert (stage.group, stage.environment) == ("lint", "site")
    assert stage.script == '"$VENV/bin/python" -m tests.tools.website'
    assert "with.sh site python3 -m tests.tools.website\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_what_an_execution_environment_has_carries_the_wrappers_and_the_lab():
    found = {stage.name: stage for stage in stages.all_stages(everything=True)}
    assert {found[name].environment for name in ("unit-ee", "demo")} == {"ee"}
    paths = [word for word in found["unit-ee"].script.split() if word.startswith("tests/unit/")]
    assert paths == ["tests/unit/plugins/inventory", "tests/unit/playbooks/test_awx.py"]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_importer_of_galaxy_lints_with_everything():
    usual, everything = (
        {stage.name: stage for stage in stages.all_stages(whole)}["galaxy-importer"] for whole in (False, True)
    )
    assert {(stage.group, stage.environment) for stage in (usual, everything)} == {("lint", "importer")}
    assert usual.script == '"$VENV/bin/python" -m tests.tools.importer'
    assert everything.script == usual.script + " --lint"


@pytest.mark.parametrize(
    ("wanted", "cleans"),
    [
        ([], True),
        (["molecule"], True),
        (["molecule-precheck"], True),
        (["ruff"], False),
        (["unit", "lint"], False),
        (["ruff", "molecule-precheck"], True),
    ],
)
def test_what_cleans_up_after_a_group_is_part_of_every_run_of_it(wanted, cleans):
    chosen = [stage.name for stage in stages.choose(stages.all_stages(), wanted)]
    assert ("molecule-destroy" in chosen) == cleans and set(wanted) - set(stages.GROUPS) <= set(chosen)


def test_the_scenarios_of_the_gate_run_exactly_once():
    assert (ROOT / stages.SCENARIOS).is_dir()
    running = []
    for stage in stages.all_stages():
        paths = [word for word in stage.script.split() if word.startswith("tests/unit")]
        within = [
            path
            for path in paths
            if (stages.SCENARIOS + "/").startswith(path.rstrip("/") + "/") or path.startswith(stages.SCENARIOS)
        ]
        if within and "--ignore=" + stages.SCENARIOS not in stage.script.split():
            running.append(stage.name)
    assert running == ["unit-main"]


def test_molecule_keeps_its_state_where_a_stage_says(clean_environment, tmp_path):
    """Asked of molecule itself, whose variable it is; in another directory, as scenarios may run at this moment."""
    assert stages.MOLECULE_STATE.parent == ROOT / ".lab"
    state = tmp_path / "of this checkout"
    clean_environment.setattr(stages, "MOLECULE_STATE", state)
    clean_environment.setenv("ANSIBLE_HOME", str(tmp_path))
    clean_environment.setenv("MOLECULE_EPHEMERAL_DIRECTORY", str(tmp_path / "another"))
    script = """python - <<'END'
from molecule import config
for name in ("default", "kernel"):
    path = "{0}/molecule/%s/molecule.yml" % name
    asked = config.Config(path, args=dict(base_config=["{0}/.config/molecule/config.yml"]))
    print("told", name, asked.scenario.ephemeral_directory)
END""".format(ROOT)
    stage = stages.Stage("told", "molecule", script, "main")
    done = subprocess.run(stages.command_line(stage), cwd=str(ROOT), stdout=subprocess.PIPE, text=True, check=True)
    told = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    assert told == ["told default %s" % state, "told kernel %s" % state]


def test_the_default_of_make_is_help():
    done = subprocess.run(
        ["make", "-s"], cwd=str(ROOT), stdout=subprocess.PIPE, universal_newlines=True, check=True, timeout=600
    )
    for target in (
        "demo",
        "test",
        "lint",
        "unit",
        "search",
        "mutants",
        "sanity",
        "molecule",
        "rehearse",
        "lab-up",
        "lab-down",
        "build",
        "clean",
    ):
        assert "make {0} ".format(target) in done.stdout


@pytest.mark.parametrize("given", [[], ["INVENTORY=x"], ["PLAYBOOK=x"]])
def test_rehearse_says_what_it_needs(given):
    done = subprocess.run(
        ["make", "-s", "--assume-old=setup", "rehearse", *given],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert "INVENTORY=path PLAYBOOK=path" in done.stderr


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((), ("n1",), False),
        (("n1",), ("n2",), False),
        (("n1", "n2"), ("n2",), True),
        ((stages.ALL_NODES,), ("n2",), True),
        ((stages.ALL_NODES,), (), False),
    ],
)
def test_machines_are_shared_by_name(one, other, shared):
    made = [stages.Stage(str(number), "molecule", "true", nodes=nodes) for number, nodes in enumerate((one, other))]
    assert stages.share_a_node(*made) is shared


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("---\n# nodes: gpu-r1-1 gpu-r2-1\n", ("gpu-r1-1", "gpu-r2-1")),
        ("---\n", (stages.ALL_NODES,)),
        ("", (stages.ALL_NODES,)),
    ],
)
def test_a_scenario_names_the_machines_it_takes(text, nodes):
    assert stages.scenario_nodes(text) == nodes


def test_no_machine_is_made_for_a_scenario_that_is_left_out():
    usual, everything = (
        {stage.name: stage.script for stage in stages.all_stages(whole)}["molecule-create"] for whole in (False, True)
    )
    (left_out,) = re.findall(r"^export LEFT_OUT='(.*)'$", usual, re.MULTILINE)
    assert {"deb13-1", "kern-1", "slurm-c"} <= set(left_out.split(",")) and "up-1" not in left_out
    assert "export LEFT_OUT=''\n" in everything


@pytest.mark.parametrize(
    ("run", "left_out", "names"),
    [
        (["# nodes: a\n"], ["# nodes: b c\n"], ["b", "c"]),
        (["# nodes: a b\n"], ["# nodes: b c\n"], ["c"]),
        (["# nodes: a\n"], ["---\n"], []),
        (["# nodes: a\n"], [], []),
    ],
)
def test_a_machine_that_another_scenario_takes_is_made(run, left_out, names):
    assert stages.machines_of_none(run, left_out) == names


@pytest.mark.parametrize(("text", "slow"), [("---\n# slow: it is\n", True), ("---\n# slow:\n# nodes: a\n", False)])
def test_a_scenario_says_why_it_is_slow(text, slow):
    assert stages.scenario_is_slow(text) is slow


@pytest.mark.parametrize(
    ("text", "needs"), [("---\n# needs: apiserver\n", ("apiserver",)), ("---\n# nodes: a b\n", ())]
)
def test_a_scenario_names_the_stages_it_needs(text, needs):
    assert stages.scenario_needs(text) == needs


def test_the_scenario_with_an_api_server_does_not_begin_without_it():
    found = {stage.name: stage for stage in stages.all_stages(everything=True)}["molecule-schedulers"]
    assert found.needs == ("molecule-create", "apiserver")


def test_every_scenario_looks_at_its_machines():
    """molecule passes over a scenario that has no tests without a word."""
    scenarios = [path.parent for path in (ROOT / "molecule").glob("*/molecule.yml")]
    assert scenarios, "there are no scenarios"
    assert [scenario.name for scenario in scenarios if not list(scenario.glob("tests/test_*.py"))] == []
