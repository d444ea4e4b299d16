# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX asks is what the playbooks take: types, choices, defaults and limits are those of the code."""

from __future__ import annotations

import itertools
import re

import jinja2
import pytest
import yaml

pytest.importorskip("ansible", reason="the variables of the playbooks are known to action plugins")

from ansible_collections.gpufleet.lifecycle.plugins.action import playbook_variables, rollout_control
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names, _variables
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import quarantining
from tests.unit.awx import data
from tests.unit.plugins.plugin_utils._runbooks import test_relief

pytestmark = pytest.mark.cores

TEMPLATES = data.named("controller_templates")
WORKFLOWS = data.named("controller_workflows")
ASKED = sorted(
    (name, variable)
    for name, entry in list(TEMPLATES.items()) + list(WORKFLOWS.items())
    for variable in data.survey(entry)
)
# Variables of the playbooks that no argument spec describes: what their heads and _variables say of them.
WHOLE = {
    "bringup_reboot_timeout": 1800,
    "capacity_days": 90,
    "capacity_lead_days": "",
    "gpufleet_answer_timeout": 300,
    "holds_max_days": "",
    "rollout_nodes_left": "",
}
# Those that a playbook passes on to its role.
PASSED_ON = {
    "thermal_relief_%s" % name: "gpu_quarantine_relief_%s" % name for name in ("state", "percent", "watts", "hours")
} | {"return_to_service_new_baseline": "gpu_quarantine_new_baseline"}
TEXTS = {name for name in _variable_names.PLAYBOOKS if name not in WHOLE and name not in PASSED_ON}


def specs():
    """{variable: its spec} of all that a rollout, rollout_control and the roles describe."""
    control = rollout_control.ActionModule
    found = {control.VARIABLES[key]: one for key, one in control.ARGUMENT_SPEC.items() if key in control.VARIABLES}
    found.update((options.PREFIX + key, one) for key, one in options.SPEC.items())
    for path in data.AWX.parent.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            found.update(entry.get("options") or {})
    return found


SPECS = specs()


def wanted(variable):
    """(types that a question may have, its choices, its default, its least and largest number) by the code."""
    if variable in WHOLE:
        return ("integer",), None, WHOLE[variable], (0, None)
    variable = PASSED_ON.get(variable, variable)
    if variable in SPECS and variable not in ("upgrade_hosts",):
        spec = SPECS[variable]
        kind = spec.get("type", "str")
        default = "" if spec.get("default") in (None, [], {}) else spec["default"]
        if spec.get("choices"):
            return ("multiplechoice",), spec["choices"], default, None
        if kind == "int":
            return ("integer",), None, default, (spec.get("minimum", 0), spec.get("maximum", options.MOST_NODES))
        if kind == "float":
            return ("float",), None, default or "", (0, None)  # 0 stands for no number
        if kind == "bool":
            return ("multiplechoice",), ["false", "true"], str(default).lower(), None
        # A text survives everything; "{{ ... }}" in a role's spec is a default that another variable gives.
        return ("text", "textarea"), None, "" if "{{" in str(default) else str(default), None
    assert variable in TEXTS, "%s is no variable of the collection" % variable
    return ("text", "textarea"), None, "", None


def complaints(question):
    """What of a question is not as the code has it."""
    types, choices, default, limits = wanted(question["variable"])
    least, most = limits or (None, None)
    found = []
    if question["type"] not in types:
        found.append("type %s, not %s" % (question["type"], types))
    if question.get("choices") != choices:
        found.append("choices %s, not %s" % (question.get("choices"), choices))
    given = question.get("default", "")
    if given != default or type(given) is not type(default):
        found.append("default %r, not %r" % (given, default))
    if most is not None and question["max"] > most:
        found.append("max %s, more than %s" % (question["max"], most))
    if least is not None and question.get("min", -1) < least:
        found.append("min %s" % question.get("min"))
    if question["type"] in ("text", "textarea"):
        longest = options.LONG if question["type"] == "textarea" else options.LONGEST
        if question["max"] > longest:
            found.append("max %s, more than %s characters" % (question["max"], longest))
    return found


@pytest.mark.parametrize("name, variable", ASKED)
def test_a_question_is_what_the_code_takes(name, variable):
    assert complaints(data.survey(TEMPLATES.get(name) or WORKFLOWS[name])[variable]) == []


def test_what_a_node_without_a_baseline_returns_with_can_be_answered():
    variable, _equals, answer = quarantining.NEW_BASELINE.partition("=")
    assert answer in data.survey(TEMPLATES["gpufleet return_to_service"])[variable]["choices"]


@pytest.mark.parametrize(
    "variable, field, value",
    [
        ("rollout_on_failure", "choices", ["rollback", "stop"]),
        ("rollout_canary_soak_s", "default", "0"),
        ("rollout_canary_soak_s", "max", 10**9),
        ("rollout_max_down", "default", 1),
        ("rollout_max_down", "type", "integer"),
        ("rollout_mode", "default", "waves"),
        ("rollout_break_lock", "default", "true"),
        ("rollout_version", "max", 10**6),
        ("rollout_canary_soak_s", "min", -1),
    ],
)
def test_a_question_that_drifts_is_found(variable, field, value):
    question = dict(data.survey(TEMPLATES["gpufleet upgrade"])[variable], **{field: value})
    assert complaints(question) != []


@pytest.mark.parametrize("variable, option", [("thermal_relief_percent", "percent"), ("thermal_relief_hours", "hours")])
def test_the_limits_of_a_relief_are_those_of_the_playbook(variable, option):
    question = data.survey(TEMPLATES["gpufleet thermal_relief"])[variable]
    for number, well in ((question["min"], True), (question["max"], True), (question["max"] + 1, False)):
        said = test_relief.decide(test_relief.gpu(low=1), **{option: number})["refusal"]
        assert (said == "") is well, said


def test_a_question_for_a_variable_that_does_not_exist_is_found():
    with pytest.raises(AssertionError, match="rollout_versoin"):
        wanted("rollout_versoin")


# What the project has beside a wrapper for every playbook of the collection.
OWN = ["approval"]


def wrapper(playbook):
    return yaml.safe_load((data.AWX / "project" / (playbook + ".yml")).read_text())


def test_every_playbook_has_a_template_and_a_wrapper_and_every_wrapper_a_playbook():
    wrappers = sorted(path.stem for path in (data.AWX / "project").glob("*.yml"))
    assert wrappers == sorted(data.playbooks() + OWN)
    assert {entry["playbook"] for entry in TEMPLATES.values()} == {name + ".yml" for name in wrappers}
    for name in data.playbooks():
        (only,) = wrapper(name)
        assert set(only) - {"vars"} == {"name", "ansible.builtin.import_playbook"}
        assert only["ansible.builtin.import_playbook"] == "gpufleet.lifecycle." + name


def test_awx_would_list_the_wrappers_and_nothing_else():
    """AWX takes for a playbook what has such a line, outside of a few directories and hidden ones."""
    line = re.compile(
        r"^\s*?-?\s*?(?:hosts|(?:ansible\.builtin\.)?import_playbook|(?:ansible\.builtin\.)?include):\s*?.*?$", re.M
    )
    root = data.AWX / "project"
    found = sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.suffix in (".yml", ".yaml") and line.search(path.read_text())
    )
    assert found == sorted(name + ".yml" for name in data.playbooks() + OWN)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_lets_nothing_slip_past(name):
    entry = TEMPLATES[name]
    sliced = name == "gpufleet upgrade in slices"
    assert entry["allow_simultaneous"] is False and entry["use_fact_cache"] is False
    assert entry["job_slice_count"] == ("{{ gpufleet_awx_slices }}" if sliced else 1)
    assert entry["ask_job_slice_count_on_launch"] is sliced
    assert not any(entry["ask_%s_on_launch" % what] for what in ("variables", "tags", "skip_tags", "job_type"))
    assert (
        entry["survey_enabled"]
        and entry["credentials"]
        and all(text.startswith("{{ gpufleet_awx_") for text in entry["credentials"])
    )
    assert entry["job_type"] == ("check" if name == "gpufleet plan" else "run")


def test_no_secret_is_in_the_files():
    """Credentials are named; a password of a notification is empty."""
    text = "\n".join(path.read_text() for path in (data.AWX / "controller").glob("*.yml"))
    assert (
        re.findall(r"(?im)^\s*(?:password|token|secret|ssh_key_data)\s*:(?!\s*(?:\"\"|''|\$encrypted\$)?$).*", text)
        == []
    )


@pytest.mark.parametrize("name", sorted({**TEMPLATES, **WORKFLOWS}))
def test_no_survey_chooses_to_whom_a_secret_is_sent(name):
    """A header of a credential goes to the host of such a variable, whoever starts the job."""
    asked = set(data.survey({**TEMPLATES, **WORKFLOWS}[name]))
    places = {
        one
        for one in asked
        if re.search(r"url|uri|headers|webhook|ledger|artifact|_queries|gpufleet_service_hosts", one)
    }
    assert places == set()


def test_address_of_prometheus_is_the_templates():
    address = TEMPLATES["gpufleet capacity"]["extra_vars"]["capacity_prometheus_url"]
    assert address == "{{ gpufleet_awx_prometheus_url }}"


def test_a_rollout_waits_for_the_plan_that_was_approved():
    for name in ("gpufleet plan", "gpufleet upgrade", "gpufleet plan for several controllers"):
        assert TEMPLATES[name]["extra_vars"] == {"rollout_require_approval": True}


def test_the_jobs_of_a_plan_for_several_join_it_and_an_empty_slice_cannot_come_from_a_limit():
    canaries, slices = TEMPLATES["gpufleet upgrade of the canaries"], TEMPLATES["gpufleet upgrade in slices"]
    assert slices["extra_vars"] == {"rollout_join": True, "rollout_require_approval": True}
    assert canaries["extra_vars"] == dict(slices["extra_vars"], rollout_join_canaries=True)
    assert not canaries["ask_limit_on_launch"] and not slices["ask_limit_on_launch"]
    limits = {"rollout_max_down", "rollout_failure_budget", "rollout_canaries_per_stratum", "rollout_canary_soak_s"}
    assert limits <= set(data.survey(TEMPLATES["gpufleet plan for several controllers"]))
    assert not limits & set(data.survey(slices)) and data.survey(slices) == data.survey(canaries)


def paths(nodes, identifier):
    """The nodes that run only if IDENTIFIER ended well, and those that run whatever became of it."""
    node = next(one for one in nodes if one["identifier"] == identifier)
    return node.get("success_nodes", []), node.get("always_nodes", []) + node.get("failure_nodes", [])


@pytest.mark.parametrize(
    "name, jobs",
    [("gpufleet driver upgrade", ["upgrade"]), ("gpufleet driver upgrade in slices", ["canaries", "slices"])],
)
def test_nothing_is_upgraded_before_the_plan_is_approved_and_the_report_comes_always(name, jobs):
    nodes = WORKFLOWS[name]["simplified_workflow_nodes"]
    assert paths(nodes, "precheck") == ([], ["plan"]), "the plan leaves out nodes that are sick"
    assert paths(nodes, "plan") == (["check"], []) and paths(nodes, "check") == (["approval"], ["report"])
    assert paths(nodes, "approval") == (jobs[:1], []), "denied or timed out, nothing comes after the approval"
    for job, following in zip(jobs, jobs[1:]):
        assert paths(nodes, job) == ([following], ["report"])
    assert paths(nodes, jobs[-1]) == ([], ["report"])
    assert next(one for one in nodes if one["identifier"] == "approval")["approval_node"]["timeout"] > 0


def run_workflow(nodes, succeeds):
    """Play AWX's rules (awx/main/scheduler/dag_workflow.py): which nodes run, and whether the workflow is successful.

    Args:
        nodes: The nodes of a workflow.
        succeeds: {identifier: bool}, what becomes of each node that runs.
    """
    children = {
        node["identifier"]: {kind: node.get(kind + "_nodes", []) for kind in ("success", "failure", "always")}
        for node in nodes
    }
    ran, waiting = (
        [],
        sorted(set(children) - {one for links in children.values() for kind in links.values() for one in kind}),
    )
    while waiting:
        node = waiting.pop(0)
        ran.append(node)
        links = children[node]
        waiting += [
            one for one in links["success" if succeeds[node] else "failure"] + links["always"] if one not in ran
        ]
    handled = [node for node in ran if children[node]["failure"] or children[node]["always"]]
    return ran, all(succeeds[node] or node in handled for node in ran)


# Workflow -> the jobs that have to succeed for it to be successful. Job report does if the approved plan is complete.
# Where there was nothing to approve, and job check failed for it, report does if the plan leaves no node out.
DECIDED_BY = {
    "gpufleet driver upgrade": {"plan", "approval", "report"},
    "gpufleet driver upgrade in slices": {"plan", "approval", "report"},
    "gpufleet new node": {"bringup", "precheck"},
    "gpufleet before a maintenance": {"precheck", "holds"},
}


def find_deciding_jobs(name, succeeds):
    """Return the jobs that have to succeed; SUCCEEDS: what becomes of each node that runs."""
    return DECIDED_BY[name] - ({"approval"} if not succeeds.get("check", True) else set())


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_status_of_a_workflow_is_that_of_what_it_was_started_for(name):
    nodes = WORKFLOWS[name]["simplified_workflow_nodes"]
    names = [node["identifier"] for node in nodes]
    for outcome in itertools.product([True, False], repeat=len(names)):
        succeeds = dict(zip(names, outcome))
        ran, successful = run_workflow(nodes, succeeds)
        deciding = find_deciding_jobs(name, succeeds)
        assert successful == all(succeeds[job] for job in deciding), succeeds
        assert len(ran) == len(set(ran)) and (not successful or deciding <= set(ran)), succeeds
    assert run_workflow(nodes, dict.fromkeys(names, True))[0] == names or set(names) == DECIDED_BY[name]


@pytest.mark.parametrize("name", ["gpufleet driver upgrade", "gpufleet driver upgrade in slices"])
def test_a_plan_without_a_node_asks_for_no_approval_and_goes_to_the_report(name):
    nodes = WORKFLOWS[name]["simplified_workflow_nodes"]
    succeeds = dict.fromkeys([node["identifier"] for node in nodes], True)
    assert run_workflow(nodes, dict(succeeds, check=False)) == (["precheck", "plan", "check", "report"], True)
    assert run_workflow(nodes, dict(succeeds, check=False, report=False))[1] is False
    assert TEMPLATES["gpufleet approval check"]["notification_templates_error"] == [], "it is no failure"


def test_workflow_whose_failed_job_is_followed_by_one_that_only_looks_is_found():
    nodes = [{"identifier": "precheck", "always_nodes": ["holds"]}, {"identifier": "holds"}]
    assert run_workflow(nodes, {"precheck": False, "holds": True}) == (["precheck", "holds"], True)


ANSWERED = sorted(
    (name, node["unified_job_template"])
    for name, entry in WORKFLOWS.items()
    for node in entry["simplified_workflow_nodes"]
    if "unified_job_template" in node
)
# What a job of a rollout gets from job plan beside the answers (set_stats).
HANDED_ON = {
    "rollout_id": "upgrade-535.261.03",
    "rollout_approve": "0123456789ab",
    "rollout_run_before": "",
    "rollout_table": ["a line"],
    "rollout_nodes_left": 1,
    "rollout_left_out": ["gpu-a-2"],
}


def extra_variables(template, answers):
    """Return the extra variables of a job as AWX has them: the template's, the survey's defaults, the answers."""
    found = {name: value for name, value in template.get("extra_vars", {}).items() if "{{" not in str(value)}
    found.update(
        {name: one["default"] for name, one in data.survey(template).items() if one.get("default") is not None}
    )
    return {**found, **answers}


@pytest.mark.parametrize("nodes", ["gpu-a-1", ""], ids=["named", "all"])
@pytest.mark.parametrize("name, job", ANSWERED)
def test_every_job_of_a_workflow_takes_its_answers_and_its_nodes(name, job, nodes):
    questions, template = data.survey(WORKFLOWS[name]), TEMPLATES[job]
    answers = {
        variable: nodes if variable.endswith("_hosts") else question["default"] or "535.261.03"
        for variable, question in questions.items()
    }
    given = extra_variables(template, {**answers, **(HANDED_ON if "rollout_version" in answers else {})})
    playbook = template["playbook"].partition(".")[0]
    mine = {"plan": "upgrade_hosts", "report": None, "approval": None}.get(playbook, playbook + "_hosts")
    (only,) = wrapper(playbook)
    defaults = {key: jinja2.Template(text).render(given) for key, text in only.get("vars", {}).items()}
    pattern = given.get(mine, defaults.get(mine))
    assert mine is None or pattern == nodes
    arguments = {
        "nodes": ["gpu-a-1"],
        "patterns": {mine: pattern} if mine and not given.get("rollout_join") else {},
        "prefix": "",
        "control": False,
        "values": False,
        "rollout": False,
    }
    inventory = {"groups": {"all": ["gpu-a-1"], "gpu_nodes": ["gpu-a-1"]}, "hostvars": {"gpu-a-1": given}}
    assert playbook_variables.check_variables(arguments, inventory, given) == []


def test_nodes_of_another_playbook_are_refused_where_its_own_are_not_named():
    for pattern in (None, ""):
        with pytest.raises(_variables.VariableError, match="upgrade_hosts"):
            _variables.refuse_other_playbook({"upgrade_hosts": "gpu-a-1"}, "precheck_hosts", pattern)
    _variables.refuse_other_playbook({"upgrade_hosts": "gpu-a-1"}, "precheck_hosts", "gpu-a-1")


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_a_workflow_runs_templates_that_are_there_and_asks_what_they_ask(name):
    asked = data.survey(WORKFLOWS[name])
    nodes = WORKFLOWS[name]["simplified_workflow_nodes"]
    links = [
        link
        for node in nodes
        for kind in ("success_nodes", "failure_nodes", "always_nodes")
        for link in node.get(kind, [])
    ]
    assert set(links) <= {node["identifier"] for node in nodes}
    taken = set()
    for node in nodes:
        if "unified_job_template" in node:
            template = data.survey(TEMPLATES[node["unified_job_template"]])
            taken |= set(template)
            needed = {
                variable
                for variable, question in template.items()
                if question["required"] and question.get("default", "") == ""
            }
            assert needed <= set(asked), "%s is asked of nobody" % needed
    assert set(asked) <= taken and WORKFLOWS[name]["allow_simultaneous"] is False


def test_who_may_plan_may_not_approve():
    roles, teams = data.everything()["controller_roles"], data.named("aap_teams")
    assert {entry["team"] for entry in roles} == set(teams)
    may = {}
    for entry in roles:
        for kind in ("job_templates", "workflows"):
            for name in entry.get(kind, []):
                assert name in (TEMPLATES if kind == "job_templates" else WORKFLOWS), name
                may.setdefault((entry["role"], name), set()).add(entry["team"])
    for name, plan in (
        ("gpufleet driver upgrade", "gpufleet plan"),
        ("gpufleet driver upgrade in slices", "gpufleet plan for several controllers"),
    ):
        assert may["approval", name] == {"gpufleet approvers"}
        assert "gpufleet approvers" not in may["execute", name] | may["execute", plan]
    assert may["execute", "gpufleet rollout_control"] == {"gpufleet operators"}
    upgrades = {
        "gpufleet " + name for name in ("approval check", "upgrade", "upgrade of the canaries", "upgrade in slices")
    }
    executed = {name for role, name in may if role == "execute"}
    assert {*TEMPLATES, *WORKFLOWS} - executed == upgrades, "an upgrade goes through the workflow, all else has a team"


def test_schedules_run_what_only_looks():
    schedules = data.named("controller_schedules")
    assert {entry["unified_job_template"] for entry in schedules.values()} == {
        "gpufleet precheck",
        "gpufleet holds",
        "gpufleet capacity",
    }
    for entry in schedules.values():
        asked = data.survey(TEMPLATES[entry["unified_job_template"]])
        open_questions = {name for name, one in asked.items() if one["required"] and one.get("default", "") == ""}
        assert open_questions <= set(entry.get("extra_data", {})) <= set(asked), "AWX would not take it"
    assert all(re.search(r"^DTSTART;TZID=\S.*RRULE:FREQ=", entry["rrule"]) for entry in schedules.values())
