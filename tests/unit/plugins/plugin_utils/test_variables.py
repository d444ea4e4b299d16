# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that nobody would read, that nodes of one rollout do not agree on, or that overrule its plan."""

from __future__ import annotations

import difflib
import os
import pathlib
import re
from unittest import mock

import pytest
import yaml

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible import constants
from ansible.config import manager
from ansible.errors import AnsibleError
from ansible.vars import reserved

from ansible_collections.gpufleet.lifecycle.plugins.action import playbook_variables
from ansible_collections.gpufleet.lifecycle.plugins.filter import host_pattern
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding, _variable_names, _variables
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import Node
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores

ROOT = pathlib.Path(__file__).resolve().parents[4]


def act(hostvars, nodes=None, extra=None, **more):
    """Run the action for nodes with HOSTVARS. EXTRA: extra variables. MORE: options and task variables."""
    more.setdefault("rollout", True)
    arguments = {name: more.pop(name) for name in playbook_variables.ARGUMENT_SPEC if name in more}
    arguments["nodes"] = list(hostvars) if nodes is None else nodes
    action = actions.make_action(playbook_variables, arguments, loader=mock.Mock())
    task_vars = {"groups": {"all": ["a", "b", "c", "one", "two"]}, "hostvars": hostvars, **more}
    with mock.patch.object(playbook_variables, "load_extra_vars", return_value=extra or {}):
        return action.run(task_vars=task_vars)


def assert_refused(result, *words):
    """Assert that a run was refused with these words, or was not if there are none or empty ones."""
    words = [word for word in words if word]
    assert bool(result.get("failed")) is bool(words), result.get("msg")
    assert all(word in result["msg"] for word in words) and (not words or "Nothing was changed" in result["msg"])


# A name that only looks like one of the collection's, and the nearest one that there is.
SLIPS = {
    "gpu_scheduler_backend": "gpu_scheduler_backends",
    "precheck_expected_driver": "precheck_expected_driver_version",
    "rollout_domain_cap": "rollout_domain_caps",
    "rollout_max_dwon": "rollout_max_down",
    "rollout_nodes": "rollout_node_s",
    "upgrade_host": "upgrade_hosts",
    "rollback_host": "rollback_hosts",
    "bringup_reboot_timeouts": "bringup_reboot_timeout",
    "holds_maxdays": "holds_max_days",
    "prestage_host": "prestage_hosts",
    "gpufleet_domain": "gpufleet_domains",
    "nvidia_driver_flavor": "nvidia_driver_flavour",
    "nvidia_repository_url": "nvidia_repository_uri",
    "nvidia_persistenced_x1y2": "",
    "kernel_hold_kernels": "kernel_hold_kernel",
    "gpu_health_failon": "gpu_health_fail_on",
    "gpu_node_upgrade_service": "gpu_node_upgrade_services",
}


@pytest.mark.parametrize("name", SLIPS)
@pytest.mark.parametrize("rollout", [True, False])
def test_unknown_variable_is_refused_with_the_nearest(name, rollout):
    nearest = SLIPS[name] and "did you mean %s?" % SLIPS[name]
    assert_refused(act({"a": {}, "b": {name: 1}}, rollout=rollout), "%s is no variable of " % name, nearest)


@pytest.mark.parametrize(
    "name",
    """rollout_max_down nvidia_driver_version gpufleet_domains upgrade_hosts rollback_of gpu_nodes_of_mine ansible_host
    inventory_hostname rollouts upgraded nvidia_container_toolkit_version gpu_health_waivers kernel_holding holds
    rollout_table rollout_nodes_left rollout_left_out""".split(),
)
def test_known_and_foreign_variables_are_accepted(name):
    assert_refused(act({"a": {name: "x"}}, rollout=False))


@pytest.mark.parametrize(
    "name",
    """__gpu_node_upgrade_reboot __gpu_node_upgrade_touched __rollout_plan __rollout_audit __nvidia_driver_packages
    __gpu_scheduler_slurm __kernel_hold_before __bringup_proof __gpufleet_checked gpu_node_upgrade_gate
    gpu_scheduler_drained gpu_scheduler_mark gpufleet_rollout nvidia_driver_reboot_required kernel_hold_report
    gpu_health_result""".split(),
)
def test_reserved_name_is_refused_unless_this_run_registered_it(name):
    for value in ({"answer": "go"}, "text", True):
        assert_refused(act({"a": {name: value}}), "%s is set, a name that the collection reserves" % name)
    mine = {playbook_variables.REGISTERED: {"process": os.getppid()}}
    assert_refused(act({"a": {name: mine.get(name, 1), **mine}}))
    other = {playbook_variables.REGISTERED: {"process": os.getppid() + 1}}
    assert_refused(act({"a": {name: 1, **other}}), " is set")


@pytest.mark.parametrize("group", ["gpufleet_report", "gpufleet_rollout"])
@pytest.mark.parametrize("rollout", [True, False])
def test_second_rollout_of_one_run_is_refused_whose_report_would_be_of_the_first(group, rollout):
    groups = {"all": ["a", "b"], group: ["b"]}
    assert_refused(act({"a": {}}, groups=groups, rollout=rollout), "There is a group %s" % group if rollout else "")


@pytest.mark.parametrize("name", ["__report", "__capacity_dir", "__monitoring_pattern", "__rollout_plan", "__mig_seen"])
@pytest.mark.parametrize("values", [True, False])
def test_reserved_name_on_the_command_line_is_refused_by_every_playbook(name, values):
    """It outranks what a task registers, also in a playbook that looks at no node, and after an earlier one."""
    found = {name: 1, playbook_variables.REGISTERED: {"process": os.getppid()}}
    more = {"rollout": False, "values": values}
    assert_refused(act({"localhost": found}, **more))
    assert_refused(act({"localhost": found}, extra={name: 1, 7: 1}, **more), name + " is set")
    assert_refused(act({"localhost": {}}, nodes=[], extra={name: 1}, **more), name + " is set")
    assert_refused(act({"localhost": {}}, extra={"__mine": 1, "__reporter": 1}, **more))


@pytest.mark.parametrize(
    "one, other, words",
    [
        ({"rollout_max_down": 2}, {"rollout_max_down": 3}, "rollout_max_down is 2 for a and 3 for b"),
        ({"rollout_max_down": 2}, {}, "rollout_max_down is 2 for a and not set for b"),
        ({}, {"rollout_mode": "waves"}, "rollout_mode is not set for a and 'waves' for b"),
        ({"rollout_version": "1.0"}, {"rollout_version": "2.0"}, "rollout_version is '1.0' for a and '2.0' for b"),
        ({"rollout_windows": [{"from": "1"}]}, {"rollout_windows": []}, "rollout_windows is one value for a"),
        ({"rollout_webhook": {"url": "https://secret"}}, {}, "rollout_webhook is one value for a and not set for b"),
        ({"rollout_ledger": "postgresql://u:secret@h/d"}, {}, "rollout_ledger is one value for a and not set for b"),
        ({"gpu_node_upgrade_rollout_mode": "ledger"}, {"gpu_node_upgrade_rollout_mode": "none"}, "'none' for b"),
        ({}, {"gpu_node_upgrade_on_failure": "stop"}, "gpu_node_upgrade_on_failure is not set for a"),
        ({}, {"gpu_node_upgrade_version": "1.0"}, "gpu_node_upgrade_version is not set for a and '1.0' for b"),
        ({"gpufleet_artifact_dir": "/a"}, {"gpufleet_artifact_dir": "/b"}, "gpufleet_artifact_dir is '/a' for a"),
        # The plan says once for all of them where compiled modules are kept, and which host keeps them.
        ({"gpufleet_artifact_host": "one"}, {"gpufleet_artifact_host": "two"}, "gpufleet_artifact_host is 'one' for a"),
        ({"gpufleet_artifact_host": "one"}, {}, "gpufleet_artifact_host is 'one' for a and not set for b"),
        ({}, {"nvidia_driver_tree_dir": "/b"}, "nvidia_driver_tree_dir is not set for a and '/b' for b"),
        ({"gpufleet_artifact_host": "one"}, {"gpufleet_artifact_host": "one"}, ""),
        ({"rollout_max_down": 2}, {"rollout_max_down": 2}, ""),
        ({"rollout_table": ["1. a"], "rollout_nodes_left": 1, "rollout_left_out": []}, {}, ""),
        ({"nvidia_driver_version": "1"}, {"nvidia_driver_version": "2"}, ""),
        ({"gpufleet_domains": {"rack": 1}}, {"gpufleet_domains": {"rack": 2}}, ""),
        ({"gpu_node_upgrade_reboot_timeout": 1}, {"gpu_node_upgrade_reboot_timeout": 2}, ""),
    ],
)
def test_variable_of_the_whole_rollout_is_the_same_for_its_nodes(one, other, words):
    result = act({"a": one, "b": other})
    assert_refused(result, words)
    assert "secret" not in result.get("msg", "")
    assert_refused(act({"a": one, "b": other}, rollout=False))
    assert_refused(act({"a": one, "c": one, "b": other, "localhost": one}, nodes=["a", "c"]))


def test_many_nodes_are_compared_with_the_first():
    nodes = {"n%d" % number: {"rollout_max_down": 2} for number in range(50)}
    nodes["n31"]["rollout_max_down"] = 20
    assert_refused(act(nodes), "rollout_max_down is 2 for n0 and 20 for n31")


def variables_set_in(path):
    """Return the names in vars of the tasks and plays of a file, and the roles that it includes."""
    names, roles = set(), set()

    def walk(found):
        for child in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
            walk(child)
        if isinstance(found, dict):
            names.update(found["vars"] if isinstance(found.get("vars"), dict) else ())
            roles.update(
                found[key]["name"].rpartition(".")[2]
                for key in ("ansible.builtin.include_role", "ansible.builtin.import_role")
                if isinstance(found.get(key), dict)
            )

    walk(yaml.safe_load(path.read_text(encoding="utf-8")))
    return {name for name in names if not name.startswith("__")}, roles


# The entry points that the upgrade uses, of roles that have others.
USED = {"gpu_quarantine": ("close", "mark"), "kernel_hold": ("choose", "security")}


def test_plan_refuses_every_variable_that_the_upgrade_sets():
    names, todo, seen = set(), {"gpu_node_upgrade"}, set()
    while todo:
        role = todo.pop()
        seen.add(role)
        for path in (ROOT / "roles" / role / "tasks").rglob("*.yml"):
            found, roles = variables_set_in(path)
            if path.stem in USED.get(role, (path.stem,)):
                names |= found
                todo |= roles - seen
    for playbook in ("plan", "upgrade", "rollback", "mig"):
        names |= variables_set_in(ROOT / "playbooks" / (playbook + ".yml"))[0]
    # The playbooks refuse upgrade_hosts by themselves; bring-up alone runs the tasks that set nvidia_mig_configs.
    assert names - {"upgrade_hosts", "nvidia_mig_configs"} <= set(_variable_names.OF_PLAN)
    assert {"nvidia_driver_version", "gpu_scheduler_token", "kernel_hold_kernel"} <= names


def test_gate_hides_the_inventory_from_what_the_upgrade_sets():
    task = yaml.safe_load((ROOT / "roles/gpu_node_upgrade/tasks/request_drain.yml").read_text(encoding="utf-8"))[0]
    inner = {name for name in _variable_names.OF_PLAN if not name.startswith(("gpu_node_upgrade_", "rollout_"))}
    assert set(task["vars"]) == inner and set(task["vars"].values()) == {None}


@pytest.mark.parametrize("value", ["3.0", "", None, False, {}])
def test_plan_refuses_an_extra_variable_of_the_upgrade(value):
    for name in _variable_names.OF_PLAN:
        assert_refused(act({"a": {name: value}}, extra={name: value}), name + " is ")
        assert_refused(act({"a": {}}, extra={name: value}, rollout=False))


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({"rollout_max_dwon": 1}, True),
        ({"gpu_scheduler_backend": ["slurm"]}, True),
        ({"gpu_node_upgrade_reload": "perhaps"}, True),
        ({"gpu_node_upgrade_version": "3.0"}, False),
        ({"__gpu_node_upgrade_state": {}}, False),
        ({"rollout_max_dwon": 1, "gpu_node_upgrade_version": "3.0"}, False),
        ({"rollout_max_dwon": 1, "__gpu_node_upgrade_state": {}}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("state", ["down", "done", None])
def test_refused_variable_waits_until_nodes_in_flight_are_finished(tmp_path, given, waits, state):
    if state:
        ledger = Ledger(str(tmp_path), "r1")
        ledger.transact(
            lambda transaction: transaction.view.nodes.store(Node("a", state)) or transaction.save("a", "x", {})
        )
    result = act({"a": given, "b": {}}, extra=given, artifact_dir=str(tmp_path))
    if waits and state == "down":
        assert not result.get("failed") and result["refused"] and result["service_hosts"] == []
    else:
        assert result["failed"] and "refused" not in result
    assert act({"a": given}, extra=given)["failed"], "no ledger is asked"


@pytest.mark.parametrize("name", ["nvidia_driver_version", "gpu_node_upgrade_version", "gpu_scheduler_token"])
def test_variable_of_the_inventory_overrules_nothing(name):
    assert_refused(act({"a": {name: "3.0"}}))


@pytest.mark.parametrize("mine", ["rollback_hosts", "mig_hosts"])
def test_nodes_of_another_playbook_beside_its_own_are_refused(mine):
    result = act({"a": {}}, extra={mine: "a", "upgrade_hosts": "b"}, patterns={mine: "a"})
    assert_refused(result, "upgrade_hosts is on the command line")


@pytest.mark.parametrize(
    "role, plan, refused",
    [
        ("quarantine", None, True),
        ("rollback", "stop", True),
        ("stop", "stop", False),
        ("rollback", None, False),
        (None, "", False),
    ],
)
def test_role_does_with_a_failed_node_what_the_plan_says(role, plan, refused):
    given = {"gpu_node_upgrade_on_failure": role, "rollout_on_failure": plan}
    found = {name: value for name, value in given.items() if value is not None}
    assert_refused(act({"a": found, "b": found}), refused and "gpu_node_upgrade_on_failure is %r for a" % role)


@pytest.mark.parametrize("name", ["gpufleet_artifact_dir", "rollout_ledger"])
@pytest.mark.parametrize(
    ("of_node", "of_localhost", "refused"),
    [
        ({}, {}, False),
        ({"x": "/a"}, {"x": "/a"}, False),
        ({"x": "/a"}, {}, True),
        ({"x": "/a"}, {"x": "/b"}, True),
        ({"x": ""}, {}, False),
        ({"x": None}, {"x": "/b"}, False),
        ({}, {"x": "/b"}, False),
    ],
)
def test_nodes_and_the_controller_have_one_ledger(name, of_node, of_localhost, refused):
    node, localhost = ({name: found["x"]} if found else {} for found in (of_node, of_localhost))
    assert_refused(act({"a": node, "localhost": localhost}, nodes=["a"]), refused and name)
    assert_refused(act({"a": node, "localhost": localhost}, nodes=["a"], rollout=False))


def test_variable_that_cannot_be_evaluated_is_refused_by_name():
    class Broken(dict):
        def __getitem__(self, name):
            raise AnsibleError("'oops' is undefined\nin line 3")

    result = act({"a": Broken(rollout_max_down="{{ oops }}")})
    assert_refused(result, "rollout_max_down of a cannot be evaluated: 'oops' is undefined in line 3")


@pytest.mark.parametrize(
    "tags, skip, start, option",
    [
        ("x", "", None, "--tags x"),
        ("never always", "", None, "--tags always,never"),
        ("all", "all", None, "--skip-tags all"),
        ("all", "untagged", None, "--skip-tags untagged"),
        ("all", "always", None, "--skip-tags always"),
        ("all", "x always untagged", None, "--skip-tags always,untagged,x"),
        ("all", "", "Install the driver", "--start-at-task Install the driver"),
        ("all", "monitoring", None, ""),
        ("all", "", None, ""),
        ("untagged", "", None, ""),
        ("", "", None, ""),
    ],
)
def test_run_that_leaves_out_tasks_is_refused_where_hosts_are_named(monkeypatch, tags, skip, start, option):
    arguments = {"tags": tags.split(), "skip_tags": skip.split(), "start_at_task": start}
    monkeypatch.setattr(host_pattern.context, "CLIARGS", arguments)
    if not option:
        assert host_pattern.host_pattern("localhost:all", "hosts") == "localhost:all"
        return
    with pytest.raises(AnsibleError, match=re.escape(option)):
        host_pattern.host_pattern("localhost:all", "hosts")


def tasks(entries):
    for entry in entries:
        yield entry
        for part in ("block", "rescue", "always", "tasks"):
            yield from tasks(entry.get(part) or [])


def plays_of(name):
    """The plays of a playbook in order, those that it imports among them."""
    for play in yaml.safe_load((ROOT / "playbooks" / name).read_text(encoding="utf-8")):
        imported = play.get("ansible.builtin.import_playbook")
        yield from plays_of(pathlib.PurePath(name).parent / imported) if imported else [play]


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "playbooks").glob("*.yml")))
def test_the_playbook_begins_with_it_also_when_tags_are_chosen(name):
    plays = list(plays_of(name))
    own = [task for task in tasks(plays) if "gpufleet.lifecycle.playbook_variables" in task]
    assert own and {(task["register"], task["run_once"]) for task in own} == {(playbook_variables.REGISTERED, True)}
    first = next(play for play in plays if own[0] in (play.get("tasks") or []))
    before = [task for play in plays[: plays.index(first)] for task in tasks(play.get("tasks") or [])] + first["tasks"][
        : first["tasks"].index(own[0])
    ]
    assert not [task for task in before if "ansible.builtin.assert" not in task]
    assert all(play.get("gather_facts") is False and "roles" not in play for play in plays[: plays.index(first) + 1])


def test_playbook_of_the_ledger_works_whatever_the_inventory_says_of_nodes():
    class Broken(dict):
        def __getitem__(self, name):
            if name == "gpu_scheduler_backends":
                raise AnsibleError("undefined")
            return super().__getitem__(name)

    found = Broken(
        gpufleet_inventory_failed="slurmctld does not answer.",
        gpu_scheduler_backends="{{ oops }}",
        gpufleet_answer_timeout=0,
    )
    given = {name: 1 for name in _variable_names.CONTROL}
    more = {"rollout": False, "values": False, "control": True}
    assert_refused(act({"localhost": Broken(found, **given)}, **more))
    assert_refused(act({"localhost": found}, rollout=False), "slurmctld")
    for name in _variable_names.CONTROL:
        assert_refused(act({"localhost": {name: 1}}, rollout=False, values=False), name)
    for extra in ({"rollout_idd": "x"}, {"_raw_params": "switch"}):
        assert act({"localhost": Broken(found, **given, **extra)}, **more)["failed"], extra


@pytest.mark.parametrize(
    "prefix, name, refused",
    [
        ("monitoring_", "monitoring_host", True),
        ("monitoring_", "monitoring_hosts", False),
        ("monitoring_", "monitoring_textfile_hosts", False),
        ("monitoring_", "monitoring_textfile_host", True),
        ("monitoring_", "monitoring_log_host", True),
        ("monitoring_", "monitor", False),
        ("", "monitoring_url", False),
        ("capacity_", "capacity_lead_day", True),
        ("capacity_", "capacity_url", True),
        ("capacity_", "capacity_days", False),
        ("capacity_", "capacitance", False),
        ("", "capacity_url", False),
    ],
)
def test_prefix_of_common_words_judges_the_command_line_alone(prefix, name, refused):
    more = {"rollout": False, "values": False, "prefix": prefix}
    assert_refused(act({"localhost": {}}, extra={name: 1, 7: 1}, **more), refused and name)
    assert_refused(act({"localhost": {name: 1}}, **more))


def test_playbooks_whose_prefix_is_a_common_word_say_so():
    for name in ("capacity", "monitoring"):
        (own,) = [task for task in tasks(plays_of(name + ".yml")) if "gpufleet.lifecycle.playbook_variables" in task]
        assert own["gpufleet.lifecycle.playbook_variables"]["prefix"] == name + "_"


STORE, OTHER = {"gpufleet_artifact_host": "store"}, {"gpu_quarantine_artifact_host": "store"}


@pytest.mark.parametrize(
    "keeps, job, hostvars, outcome",
    [
        ("", 42, {"a": {}}, ""),
        ("evidence", None, {"a": {}}, ""),
        ("evidence", 42, {"a": STORE}, ""),
        ("evidence", 42, {"a": OTHER}, ""),
        ("evidence", 42, {"a": STORE, "b": {}}, "refused"),
        ("evidence", 42, {"a": {"gpufleet_artifact_host": "localhost"}}, "refused"),
        ("record", 42, {"a": {}}, "warned"),
        ("record", 42, {"a": OTHER}, ""),
        ("report", 42, {"a": {}}, "warned"),
        ("report", 42, {"a": OTHER}, "warned"),
        ("report", None, {"a": {}}, ""),
        ("report", 42, {"a": STORE}, ""),
    ],
)
def test_job_of_awx_that_would_lose_files_is_refused_or_warned(keeps, job, hostvars, outcome):
    result = act(hostvars, rollout=False, keeps=keeps, **({"awx_job_id": job} if job else {}))
    assert_refused(result, outcome == "refused" and "AWX job 42")
    assert bool(result.get("warnings")) is (outcome == "warned")
    text = result.get("msg", "") + "".join(result.get("warnings") or [])
    assert not outcome or ("AWX job 42" in text and "gpufleet_artifact_host" in text)


def test_every_playbook_that_keeps_files_says_so():
    """Those of a rollout are refused by its plan; the others by what their first task knows."""
    said = {
        path.stem: task["gpufleet.lifecycle.playbook_variables"]["keeps"]
        for path in ROOT.glob("playbooks/*.yml")
        for play in yaml.safe_load(path.read_text(encoding="utf-8"))
        for task in tasks(play.get("tasks") or [])
        if (task.get("gpufleet.lifecycle.playbook_variables") or {}).get("keeps")
    }
    assert said == {
        "capacity": "report",
        "precheck": "report",
        "quarantine": "record",
        "recover_gpu": "evidence",
        "report": "report",
    }


IN_CONTROL = {"rollout": False, "values": False, "control": True}


@pytest.mark.parametrize(
    "given, more, meant",
    [
        ("rollouts_max_down", {}, "rollout_max_down"),
        ("gpu_schedulers_backends", {}, "gpu_scheduler_backends"),
        ("upgrad_hosts", {}, "upgrade_hosts"),
        ("nvidia_drivers_version", {}, "nvidia_driver_version"),
        ("rolout_version", {}, "rollout_version"),
        ("gpuflet_artifact_dir", {}, "gpufleet_artifact_dir"),
        ("quarantin_hosts", {"rollout": False}, "quarantine_hosts"),
        ("rolout_verb", IN_CONTROL, "rollout_verb"),
        ("capcity_days", {"rollout": False, "values": False, "prefix": "capacity_"}, "capacity_days"),
        ("monitorng_hosts", {"rollout": False, "prefix": "monitoring_"}, "monitoring_hosts"),
        # A variable of the user's own, where no playbook of that name runs.
        ("capcity_days", {}, ""),
        ("monitorng_hosts", {}, ""),
        ("big_hosts", {}, ""),
        ("my_rollout_version", {}, ""),
        ("rollout_version", {}, ""),
        ("gpufleet_lab", {}, ""),
        ("rollout_verb", IN_CONTROL, ""),
    ],
)
def test_slip_in_any_part_of_a_name_is_refused_on_the_command_line(given, more, meant):
    assert_refused(act({"a": {}}, extra={given: "x", 7: 1}, **more), meant and "did you mean %s?" % meant)
    if not _variables.find_unknown([given], _variable_names.read_role_variables()):
        assert_refused(act({"a": {given: "x"}}, **more))


# What Ansible and AWX set or let be set, which a run may have by -e whatever the collection thinks of the name.
JOB = (
    "execution_node inventory_id inventory_name job_id job_launch_type job_template_id job_template_name "
    "parent_job_schedule_id project_revision project_scm_branch schedule_id schedule_name user_email user_first_name "
    "user_id user_last_name user_name workflow_job_id workflow_job_launch_type workflow_job_name workflow_schedule_id "
    "workflow_user_id workflow_user_name"
).split()


def test_no_name_of_ours_of_ansible_or_of_awx_is_a_slip_of_another():
    roles = _variable_names.read_role_variables()
    offered, own = _variables.list_known(roles, _variable_names.CONTROL)
    theirs = {name for names in constants.MAGIC_VARIABLE_MAPPING.values() for name in names}
    theirs |= {
        entry["name"]
        for setting in manager.ConfigManager().get_configuration_definitions(ignore_private=True).values()
        for entry in setting.get("vars") or []
    }
    theirs |= set(constants.COMMON_CONNECTION_VARS) | reserved.get_reserved_names()
    theirs |= {system + name for system in ("awx_", "tower_") for name in JOB}
    assert len(theirs) > 150
    for prefix in _variable_names.INNER:
        _variables.refuse_near(offered | own, roles, _variable_names.CONTROL, prefix)
    for name in theirs:
        nearest = [difflib.SequenceMatcher(None, name, one).ratio() for one in offered]
        assert max(nearest) < 0.8, "%s comes too near to one of ours for the comment on NEAR to hold" % name
    for prefix in _variable_names.INNER:
        _variables.refuse_near(theirs, roles, _variable_names.CONTROL, prefix)


def test_one_letter_amiss_is_a_slip():
    """Left out, doubled, or swapped with the next: what is not near enough is of the shortest name."""
    roles = _variable_names.read_role_variables()
    offered, dummy = _variables.list_known(roles)
    for name in sorted(offered):
        if len(name) % 7 == 0 or len(name) < 12:  # a part of them, and all short ones
            for at in range(len(name)):
                for slip in (name[:at] + name[at + 1 :], name[:at] + name[at:][:2][::-1] + name[at + 2 :]):
                    ratio = difflib.SequenceMatcher(None, slip, name).ratio()
                    assert ratio >= _variables.NEAR or name == "mig_hosts", (slip, ratio)


def test_every_result_of_the_roles_is_kept_for_them():
    """What roles and playbooks register or say as facts under a public name is no variable for anybody else."""
    found = set()
    # Of add_host: what it must have, and options of roles that it sets.
    no_results = {"name", "groups"}.union(*_variable_names.read_role_variables().values())
    for path in list(ROOT.glob("roles/*/tasks/**/*.yml")) + list(ROOT.glob("playbooks/*.yml")):
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8")) or []):
            found |= {task.get("register")} | set(task.get("ansible.builtin.set_fact") or {})
            found |= set(task.get("ansible.builtin.add_host") or {}) - no_results
    public = {name for name in found if name and not name.startswith("__")}
    assert public == set(_variable_names.RESULTS)


def test_every_name_with_two_underscores_is_kept_for_the_playbooks_and_roles():
    """What they register, say as facts or write into the variables of a play, a block or a task."""
    found = {}
    for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/**/*.yml")]:
        for name in re.findall(r"(?<!\w)__[a-z]\w*", path.read_text(encoding="utf-8")):
            found.setdefault(name, path.relative_to(ROOT))
    assert len(found) > 100 and {"__report", "__rollout_plan", "__kernel_hold_before"} <= set(found)
    kept = set(_variables.find_reserved(found, _variable_names.read_role_variables()))
    # An attribute of Python's, in the text of a task.
    assert {name: str(path) for name, path in found.items() if name not in kept | {"__name__"}} == {}


def test_every_variable_that_playbooks_read_is_known():
    known = set(
        _variable_names.ROLLOUT
        + _variable_names.PLAYBOOKS
        + _variable_names.FLEET
        + _variable_names.RESULTS
        + _variable_names.HANDED_ON
    ).union({_variable_names.INVENTORY_FAILED}, *_variable_names.read_role_variables().values())
    prefixes = "|".join(sorted(_variables.list_prefixes(_variable_names.read_role_variables())))
    for path in sorted(ROOT.glob("playbooks/*.yml")):
        names = set(re.findall(r"(?<![\w.'/-])(?:%s)\w+(?= \||\b(?=\)))" % prefixes, path.read_text(encoding="utf-8")))
        assert names <= known | (set(_variable_names.CONTROL) if path.stem == "rollout_control" else set()), path.name


@pytest.mark.parametrize(
    "value, pattern",
    [
        (None, "gpu_nodes"),
        ("", "gpu_nodes"),
        ("  ", "gpu_nodes"),
        ([], "gpu_nodes"),
        ("a1, a2", "a1,a2"),
        (" a1 ,a2", "a1,a2"),
        (["a1", " a2 "], "a1,a2"),
        ("rack_*:!a1", "rack_*:!a1"),
        ("a1", "a1"),
        ("a1\na2", "a1,a2"),
        ("a1\r\na2\r\n", "a1,a2"),
        ("\n a1 \n\n\ta2:!a3\n", "a1,a2:!a3"),
        ("a1,\na2, a3\n,a4", "a1,a2,a3,a4"),
    ],
)
def test_hosts_may_be_a_pattern_a_list_or_what_a_survey_gives(value, pattern):
    assert _variables.make_host_pattern(value, "upgrade_hosts", "gpu_nodes") == pattern


@pytest.mark.parametrize("value", [None, "", " ", []])
def test_rollback_of_nobody_in_particular_is_none_of_everybody(value):
    with pytest.raises(_variables.VariableError, match="rollback_hosts names no host"):
        _variables.make_host_pattern(value, "rollback_hosts", "")
    (entry,) = [
        play
        for play in yaml.safe_load((ROOT / "playbooks" / "rollback.yml").read_text(encoding="utf-8"))
        if "upgrade_hosts" in play.get("vars", {})
    ]
    assert "host_pattern('rollback_hosts', '!all')" in entry["vars"]["upgrade_hosts"]


@pytest.mark.parametrize(
    "value",
    [{"a1": 1}, 7, True, ["a1", None], ["a1", ["a2"]], ["a1\na2"]]
    + ["a1,", "a1,,a2", "a1\na2,\n", "a1\na2 a3", "a1\ta2", "a1 a2"],
    ids=ascii,
)
def test_value_that_names_no_hosts_is_refused(value):
    with pytest.raises(_variables.VariableError, match="^upgrade_hosts is [ -~]+$"):
        _variables.make_host_pattern(value, "upgrade_hosts", "gpu_nodes")
    with pytest.raises(AnsibleError, match="upgrade_hosts"):
        host_pattern.host_pattern(value, "upgrade_hosts")


@pytest.mark.parametrize(
    "pattern, unknown",
    [(known, "") for known in "a1 a1,gpu_nodes gpu_nodes:!a1 gpu_nodes:&rack_a a* all localhost fe80::1".split()]
    + [("", ""), (None, ""), (["a1", "rack_a"], ""), ("gpu_nodes[0]", ""), ("~a[12]", "")]
    + [("zz", "zz"), ("a1, zz", "zz"), (["a1", "zz"], "zz"), ("gpu_nodes:!zz", "zz")],
)
def test_host_that_is_not_in_the_inventory_is_refused_by_its_variable(pattern, unknown):
    groups = {"gpu_nodes": ["a1", "a2", "fe80::1"], "rack_a": ["a1"], "all": ["a1", "a2", "fe80::1"]}
    result = act({"a1": {}}, groups=groups, patterns={"upgrade_hosts": pattern})
    assert_refused(result, unknown and "upgrade_hosts names %s," % unknown)


@pytest.mark.parametrize("single", [True, "true", "yes"])
@pytest.mark.parametrize(
    "pattern, fine",
    [("a1", True), ("fe80::1", True), (["a1"], True), (["a1", "a2"], False), ("", False), (None, False)]
    + [(bad, False) for bad in "gpu_nodes rack_a both all ungrouped localhost a1,a2 a* ~a1 gpu_nodes[0]".split()]
    + [("a1:!a2", False), ("a1:&gpu_nodes", False)],
)
def test_group_or_pattern_is_refused_where_one_host_has_to_be_named(pattern, fine, single):
    """An alert's label names the host: a group of one rack would be drained as a whole."""
    hosts = ["a1", "a2", "fe80::1", "both"]
    groups = {"gpu_nodes": hosts, "rack_a": ["a1"], "both": ["a1", "a2"], "all": hosts, "ungrouped": []}
    more = {"groups": groups, "patterns": {"recover_gpu_hosts": pattern}, "rollout": False}
    assert_refused(act({"a1": {}}, gpufleet_single_host=single, **more), not fine and "recover_gpu_hosts")
    assert_refused(act({"a1": {}}, **dict(more, patterns={"recover_gpu_hosts": "rack_a"})))


def test_single_host_that_is_neither_yes_nor_no_is_refused():
    more = {"groups": {"all": ["a1"]}, "patterns": {"recover_gpu_hosts": "a1"}, "rollout": False}
    assert_refused(act({"a1": {}}, gpufleet_single_host="maybe", **more), "gpufleet_single_host")


@pytest.mark.parametrize(
    "patterns, limit, words",
    [
        ({"quarantine_hosts": "a1"}, "web1", ["a1", "within the limit web1", "quarantine_hosts"]),
        ({"quarantine_hosts": "a1:!a1"}, None, ["a1:!a1", "inventory", "quarantine_hosts"]),
        ({"bringup_hosts": ""}, "web1", ["gpu_nodes", "web1", "bringup_hosts"]),
        ({"monitoring_hosts": "", "monitoring_log_hosts": "a1"}, "web1", ["gpu_monitoring or a1", "monitoring_hosts"]),
        # A slice has some of the hosts that were named for all of them, and may have none.
        ({}, "web1", []),
    ],
)
@pytest.mark.parametrize("rollout", [True, False])
def test_run_for_nobody_is_refused_by_variable_pattern_and_limit(patterns, limit, words, rollout):
    more = {"groups": {"all": ["a1", "web1"]}, "patterns": patterns, "ansible_limit": limit, "rollout": rollout}
    assert_refused(act({"a1": {}}, nodes=[], **more), *words)
    assert_refused(act({"a1": {}}, **more))


def test_inventory_that_could_not_be_read_is_the_reason_for_nobody():
    known = {"nodes": [], "rollout": False, "gpufleet_inventory_failed": "slurmctld does not answer."}
    assert_refused(act({}, patterns={"quarantine_hosts": "all"}, **known), "slurmctld does not answer.")
    assert_refused(act({"localhost": {}}, patterns={}, values=False, **known))


@pytest.mark.parametrize(
    "mine, given, words",
    [
        ("upgrade_hosts", {"rollback_hosts": "a"}, "rollback_hosts is on the command line"),
        ("upgrade_hosts", {"rollback_of": "r1"}, "rollback_of is on"),
        ("upgrade_hosts", {"upgrade_hosts": "a", "rollback_hosts": ["a"]}, "run gpufleet.lifecycle.rollback"),
        ("upgrade_hosts", {"prestage_hosts": "a"}, "this playbook goes by upgrade_hosts"),
        ("upgrade_hosts", {"prestage_hosts": "a", "upgrade_hosts": "b"}, ""),
        ("upgrade_hosts", {"rollback_hosts": None, "rollback_of": None}, ""),
        # The list of nodes was meant to come from somewhere and is empty: an upgrade would take every node.
        ("upgrade_hosts", {"rollback_hosts": ""}, "run gpufleet.lifecycle.rollback"),
        ("upgrade_hosts", {"rollback_hosts": []}, "rollback_hosts is on the"),
        ("upgrade_hosts", {"rollback_of": ""}, ""),
        ("rollback_hosts", {"rollback_hosts": "a", "upgrade_hosts": ""}, ""),
        ("rollback_hosts", {"upgrade_hosts": "all", "rollback_hosts": "a"}, "Leave upgrade_hosts out"),
        ("rollback_hosts", {"rollback_of": "r1", "rollback_hosts": "a"}, ""),
        ("rollback_hosts", {"precheck_hosts": "a"}, "Give it rollback_hosts"),
        ("bringup_hosts", {"upgrade_hosts": "a"}, "this playbook goes by bringup_hosts"),
        ("bringup_hosts", {"upgrade_hosts": "a", "bringup_hosts": "b"}, ""),
        ("bringup_hosts", {"rollback_of": "x", "nvidia_driver_version": "1"}, ""),
        ("precheck_hosts", {}, ""),
        ("monitoring_hosts", {"monitoring_dcgm_hosts": "a", "monitoring_textfile_hosts": "b"}, ""),
        ("monitoring_textfile_hosts", {"monitoring_dcgm_hosts": "a"}, ""),
        ("monitoring_textfile_hosts", {"upgrade_hosts": "a"}, "this playbook goes by monitoring_textfile_hosts"),
    ],
)
def test_nodes_named_for_another_playbook_are_refused(mine, given, words):
    more = {"rollout": mine in ("upgrade_hosts", "rollback_hosts"), "patterns": {mine: given.get(mine, "")}}
    assert_refused(act({"a": {}}, extra=given, groups={"all": ["a", "b"]}, **more), words)


@pytest.mark.parametrize(
    "mine, found, refused",
    [
        ("upgrade_hosts", {"rollout_undo": "last"}, True),
        ("upgrade_hosts", {"rollout_undo": ""}, True),
        ("upgrade_hosts", {}, False),
        ("rollback_hosts", {"rollout_undo": "last"}, False),
    ],
)
def test_upgrade_is_not_made_a_rollback_by_a_variable(mine, found, refused):
    assert_refused(act({"a": found}, patterns={mine: "a"}), refused and "rollout_undo is set for a")


def test_words_that_the_command_line_lost_are_refused():
    """-e rollback_hosts=a1, a2 without quotes of its own gives 'a1,' and a word that belongs to nothing."""
    assert_refused(act({"a": {"_raw_params": "a2"}}), "The command line (-e) has 'a2'")


# variable: values that are accepted, and values that are refused
VALUES = {
    "gpu_scheduler_backends": (
        [["kubernetes", "slurm"], [], None, ""],
        [["pbs"], ["slurm", "pbs"], "slurm", {"slurm": 1}],
    ),
    "gpu_scheduler_on_timeout": (["keep"], ["drop"]),
    "gpu_node_upgrade_reload": (["auto"], [["auto"]]),
    "gpufleet_answer_timeout": (
        [1, 300, "300", "", None, 86400],
        [0, "0", -1, 86401, 1.5, True, "soon", "\u0663", [300], {}],
    ),
    # Some playbooks took null or an empty text for the default, and the role for the directory it was run in.
    "gpu_node_upgrade_state_dir": (["/srv/state"], [None, "", "srv/state", "~/state", ["/srv"], 1]),
}


@pytest.mark.parametrize("name", VALUES)
def test_value_that_a_role_would_refuse_is_refused_before_anything_is_done(name):
    for place, values in enumerate(VALUES[name]):
        for value in values:
            result = act({"a": {}, "b": {name: value}}, rollout=False)
            assert_refused(result, place == 1 and "%s of b is " % name)


@pytest.mark.parametrize("value", [None, ""])
def test_empty_value_of_every_role_variable_is_its_default_or_refused_by_name(value):
    seen = {True: set(), False: set()}
    for role, names in _variable_names.read_role_variables().items():
        for name in sorted(names):
            is_text, default = _variable_names.read_defaults().get(name, (role, True, None))[1:]
            result = act({"a": {}, "b": {name: value}}, rollout=False)
            seen[bool(result.get("failed"))].add(name)
            if result.get("failed"):
                assert_refused(result, "%s of b is " % name)
            # What is accepted: no default that it would stand for, the empty text where that is the default or says
            # that there is none, what the playbooks hide from the role, and what every reader takes for the default.
            assert bool(result.get("failed")) or (
                default is None
                or value == default
                or (value == "" and is_text and role != "gpu_node_upgrade")
                or (role == "gpu_node_upgrade" and name in _variable_names.OF_PLAN)
                or name in _variable_names.DEFAULTED
            ), name
    assert {"gpu_node_upgrade_reload", "gpu_node_upgrade_services", "nvidia_driver_keep"} <= seen[True]
    assert {"gpu_health_fail_on", "gpu_scheduler_backends", "nvidia_driver_version"} <= seen[False]


@pytest.mark.parametrize(
    "found, patterns, refused",
    [
        ({"gpu_health_policy": None}, {}, ""),
        ({"gpu_health_policy": None, "gpu_health_boot_check": False}, {}, ""),
        ({"gpu_health_policy": None, "gpu_health_boot_check": True}, {}, "gpu_health_policy"),
        ({"gpu_health_policy": None}, {"monitoring_textfile_hosts": ""}, "gpu_health_policy"),
        ({"gpu_scheduler_backends": None, "gpu_health_boot_check": True}, {}, ""),
        ({"gpu_node_upgrade_reload": None}, {}, "gpu_node_upgrade_reload"),
        ({"gpu_node_upgrade_reload": ""}, {}, "gpu_node_upgrade_reload"),
        ({"gpu_node_upgrade_services": []}, {}, ""),
        ({"nvidia_driver_keep": False}, {}, ""),
        ({"nvidia_driver_source": ""}, {}, ""),
        ({"gpu_monitoring_alertmanager_service": ""}, {}, ""),
        ({"gpu_monitoring_alertmanager_service": None}, {}, "gpu_monitoring_alertmanager_service"),
        ({"nvidia_driver_flavour": ""}, {}, "nvidia_driver_flavour"),
        ({"gpu_node_upgrade_artifact_dir": ""}, {}, "gpu_node_upgrade_artifact_dir"),
        ({"nvidia_driver_source": None}, {}, "nvidia_driver_source"),
        ({"gpu_node_upgrade_gate_poll": 0}, {}, ""),
    ],
)
def test_empty_value_is_refused_where_the_role_itself_runs(found, patterns, refused):
    assert_refused(act({"a": found}, rollout=False, patterns=patterns), refused and refused + " of a is")


def test_no_template_is_evaluated_to_see_whether_there_is_something():
    """A variable may need facts, or a secret of a vault, which are there when the role runs."""

    class Evaluated(dict):
        def __getitem__(self, name):
            raise AnsibleError("it was evaluated: " + name)

    class HostVars(dict):
        """As Ansible has it: raw_get gives the variables of a host as they are written."""

        def __getitem__(self, name):
            return Evaluated(self.raw_get(name))

        def raw_get(self, name):
            return super().__getitem__(name)

    written = {"gpu_scheduler_slurm_node": "{{ ansible_facts.hostname }}", "nvidia_dcgm_exporter_password": "{{ x }}"}
    assert_refused(act(HostVars(a=written), rollout=False))
    refused = act(HostVars(a=dict(written, gpu_scheduler_token=None)), rollout=False)
    assert_refused(refused, "gpu_scheduler_token of a is null")


@pytest.mark.parametrize("rollout", [True, False])
def test_a_controller_without_a_binding_is_told_once_and_by_itself(monkeypatch, rollout):
    def missing():
        raise _binding.BindingError("the controller has no nvidia-ml-py; install it")

    assert_refused(act({"a": {}, "b": {}}, rollout=rollout, binding=True))
    monkeypatch.setattr(_binding, "find", missing)
    assert_refused(act({"a": {}, "b": {}}, rollout=rollout, binding=True), "the controller and no node", "nvidia-ml-py")
    assert_refused(act({"a": {}}, rollout=rollout))


# These read no GPU through NVML.
NO_GPUS = {"capacity", "holds", "monitoring", "prestage", "report", "rollout_control"}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")))
def test_playbooks_that_read_gpus_ask_for_the_binding(name):
    own = [task for task in tasks(plays_of(name + ".yml")) if "gpufleet.lifecycle.playbook_variables" in task]
    asked = {task["gpufleet.lifecycle.playbook_variables"].get("binding", False) for task in own}
    assert asked == {name not in NO_GPUS}
