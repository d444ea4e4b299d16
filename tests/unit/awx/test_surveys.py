# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX asks is what the playbooks take: types, choices, defaults and limits are those of the code."""

from __future__ import annotations

import re

import pytest
import yaml

pytest.importorskip("ansible", reason="the variables of the playbooks are known to action plugins")

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_control, rollout_plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options
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
}
# Those that a playbook passes on to its role.
PASSED_ON = {
    "thermal_relief_%s" % name: "gpu_quarantine_relief_%s" % name for name in ("state", "percent", "watts", "hours")
}
TEXTS = {name for name in _variable_names.PLAYBOOKS if name not in WHOLE and name not in PASSED_ON}


def specs():
    """{variable: its spec, with the option's name as "key"} of all that the actions and the roles describe."""
    found = {}
    for action in (rollout_plan, rollout_control):
        for key, variable in action.ActionModule.VARIABLES.items():
            if key in action.ActionModule.ARGUMENT_SPEC:
                found[variable] = dict(action.ActionModule.ARGUMENT_SPEC[key], key=key)
    for path in data.AWX.parent.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            found.update({name: dict(option, key=name) for name, option in (entry.get("options") or {}).items()})
    return found


SPECS = specs()


def wanted(variable):
    """(types that a question may have, its choices, its default, its largest number) by the code."""
    if variable in WHOLE:
        return ("integer",), None, WHOLE[variable], None
    variable = PASSED_ON.get(variable, variable)
    if variable in SPECS and variable not in ("upgrade_hosts",):
        spec = SPECS[variable]
        kind, key = spec.get("type", "str"), spec["key"]
        default = "" if spec.get("default") in (None, [], {}) else spec["default"]
        if spec.get("choices"):
            return ("multiplechoice",), spec["choices"], default, None
        if kind == "int":
            return (
                ("integer",),
                None,
                default,
                options.MOST.get(key) or (options.MOST_SECONDS if key.endswith("_s") else options.MOST_NODES),
            )
        if kind == "float":
            return ("float",), None, default or "", None  # 0 stands for no number
        if kind == "bool":
            return ("multiplechoice",), ["false", "true"], str(default).lower(), None
        # A text survives everything; "{{ ... }}" in a role's spec is a default that another variable gives.
        return ("text", "textarea"), None, "" if "{{" in str(default) else str(default), None
    assert variable in TEXTS, "%s is no variable of the collection" % variable
    return ("text", "textarea"), None, "", None


def complaints(question):
    """What of a question is not as the code has it."""
    types, choices, default, most = wanted(question["variable"])
    found = []
    if question["type"] not in types:
        found.append("type %s, not %s" % (question["type"], types))
    if question.get("choices") != choices:
        found.append("choices %s, not %s" % (question.get("choices"), choices))
    if question["default"] != default or type(question["default"]) is not type(default):
        found.append("default %r, not %r" % (question["default"], default))
    if most is not None and question["max"] > most:
        found.append("max %s, more than %s" % (question["max"], most))
    if types[0] in ("integer", "float") and question.get("min", -1) < 0:
        found.append("min %s" % question.get("min"))
    if question["type"] in ("text", "textarea"):
        longest = options.LONG if question["type"] == "textarea" else options.LONGEST
        if question["max"] > longest:
            found.append("max %s, more than %s characters" % (question["max"], longest))
    return found


@pytest.mark.parametrize("name, variable", ASKED)
def test_a_question_is_what_the_code_takes(name, variable):
    assert complaints(data.survey(TEMPLATES.get(name) or WORKFLOWS[name])[variable]) == []


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


def test_every_playbook_has_a_template_and_a_wrapper_and_every_wrapper_a_playbook():
    wrappers = sorted(path.stem for path in (data.AWX / "project").glob("*.yml"))
    assert wrappers == data.playbooks()
    assert {entry["playbook"] for entry in TEMPLATES.values()} == {name + ".yml" for name in wrappers}
    for name in wrappers:
        (only,) = yaml.safe_load((data.AWX / "project" / (name + ".yml")).read_text())
        assert set(only) == {"name", "ansible.builtin.import_playbook"}
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
    assert found == [name + ".yml" for name in data.playbooks()]


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
    before = "precheck"
    for following in ["plan", "approval"] + jobs[:1]:
        assert paths(nodes, before) == ([following], []), "denied, failed or timed out, nothing comes after %s" % before
        before = following
    for job, following in zip(jobs, jobs[1:]):
        assert paths(nodes, job) == ([following], ["report"])
    assert paths(nodes, jobs[-1]) == ([], ["report"])
    assert next(one for one in nodes if one["identifier"] == "approval")["approval_node"]["timeout"] > 0


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
                if question["required"] and question["default"] == ""
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
    for name in ("upgrade", "upgrade of the canaries", "upgrade in slices"):
        assert ("execute", "gpufleet " + name) not in may, "an upgrade goes through the workflow"


def test_schedules_run_what_only_looks():
    schedules = data.named("controller_schedules")
    assert {entry["unified_job_template"] for entry in schedules.values()} == {
        "gpufleet precheck",
        "gpufleet holds",
        "gpufleet capacity",
    }
    for entry in schedules.values():
        asked = data.survey(TEMPLATES[entry["unified_job_template"]])
        open_questions = {name for name, one in asked.items() if one["required"] and one["default"] == ""}
        assert open_questions <= set(entry.get("extra_data", {})) <= set(asked), "AWX would not take it"
    assert all(re.search(r"^DTSTART;TZID=\S.*RRULE:FREQ=", entry["rrule"]) for entry in schedules.values())
