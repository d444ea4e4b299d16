# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What there is to run: the stages of the tests, each with its command, its environment and what it waits for."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import typing as t

from tests.tools.common import MISSING_INTERPRETER, ROOT

GROUPS = ("lint", "unit", "sanity", "molecule")
SHELL = "/bin/bash"
# What molecule remembers of its scenarios between commands (that the machines were made, for one). Without this it lies
# in the user's ~/.ansible/tmp below the checkout's last name, which two checkouts may have in common. All scenarios
# share it, as shared_state has it (.config/molecule/config.yml).
MOLECULE_STATE = ROOT / ".lab" / "molecule"
ALL_NODES = "*"

# All of tests/unit runs on the main environment. In the others runs what can answer otherwise there, which the files
# themselves say with the marks `pythons` and `cores`; tests/unit/selection.py has the rule, and a test that watches
# over it.
TESTS = "tests/unit"
# Every check of the gate, turned red by a fault of the simulator: pure but for the simulator, and so once.
SCENARIOS = "tests/unit/scenarios"
SIMULATOR_TESTS = "tests/unit/sim"
# Whole playbook runs on stand-in nodes: minutes each, so they are stages of their own, and all are tried on the main
# ansible-core. A course also runs on the oldest and the newest where Ansible itself gives the answer: how hosts that
# fail or cannot be reached are counted, what a signal ends, in which order hosts and included files follow each other,
# what a callback is told. What the gate, the ledger and the lookups of the role decide, and what is written of it, is
# the same on each of them. Templates are the oldest one's own: there, in addition, each step of the role is taken up by
# another controller. What the newest does has the mark `cores`; all of it but one course is slow.
COURSES = "tests/unit/playbooks"
ONE_COURSE = COURSES + "/test_upgrade_course.py::test_every_node_is_taken_once_and_a_second_run_takes_none"
# What may never exceed the failure budget depends on how Ansible counts hosts: tried on the oldest and the newest
# ansible-core.
MATRIX = COURSES + "/test_failure_matrix.py"
RESUME = COURSES + "/test_resume.py::test_another_controller_goes_on_wherever_the_first_one_was_killed"
# A node that waits again and again for its down slot, and is put back to work after all: the oldest ansible-core reads
# included files in its own way.
IN_VAIN = COURSES + "/test_scheduler.py::test_a_node_that_was_drained_in_vain_is_resumed"
CONTROLLERS = ("main", "core218", "newest")
# The courses of an upgrade itself. Those of what goes with it follow in a stage of their own.
UPGRADE_COURSES = tuple(
    "{0}/test_{1}.py".format(COURSES, name) for name in ("upgrade_course", "proof", "report", "resume", "claims")
)
# What a run that has to end in time leaves out on a machine that is too slow for all of it, the last first.
OPTIONAL = (
    "unit-py38",
    "site",
    "galaxy-importer",
    "demo",
    "course-more",
    "molecule-refusals",
    "molecule-precheck",
    "unit-core218",
    "course-newest",
)
# CPU seconds that a stage and its machines take together, of the stages that take most. How they compare is what
# matters: what they are on a machine shows as it works. What was built by an earlier run costs nothing.
COSTS = {
    "drivers": 0.0,
    "molecule-create": 60.0,
    "molecule-default": 20.0,
    "molecule-bringup": 220.0,
    "demo": 350.0,
    "molecule-refusals": 120.0,
    "molecule-precheck": 80.0,
    "course-main": 500.0,
    "course-more": 700.0,
    "course-core218": 230.0,
    "course-newest": 22.0,
    "unit-main": 900.0,
    "unit-core218": 150.0,
    "unit-py38": 160.0,
    "sanity-newest": 200.0,
    "sanity-core218": 32.0,
    "ansible-lint": 71.0,
    "site": 54.0,
    "galaxy-importer": 12.0,
}
# What is compiled once on a machine, beside other work, and the stages that take longest, have more time than others.
ONCE_S = 4800.0
# The stages that take longest.
LONGEST = ("course-main", "unit-main")
# What an execution environment has to carry: the inventory plugins and every wrapper of awx/project, by ansible-runner,
# with a ledger on PostgreSQL. The environment `ee` has its lists of packages and nothing else but pytest.
CARRIED = "tests/unit/plugins/inventory " + COURSES + "/test_awx.py"
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
    background: bool = False  # takes no place among the jobs
    # machines of the lab that it takes for itself; stages that share one follow each other
    nodes: t.Tuple[str, ...] = ()
    clean_up: bool = False  # not a stage of its own: run at the end of any run that had a stage of this group
    limit_s: float = 4200.0  # longer than this it hangs: several times what it takes, also beside other work
    cost: float = 5.0  # as in COSTS
    optional: bool = False  # as in OPTIONAL

    @property
    def niceness(self) -> int:
        """How far the stage steps back for others, as nice(1) counts.

        The chains that end last go first: the stages that take longest, and the scenarios, which follow each other.
        Everything else fills what these leave, also what is built in the background: at a lower priority still it got
        nothing beside three stages that are never idle, and a scenario waited for it.
        """
        return 0 if self.group == "molecule" or self.name in LONGEST else 5


class UnknownStage(Exception):
    """Somebody asked for a stage or a group there is none of."""


# What a run keeps of its slowest tests is read from this (tests/tools/times.py).
DURATIONS = "--durations=60 --durations-min=0.5"


def _marks(mark: str, everything: bool) -> str:
    """pytest's option for the tests of a mark, without the slow ones unless everything is wanted; may be empty."""
    wanted = " and ".join(filter(None, (mark, "" if everything else "not slow")))
    return "-m '{0}'".format(wanted) if wanted else ""


def _pytest(arguments: str, everything: bool, mark: str = "") -> str:
    options = " ".join(filter(None, (DURATIONS, _marks(mark, everything))))
    return '"$VENV/bin/python" -m pytest -q {0} -p no:cacheprovider {1}'.format(options, arguments)


def _without(path: str, *left_out: str) -> str:
    """The arguments for the tests below a path but for some files and directories."""
    return " ".join((path, *("--ignore=" + other for other in left_out)))


def _lint(everything: bool) -> t.List[Stage]:
    return [
        Stage(
            "ansible-lint",
            "lint",
            'tests/tools/collections.sh >/dev/null && "$VENV/bin/ansible-lint" --offline --nocolor',
            "main",
        ),
        Stage("yamllint", "lint", '"$VENV/bin/yamllint" --strict .', "main"),
        Stage(
            "ruff",
            "lint",
            '"$VENV/bin/ruff" check --no-cache --output-format concise .\n"$VENV/bin/ruff" format --no-cache --check .',
            "main",
        ),
        Stage("changelog", "lint", '"$VENV/bin/antsibull-changelog" lint', "main"),
        Stage("docs", "lint", '"$VENV/bin/python" -m tests.tools.docs --check', "main"),
        Stage("site", "lint", '"$VENV/bin/python" -m tests.tools.website', "site"),
        # What the importer's ansible-lint finds, that of the checkout finds as well, which leaves out no rule: it comes
        # with everything.
        Stage(
            "galaxy-importer",
            "lint",
            '"$VENV/bin/python" -m tests.tools.importer' + (" --lint" if everything else ""),
            "importer",
        ),
    ]


def _unit(everything: bool) -> t.List[Stage]:
    courses = {
        "main": (_without(COURSES, MATRIX) if everything else " ".join(UPGRADE_COURSES), ""),
        "core218": (" ".join((ONE_COURSE, MATRIX, RESUME, IN_VAIN)), ""),
        "newest": (COURSES if everything else ONE_COURSE, "cores"),
    }
    stages = [
        Stage("course-" + name, "unit", _pytest(courses[name][0], everything, courses[name][1]), name)
        for name in CONTROLLERS
        if (ROOT / COURSES).is_dir()
    ]
    if not everything:
        more = _without(COURSES, MATRIX, *UPGRADE_COURSES)
        stages.append(Stage("course-more", "unit", _pytest(more, everything), "main"))
    stages.append(Stage("unit-main", "unit", _pytest(_without(TESTS, COURSES, KUBE), everything), "main"))
    elsewhere = _without(TESTS, COURSES, KUBE, SCENARIOS)
    # One course runs on the newest ansible-core with the newest Python; what else can differ there is slow as a whole.
    for name in CONTROLLERS[1:] if everything else CONTROLLERS[1:2]:
        stages.append(Stage("unit-" + name, "unit", _pytest(elsewhere, everything, "cores"), name))
    stages.append(Stage("unit-py38", "unit", _pytest(elsewhere, everything, "pythons"), "py38"))
    if everything:
        # The simulator runs in the lab's machines, whose Python is between the oldest and the one of the main
        # environment.
        stages.append(
            Stage(
                "unit-pynewest",
                "unit",
                _pytest(_without(TESTS, COURSES, KUBE, SCENARIOS, SIMULATOR_TESTS), everything, "pythons"),
                "pynewest",
            )
        )
    if everything:
        stages.append(Stage("unit-ee", "unit", _pytest(CARRIED, everything), "ee"))
    if everything and (ROOT / KUBE).is_dir():
        stages.append(
            Stage("apiserver", "unit", "python3 -m tests.lab apiserver", "main", background=True, limit_s=ONCE_S)
        )
        stages.append(
            Stage("unit-kube", "unit", _pytest(KUBE, everything), "main", after=("apiserver",), needs=("apiserver",))
        )
    return stages


# The newest ansible-core has every rule of those before it, and looks at everything. It knows Python 3.8 no more, which
# nodes may have, and the oldest does; and each core reads documentation and arguments by its own schema. What compiles
# and imports on the oldest and the newest Python does so between them.
SANITY = {
    "newest": (
        "--skip-test compile --skip-test import",
        "--test compile --test import --python 3.9",
        "--test compile --test import --python 3.13",
    ),
    "core218": ("--test compile --test import --python 3.8", "--test ansible-doc --test validate-modules"),
}


def _sanity() -> t.List[Stage]:
    """ansible-test on every ansible-core that judges something that the newest does not."""
    stages = []
    for name, parts in SANITY.items():
        script = "\n".join("python3 -m tests.tools.sanity {0} {1}".format(name, part).rstrip() for part in parts)
        stages.append(Stage("sanity-" + name, "sanity", script, name))
    return stages


def scenario_nodes(text: str) -> t.Tuple[str, ...]:
    """The lab's machines that a scenario takes for itself, from the line `# nodes: NAME...` in its molecule.yml.

    All, without one.
    """
    found = re.search(r"^# nodes:(.*)$", text, re.MULTILINE)
    return tuple(found.group(1).split()) if found else (ALL_NODES,)


def scenario_needs(text: str) -> t.Tuple[str, ...]:
    """The stages without which a scenario cannot begin, from the line `# needs: STAGE...` in its molecule.yml."""
    found = re.search(r"^# needs:(.*)$", text, re.MULTILINE)
    return tuple(found.group(1).split()) if found else ()


def scenario_is_slow(text: str) -> bool:
    """Whether a scenario as a whole is slow, from a line `# slow: REASON` in its molecule.yml."""
    return re.search(r"^# slow: \S", text, re.MULTILINE) is not None


def machines_of_none(run: t.Sequence[str], left_out: t.Sequence[str]) -> t.List[str]:
    """The machines that only scenarios take that are left out. Both are texts of their molecule.yml."""
    taken = {name for text in run for name in scenario_nodes(text)}
    return [name for text in left_out for name in scenario_nodes(text) if name not in taken and name != ALL_NODES]


DEMO_NODES = ("gpu-r1-1", "gpu-r1-2", "gpu-r2-1", "gpu-r2-2", "gpu-r3-1", "gpu-r3-2")


def _molecule(everything: bool) -> t.List[Stage]:
    stages = []
    before: t.Tuple[str, ...] = ()
    if (ROOT / "tests" / "lab" / "__main__.py").exists():
        # Each (driver, kernel) once per cache. Where there is none yet that takes longer than anything, and all
        # scenarios wait for it.
        stages.append(
            Stage(
                "drivers",
                "molecule",
                "python3 -m tests.lab drivers --inventory inventories/lab",
                "main",
                limit_s=ONCE_S,
            )
        )
        before = ("drivers",)
        if everything:
            script = "python3 -m tests.lab drivers --suite trixie"
            stages.append(Stage("drivers-trixie", "molecule", script, "main", limit_s=ONCE_S))
    # The one that looks at all machines as they were made comes first: it takes all of them for itself.
    scenarios = sorted(
        (path.parent for path in (ROOT / "molecule").glob("*/molecule.yml")),
        key=lambda path: (path.name != "default", path.name),
    )
    if not scenarios:
        return stages
    # Machines of an earlier run that was killed are gone before new ones are made.
    create = "molecule destroy -s default\nmolecule create -s default\nmolecule prepare -s default"
    texts = {scenario: (scenario / "molecule.yml").read_text(encoding="utf-8") for scenario in scenarios}
    left_out = [scenario for scenario in scenarios if scenario_is_slow(texts[scenario]) and not everything]
    unused = machines_of_none(
        [texts[scenario] for scenario in scenarios if scenario not in left_out],
        [texts[scenario] for scenario in left_out],
    )
    create = "export LEFT_OUT='{0}'\n{1}".format(",".join(unused), create)
    stages.append(Stage("molecule-create", "molecule", create, "main", after=before, needs=before))
    for scenario in scenarios:
        if scenario in left_out:
            continue
        text = texts[scenario]
        nodes, needs = scenario_nodes(text), ("molecule-create", *scenario_needs(text))
        script = (
            "molecule verify -s default"
            if scenario.name == "default"
            else "molecule test -s {0} --destroy=never".format(scenario.name)
        )
        options = " ".join(filter(None, (DURATIONS, _marks("", everything))))
        script = "export PYTEST_ADDOPTS={0}\n{1}".format(shlex.quote(options), script)
        stages.append(
            Stage("molecule-" + scenario.name, "molecule", script, "main", after=needs, needs=needs, nodes=nodes)
        )
    # The main job itself, on the machines of inventories/lab, once these were looked at. It takes longest, and so
    # begins before the others. With everything its controller has what an execution environment has.
    script = "python3 -m tests.lab demo"
    demo = Stage(
        "demo",
        "molecule",
        script,
        "ee" if everything else "main",
        after=("molecule-create", "molecule-default"),
        needs=("molecule-create",),
        nodes=DEMO_NODES,
    )
    number = next((number for number, stage in enumerate(stages) if stage.name == "molecule-default"), len(stages) - 1)
    stages.insert(number + 1, demo)
    stages.append(Stage("molecule-destroy", "molecule", "molecule destroy -s default", "main", clean_up=True))
    return stages


def all_stages(everything: bool = False) -> t.List[Stage]:
    """Every stage, in the order in which they are started: the longest, then the machines, which follow each other;
    short ones fill the end, and optional ones follow. With ``everything`` they have the slow tests too, and none is
    optional.
    """
    order = {"molecule": 2, "sanity": 3, "unit": 4, "lint": 5}

    def place(stage: Stage) -> int:
        if stage.optional:
            return 6 + OPTIONAL.index(stage.name)
        return 0 if stage.background else 1 if stage.name in ("drivers", *LONGEST) else order[stage.group]

    stages = [
        dataclasses.replace(
            stage,
            cost=COSTS.get(stage.name, stage.cost),
            optional=stage.name in OPTIONAL and not everything,
            limit_s=ONCE_S if stage.name in LONGEST else stage.limit_s,
        )
        for stage in _molecule(everything) + _sanity() + _unit(everything) + _lint(everything)
    ]
    return sorted(stages, key=place)


def in_time(elapsed_s: float, done: float, ahead: float, within_s: float) -> bool:
    """Whether a run comes to its end in time if all that is ahead of it has to be done.

    DONE and AHEAD: costs of what has ended, and of what runs or is to run. As long as nothing has ended it is not
    known how fast the machine is, and the answer is no. WITHIN_S: 0 for as long as it takes.
    """
    if not within_s or not ahead:
        return True
    return done > 0 and elapsed_s * (1 + ahead / done) <= within_s


def choose(stages: t.Sequence[Stage], wanted: t.Sequence[str]) -> t.List[Stage]:
    """The stages asked for by group or by name, and what cleans up after their group; all of them when nothing was
    asked for.
    """
    known = {stage.name for stage in stages} | set(GROUPS)
    unknown = [word for word in wanted if word not in known]
    if unknown:
        raise UnknownStage(
            "no stage or group is called {0}; there are: {1}".format(", ".join(unknown), ", ".join(sorted(known)))
        )
    if not wanted:
        return list(stages)
    chosen = [stage for stage in stages if stage.group in wanted or stage.name in wanted]
    groups = {stage.group for stage in chosen}
    return [stage for stage in stages if stage in chosen or (stage.clean_up and stage.group in groups)]


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
        script += (
            'VENV=$(tests/tools/venv.sh {0})\nexport VENV PATH="$VENV/bin:$PATH" NO_COLOR=1 '
            'MOLECULE_GLOB="molecule/*/molecule.yml"\n'.format(stage.environment)
        )
    script += "export MOLECULE_EPHEMERAL_DIRECTORY={0}\n".format(shlex.quote(str(MOLECULE_STATE)))
    # Where the kernel groups processes by their session, nice(1) orders those of one group only, and this the groups
    # (sched(7)). A kernel without such groups, or a container with a read-only /proc, refuses it, and nice(1) alone
    # does it there.
    first = (
        "{{ echo {0} > /proc/self/autogroup; }} 2>/dev/null || true\n".format(stage.niceness) if stage.niceness else ""
    )
    # Not exec: a script may be several commands.
    command = [SHELL, "-c", first + script + stage.script]
    if stage.niceness:
        command = ["nice", "-n", str(stage.niceness), *command]
    return command
