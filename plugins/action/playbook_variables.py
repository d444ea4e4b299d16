# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse variables that the playbooks would overlook, or that would overrule them."""

from __future__ import annotations

import os
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.gpufleet.lifecycle.plugins.modules.playbook_variables import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import (
    _awx,
    _binding,
    _service_hosts,
    _variable_names,
    _variables,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

# A run that checked them once has results of its own under names that nothing else may use.
REGISTERED = "__gpufleet_checked"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars or {})
        dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        task_vars = task_vars or {}
        try:
            try:
                result["service_hosts"] = check_variables(arguments, task_vars, load_extra_vars(self._loader))
            except _variables.OverrulingError:
                raise
            except _variables.VariableError as exc:
                if not has_unfinished(arguments):
                    raise
                hostvars, groups = task_vars.get("hostvars") or {}, task_vars.get("groups") or {}
                result["service_hosts"] = find_service_hosts(arguments, hostvars, groups)
                result["refused"] = str(exc)
                display.warning("%s Nodes that an interrupted run left in flight are finished first." % exc)
            if arguments["binding"]:
                _binding.find()
            if arguments["keeps"]:
                result["warnings"] = find_lost_files(arguments, task_vars)
        except (_binding.BindingError, store.StoreError, OSError) as exc:
            result.update(failed=True, msg="This is about the controller and no node: %s. %s" % (exc, _variables.END))
        except _variables.VariableError as exc:
            result.update(failed=True, msg=str(exc))
        result.update(changed=False, process=os.getppid())
        return result


def check_variables(arguments: dict, task_vars: t.Mapping[str, t.Any], extra: t.Mapping) -> list:
    """Refuse variables; return the service hosts to add.

    Args:
        arguments: Those of the task.
        task_vars: Its variables.
        extra: The variables of the command line.

    Raises:
        OverrulingError: A variable overrules the steps of a node.
        VariableError: Another refusal, which waits for nodes in flight.
    """
    roles, everything = _variable_names.read_role_variables(), task_vars.get("hostvars") or {}
    nodes, patterns, groups = arguments["nodes"], arguments["patterns"], task_vars.get("groups") or {}
    known = _variable_names.CONTROL if arguments["control"] else ()
    # Nothing outranks the command line, in all playbooks, also for names that a task registered before.
    extra = {name: value for name, value in extra.items() if isinstance(name, str)}
    refuse_overruling(arguments, everything, extra, roles, groups)
    names, of_rollout, lost, failed = set(), {}, {}, []
    for node in nodes:
        found = everything[node]
        mine = {name for name in found if isinstance(name, str)}
        names |= mine
        if arguments["rollout"]:
            of_rollout[node] = {name: read_value(found, node, name) for name in mine if _variables.is_of_all(name)}
        lost = lost or read_value(found, node, "_raw_params")
        if arguments["values"]:
            failed.append(read_value(found, node, _variable_names.INVENTORY_FAILED))
    if arguments["values"] and not nodes:
        failed.append(task_vars.get(_variable_names.INVENTORY_FAILED))
    _variables.refuse_failed_inventory(failed)
    _variables.refuse_lost_words(lost)
    _variables.refuse_foreign(extra, arguments["prefix"])
    for variable, pattern in patterns.items():
        _variables.refuse_other_playbook(extra, variable, pattern)
        _variables.refuse_undo(of_rollout, variable)
    _variables.refuse_unknown_hosts(patterns, groups)
    _variables.refuse_several_hosts(task_vars.get(_variable_names.SINGLE_HOST, False), patterns, groups)
    _variables.refuse_nobody(nodes, patterns, task_vars.get("ansible_limit"))
    _variables.refuse_unknown(names, roles, known)
    _variables.refuse_near(extra, roles, known, arguments["prefix"])
    if arguments["values"]:
        check_values(nodes, everything, "monitoring_textfile_hosts" in patterns)
    if arguments["rollout"]:
        _variables.refuse_differing(of_rollout)
        _variables.refuse_other_outcome(of_rollout)
        _variables.refuse_other_ledger(
            {node: read_ledger_variables(everything, node) for node in nodes},
            read_ledger_variables(everything, "localhost") if "localhost" in everything else {},
        )
    return find_service_hosts(arguments, everything, groups) if arguments["values"] else []


def refuse_overruling(
    arguments: dict, everything: t.Any, extra: t.Mapping, roles: _variables.Roles, groups: t.Container[str]
) -> None:
    """Refuse what overrules the steps of a node, as the first of all refusals."""
    reserved = set(extra)
    for node in arguments["nodes"] if arguments["values"] else ():
        checked = read_value(everything[node], node, REGISTERED)
        if not isinstance(checked, dict) or checked.get("process") != os.getppid():
            reserved |= {name for name in everything[node] if isinstance(name, str)}
    _variables.refuse_reserved(reserved, roles)
    if arguments["rollout"]:
        _variables.refuse_of_plan(extra)
        _variables.refuse_groups_of_plan(groups)


def read_ledger_variables(everything: t.Any, host: str) -> t.Dict[str, t.Any]:
    """Return the variables of a host that say where the ledger is."""
    return {name: read_value(everything[host], host, name) for name in _variables.LEDGER_VARIABLES}


def has_unfinished(arguments: dict) -> bool:
    """Return True if the ledger has some of the nodes in flight, which are finished also if the run is refused."""
    if not arguments["artifact_dir"]:
        return False
    database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
    return bool(others.in_flight(database, arguments["nodes"]))


def check_values(nodes: t.Iterable[str], everything: t.Any, monitoring: bool) -> None:
    """Refuse values that a role would refuse or misread later. EVERYTHING: the variables by node."""
    judged = {*_variable_names.read_choices(), _variable_names.ANSWER_TIMEOUT, _variable_names.STATE_DIR}
    for node in nodes:
        found = everything[node]
        written = everything.raw_get(node) if hasattr(everything, "raw_get") else found  # templates as they are
        _variables.refuse_nothing(node, written, monitoring)
        for name in sorted(set(found) & judged):
            _variables.refuse_bad_value(node, name, read_value(found, node, name))


def find_lost_files(arguments: dict, task_vars: t.Mapping[str, t.Any]) -> list:
    """Refuse a job of AWX in which files would be lost that are needed; return warnings for other files."""
    kept, everything = _awx.KEPT[arguments["keeps"]], task_vars.get("hostvars") or {}
    places = {}
    for node in arguments["nodes"] if task_vars.get("awx_job_id") else ():
        found = {name: read_value(everything[node], node, name) for name in kept.artifact_host}
        places[node] = _awx.artifact_host(found, kept.artifact_host)
    lost = _awx.forgets(task_vars.get("awx_job_id"), arguments["keeps"], places)
    if lost and kept.needed:
        raise _variables.VariableError(lost)
    return [lost] if lost else []


def find_service_hosts(arguments: dict, everything: t.Any, groups: t.Mapping[str, list]) -> list:
    """Return the service hosts that the inventory lacks; refuse a rollout that delegates to an unknown host."""
    wanted = (_service_hosts.VARIABLE, "gpu_scheduler_backends") + _service_hosts.DELEGATES
    values = {
        node: {name: read_value(everything[node], node, name) for name in wanted if name in everything[node]}
        for node in arguments["nodes"]
    }
    hosts = _service_hosts.merge_hosts({node: found.get(_service_hosts.VARIABLE) for node, found in values.items()})
    inventory = set(groups.get("all") or [])
    if arguments["rollout"]:
        delegates = {node: _service_hosts.find_delegates(found) for node, found in values.items()}
        _service_hosts.refuse_missing(delegates, inventory | set(hosts))
    return _service_hosts.list_missing_hosts(hosts, inventory)


def read_value(found: t.Mapping[str, t.Any], node: str, name: str) -> t.Any:
    """Return a variable of a node, {} if it has none; refuse one that cannot be evaluated."""
    try:
        return found[name] if name in found else {}
    except AnsibleError as exc:
        raise _variables.VariableError(
            "%s of %s cannot be evaluated: %s" % (name, node, redaction.describe(exc))
        ) from None
