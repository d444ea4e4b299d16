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


def act(hostvars, nodes=None, **task_vars):
    task_vars = {"groups": {"all": ["a", "b", "c", "one", "two"]}, **task_vars}
    arguments = {
        "nodes": list(hostvars) if nodes is None else nodes,
        "rollout": task_vars.pop("rollout", True),
        "patterns": task_vars.pop("patterns", {}),
        "binding": task_vars.pop("binding", False),
        "values": task_vars.pop("values", True),
        "control": task_vars.pop("control", False),
        "prefix": task_vars.pop("prefix", ""),
        "keeps": task_vars.pop("keeps", ""),
        "artifact_dir": task_vars.pop("artifact_dir", None),
    }
    action = actions.make_action(playbook_variables, arguments, loader=mock.Mock())
    return action.run(task_vars=dict({"hostvars": hostvars}, **task_vars))


@pytest.mark.parametrize(
    "name, words",
    [
        (
            "gpu_scheduler_backend",
            "gpu_scheduler_backend is no variable of the role gpu_scheduler: did you mean gpu_scheduler_backends?",
        ),
        (
            "precheck_expected_driver",
            (
                "precheck_expected_driver is no variable of the playbook precheck: did you mean "
                "precheck_expected_driver_version?"
            ),
        ),
        ("rollout_domain_cap", "rollout_domain_cap is no variable of a rollout: did you mean rollout_domain_caps?"),
        ("rollout_max_dwon", "did you mean rollout_max_down?"),
        ("rollout_nodes", "rollout_nodes is no variable of a rollout: did you mean rollout_node_s? Correct it"),
        ("upgrade_host", "upgrade_host is no variable of the playbook upgrade: did you mean upgrade_hosts?"),
        ("rollback_host", "did you mean rollback_hosts?"),
        ("bringup_reboot_timeouts", "did you mean bringup_reboot_timeout?"),
        ("holds_maxdays", "did you mean holds_max_days?"),
        ("prestage_host", "did you mean prestage_hosts?"),
        ("gpufleet_domain", "gpufleet_domain is no variable of the collection: did you mean gpufleet_domains?"),
        (
            "nvidia_driver_flavor",
            "nvidia_driver_flavor is no variable of the role nvidia_driver: did you mean nvidia_driver_flavour?",
        ),
        ("nvidia_repository_url", "did you mean nvidia_repository_uri?"),
        ("nvidia_persistenced_x1y2", "is no variable of the role nvidia_persistenced"),
        ("kernel_hold_kernels", "did you mean kernel_hold_kernel?"),
        ("gpu_health_failon", "did you mean gpu_health_fail_on?"),
        ("gpu_node_upgrade_service", "did you mean gpu_node_upgrade_services?"),
    ],
)
@pytest.mark.parametrize("rollout", [True, False])
def test_a_variable_that_nobody_would_read_is_refused_with_the_nearest(name, words, rollout):
    result = act({"a": {}, "b": {name: 1}}, rollout=rollout)
    assert result.get("failed") and words in result["msg"] and result["msg"].endswith("Nothing was changed."), (
        result.get("msg")
    )


@pytest.mark.parametrize(
    "name",
    [
        "rollout_max_down",
        "gpu_scheduler_backends",
        "nvidia_driver_version",
        "gpufleet_domains",
        "upgrade_hosts",
        "rollback_of",
        "gpu_nodes_of_mine",
        "ansible_host",
        "inventory_hostname",
        "rollouts",
        "upgraded",
        "nvidia_container_toolkit_version",
        "gpu_health_waivers",
        "kernel_holding",
        "holds",
        "rollout_table",
    ],
)
def test_others_are_let_pass(name):
    assert not act({"a": {name: ["slurm"] if name == "gpu_scheduler_backends" else "x"}}, rollout=False).get("failed")


@pytest.mark.parametrize(
    "name",
    [
        "__gpu_node_upgrade_reboot",
        "__gpu_node_upgrade_touched",
        "__rollout_plan",
        "__rollout_audit",
        "__nvidia_driver_packages",
        "__gpu_scheduler_slurm",
        "__kernel_hold_before",
        "__bringup_proof",
        "__gpufleet_checked",
        "gpu_node_upgrade_gate",
        "gpu_scheduler_drained",
        "gpu_scheduler_mark",
        "gpufleet_rollout",
        "nvidia_driver_reboot_required",
        "kernel_hold_report",
        "gpu_health_result",
    ],
)
def test_names_that_the_collection_keeps_for_itself_are_refused(name):
    for value in ({"answer": "go"}, "text", True):
        result = act({"a": {name: value}})
        assert result.get("failed") and result["msg"].startswith(
            "%s is set, a name that the collection keeps for itself" % name
        ), result.get("msg")
    mine = {playbook_variables.REGISTERED: {"process": os.getppid()}}
    assert not act({"a": {name: mine.get(name, 1), **mine}}).get("failed"), (
        "an earlier playbook of the same run registered it"
    )
    other = {playbook_variables.REGISTERED: {"process": os.getppid() + 1}}
    assert act({"a": {name: 1, **other}}).get("failed")


@pytest.mark.parametrize("name", ["__report", "__capacity_dir", "__monitoring_pattern", "__rollout_plan", "__mig_seen"])
@pytest.mark.parametrize("values", [True, False])
def test_on_the_command_line_they_are_refused_by_every_playbook_and_after_any_other(name, values):
    """It goes before what a task registers, also in a playbook that looks at no node, and after an earlier one."""
    found = {name: 1, playbook_variables.REGISTERED: {"process": os.getppid()}}
    more = {"rollout": False, "values": values}
    assert not act({"localhost": found}, **more).get("failed"), "an earlier playbook of the same run registered it"
    with mock.patch.object(playbook_variables, "load_extra_vars", return_value={name: 1, 7: 1}):
        result = act({"localhost": found}, **more)
        assert result["failed"] and result["msg"].startswith(name + " is set, a name that the collection keeps")
        assert act({"localhost": {}}, nodes=[], **more)["failed"], "no node has to be there to have it"
    with mock.patch.object(playbook_variables, "load_extra_vars", return_value={"__mine": 1, "__reporter": 1}):
        assert not act({"localhost": {}}, **more).get("failed")


@pytest.mark.parametrize(
    "one, other, words",
    [
        ({"rollout_max_down": 2}, {"rollout_max_down": 3}, "rollout_max_down is 2 for a and 3 for b"),
        ({"rollout_max_down": 2}, {}, "rollout_max_down is 2 for a and not set for b"),
        ({}, {"rollout_mode": "waves"}, "rollout_mode is not set for a and 'waves' for b"),
        ({"rollout_version": "1.0"}, {"rollout_version": "2.0"}, "rollout_version is '1.0' for a and '2.0' for b"),
        (
            {"rollout_windows": [{"from": "1"}]},
            {"rollout_windows": []},
            "rollout_windows is one value for a and one value for b",
        ),
        ({"rollout_webhook": {"url": "https://secret"}}, {}, "rollout_webhook is one value for a and not set for b"),
        ({"rollout_ledger": "postgresql://u:secret@h/d"}, {}, "rollout_ledger is one value for a and not set for b"),
        (
            {"gpu_node_upgrade_rollout_mode": "ledger"},
            {"gpu_node_upgrade_rollout_mode": "none"},
            "gpu_node_upgrade_rollout_mode is 'ledger' for a and 'none' for b",
        ),
        ({}, {"gpu_node_upgrade_on_failure": "stop"}, "gpu_node_upgrade_on_failure is not set for a and 'stop' for b"),
        ({}, {"gpu_node_upgrade_version": "1.0"}, "gpu_node_upgrade_version is not set for a and '1.0' for b"),
        (
            {"gpufleet_artifact_dir": "/a"},
            {"gpufleet_artifact_dir": "/b"},
            "gpufleet_artifact_dir is '/a' for a and '/b' for b",
        ),
        # The plan says once for all of them where compiled modules are kept, and which host keeps them.
        (
            {"gpufleet_artifact_host": "one"},
            {"gpufleet_artifact_host": "two"},
            "gpufleet_artifact_host is 'one' for a and 'two' for b",
        ),
        ({"gpufleet_artifact_host": "one"}, {}, "gpufleet_artifact_host is 'one' for a and not set for b"),
        ({}, {"nvidia_driver_tree_dir": "/b"}, "nvidia_driver_tree_dir is not set for a and '/b' for b"),
        ({"gpufleet_artifact_host": "one"}, {"gpufleet_artifact_host": "one"}, ""),
        ({"rollout_max_down": 2}, {"rollout_max_down": 2}, ""),
        ({"rollout_table": ["1. a"]}, {}, ""),
        ({"nvidia_driver_version": "1"}, {"nvidia_driver_version": "2"}, ""),
        ({"gpufleet_domains": {"rack": 1}}, {"gpufleet_domains": {"rack": 2}}, ""),
        ({"gpu_node_upgrade_reboot_timeout": 1}, {"gpu_node_upgrade_reboot_timeout": 2}, ""),
    ],
)
def test_what_holds_for_the_whole_rollout_is_the_same_for_all_nodes(one, other, words):
    result = act({"a": one, "b": other})
    assert bool(result.get("failed")) == bool(words), result.get("msg")
    if words:
        assert result["msg"].startswith(words + ", and the whole rollout has one.") and "secret" not in result["msg"], (
            result["msg"]
        )
    assert not act({"a": one, "b": other}, rollout=False).get("failed"), "outside of rollouts each node has its own"
    assert not act({"a": one, "c": one, "b": other}, nodes=["a", "c"]).get("failed"), (
        "nodes that do not take part have a word in nothing"
    )


def test_many_nodes_are_compared_with_the_first():
    nodes = {"n%d" % number: {"rollout_max_down": 2} for number in range(50)}
    nodes["n31"]["rollout_max_down"] = 20
    assert "rollout_max_down is 2 for n0 and 20 for n31" in act(nodes)["msg"]


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


def test_plan_refuses_every_variable_that_the_upgrade_sets():
    names, todo, seen = set(), {"gpu_node_upgrade"}, set()
    while todo:
        role = todo.pop()
        seen.add(role)
        for path in (ROOT / "roles" / role / "tasks").rglob("*.yml"):
            found, roles = variables_set_in(path)
            # Of the quarantine the upgrade uses the entry points close and mark.
            if role != "gpu_quarantine" or path.stem in ("close", "mark"):
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
def test_plan_refuses_an_extra_variable_of_the_upgrade(monkeypatch, value):
    for name in _variable_names.OF_PLAN:
        monkeypatch.setattr(playbook_variables, "load_extra_vars", lambda loader, name=name: {name: value})
        result = act({"a": {name: value}})
        assert result.get("failed") and result["msg"].startswith(name + " is "), result.get("msg")
        assert not act({"a": {}}, rollout=False, prefix="").get("failed"), "another playbook has it for itself"


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
def test_refused_variable_waits_until_nodes_in_flight_are_finished(monkeypatch, tmp_path, given, waits, state):
    if state:
        ledger = Ledger(str(tmp_path), "r1")
        ledger.transact(
            lambda transaction: transaction.view.nodes.put(Node("a", state)) or transaction.save("a", "x", {})
        )

    monkeypatch.setattr(playbook_variables, "load_extra_vars", lambda loader: given)
    result = act({"a": given, "b": {}}, artifact_dir=str(tmp_path))
    if waits and state == "down":
        assert not result.get("failed") and result["refused"] and result["service_hosts"] == []
    else:
        assert result["failed"] and "refused" not in result
    assert act({"a": given})["failed"], "no ledger is asked"


@pytest.mark.parametrize("name", ["nvidia_driver_version", "gpu_node_upgrade_version", "gpu_scheduler_token"])
def test_variable_of_the_inventory_overrules_nothing(name):
    assert not act({"a": {name: "3.0"}}).get("failed")


@pytest.mark.parametrize("mine", ["rollback_hosts", "mig_hosts"])
def test_nodes_of_another_playbook_beside_its_own_are_refused(monkeypatch, mine):
    given = {mine: "a", "upgrade_hosts": "b"}
    monkeypatch.setattr(playbook_variables, "load_extra_vars", lambda loader: given)
    result = act({"a": {}}, patterns={mine: "a"})
    assert result.get("failed") and result["msg"].startswith("upgrade_hosts is on the command line")


@pytest.mark.parametrize(
    "found, words",
    [
        (
            {"gpu_node_upgrade_on_failure": "quarantine"},
            (
                "gpu_node_upgrade_on_failure is 'quarantine' for a, and rollout_on_failure, which the plan "
                "goes by, is 'rollback'"
            ),
        ),
        (
            {"gpu_node_upgrade_on_failure": "rollback", "rollout_on_failure": "stop"},
            "is 'rollback' for a, and rollout_on_failure, which the plan goes by, is 'stop'",
        ),
        ({"gpu_node_upgrade_on_failure": "stop", "rollout_on_failure": "stop"}, ""),
        ({"gpu_node_upgrade_on_failure": "rollback"}, ""),
        ({"rollout_on_failure": ""}, ""),
    ],
)
def test_the_role_does_with_a_failed_node_what_the_plan_says(found, words):
    result = act({"a": found, "b": found})
    assert bool(result.get("failed")) == bool(words) and words in result.get("msg", ""), result.get("msg")


@pytest.mark.parametrize("name", ["gpufleet_artifact_dir", "rollout_ledger"])
@pytest.mark.parametrize(
    ("of_node", "of_localhost", "fails"),
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
def test_nodes_and_the_controller_have_one_ledger(name, of_node, of_localhost, fails):
    node, localhost = ({name: found["x"]} if found else {} for found in (of_node, of_localhost))
    result = act({"a": node, "localhost": localhost}, nodes=["a"])
    assert bool(result.get("failed")) is fails and (not fails or result["msg"].startswith(name))
    assert not act({"a": node, "localhost": localhost}, nodes=["a"], rollout=False).get("failed")


def test_a_value_that_cannot_be_made_is_told_with_its_name():
    class Broken(dict):
        def __getitem__(self, name):
            raise AnsibleError("'oops' is undefined\nin line 3")

    result = act({"a": Broken(rollout_max_down="{{ oops }}")})
    assert (
        result["failed"]
        and result["msg"]
        == "rollout_max_down of a cannot be evaluated: 'oops' is undefined in line 3 Nothing was changed."
    )


@pytest.mark.parametrize(
    "options, words",
    [
        ({"tags": ["x"]}, "--tags x leaves out"),
        ({"tags": ["never", "always"]}, "--tags always,never leaves out"),
        ({"tags": ["all"], "skip_tags": ["all"]}, "--skip-tags all leaves out"),
        ({"tags": ["all"], "skip_tags": ["untagged"]}, "--skip-tags untagged leaves out"),
        ({"tags": ["all"], "skip_tags": ["always"]}, "--skip-tags always leaves out"),
        ({"tags": ["all"], "skip_tags": ["x", "always", "untagged"]}, "--skip-tags always,untagged,x leaves out"),
        ({"tags": ["all"], "start_at_task": "Install the driver"}, "--start-at-task Install the driver leaves out"),
        ({"tags": ["all"], "skip_tags": ["monitoring"], "start_at_task": None}, ""),
        ({"tags": ["all"]}, ""),
        ({"tags": ["untagged"]}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_run_that_leaves_out_tasks_is_refused_where_hosts_are_named(monkeypatch, options, words):
    monkeypatch.setattr(host_pattern.context, "CLIARGS", options)
    if not words:
        assert host_pattern.host_pattern("localhost:all", "hosts") == "localhost:all"
        return
    with pytest.raises(AnsibleError, match=re.escape(words)):
        host_pattern.host_pattern("localhost:all", "hosts")


def tasks(entries):
    for entry in entries:
        yield entry
        for part in ("block", "rescue", "always", "tasks"):
            yield from tasks(entry.get(part) or [])


def plays_of(name):
    """The plays of a playbook in order, those that it imports among them."""
    for play in yaml.safe_load((ROOT / "playbooks" / name).read_text(encoding="utf-8")):
        yield from (
            plays_of(play["ansible.builtin.import_playbook"]) if "ansible.builtin.import_playbook" in play else [play]
        )


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


def test_who_speaks_to_the_ledger_alone_does_so_whatever_the_inventory_says_of_nodes():
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
    assert not act({"localhost": Broken(found, **given)}, rollout=False, values=False, control=True).get("failed")
    assert act({"localhost": found}, rollout=False).get("failed"), "any other playbook is refused that"
    for name in _variable_names.CONTROL:
        assert act({"localhost": {name: 1}}, rollout=False, values=False)["failed"], "no other playbook reads it"
    for extra in ({"rollout_idd": "x"}, {"_raw_params": "switch"}):
        assert act({"localhost": Broken(found, **given, **extra)}, rollout=False, values=False, control=True)[
            "failed"
        ], extra


@pytest.mark.parametrize(
    "mine, given, refused",
    [
        ("monitoring_hosts", {"monitoring_host": "p"}, "monitoring_host"),
        ("monitoring_hosts", {"monitoring_hosts": "p"}, ""),
        ("monitoring_hosts", {"monitoring_textfile_hosts": "p"}, ""),
        ("monitoring_hosts", {"monitoring_textfile_host": "p"}, "monitoring_textfile_host"),
        ("monitoring_hosts", {"monitoring_dcgm_hosts": "g"}, ""),
        ("monitoring_hosts", {"monitoring_log_hosts": "g"}, ""),
        ("monitoring_log_hosts", {"monitoring_log_host": "g"}, "monitoring_log_host"),
        ("monitoring_dcgm_hosts", {"monitoring_dcgm_host": "g"}, "monitoring_dcgm_host"),
        ("monitoring_textfile_hosts", {"monitoring_textfile_hostss": "g"}, "monitoring_textfile_hostss"),
        ("monitoring_hosts", {"monitor": 1}, ""),
        ("holds_hosts", {"monitoring_url": 1}, ""),
    ],
)
def test_a_common_word_is_refused_on_the_command_line_alone(mine, given, refused):
    with mock.patch.object(playbook_variables, "load_extra_vars", return_value=given):
        result = act({"a": {}}, rollout=False, patterns={mine: "all"}, groups={"all": ["a"]})
    assert bool(result.get("failed")) == bool(refused) and result.get("msg", refused).startswith(refused), result.get(
        "msg"
    )
    assert not act({"a": {"monitoring_host": 1}}, rollout=False, patterns={mine: "all"}, groups={"all": ["a"]}).get(
        "failed"
    ), "an inventory's own"


@pytest.mark.parametrize(
    "given, refused",
    [
        ({"capacity_lead_day": 1}, "capacity_lead_days"),
        ({"capacity_url": "x"}, "capacity_"),
        ({"capacity_days": 1, "capacitance": 1, 7: 1}, ""),
    ],
)
def test_a_playbook_whose_prefix_is_a_common_word_judges_the_command_line_by_it(given, refused):
    with mock.patch.object(playbook_variables, "load_extra_vars", return_value=given):
        result = act({"localhost": {}}, rollout=False, values=False, prefix="capacity_")
        assert not act({"localhost": {}}, rollout=False, values=False).get("failed"), (
            "another playbook does not read it"
        )
    assert bool(result.get("failed")) == bool(refused) and refused in result.get("msg", "")
    assert not act({"localhost": {"capacity_tb": 1}}, rollout=False, values=False, prefix="capacity_").get("failed"), (
        "an inventory's own"
    )


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
def test_a_job_of_awx_that_would_lose_files_is_refused_or_warned(keeps, job, hostvars, outcome):
    more = {"awx_job_id": job} if job else {}
    result = act(hostvars, rollout=False, keeps=keeps, **more)
    assert bool(result.get("failed")) is (outcome == "refused"), result.get("msg")
    assert bool(result.get("warnings")) is (outcome == "warned")
    said = result.get("msg", "") + "".join(result.get("warnings") or [])
    assert not outcome or ("AWX job 42" in said and "gpufleet_artifact_host" in said)


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
        ("rolout_verb", {"rollout": False, "values": False, "control": True}, "rollout_verb"),
        ("capcity_days", {"rollout": False, "values": False, "prefix": "capacity_"}, "capacity_days"),
        ("monitorng_hosts", {"rollout": False, "patterns": {"monitoring_hosts": "a"}}, "monitoring_hosts"),
        # A variable of the user's own, where no playbook of that name runs.
        ("capcity_days", {}, ""),
        ("monitorng_hosts", {}, ""),
        ("big_hosts", {}, ""),
        ("my_rollout_version", {}, ""),
        ("rollout_version", {}, ""),
        ("gpufleet_lab", {}, ""),
        ("rollout_verb", {"rollout": False, "values": False, "control": True}, ""),
    ],
)
def test_a_slip_in_any_part_of_a_name_is_refused_on_the_command_line(given, more, meant):
    with mock.patch.object(playbook_variables, "load_extra_vars", return_value={given: "x", 7: 1}):
        result = act({"a": {}}, **more)
    assert bool(result.get("failed")) == bool(meant) and "did you mean %s?" % meant in result.get(
        "msg", "did you mean ?"
    ), result.get("msg")
    if not _variables.strangers([given], _variable_names.of_roles()):
        assert not act({"a": {given: "x"}}, **more).get("failed"), "an inventory's own"


# What Ansible and AWX set or let be set, which a run may have by -e whatever the collection thinks of the name.
JOB = (
    "execution_node inventory_id inventory_name job_id job_launch_type job_template_id job_template_name "
    "parent_job_schedule_id project_revision project_scm_branch schedule_id schedule_name user_email user_first_name "
    "user_id user_last_name user_name workflow_job_id workflow_job_launch_type workflow_job_name workflow_schedule_id "
    "workflow_user_id workflow_user_name"
).split()


def test_no_name_of_ours_of_ansible_or_of_awx_is_a_slip_of_another():
    roles = _variable_names.of_roles()
    offered, own = _variables.known(roles, _variable_names.CONTROL)
    theirs = {name for names in constants.MAGIC_VARIABLE_MAPPING.values() for name in names}
    theirs |= {
        entry["name"]
        for setting in manager.ConfigManager().get_configuration_definitions(ignore_private=True).values()
        for entry in setting.get("vars") or []
    }
    theirs |= set(constants.COMMON_CONNECTION_VARS) | reserved.get_reserved_names()
    theirs |= {system + name for system in ("awx_", "tower_") for name in JOB}
    assert len(theirs) > 150
    every = set(_variable_names.INNER)
    _variables.refuse_near(offered | own, roles, _variable_names.CONTROL, every)
    for name in theirs:
        nearest = [difflib.SequenceMatcher(None, name, one).ratio() for one in offered]
        assert max(nearest) < 0.8, "%s comes too near to one of ours for the comment on NEAR to hold" % name
    _variables.refuse_near(theirs, roles, _variable_names.CONTROL, every)


def test_one_letter_amiss_is_a_slip():
    """Left out, doubled, or swapped with the next: what is not near enough is of the shortest name."""
    roles = _variable_names.of_roles()
    offered, dummy = _variables.known(roles)
    for name in sorted(offered):
        if len(name) % 7 == 0 or len(name) < 12:  # a part of them, and all short ones
            for at in range(len(name)):
                for slip in (name[:at] + name[at + 1 :], name[:at] + name[at:][:2][::-1] + name[at + 2 :]):
                    ratio = difflib.SequenceMatcher(None, slip, name).ratio()
                    assert ratio >= _variables.NEAR or name == "mig_hosts", (slip, ratio)


def test_every_result_of_the_roles_is_kept_for_them():
    """What roles and playbooks register or say as facts under a public name is no variable for anybody else."""
    found = set()
    for path in list(ROOT.glob("roles/*/tasks/**/*.yml")) + list(ROOT.glob("playbooks/*.yml")):
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8")) or []):
            found |= {task.get("register")} | set(task.get("ansible.builtin.set_fact") or {})
            found |= {key for key in task.get("ansible.builtin.add_host") or {} if key not in ("name", "groups")}
    public = {name for name in found if name and not name.startswith("__")}
    assert public == set(_variable_names.RESULTS)


def test_every_name_with_two_underscores_is_kept_for_the_playbooks_and_roles():
    """What they register, say as facts or write into the variables of a play, a block or a task."""
    found = {}
    for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/**/*.yml")]:
        for name in re.findall(r"(?<!\w)__[a-z]\w*", path.read_text(encoding="utf-8")):
            found.setdefault(name, path.relative_to(ROOT))
    assert len(found) > 100 and {"__report", "__rollout_plan", "__kernel_hold_before"} <= set(found)
    kept = set(_variables.kept(found, _variable_names.of_roles()))
    # An attribute of Python's, in the text of a task.
    assert {name: str(path) for name, path in found.items() if name not in kept | {"__name__"}} == {}


def test_every_variable_that_playbooks_read_is_known():
    known = set(
        _variable_names.ROLLOUT + _variable_names.PLAYBOOKS + _variable_names.FLEET + _variable_names.RESULTS
    ).union({_variable_names.INVENTORY_FAILED}, *_variable_names.of_roles().values())
    prefixes = "|".join(sorted(_variables.prefixes(_variable_names.of_roles())))
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
    assert _variables.host_pattern(value, "upgrade_hosts", "gpu_nodes") == pattern


@pytest.mark.parametrize("value", [None, "", " ", []])
def test_a_rollback_of_nobody_in_particular_is_none_of_everybody(value):
    with pytest.raises(_variables.VariableError, match="rollback_hosts names nobody"):
        _variables.host_pattern(value, "rollback_hosts", "")
    (entry,) = [
        play
        for play in yaml.safe_load((ROOT / "playbooks" / "rollback.yml").read_text(encoding="utf-8"))
        if "upgrade_hosts" in play.get("vars", {})
    ]
    assert "host_pattern('rollback_hosts', '!all')" in entry["vars"]["upgrade_hosts"]


@pytest.mark.parametrize(
    "value, words",
    [
        ({"a1": 1}, "upgrade_hosts is no text and no list; expected hosts and groups"),
        (7, "upgrade_hosts is no text and no list"),
        (True, "upgrade_hosts is no text and no list"),
        (["a1", None], "upgrade_hosts is a list with something else in it"),
        (["a1", ["a2"]], "a list with something"),
        ("a1,", "upgrade_hosts is 'a1,', which ends with a comma"),
        ("a1,,a2", "upgrade_hosts is 'a1,,a2'; expected"),
        ("a1\na2,\n", "which ends with a comma"),
        ("a1\na2 a3", "upgrade_hosts is 'a1\\na2 a3'; expected"),
        ("a1\ta2", "upgrade_hosts is 'a1\\ta2'; expected"),
        (["a1\na2"], "upgrade_hosts is a list with something else in it; expected"),
        ("a1 a2", "upgrade_hosts is 'a1 a2'; expected"),
    ],
)
def test_what_names_no_hosts_is_refused(value, words):
    with pytest.raises(_variables.VariableError) as caught:
        _variables.host_pattern(value, "upgrade_hosts", "gpu_nodes")
    assert str(caught.value).startswith("upgrade_hosts is ") and words in str(caught.value)
    with pytest.raises(AnsibleError, match="upgrade_hosts"):
        host_pattern.host_pattern(value, "upgrade_hosts")


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("a1", ""),
        ("a1,gpu_nodes", ""),
        ("gpu_nodes:!a1", ""),
        ("gpu_nodes:&rack_a", ""),
        ("a*", ""),
        ("all", ""),
        ("localhost", ""),
        ("fe80::1", ""),
        ("", ""),
        (None, ""),
        (["a1", "rack_a"], ""),
        ("gpu_nodes[0]", ""),
        ("~a[12]", ""),
        ("zz", "rollback_hosts names zz, which is neither a host nor a group of the inventory"),
        ("a1, zz", "rollback_hosts names zz"),
        (["a1", "zz"], "names zz"),
        ("gpu_nodes:!zz", "rollback_hosts names zz"),
    ],
)
def test_a_host_that_is_not_in_the_inventory_is_refused_by_the_variable_that_names_it(pattern, words):
    groups = {"gpu_nodes": ["a1", "a2", "fe80::1"], "rack_a": ["a1"], "all": ["a1", "a2", "fe80::1"]}
    result = act({"a1": {}}, groups=groups, patterns={"rollback_hosts": pattern})
    assert bool(result.get("failed")) == bool(words) and words in result.get("msg", ""), result.get("msg")


@pytest.mark.parametrize(
    "pattern, fine",
    [
        ("a1", True),
        ("fe80::1", True),
        (["a1"], True),
        ("gpu_nodes", False),
        ("rack_a", False),
        ("both", False),
        ("all", False),
        ("ungrouped", False),
        ("localhost", False),
        ("a1,a2", False),
        (["a1", "a2"], False),
        ("a*", False),
        ("~a1", False),
        ("gpu_nodes[0]", False),
        ("a1:!a2", False),
        ("a1:&gpu_nodes", False),
        ("", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("single", [True, "true", "yes"])
def test_where_one_host_has_to_be_named_a_group_or_a_pattern_is_refused(pattern, fine, single):
    """An alert's label names the host: a group of one rack would be drained as a whole."""
    hosts = ["a1", "a2", "fe80::1", "both"]
    groups = {"gpu_nodes": hosts, "rack_a": ["a1"], "both": ["a1", "a2"], "all": hosts, "ungrouped": []}
    more = {"groups": groups, "patterns": {"recover_gpu_hosts": pattern}, "rollout": False}
    result = act({"a1": {}}, gpufleet_single_host=single, **more)
    assert bool(result.get("failed")) is not fine, result.get("msg")
    assert fine or "recover_gpu_hosts" in result["msg"]
    assert not act({"a1": {}}, **dict(more, patterns={"recover_gpu_hosts": "rack_a"})).get("failed")


def test_single_host_that_is_neither_yes_nor_no_is_refused():
    more = {"groups": {"all": ["a1"]}, "patterns": {"recover_gpu_hosts": "a1"}, "rollout": False}
    assert act({"a1": {}}, gpufleet_single_host="maybe", **more)["failed"]


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
def test_a_run_for_nobody_is_refused_by_variable_pattern_and_limit(patterns, limit, words, rollout):
    groups = {"all": ["a1", "web1"]}
    more = {"groups": groups, "patterns": patterns, "ansible_limit": limit, "rollout": rollout}
    result = act({"a1": {}}, nodes=[], **more)
    assert bool(result.get("failed")) == bool(words) and all(word in result["msg"] for word in words), result.get("msg")
    assert not act({"a1": {}}, **more).get("failed"), "one is left"


def test_why_there_is_nobody_is_told_where_an_inventory_could_not_be_read():
    known = {"nodes": [], "rollout": False, "gpufleet_inventory_failed": "slurmctld does not answer."}
    result = act({}, patterns={"quarantine_hosts": "all"}, **known)
    assert result["failed"] and result["msg"].startswith("slurmctld does not answer.")
    assert not act({"localhost": {}}, patterns={}, values=False, **known).get("failed")


@pytest.mark.parametrize(
    "mine, given, words",
    [
        ("upgrade_hosts", {"rollback_hosts": "a"}, "rollback_hosts is on the command line"),
        ("upgrade_hosts", {"rollback_of": "r1"}, "rollback_of is on"),
        ("upgrade_hosts", {"upgrade_hosts": "a", "rollback_hosts": ["a"]}, "run gpufleet.lifecycle.rollback"),
        (
            "upgrade_hosts",
            {"prestage_hosts": "a"},
            "prestage_hosts is on the command line (-e), and this playbook goes by upgrade_hosts",
        ),
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
def test_nodes_that_are_named_to_another_playbook_are_not_taken_for_all(mine, given, words, monkeypatch):
    monkeypatch.setattr(playbook_variables, "load_extra_vars", lambda loader: given)
    result = act(
        {"a": {}},
        rollout=mine in ("upgrade_hosts", "rollback_hosts"),
        patterns={mine: given.get(mine, "")},
        groups={"all": ["a", "b"]},
    )
    assert bool(result.get("failed")) == bool(words) and words in result.get("msg", ""), result.get("msg")


@pytest.mark.parametrize(
    "mine, found, refused",
    [
        ("upgrade_hosts", {"rollout_undo": "last"}, True),
        ("upgrade_hosts", {"rollout_undo": ""}, True),
        ("upgrade_hosts", {}, False),
        ("rollback_hosts", {"rollout_undo": "last"}, False),
    ],
)
def test_an_upgrade_is_not_made_a_rollback_by_a_variable(mine, found, refused):
    result = act({"a": found}, patterns={mine: ""})
    assert bool(result.get("failed")) is refused and ("rollout_undo is set for a" in result.get("msg", "")) is refused


def test_what_the_command_line_lost_is_told():
    """-e rollback_hosts=a1, a2 without quotes of its own gives 'a1,' and a word that belongs to nothing."""
    result = act({"a": {"_raw_params": "a2"}})
    assert result["failed"] and "The command line (-e) has 'a2', which belongs to no variable" in result["msg"]


@pytest.mark.parametrize(
    "name, value, words",
    [
        (
            "gpu_scheduler_backends",
            ["pbs"],
            'gpu_scheduler_backends of b is ["pbs"]; expected a list of some of slurm, kubernetes',
        ),
        ("gpu_scheduler_backends", ["slurm", "pbs"], "expected a list of some of slurm, kubernetes"),
        (
            "gpu_scheduler_backends",
            "slurm",
            'gpu_scheduler_backends of b is "slurm"; expected a list of some of slurm, kubernetes',
        ),
        ("gpu_scheduler_backends", {"slurm": 1}, "expected a list of some of slurm"),
        ("gpu_scheduler_on_timeout", "drop", 'gpu_scheduler_on_timeout of b is "drop"; expected one of lift, keep'),
        ("gpu_node_upgrade_reload", ["auto"], "expected one of reboot, reload, auto"),
        ("gpu_scheduler_backends", ["kubernetes", "slurm"], ""),
        ("gpu_scheduler_backends", [], ""),
        ("gpu_scheduler_backends", None, ""),
        ("gpu_scheduler_backends", "", ""),
        ("gpu_node_upgrade_reload", "auto", ""),
    ],
)
def test_a_word_that_a_role_does_not_know_is_refused_before_it_is_asked(name, value, words):
    result = act({"a": {}, "b": {name: value}}, rollout=False)
    assert bool(result.get("failed")) == bool(words) and words in result.get("msg", ""), result.get("msg")


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_for_a_roles_variable_is_its_default_or_refused_by_name(value):
    """Of all variables that the roles have."""
    seen = {True: set(), False: set()}
    for role, names in _variable_names.of_roles().items():
        for name in sorted(names):
            text, default = _variable_names.defaults().get(name, (role, True, None))[1:]
            result = act({"a": {}, "b": {name: value}}, rollout=False)
            seen[bool(result.get("failed"))].add(name)
            if result.get("failed"):
                assert result["msg"].startswith("%s of b is " % name) and result["msg"].endswith("Nothing was changed.")
            # What is let pass: no default that it would stand for, the empty text where that is the default or says
            # that there is none, what the playbooks hide from the role, and what every reader takes for the default.
            assert bool(result.get("failed")) or (
                default is None
                or value == default
                or (value == "" and text and role != "gpu_node_upgrade")
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
def test_where_the_role_itself_runs_nothing_is_refused(found, patterns, refused):
    result = act({"a": found}, rollout=False, patterns=patterns)
    assert bool(result.get("failed")) == bool(refused) and result.get("msg", refused).startswith(refused), result


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
    assert not act(HostVars(a=written), rollout=False).get("failed")
    found = act(HostVars(a=dict(written, gpu_scheduler_token=None)), rollout=False)
    assert found["msg"].startswith("gpu_scheduler_token of a is null")


@pytest.mark.parametrize(
    "value, refused",
    [
        (1, False),
        (300, False),
        ("300", False),
        ("", False),
        (None, False),
        (86400, False),
        (0, True),
        ("0", True),
        (-1, True),
        (86401, True),
        (1.5, True),
        (True, True),
        ("soon", True),
        ("\u0663", True),
        ([300], True),
        ({}, True),
    ],
)
def test_the_time_for_an_answer_is_some_seconds(value, refused):
    result = act({"a": {}, "b": {"gpufleet_answer_timeout": value}}, rollout=False)
    assert bool(result.get("failed")) == refused, result
    assert ("gpufleet_answer_timeout of b is " in result.get("msg", "")) == refused


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("/srv/state", False),
        (None, True),
        ("", True),
        ("srv/state", True),
        ("~/state", True),
        (["/srv"], True),
        (1, True),
    ],
)
def test_the_place_of_a_nodes_notes_is_one_place(value, refused):
    """Some playbooks took null or an empty text for the default, and the role for the directory it was run in."""
    result = act({"a": {}, "b": {"gpu_node_upgrade_state_dir": value}}, rollout=False)
    assert bool(result.get("failed")) == refused, result
    assert ("gpu_node_upgrade_state_dir of b is " in result.get("msg", "")) == refused


@pytest.mark.parametrize(
    "backends, said",
    [
        ({"a": ["slurm"], "b": ["slurm"], "c": ["slurm"]}, ["drained in slurm: all 3 nodes"]),
        (
            {"a": ["slurm", "kubernetes"], "b": [], "c": None},
            [
                "drained in slurm and kubernetes: a",
                "drained in no scheduler, as gpu_scheduler_backends names none: b, c",
            ],
        ),
        ({}, ["drained in no scheduler, as gpu_scheduler_backends names none: all 3 nodes"]),
    ],
)
def test_the_schedulers_of_a_plan_in_words(backends, said):
    assert _variables.drained(backends, list("abc")) == said
    assert _variables.drained(backends, []) == []


@pytest.mark.parametrize("rollout", [True, False])
def test_a_controller_without_a_binding_is_told_once_and_by_itself(monkeypatch, rollout):
    def missing():
        raise _binding.BindingError("the controller has no nvidia-ml-py; install it")

    assert not act({"a": {}, "b": {}}, rollout=rollout, binding=True).get("failed")
    monkeypatch.setattr(_binding, "find", missing)
    result = act({"a": {}, "b": {}}, rollout=rollout, binding=True)
    assert result["failed"] and result["msg"] == (
        "This is about the controller and no node: the controller has no nvidia-ml-py; install it. Nothing was changed."
    )
    assert not act({"a": {}}, rollout=rollout).get("failed")


# These read no GPU through NVML.
NO_GPUS = {"capacity", "holds", "monitoring", "prestage", "report", "rollout_control"}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")))
def test_playbooks_that_read_gpus_ask_for_the_binding(name):
    own = [task for task in tasks(plays_of(name + ".yml")) if "gpufleet.lifecycle.playbook_variables" in task]
    asked = {task["gpufleet.lifecycle.playbook_variables"].get("binding", False) for task in own}
    assert asked == {name not in NO_GPUS}
