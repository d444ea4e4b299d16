# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse variables that the playbooks would overlook, or that would overrule them."""

from __future__ import annotations

import os

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.gpufleet.lifecycle.plugins.modules.playbook_variables import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import (
    _awx,
    _binding,
    _service_hosts,
    _variable_names,
    _variable_values,
    _variables,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

# A run that checked them once has results of its own under names that nothing else may use.
REGISTERED = "__gpufleet_checked"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        task_vars = task_vars or {}
        dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            try:
                result["service_hosts"] = self.check(arguments, task_vars, load_extra_vars(self._loader))
            except _variables.OverrulingError:
                raise
            except _variables.VariableError as exc:
                if not has_unfinished(arguments):
                    raise
                result["service_hosts"] = service_hosts(arguments, task_vars.get("hostvars") or {}, task_vars)
                result["refused"] = str(exc)
                display.warning("%s Nodes that an interrupted run left in flight are finished first." % exc)
            if arguments["binding"]:
                _binding.find()
            if arguments["keeps"]:
                result["warnings"] = warn_lost(arguments, task_vars)
        except (_binding.BindingError, store.StoreError, OSError) as exc:
            result.update(failed=True, msg="This is about the controller and no node: %s. %s" % (exc, _variables.END))
        except _variables.VariableError as exc:
            result.update(failed=True, msg=str(exc))
        result.update(changed=False, process=os.getppid())
        return result

    @staticmethod
    def check(arguments, task_vars, given):
        """Refuse variables; return the service hosts to add."""
        roles, everything = _variable_names.of_roles(), task_vars.get("hostvars") or {}
        more = _variable_names.CONTROL if arguments["control"] else ()
        names, values, lost, undo, failed = set(), {}, {}, {}, {}
        # Nothing goes before the command line, whichever playbook this is and whatever registered a name before it.
        given = {name: value for name, value in given.items() if isinstance(name, str)}
        inner = set(given)
        for node in arguments["nodes"] if arguments["values"] else ():
            found = everything[node]
            checked = value_of(found, node, REGISTERED)
            if not isinstance(checked, dict) or checked.get("process") != os.getppid():
                inner |= {name for name in found if isinstance(name, str)}
        # First what overrules the steps of a node: the other refusals wait for nodes in flight.
        _variables.refuse_kept(inner, roles)
        if arguments["rollout"]:
            _variables.refuse_of_plan(given)
        for node in arguments["nodes"]:
            found = everything[node]
            mine = {name for name in found if isinstance(name, str)}
            names |= mine
            if arguments["rollout"]:
                undo[node] = value_of(found, node, "rollout_undo")
                values[node] = {name: value_of(found, node, name) for name in mine if _variables.of_all(name)}
            lost = lost or value_of(found, node, "_raw_params")
            if arguments["values"] and _variable_names.INVENTORY_FAILED in mine:
                failed[node] = value_of(found, node, _variable_names.INVENTORY_FAILED)
        if arguments["values"] and not arguments["nodes"]:
            failed["all"] = task_vars.get(_variable_names.INVENTORY_FAILED)
        _variables.refuse_failed_inventory(failed)
        _variables.refuse_lost_words(lost)
        _variables.refuse_misspelt(given, arguments["prefix"])
        for mine, pattern in arguments["patterns"].items():
            _variables.refuse_common(given, mine)
            _variables.refuse_other_playbook(given, mine, pattern)
            _variables.refuse_undo(undo, mine)
        _variables.refuse_unknown_hosts(arguments["patterns"], task_vars.get("groups") or {})
        single = task_vars.get(_variable_names.SINGLE_HOST, False)
        _variables.refuse_several_hosts(single, arguments["patterns"], task_vars.get("groups") or {})
        _variables.refuse_nobody(arguments["nodes"], arguments["patterns"], task_vars.get("ansible_limit"))
        _variables.refuse_strangers(names, roles, more)
        reads = {_variable_names.COMMON.get(mine) for mine in arguments["patterns"]} | {arguments["prefix"]}
        _variables.refuse_near(given, roles, more, reads)
        if arguments["values"]:
            refuse_values(arguments["nodes"], everything, "monitoring_textfile_hosts" in arguments["patterns"])
        if arguments["rollout"]:
            _variables.refuse_differing(values)
            _variables.refuse_other_outcome(values)
            local = everything["localhost"] if "localhost" in everything else {}
            own = {name: value_of(local, "localhost", name) for name in _variables.PLACES}
            found = {
                node: {name: value_of(everything[node], node, name) for name in _variables.PLACES}
                for node in arguments["nodes"]
            }
            _variables.refuse_apart(found, own)
        return service_hosts(arguments, everything, task_vars) if arguments["values"] else []


def has_unfinished(arguments):
    """Return True if the ledger has some of the nodes in flight, which are finished whatever else is refused."""
    if not arguments["artifact_dir"]:
        return False
    database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
    return bool(ledger.in_flight(database, arguments["nodes"]))


def warn_lost(arguments, task_vars):
    """Refuse a job of AWX in which files would be lost that are needed; return warnings for other files."""
    kept, everything = _awx.KEPT[arguments["keeps"]], task_vars.get("hostvars") or {}
    places = {}
    for node in arguments["nodes"] if task_vars.get("awx_job_id") else ():
        found = {name: value_of(everything[node], node, name) for name in kept.artifact_host}
        places[node] = _awx.artifact_host(found, kept.artifact_host)
    lost = _awx.forgets(task_vars.get("awx_job_id"), arguments["keeps"], places)
    if lost and kept.needed:
        raise _variables.VariableError("%s %s" % (lost, _variables.END))
    return [lost] if lost else []


def refuse_values(nodes, everything, monitoring):
    """Refuse a value of a node that a role would refuse or misread later, when something was changed already.

    EVERYTHING: the variables by node.
    """
    allowed = _variable_names.choices()
    for node in nodes:
        found = everything[node]
        written = everything.raw_get(node) if hasattr(everything, "raw_get") else found  # templates as they are
        _variable_values.refuse_nothing(node, written, monitoring)
        for name in sorted(set(found) & set(allowed)):
            _variable_values.refuse_no_choice(node, name, value_of(found, node, name), allowed[name])
        if _variable_names.ANSWER_TIMEOUT in found:
            _variable_values.refuse_bad_timeout(node, value_of(found, node, _variable_names.ANSWER_TIMEOUT))
        if _variable_names.STATE_DIR in found:
            _variable_values.refuse_no_place(node, value_of(found, node, _variable_names.STATE_DIR))


def service_hosts(arguments, everything, task_vars):
    """Return the service hosts that the inventory lacks; refuse a rollout that delegates to a host which no one knows.

    EVERYTHING: the variables by node.
    """
    wanted = (_service_hosts.VARIABLE, "gpu_scheduler_backends") + _service_hosts.DELEGATES
    values = {
        node: {name: value_of(everything[node], node, name) for name in wanted if name in everything[node]}
        for node in arguments["nodes"]
    }
    hosts = _service_hosts.merged({node: found.get(_service_hosts.VARIABLE) for node, found in values.items()})
    inventory = set((task_vars.get("groups") or {}).get("all") or [])
    if arguments["rollout"]:
        delegates = {node: _service_hosts.delegates(found) for node, found in values.items()}
        _service_hosts.refuse_missing(delegates, inventory | set(hosts))
    return _service_hosts.to_add(hosts, inventory)


def value_of(found, node, name):
    try:
        return found[name] if name in found else {}
    except AnsibleError as exc:
        raise _variables.VariableError(
            "%s of %s cannot be evaluated: %s %s" % (name, node, redaction.describe(exc), _variables.END)
        ) from None
