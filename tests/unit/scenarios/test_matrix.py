# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every check is seen red: a fault that turns it to fail, one that turns it to unknown, and nothing else turns with
them.

A scenario is read through the collection's own readers, from a simulated node, and judged by the real judges.
"""

from __future__ import annotations

import collections
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, nodefacts, registry
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import smoke
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import gpu_faults, node_faults, smoke_faults
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.scenario import NEXT_STEP, expectation

SCENARIOS = gpu_faults.SCENARIOS + node_faults.SCENARIOS
EVERYTHING = SCENARIOS + smoke_faults.SCENARIOS
# Checks that have no such direction, and why. Whether that is true is looked up in their code.
NEVER_FAIL = {
    "reading.complete": "what was not read is not known",
    "baseline.mig_free": "an old reading that does not count leaves open what it was to tell",
    "smoke.ran": "a GPU that was not tested is not known; what a test found is said by the other checks",
}
NEVER_UNKNOWN = {"baseline.changes": "what cannot be compared is no change; its own check says that it is not known"}


def strict(ident, scenarios):
    """Whether a scenario fails the check only because its policy is strict about it."""
    return any(ident in scenario.fails and ident in scenario.rules.get("strict", ()) for scenario in scenarios)


def one_verdict(scenario, sick, healthy):
    baseline = None
    well = healthy(scenario.model)
    if not scenario.first_look and scenario.baseline is not None:
        baseline = scenario.baseline(well.baseline)
    expect = dict(scenario.expect or {})
    if expect.get("mig_free"):
        expect["mig_free"] = dict(well.baseline, boot_id=expect["mig_free"])
    world = sick(scenario)
    taken = world.reading((well.reading["kernel_log"] or {}).get("position"))
    # As the controller has it: a fault of the node makes no answer of another shape.
    assert _answers.accept("gpu_health", {"facts": taken}) == {"facts": taken}
    if baseline is None:
        # The simulated board has all its NVSwitches, and only some of the GPUs that it should have then.
        expect["hardware"] = dict({"gpus": world.gpus}, **expect.get("hardware", {}))
    return world, w.judge(
        taken,
        baseline,
        "adhoc" if scenario.first_look else scenario.phase,
        scenario.rules,
        expect,
        expected=scenario.expected,
    )


def assert_exactly(scenario, health, well, idents=registry.IDENTS):
    """The verdict's red checks are those of the scenario, about what it says, with a message that names it and says
    what to do.
    """
    names = {}
    for index in range(well.world.gpus):
        names["gpu%d" % index], names["pci%d" % index] = well.world.uuid(index), well.world.address(index)
    for status, wanted in (("fail", scenario.fails), ("unknown", scenario.unknown)):
        found = collections.defaultdict(list)
        for check in health["checks"]:
            if check["status"] == status and check["id"] in idents:
                found[check["id"]].append(check)
        said = {ident: [(check["entity"], check["message"]) for check in checks] for ident, checks in found.items()}
        assert sorted(found) == sorted(wanted), (status, said)
        for ident, checks in found.items():
            word, entities = expectation(ident, wanted[ident])
            assert sorted(check["entity"] for check in checks) == sorted(
                names.get(entity, entity) for entity in entities
            ), said[ident]
            for check in checks:
                assert word in check["message"], check
                assert NEXT_STEP.search(check["message"]), check
                assert check["action"] != "none", check
    if idents == registry.IDENTS:
        assert health["verdict"] == ("fail" if scenario.fails else "unknown")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_fault_turns_its_checks_red_and_no_others(scenario, sick, healthy):
    health = one_verdict(scenario, sick, healthy)[1]
    assert_exactly(scenario, health, healthy(scenario.model))


def test_a_fabric_that_converges_is_unknown_until_it_has(sick, healthy):
    """The gate reads again; the verdict turns by itself, and only when all GPUs are there."""
    well = healthy()
    (one,) = [scenario for scenario in SCENARIOS if scenario.name == "the fabric converges"]
    world = sick(one)
    verdicts = []
    for _look in range(6):
        verdicts.append(w.judge(world.reading(well.reading["kernel_log"]["position"]), well.baseline)["verdict"])
        if verdicts[-1] == "pass":
            break
    assert verdicts[0] == "unknown" and verdicts[-1] == "pass" and set(verdicts) == {"unknown", "pass"}


@pytest.mark.parametrize("scenario", smoke_faults.SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_fault_at_work_turns_its_checks_red_and_no_others(scenario, sick, healthy, at_work):
    well = healthy(scenario.model)
    baseline = dict(well.baseline, smoke=at_work)
    document = at_work
    if scenario.work is not None:
        document = dict(sick(scenario).at_work(wanted=["1"], **scenario.work), peers=[at_work])
    for step in scenario.make if scenario.work is None else ():
        document = step(document)
    reading = {"boot_id": well.reading["boot_id"], "snapshot": well.reading["snapshot"]}
    health = w.judge(reading, baseline, rules=scenario.rules, smoke=document, table=smoke.ROWS)
    assert_exactly(scenario, health, well)


def test_a_node_in_health_passes_at_work(healthy, at_work):
    well = healthy()
    health = w.judge(well.reading, dict(well.baseline, smoke=at_work), rules={"smoke_peers_min": 1}, smoke=at_work)
    assert [check for check in health["checks"] if check["status"] in ("fail", "unknown") or check["notice"]] == []
    passed = {check["id"] for check in health["checks"] if check["status"] == "pass"}
    # The diagnostic is part of the longest level only.
    assert {row.ident for row in smoke.ROWS} - passed == {"smoke.dcgm"}


# Cards of which a node may have any number: the table of boards cannot say how many there should be.
ANY_NUMBER = ("a30", "l4", "rtx-pro-6000")
# The simulated ones have the switches of a whole board, which would have 8 GPUs.
WITH_SWITCHES = ("h100-sxm", "h200", "b200")


@pytest.mark.parametrize(
    "board", ["h100-sxm", "h200", "b200", "a100-sxm", "a100-80-sxm", "a30", "l4", "rtx-pro-6000", "v100-sxm"]
)
@pytest.mark.parametrize("phase", ["baseline", "post"])
def test_a_node_in_health_passes_and_nothing_is_unknown(healthy, board, phase):
    well = healthy(board)
    expect = {"hardware": {"gpus": 2}} if board in ANY_NUMBER + WITH_SWITCHES else None
    health = w.judge(well.reading, well.baseline if phase == "post" else None, phase, expect=expect)
    assert [check for check in health["checks"] if check["status"] in ("fail", "unknown") or check["notice"]] == []
    assert (health["verdict"], health["action"], health["simulated"], health["changes"]) == ("pass", "none", True, [])
    assert len([check for check in health["checks"] if check["status"] == "pass"]) > 80


@pytest.mark.parametrize("board", ANY_NUMBER)
def test_without_a_baseline_the_number_of_cards_is_unknown_until_it_is_said(healthy, board):
    health = w.judge(healthy(board).reading, None, "baseline")
    assert [check["id"] for check in health["checks"] if check["status"] == "unknown"] == ["node.hardware"]
    assert health["verdict"] == "unknown"


def test_every_board_of_the_simulator_is_judged():
    boards = test_a_node_in_health_passes_and_nothing_is_unknown.pytestmark[1].args[1]
    assert sorted(boards) == sorted(path.stem for path in (w.simnode.SIM / "profiles").glob("*.ini"))


# ---- the matrix has no hole ----


def red(direction):
    return {ident for scenario in EVERYTHING for ident in getattr(scenario, direction)}


@pytest.mark.parametrize("direction, excepted", [("fails", NEVER_FAIL), ("unknown", NEVER_UNKNOWN)])
def test_every_check_has_a_scenario(direction, excepted):
    assert sorted(registry.IDENTS - red(direction) - set(excepted)) == []
    assert sorted(red(direction) & set(excepted)) == []


def test_every_scenario_is_about_checks_that_there_are():
    assert sorted((red("fails") | red("unknown") | set(NEVER_FAIL) | set(NEVER_UNKNOWN)) - registry.IDENTS) == []
    names = [scenario.name for scenario in EVERYTHING]
    assert [name for name, count in collections.Counter(names).items() if count > 1] == []
    assert [scenario.name for scenario in EVERYTHING if not scenario.fails and not scenario.unknown] == []


# What a code of NVML means is either.
WORDS = {"fail": {"FAIL", "fail", "fails", "failed", "code_meaning"}, "unknown": {"UNKNOWN", "unknown", "code_meaning"}}


def functions(thing, used):
    """The functions behind a name that a judge uses: itself, a class's own, or those of another module of the judges
    that are named too.
    """
    if isinstance(thing, types.FunctionType):
        return [thing]
    if isinstance(thing, type):
        if thing is nodefacts.Checks:  # the builder of results has words for every status
            return []
        return [member for member in vars(thing).values() if isinstance(member, types.FunctionType)]
    if (
        isinstance(thing, types.ModuleType)
        and thing is not model
        and thing.__name__.startswith(model.__name__.rpartition(".")[0])
    ):
        return [vars(thing)[name] for name in sorted(used) if isinstance(vars(thing).get(name), types.FunctionType)]
    return []


def names_used(function, seen):
    """The names that a judge uses, itself and in the functions that it calls."""
    code = getattr(function, "__code__", None)
    if code is None or code in seen:
        return set()
    seen.add(code)
    used, todo = set(), [code]
    while todo:
        one = todo.pop()
        used |= set(one.co_names)
        todo += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
    inner = [called for name in sorted(used) for called in functions(function.__globals__.get(name), used)]
    return used.union(*[names_used(called, seen) for called in inner])


@pytest.mark.parametrize(
    "ident, status", [(ident, "fail") for ident in NEVER_FAIL] + [(ident, "unknown") for ident in NEVER_UNKNOWN]
)
def test_what_is_excepted_has_no_such_direction_in_its_code(ident, status):
    (row,) = [row for row in registry.TABLE if row.ident == ident]
    used = names_used(row.judge, set())
    assert used & {"check", "Checks"}
    assert used & WORDS[status] == set()


def test_the_look_into_the_code_finds_the_directions_that_are_there():
    rows = {row.ident: row for row in registry.TABLE}
    for ident in ("nvml.answers", "gpu.handle", "driver.nouveau", "node.infiniband", "baseline.usable", "smoke.dcgm"):
        used = names_used(rows[ident].judge, set())
        assert used & WORDS["fail"] and used & WORDS["unknown"], ident
    assert model.FAIL == "fail" and model.UNKNOWN == "unknown"
