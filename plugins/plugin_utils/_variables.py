# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is wrong with the variables of the nodes and of the command line. Pure."""

from __future__ import annotations

import difflib
import json
import re
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options

END = "Nothing was changed."
# How much of two names has to be the same for one to be a slip of the other. A letter that is left out, doubled or
# swapped leaves at least this, but for the shortest name; those of Ansible and AWX come to no more than 0.8.
NEAR = 0.9
# Playbooks with variables of their own prefix, beside those of roles.
PREFIXES = (
    "bringup holds mig precheck prestage quarantine recover_gpu return_to_service rollback thermal_relief upgrade"
).split()
# The variables that say where the ledger is.
LEDGER_VARIABLES = ("gpufleet_artifact_dir", "rollout_ledger")

Names = t.Iterable[str]
Values = t.Mapping[str, t.Any]
Roles = t.Mapping[str, t.FrozenSet[str]]


class VariableError(Exception):
    """A variable cannot stay as it is. The message names it and says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message if message.endswith(END) else "%s %s" % (message, END))


class OverrulingError(VariableError):
    """A variable would overrule the steps of a node, so that not even a node in flight can be finished."""


def list_prefixes(roles: Roles) -> t.Dict[str, str]:
    """Return the prefixes of the collection's variables, and their owners."""
    owners = {"rollout_": "a rollout", "gpufleet_": "the collection"}
    owners.update((name + "_", "the playbook " + name) for name in PREFIXES)
    owners.update((name + "_", "the role " + name) for name in roles)
    return owners


def list_known(roles: Roles, more: Names = ()) -> t.Tuple[t.FrozenSet[str], t.FrozenSet[str]]:
    """Return the names that may be given, and those that are the collection's own or the laboratory's.

    Args:
        roles: The variables of each role.
        more: Variables that this playbook knows beside those that all playbooks know.
    """
    own = {*_variable_names.RESULTS, *_variable_names.HANDED_ON, *_variable_names.LAB, _variable_names.INVENTORY_FAILED}
    names = frozenset((*_variable_names.ROLLOUT, *_variable_names.PLAYBOOKS, *_variable_names.FLEET, *more))
    return names.union(*roles.values()) - own, frozenset(own)


def find_unknown(names: Names, roles: Roles, more: Names = ()) -> t.List[t.Tuple[str, str, str]]:
    """Return (name, owner of its prefix, nearest known name or "") of each name that only looks like the collection's.

    MORE: as of list_known().
    """
    offered, own = list_known(roles, more)
    found = []
    for name in sorted(set(names) - offered - own):
        owners = [owner for prefix, owner in list_prefixes(roles).items() if name.startswith(prefix)]
        if owners:
            found.append((name, owners[-1], (difflib.get_close_matches(name, sorted(offered), 1) or [""])[0]))
    return found


def find_reserved(names: Names, roles: Roles) -> t.List[str]:
    """Return the names that the roles and playbooks keep for themselves."""
    inner = tuple("__" + prefix for prefix in (*list_prefixes(roles), *_variable_names.INNER))
    whole = {prefix.rstrip("_") for prefix in inner}
    return sorted(
        name for name in set(names) if name in _variable_names.RESULTS or name in whole or name.startswith(inner)
    )


def refuse_unknown(names: Names, roles: Roles, more: Names = ()) -> None:
    for name, owner, near in find_unknown(names, roles, more):
        raise VariableError(
            "%s is no variable of %s%s Correct it, or give a variable of your own another name."
            % (name, owner, ": did you mean %s?" % near if near else ".")
        )


def refuse_near(given: Names, roles: Roles, more: Names = (), prefix: str = "") -> None:
    """Refuse an extra variable that is none of the collection's and differs from one of them by a slip.

    PREFIX: of the variables of this playbook, where those of an inventory may begin likewise.
    """
    names, own = list_known(roles, more)
    common = tuple(one for one in _variable_names.INNER if one != prefix)
    offered = sorted(name for name in names if not name.startswith(common))
    for name in sorted(set(given) - names - own):
        # A whole word before or after it makes it another name.
        candidates = [one for one in offered if abs(len(one) - len(name)) <= 2]
        for near in difflib.get_close_matches(name, candidates, 1, NEAR):
            raise VariableError(
                "%s is on the command line (-e), and no task reads it: did you mean %s? Correct it, or give a variable "
                "of your own another name." % (name, near)
            )


def refuse_foreign(given: Names, prefix: str) -> None:
    """Refuse an extra variable that begins with the PREFIX of a playbook's variables and is none of them."""
    known = [name for name in _variable_names.PLAYBOOKS if name.startswith(prefix)]
    for name in sorted(given):
        if prefix and name.startswith(prefix) and name not in known:
            raise VariableError(
                "%s is on the command line (-e), and is no variable of the playbook %s: did you mean %s?"
                % (name, prefix.rstrip("_"), (difflib.get_close_matches(name, known, 1, 0) or known)[0])
            )


def refuse_reserved(names: Names, roles: Roles) -> None:
    for name in find_reserved(names, roles):
        raise OverrulingError(
            "%s is set, a name that the collection reserves, and it would overrule what is found on the nodes or "
            "planned for them. Remove it from the command line (-e) and the inventory; after roles of the collection "
            "in the same run, run this playbook by itself." % name
        )


def refuse_of_plan(names: Names, alone: bool = False) -> None:
    """Refuse NAMES of variables that outrank what a rollout sets itself, whatever their values are.

    ALONE: the role is used by itself, so its own options are the caller's.
    """
    for name in sorted(set(names) & set(_variable_names.OF_PLAN)):
        if alone and name.startswith("gpu_node_upgrade_"):
            continue
        raise OverrulingError(
            "%s is set on the command line (-e) or as a fact of the node, which overrules the plan of the rollout and "
            "its way back. Leave it out there; %s." % (name, _variable_names.OF_PLAN[name])
        )


def refuse_groups_of_plan(groups: t.Container[str]) -> None:
    """Refuse a rollout whose nodes Ansible would not tell from those of another plan, which has the same groups."""
    for name in _variable_names.GROUPS_OF_PLAN:
        if name in groups:
            raise OverrulingError(
                "There is a group %s already, of an earlier rollout in this run of ansible-playbook or of the "
                "inventory, and the report would be of its nodes. Run each rollout by an ansible-playbook of its own, "
                "and name no group of the inventory so." % name
            )


def refuse_failed_inventory(messages: t.Iterable[t.Any]) -> None:
    """Refuse an inventory of which a plugin of this collection could not read its source."""
    for message in filter(None, messages):
        raise VariableError("%s The nodes that other sources name are not all there are." % message)


def refuse_lost_words(words: t.Any) -> None:
    """Refuse words that the command line lost: -e takes a value up to its first blank."""
    if words:
        raise VariableError(
            "The command line (-e) has %r, which belongs to no variable: a value with blanks needs quotes of its own, "
            "as in -e '{\"rollout_reason\": \"two words\"}'." % words
        )


def is_of_all(name: str) -> bool:
    """Tell if a variable must have the same value for all nodes of a rollout.

    What is handed on to be read is none: its text is never evaluated.
    """
    return (name.startswith("rollout_") and name not in _variable_names.HANDED_ON) or name in _variable_names.OF_ALL


def refuse_differing(by_node: t.Mapping[str, Values]) -> None:
    """Refuse values that differ between nodes. BY_NODE: the variables that hold for a whole rollout."""
    nodes = sorted(by_node)
    for name in sorted({name for found in by_node.values() for name in found}):
        first = nodes[0]
        for other in nodes[1:]:
            here, there = by_node[first], by_node[other]
            if (name in here) != (name in there) or here.get(name) != there.get(name):
                raise VariableError(
                    "%s is %s for %s and %s for %s, and the whole rollout has one. Give all of its nodes the same, "
                    "with -e or in a group of all of them."
                    % (name, _describe(name, here), first, _describe(name, there), other)
                )


def refuse_other_ledger(by_node: t.Mapping[str, Values], own: Values) -> None:
    """Refuse a ledger that the nodes have and the controller has not: rollout_control and report would use another one.

    Args:
        by_node: The variables in LEDGER_VARIABLES by node.
        own: Those of localhost.
    """
    for node, found in sorted(by_node.items()):
        for name in LEDGER_VARIABLES:
            value = found.get(name)
            if value not in (None, "", {}) and value != own.get(name):
                raise VariableError(
                    "%s is set for %s and %s for localhost, so that rollout_control and report would read another "
                    "ledger. Set it in the group all, or with -e."
                    % (name, node, "has another value" if own.get(name) else "is not")
                )


def _describe(name: str, found: Values) -> str:
    if name not in found:
        return "not set"
    value = found[name]
    if name in _variable_names.SECRET or isinstance(value, (dict, list)):
        return "one value"
    return repr(str(value)) if isinstance(value, str) else str(value)


def refuse_other_outcome(by_node: t.Mapping[str, Values]) -> None:
    """Refuse a role that would do something else with a failed node than the plan, which was approved."""
    for node, found in sorted(by_node.items()):
        plan = found.get("rollout_on_failure") or options.SPEC["on_failure"]["default"]
        if (found.get("gpu_node_upgrade_on_failure") or plan) != plan:
            raise VariableError(
                "gpu_node_upgrade_on_failure is %r for %s, and rollout_on_failure, which the plan goes by, is %r. In a "
                "rollout give rollout_on_failure alone." % (found["gpu_node_upgrade_on_failure"], node, plan)
            )


def refuse_undo(by_node: t.Mapping[str, Values], variable: str) -> None:
    """Refuse the variable with which the playbook rollback asks the plan for a rollback in another playbook.

    VARIABLE: the one that names the nodes of this playbook.
    """
    for node, found in sorted(by_node.items()):
        if variable != "rollback_hosts" and found.get("rollout_undo") is not None:
            raise VariableError(
                "rollout_undo is set for %s, which would make a rollback of this upgrade. Remove it, or run "
                "gpufleet.lifecycle.rollback with rollback_of." % node
            )


def refuse_partial_run(arguments: Values) -> None:
    """Refuse a run that leaves out tasks: no task of the playbooks has a tag, and each relies on those before it.

    ARGUMENTS: those of the command line (ansible.context.CLIARGS).
    """
    run, skip, start = (arguments.get(name) or () for name in ("tags", "skip_tags", "start_at_task"))
    for option, found, is_whole in (
        ("--tags", ",".join(sorted(run)), not run or set(run) & {"all", "untagged"}),
        ("--skip-tags", ",".join(sorted(skip)), not set(skip) & {"all", "always", "untagged"}),
        ("--start-at-task", start, not start),
    ):
        if not is_whole:
            raise VariableError(
                "%s %s leaves out tasks of this playbook, which has no tags and is run as a whole: run it without."
                % (option, found)
            )


def make_host_pattern(value: t.Any, variable: str, default: str) -> str:
    """Return the host pattern that a variable gives as a pattern, a list, or a text with commas, blanks and lines.

    A line that ends with a comma continues in the next one.
    """
    text = value.strip() if isinstance(value, str) else None
    if text is not None:
        parts = re.split(r"\s*,\s*|\s*[\r\n]\s*", text) if text else []
    else:
        parts = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if text and text.endswith(","):
        raise VariableError(
            "%s is %r, which ends with a comma: on a command line a blank after a comma ends the value. Leave the "
            "blank out." % (variable, value)
        )
    if [part for part in parts if not isinstance(part, str) or len(part.split()) != 1]:
        raise VariableError(
            "%s is %s; expected hosts and groups of the inventory, as a text such as gpu-a-1,gpu-a-2, one a line, or "
            "as a list." % (variable, _describe_hosts(value))
        )
    if not parts and not default:
        raise VariableError("%s names no host: name hosts or groups of the inventory." % variable)
    return ",".join(part.strip() for part in parts) or default


def _describe_hosts(value: t.Any) -> str:
    if isinstance(value, str):
        return ascii(value[:60])
    return "a list with something else in it" if isinstance(value, (list, tuple)) else "no text and no list"


def refuse_unknown_hosts(patterns: Values, groups: t.Mapping[str, t.Sequence[str]]) -> None:
    """Refuse a host or group that is not in the inventory, which Ansible would leave out with a warning."""
    hosts = {host for members in groups.values() for host in members} | {"localhost", "all", "ungrouped"} | set(groups)
    for variable, pattern in sorted(patterns.items()):
        for part in make_host_pattern(pattern, variable, "all").split(","):
            for name in [part] if part in hosts else part.split(":"):
                name = name.lstrip("!&")
                if name and name not in hosts and not re.search(r"[*?~\[\]]", name):
                    raise VariableError(
                        "%s names %s, which is neither a host nor a group of the inventory. Correct it, or the "
                        "inventory (-i)." % (variable, name)
                    )


def refuse_several_hosts(single: t.Any, patterns: Values, groups: t.Mapping[str, t.Sequence[str]]) -> None:
    """Refuse a pattern, a group or a list in PATTERNS by variable if SINGLE is true.

    SINGLE: the value of gpufleet_single_host; null and the empty text are false. A name of a host that is also that of
    a group stands for the group as well.
    """
    try:
        is_single = single not in (None, "") and boolean(single)
    except TypeError:
        raise VariableError("%s is no boolean; expected true or false." % _variable_names.SINGLE_HOST) from None
    for variable, value in sorted(patterns.items() if is_single else ()):
        name = make_host_pattern(value, variable, ",")  # "," is the name of no host
        if name not in groups.get("all", ()) or name in groups or name in ("all", "ungrouped"):
            raise VariableError(
                "%s is %s and %s is true; expected the name of one host of the inventory that is no group's."
                % (variable, ascii(name[:60]), _variable_names.SINGLE_HOST)
            )


def refuse_nobody(nodes: t.Sequence[str], patterns: Values, limit: t.Any) -> None:
    """Refuse a run for no node: Ansible passes over a play without hosts, and ends as if all had been done.

    NODES: those of PATTERNS by variable that the LIMIT leaves.
    """
    found = {
        variable: make_host_pattern(value, variable, _variable_names.DEFAULT_HOSTS.get(variable, _variable_names.NODES))
        for variable, value in sorted(patterns.items())
    }
    if found and not nodes:
        raise VariableError(
            "No host of %s is within the limit %s. Check --limit and %s."
            % (" or ".join(found.values()), limit, " and ".join(found))
            if limit
            else "No host of the inventory matches %s. Check the inventory (-i) and %s."
            % (" or ".join(found.values()), " and ".join(found))
        )


def refuse_other_playbook(given: Values, variable: str, pattern: t.Any = None) -> None:
    """Refuse extra variables that name the nodes of another playbook: this one would take others instead.

    Args:
        given: The extra variables.
        variable: The one that names the nodes of this playbook.
        pattern: Its value, wherever it comes from: a job of a workflow in AWX takes the nodes of the first job.
    """
    others = [
        name
        for name in _variable_names.PLAYBOOKS
        if name.endswith("_hosts")
        and name != variable
        and _is_given(given, name)
        and not (name.startswith("monitoring_") and variable.startswith("monitoring_"))  # one playbook has all of these
    ]
    if variable in ("rollback_hosts", "mig_hosts") and "upgrade_hosts" in others:
        raise VariableError(
            "upgrade_hosts is on the command line (-e), and this playbook goes by %s. Leave upgrade_hosts out."
            % variable
        )
    for name in ("rollback_hosts", "rollback_of") if variable == "upgrade_hosts" else ():
        # An empty rollback_hosts is a list of nodes that came out empty, and this playbook would take all of them.
        if _is_given(given, name) or name == "rollback_hosts" and given.get(name) is not None:
            raise VariableError(
                "%s is on the command line (-e), and this is the playbook upgrade. To take nodes back to the driver "
                "that they had, run gpufleet.lifecycle.rollback." % name
            )
    if others and not _is_given(given, variable) and pattern in (None, "", []):
        raise VariableError(
            "%s is on the command line (-e), and this playbook goes by %s, which is not: it would take all that %s is "
            "by default. Give it %s." % (others[0], variable, variable, variable)
        )


def _is_given(given: Values, name: str) -> bool:
    return given.get(name) not in (None, "", [])


def refuse_bad_value(node: str, name: str, value: t.Any) -> None:
    """Refuse a value that a role would refuse or misread later, when something was changed already."""
    expected = ""
    if name == _variable_names.STATE_DIR:
        # Playbooks and roles would each take another directory for it.
        if not isinstance(value, str) or not value.startswith("/"):
            expected = "the absolute path of a directory on the node"
    elif value is None or value == "":
        return
    elif name == _variable_names.ANSWER_TIMEOUT:
        text = str(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
        if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= 86400:  # 0 is no limit for Ansible
            expected = "a whole number of seconds from 1 to 86400"
    else:
        is_list, words = _variable_names.read_choices()[name]
        given = value if isinstance(value, (list, tuple)) else [value]
        if is_list is not isinstance(value, (list, tuple)) or [one for one in given if one not in words]:
            expected = "%s %s" % ("a list of some of" if is_list else "one of", ", ".join(words))
    if expected:
        found = json.dumps(value, default=str)[:80]
        raise VariableError("%s of %s is %s; expected %s." % (name, node, found, expected))


def refuse_nothing(node: str, found: Values, monitoring: bool = False) -> None:
    """Refuse null, and an empty text where a text is no value, of a role's variable that has a default: the role would
    refuse it on the node, and Ansible has no way to take the default in its place.

    Args:
        node: The node.
        found: Its variables as they are written, so that no template is evaluated before its time.
        monitoring: Whether the role gpu_health runs itself, and takes no more than other roles do.
    """
    itself = monitoring or bool(found.get("gpu_health_boot_check"))
    defaults = _variable_names.read_defaults()
    for name in sorted(set(found) & set(defaults)):
        value, (role, is_text, default) = found[name], defaults[name]
        if value is not None and not (isinstance(value, str) and value == ""):
            continue
        may_be_empty = value is not None and (default == "" or is_text and role != _variable_names.FULL)
        is_defaulted = name in _variable_names.DEFAULTED and not (itself and role == "gpu_health")
        is_of_plan = role == _variable_names.FULL and name in _variable_names.OF_PLAN  # the playbook sets them
        if not (may_be_empty or is_defaulted or is_of_plan):
            raise VariableError(
                "%s of %s is %s, and the role %s takes no default for it. Leave it out%s, or give it a value."
                % (
                    name,
                    node,
                    "null" if value is None else "an empty text",
                    role,
                    "" if "{{" in str(default) else " for %s" % json.dumps(default),
                )
            )
