# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What there is to run: the stages of the tests, each with its command, its environment and what it waits for."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import typing as t

from tests.tools.common import MISSING_INTERPRETER, ROOT

GROUPS = ("lint", "unit", "sanity", "molecule")
SHELL = "/bin/bash"
ALL_NODES = "*"

# What runs on nodes imports nothing of Ansible; these tests hold there too. The rest of tests/unit is the controller's.
NODE_TESTS = ("tests/unit/test_import_path.py", "tests/unit/plugins/module_utils")
# The simulator runs in the lab's machines, with their Python: it is tested on the main environment and on the oldest Python.
SIMULATOR_TESTS = "tests/unit/sim"
# Every check of the gate, turned red by a fault of the simulator.
SCENARIOS = "tests/unit/scenarios"
# Tested once, on the main environment: they look at the project, or at things that no ansible-core changes.
ONCE = ("tests/unit/meta", "tests/unit/lab", SIMULATOR_TESTS, SCENARIOS, "tests/unit/tools", "tests/unit/plugins/module_utils")
# Whole playbook runs on stand-in nodes: minutes each, so they are stages of their own. All are tried on the main ansible-core; the oldest
# and the newest do a whole rollout and its second run, and the oldest what a controller's death leaves behind.
COURSES = "tests/unit/playbooks"
ONE_COURSE = COURSES + "/test_upgrade_course.py::test_every_node_is_taken_once_and_a_second_run_takes_none"
# What may never exceed the failure budget depends on how Ansible counts hosts: tried on the oldest and the newest ansible-core.
MATRIX = COURSES + "/test_failure_matrix.py"
RESUME = COURSES + "/test_resume.py"
# A node that waits again and again for its down slot, and is put back to work after all: the oldest ansible-core reads included files in its own way.
IN_VAIN = COURSES + "/test_scheduler.py::test_a_node_that_was_drained_in_vain_is_resumed"
# Workers are given back with what is no promise of Ansible's: tried wherever it may differ.
PARKED = COURSES + "/test_parked.py::test_nodes_go_the_same_way_in_as_many_tasks_and_hold_no_worker_while_they_wait"
CONTROLLERS = ("main", "core218", "newest")
# On a real API server, which is built once; a stage of its own, since that takes minutes.
KUBE = "tests/unit/kube"


@dataclasses.dataclass(frozen=True)
class Stage:
    """One thing to run."""

    name: str
    group: str
    script: str  # for bash; $VENV is the ready environment
    environment: str = ""  # a name for tests/tools/venv.sh; none for the system's own python3
    after: t.Tuple[str, ...] = ()  # starts when these ended, in whatever way, or are not part of this run
    needs: t.Tuple[str, ...] = ()  # does not start when one of these failed
    background: bool = False  # takes no place among the jobs and runs at the lowest priority
    nodes: t.Tuple[str, ...] = ()  # machines of the lab that it takes for itself; stages that share one follow each other
    clean_up: bool = False  # not a stage of its own: run at the end of any run that had a stage of this group


class UnknownStage(Exception):
    """Somebody asked for a stage or a group there is none of."""


def _existing(paths: t.Iterable[str]) -> t.List[str]:
    return [path for path in paths if (ROOT / path).exists()]


def _pytest(arguments: str) -> str:
    return '"$VENV/bin/python" -m pytest -q --durations=5 -p no:cacheprovider {0}'.format(arguments)


def _lint() -> t.List[Stage]:
    return [
        Stage("ansible-lint", "lint", 'tests/tools/collections.sh >/dev/null && "$VENV/bin/ansible-lint" --offline --nocolor', "main"),
        Stage("yamllint", "lint", '"$VENV/bin/yamllint" --strict .', "main"),
        Stage("ruff", "lint", '"$VENV/bin/ruff" check --no-cache --output-format concise .', "main"),
        Stage("changelog", "lint", '"$VENV/bin/antsibull-changelog" lint', "main"),
        Stage("docs", "lint", '"$VENV/bin/python" -m tests.tools.docs --check', "main"),
    ]


def _unit() -> t.List[Stage]:
    rest = " ".join("--ignore={0}".format(path) for path in ONCE)
    node = " ".join(_existing(NODE_TESTS))
    simulator = " ".join(_existing([SIMULATOR_TESTS]))
    courses = {
        "main": "{0} --ignore={1}".format(COURSES, MATRIX),
        "core218": " ".join((ONE_COURSE, MATRIX, RESUME, IN_VAIN, PARKED)),
        "newest": " ".join((ONE_COURSE, MATRIX, PARKED)),
    }
    stages = [Stage("course-" + name, "unit", _pytest(courses[name]), name) for name in CONTROLLERS if (ROOT / COURSES).is_dir()]
    for name in CONTROLLERS:
        others = "" if name == "main" else " " + rest
        stages.append(Stage("unit-" + name, "unit", _pytest("tests/unit --ignore={0} --ignore={1}{2}".format(COURSES, KUBE, others)), name))
    stages.append(Stage("unit-py38", "unit", _pytest("{0} {1}".format(node, simulator)), "py38"))
    stages.append(Stage("unit-pynewest", "unit", _pytest(node), "pynewest"))
    if (ROOT / KUBE).is_dir():
        stages.append(Stage("apiserver", "unit", "python3 -m tests.lab apiserver", "main", background=True))
        stages.append(Stage("unit-kube", "unit", _pytest(KUBE), "main", after=("apiserver",), needs=("apiserver",)))
    return stages


def _sanity() -> t.List[Stage]:
    return [Stage("sanity-" + name, "sanity", "python3 -m tests.tools.sanity {0}".format(name), name) for name in ("main", "newest")]


def scenario_nodes(text: str) -> t.Tuple[str, ...]:
    """The lab's machines that a scenario takes for itself, from the line `# nodes: NAME...` in its molecule.yml. All, without one."""
    found = re.search(r"^# nodes:(.*)$", text, re.MULTILINE)
    return tuple(found.group(1).split()) if found else (ALL_NODES,)


def scenario_needs(text: str) -> t.Tuple[str, ...]:
    """The stages without which a scenario cannot begin, from the line `# needs: STAGE...` in its molecule.yml."""
    found = re.search(r"^# needs:(.*)$", text, re.MULTILINE)
    return tuple(found.group(1).split()) if found else ()


DEMO_NODES = ("gpu-r1-1", "gpu-r1-2", "gpu-r2-1", "gpu-r2-2", "gpu-r3-1", "gpu-r3-2")


def _molecule() -> t.List[Stage]:
    stages = []
    before: t.Tuple[str, ...] = ()
    if (ROOT / "tests" / "lab" / "__main__.py").exists():
        # Each (driver, kernel) once per cache. That takes minutes, so it begins before everything else.
        stages.append(Stage("drivers", "molecule", "python3 -m tests.lab drivers --inventory molecule/inventory", "main", background=True))
        before = ("drivers",)
    # The one that looks at all machines as they were made comes first: it takes all of them for itself.
    scenarios = sorted((path.parent for path in (ROOT / "molecule").glob("*/molecule.yml")), key=lambda path: (path.name != "default", path.name))
    if not scenarios:
        return stages
    # Machines of an earlier run that was killed are gone before new ones are made. The other stages end first: they would
    # only make the machines slow, and they fail sooner.
    first = tuple(stage.name for stage in _lint() + _unit() + _sanity())
    create = "molecule destroy -s default\nmolecule create -s default\nmolecule prepare -s default"
    stages.append(Stage("molecule-create", "molecule", create, "main", after=before + first, needs=before))
    for scenario in scenarios:
        text = (scenario / "molecule.yml").read_text(encoding="utf-8")
        nodes, needs = scenario_nodes(text), ("molecule-create", *scenario_needs(text))
        script = "molecule verify -s default" if scenario.name == "default" else "molecule test -s {0} --destroy=never".format(scenario.name)
        stages.append(Stage("molecule-" + scenario.name, "molecule", script, "main", after=needs, needs=needs, nodes=nodes))
    # The main job itself, on the machines of inventories/lab, once these were looked at. It takes longest, and so begins before the others.
    script = "python3 -m tests.lab demo"
    demo = Stage("demo", "molecule", script, "main", after=("molecule-create", "molecule-default"), needs=("molecule-create",), nodes=DEMO_NODES)
    number = next((number for number, stage in enumerate(stages) if stage.name == "molecule-default"), len(stages) - 1)
    stages.insert(number + 1, demo)
    stages.append(Stage("molecule-destroy", "molecule", "molecule destroy -s default", "main", clean_up=True))
    return stages


def all_stages() -> t.List[Stage]:
    """Every stage, in the order in which they are started: the long ones early."""
    order = {"drivers": 0, "sanity": 1, "unit": 2, "lint": 3, "molecule": 4}
    stages = _molecule() + _sanity() + _unit() + _lint()
    return sorted(stages, key=lambda stage: order["drivers" if stage.background else stage.group])


def choose(stages: t.Sequence[Stage], wanted: t.Sequence[str]) -> t.List[Stage]:
    """The stages asked for by group or by name; all of them when nothing was asked for."""
    known = {stage.name for stage in stages} | set(GROUPS)
    unknown = [word for word in wanted if word not in known]
    if unknown:
        raise UnknownStage("no stage or group is called {0}; there are: {1}".format(", ".join(unknown), ", ".join(sorted(known))))
    if not wanted:
        return list(stages)
    return [stage for stage in stages if stage.group in wanted or stage.name in wanted]


def clean_up_after(stages: t.Iterable[Stage]) -> t.List[Stage]:
    """What has to be undone at the end of a run that had these stages."""
    return [stage for stage in stages if stage.clean_up]


def missing_interpreter(stage: Stage) -> str:
    """Which Python the stage would need and this machine lacks; empty when it can run."""
    if not stage.environment:
        return ""
    asked = subprocess.run(
        [str(ROOT / "tests" / "tools" / "venv.sh"), "--interpreter", stage.environment],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
    )
    return asked.stderr.strip() if asked.returncode == MISSING_INTERPRETER else ""


def share_a_node(one: Stage, other: Stage) -> bool:
    """Whether the two stages would be at work on the same machine."""
    if not one.nodes or not other.nodes:
        return False
    return ALL_NODES in one.nodes + other.nodes or bool(set(one.nodes) & set(other.nodes))


def command_line(stage: Stage) -> t.List[str]:
    """The argument list that runs the stage."""
    script = "set -euo pipefail\n"
    if stage.environment:
        script += 'VENV=$(tests/tools/venv.sh {0})\nexport VENV PATH="$VENV/bin:$PATH" NO_COLOR=1 MOLECULE_GLOB="molecule/*/molecule.yml"\n'.format(
            stage.environment
        )
    # Not exec: a script may be several commands.
    command = [SHELL, "-c", script + stage.script]
    if stage.background:
        command = ["nice", "-n", "19", *command]
    return command
