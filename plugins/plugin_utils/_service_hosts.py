# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that serve the nodes, such as the one with the commands of Slurm, where the inventory may lack them. Pure.

The slice of a job has some hosts of the inventory, and tasks of its nodes are delegated to others: these are data of
the nodes (gpufleet_service_hosts), and added to the inventory of the run.
"""

from __future__ import annotations

import difflib
import json
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._variables import END, VariableError

VARIABLE = "gpufleet_service_hosts"
# What says how to connect to a host and is no secret. The tasks that add the hosts name the same ones.
CONNECTION = (
    "ansible_become",
    "ansible_become_method",
    "ansible_become_user",
    "ansible_connection",
    "ansible_host",
    "ansible_port",
    "ansible_python_interpreter",
    "ansible_ssh_common_args",
    "ansible_ssh_private_key_file",
    "ansible_user",
)
# Variables of nodes that name a host to which tasks are delegated.
DELEGATES = ("gpu_scheduler_slurm_host", "gpu_node_upgrade_artifact_host", "gpufleet_artifact_host")
HERE = ("localhost", "127.0.0.1", "::1", "")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Hosts = t.Dict[str, t.Dict[str, t.Any]]


def merge_hosts(by_node: t.Mapping[str, t.Any]) -> Hosts:
    """Return the service hosts of all nodes with their variables.

    BY_NODE: the value of the variable by node. Raise VariableError for what is no such value, and for a host that has
    different variables for different nodes.
    """
    found: Hosts = {}
    first: t.Dict[str, str] = {}
    checked: t.List[t.Any] = []  # most nodes have the same value, and comparing is cheaper than checking
    for node, value in sorted(by_node.items()):
        if value in (None, "", {}) or value in checked:
            continue
        for name, variables in _read_hosts(node, value).items():
            if found.setdefault(name, variables) != variables:
                raise VariableError(
                    "%s gives %s other variables for %s than for %s; expected the same, since a run has one host of "
                    "that name. Set them in a group of all of these nodes. %s"
                    % (VARIABLE, name, node, first[name], END)
                )
            first.setdefault(name, node)
        checked.append(value)
    return found


def _read_hosts(node: str, value: t.Any) -> Hosts:
    if not isinstance(value, dict):
        raise VariableError(
            "%s of %s is %s; expected hosts with their variables, such as {login: {ansible_host: 192.0.2.10}}. %s"
            % (VARIABLE, node, json.dumps(value, default=str)[:80], END)
        )
    found = {}
    for name, given in value.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in HERE:
            raise VariableError("%s of %s has a host named %r; expected a name. %s" % (VARIABLE, node, name, END))
        variables = {} if given is None else given
        if not isinstance(variables, dict):
            raise VariableError(
                "%s of %s has %s for %s; expected its variables, such as {ansible_host: 192.0.2.10}. %s"
                % (VARIABLE, node, type(given).__name__, name, END)
            )
        for key in sorted(variables, key=str):
            if key not in CONNECTION:
                near = difflib.get_close_matches(str(key), CONNECTION, 1)
                raise VariableError(
                    "%s of %s has %s for %s; expected %s. Passwords belong to the credential of the job, or to a "
                    "group of the nodes' inventory. %s"
                    % (VARIABLE, node, key, name, near[0] if near else "some of " + ", ".join(CONNECTION), END)
                )
        found[name] = {str(key): one for key, one in variables.items() if one is not None}
    return found


def list_missing_hosts(hosts: Hosts, inventory: t.Container[str]) -> t.List[t.Dict[str, t.Any]]:
    """Return the hosts that the inventory lacks, each with its name and its variables; what it has counts."""
    return [dict(hosts[name], name=name) for name in sorted(hosts) if name not in inventory]


def find_delegates(variables: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    """Return by variable the hosts to which tasks of a node are delegated."""
    backends = variables.get("gpu_scheduler_backends") or []
    return {
        name: str(variables[name]).strip()
        for name in DELEGATES
        if variables.get(name) and (name != "gpu_scheduler_slurm_host" or "slurm" in backends)
    }


def refuse_missing(wanted: t.Mapping[str, t.Mapping[str, str]], known: t.Container[str]) -> None:
    """Refuse a host that no one knows: Ansible would look for it by its name, with the variables of no host.

    WANTED: the delegates by node. KNOWN: the hosts of the inventory and those that are added.
    """
    lost: t.Dict[t.Tuple[str, str], t.List[str]] = {}
    for node, hosts in sorted(wanted.items()):
        for variable, host in hosts.items():
            if host not in HERE and host not in known:
                lost.setdefault((variable, host), []).append(node)
    for (variable, host), nodes in sorted(lost.items()):
        raise VariableError(
            "%s of %s%s is %s, which is no host of this inventory. Add it to the inventory or, for a slice of one, to "
            "%s, such as {%s: {ansible_host: 192.0.2.10}}. %s"
            % (
                variable,
                ", ".join(nodes[:5]),
                " and %d more" % (len(nodes) - 5) if len(nodes) > 5 else "",
                host,
                VARIABLE,
                host,
                END,
            )
        )
