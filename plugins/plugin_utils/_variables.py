# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is wrong with the variables of the nodes. Pure."""

from __future__ import annotations

import difflib
import re

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names

END = "Nothing was changed."
# How much of two names has to be the same for one to be a slip of the other. A letter that is left out, doubled or
# swapped leaves at least this, but for the shortest name; those of Ansible and AWX come to no more than 0.8.
NEAR = 0.9
# The variables that say where the ledger is.
PLACES = ("gpufleet_artifact_dir", "rollout_ledger")


class VariableError(Exception):
    """A variable cannot stay as it is; the message names it and says what to do."""


class OverrulingError(VariableError):
    """A variable would overrule the steps of a node, so that not even a node in flight can be finished."""


def prefixes(roles):
    """Return the prefixes of the collection's variables, and their owners."""
    mine = {"rollout_": "a rollout", "gpufleet_": "the collection"}
    mine.update(
        (name + "_", "the playbook " + name)
        for name in (
            "bringup",
            "holds",
            "mig",
            "precheck",
            "prestage",
            "quarantine",
            "recover_gpu",
            "return_to_service",
            "rollback",
            "thermal_relief",
            "upgrade",
        )
    )
    mine.update((name + "_", "the role " + name) for name in roles)
    return mine


def known(roles, more=()):
    """The names that may be given, and those that are the collection's own or the laboratory's.

    MORE: names of variables that the playbook knows beside those that all of them know.
    """
    own = _variable_names.RESULTS + _variable_names.HANDED_ON + _variable_names.LAB
    own += (_variable_names.INVENTORY_FAILED,)
    names = frozenset(_variable_names.ROLLOUT + _variable_names.PLAYBOOKS + _variable_names.FLEET + tuple(more))
    return names.union(*roles.values()) - set(own), frozenset(own)


def strangers(names, roles, more=()):
    """(name, whose it would be, the nearest one that there is or "") of each that only looks like a variable of the
    collection.

    MORE: as for known().
    """
    offered, own = known(roles, more)
    found = []
    for name in sorted(set(names) - offered - own):
        whose = [words for prefix, words in prefixes(roles).items() if name.startswith(prefix)]
        if whose:
            found.append((name, whose[-1], (difflib.get_close_matches(name, sorted(offered), 1) or [""])[0]))
    return found


def refuse_near(given, roles, more=(), reads=()):
    """Refuse a name of the command line, in GIVEN, that is none of the collection's and all but one of them: whatever
    it begins with, it was meant to be read.

    READS: the prefixes of the playbook's variables where those of an inventory may begin likewise.
    """
    names, own = known(roles, more)
    common = tuple(prefix for prefix in _variable_names.INNER if prefix not in reads)
    offered = sorted(name for name in names if not name.startswith(common))
    for name in sorted(set(given) - names - own):
        # A whole word before or after it makes it another name.
        about = [one for one in offered if abs(len(one) - len(name)) <= 2]
        for near in difflib.get_close_matches(name, about, 1, NEAR):
            raise VariableError(
                "%s is on the command line (-e), and no task reads it: did you mean %s? Correct it, or call a variable "
                "of your own otherwise. %s" % (name, near, END)
            )


def kept(names, roles):
    """Names that the roles and playbooks keep for themselves."""
    inner = tuple("__" + prefix for prefix in (*prefixes(roles), *_variable_names.INNER))
    whole = {prefix.rstrip("_") for prefix in inner}
    return sorted(
        name for name in set(names) if name in _variable_names.RESULTS or name in whole or name.startswith(inner)
    )


def refuse_failed_inventory(values):
    """VALUES: by node what an inventory plugin of this collection left behind when it could not read its source."""
    for value in values.values():
        if value:
            raise VariableError("%s The nodes that other sources name are not all there are. %s" % (value, END))


def refuse_strangers(names, roles, more=()):
    for name, whose, near in strangers(names, roles, more):
        raise VariableError(
            "%s is no variable of %s%s Correct it, or call a variable of your own otherwise. %s"
            % (name, whose, ": did you mean %s?" % near if near else ".", END)
        )


def refuse_common(given, mine):
    """Refuse a name of the command line, in GIVEN, that would be the variable MINE if it were spelt like it."""
    for name in sorted(given):
        if (
            mine in _variable_names.COMMON
            and name not in _variable_names.PLAYBOOKS
            and name.startswith(_variable_names.COMMON[mine])
        ):
            raise VariableError(
                "%s is on the command line (-e), and is no variable of the playbook %s: did you mean %s? %s"
                % (name, _variable_names.COMMON[mine].rstrip("_"), mine, END)
            )


def refuse_misspelt(given, prefix):
    """Refuse a name of the command line, in GIVEN, that begins with the PREFIX of a playbook's variables and is none of
    them.
    """
    mine = [name for name in _variable_names.PLAYBOOKS if name.startswith(prefix)]
    for name in sorted(given):
        if prefix and name.startswith(prefix) and name not in mine:
            raise VariableError(
                "%s is on the command line (-e), and is no variable of the playbook %s: did you mean %s? %s"
                % (name, prefix.rstrip("_"), (difflib.get_close_matches(name, mine, 1, 0) or mine)[0], END)
            )


def refuse_kept(names, roles):
    for name in kept(names, roles):
        raise OverrulingError(
            "%s is set, a name that the collection keeps for itself, and it would overrule what is found on the nodes "
            "or planned for them. Take it out of the command line (-e) and the inventory; after roles of the "
            "collection in the same run, run this playbook by itself. %s" % (name, END)
        )


def refuse_of_plan(names, alone=False):
    """Refuse NAMES of variables that outrank what a rollout sets itself, whatever their values are.

    ALONE: the role is used by itself, so its own options are the caller's.
    """
    for name in sorted(set(names) & set(_variable_names.OF_PLAN)):
        if alone and name.startswith("gpu_node_upgrade_"):
            continue
        raise OverrulingError(
            "%s is set on the command line (-e) or as a fact of the node, which overrules the plan of the rollout and "
            "its way back. Leave it out there; %s. %s" % (name, _variable_names.OF_PLAN[name], END)
        )


def of_all(name):
    """Tell if a variable must have the same value for all nodes of a rollout.

    What is handed on to be read is none: its text is never evaluated.
    """
    return (name.startswith("rollout_") and name not in _variable_names.HANDED_ON) or name in _variable_names.OF_ALL


def refuse_differing(values):
    """VALUES: by node the variables that hold for a whole rollout."""
    nodes = sorted(values)
    for name in sorted({name for found in values.values() for name in found}):
        first = nodes[0]
        for other in nodes[1:]:
            if (name in values[first]) != (name in values[other]) or values[first].get(name) != values[other].get(name):
                raise VariableError(
                    "%s is %s for %s and %s for %s, and the whole rollout has one. Give all of its nodes the same, "
                    "with -e or in a group of all of them. %s"
                    % (name, _shown(name, values[first]), first, _shown(name, values[other]), other, END)
                )


def refuse_apart(values, own):
    """Refuse a ledger that the nodes have and the controller has not: rollout_control and report would use another one.

    VALUES: by node the variables in PLACES. OWN: those of localhost.
    """
    for node, found in sorted(values.items()):
        for name in PLACES:
            value = found.get(name)
            if value not in (None, "", {}) and value != own.get(name):
                raise VariableError(
                    "%s is set for %s and %s for localhost, so that rollout_control and report would read another "
                    "ledger. Set it in the group all, or with -e. %s"
                    % (name, node, "has another value" if own.get(name) else "is not", END)
                )


def refuse_other_outcome(values):
    """The role would do something else with a node that fails than the plan says, which was approved."""
    for node, found in sorted(values.items()):
        plan = found.get("rollout_on_failure") or "rollback"
        if (found.get("gpu_node_upgrade_on_failure") or plan) != plan:
            raise VariableError(
                "gpu_node_upgrade_on_failure is %r for %s, and rollout_on_failure, which the plan goes by, is %r. In a "
                "rollout give rollout_on_failure alone. %s" % (found["gpu_node_upgrade_on_failure"], node, plan, END)
            )


def _shown(name, found):
    if name not in found:
        return "not set"
    value = found[name]
    if name in _variable_names.SECRET or isinstance(value, (dict, list)):
        return "one value"
    return repr(str(value)) if isinstance(value, str) else str(value)


def refuse_partial_run(options):
    """Refuse a run that leaves out tasks: no task of the playbooks has a tag, and each relies on those before it.

    OPTIONS: those of the command line (ansible.context.CLIARGS).
    """
    run, skip, start = (options.get(name) or () for name in ("tags", "skip_tags", "start_at_task"))
    for option, found, is_whole in (
        ("--tags", ",".join(sorted(run)), not run or set(run) & {"all", "untagged"}),
        ("--skip-tags", ",".join(sorted(skip)), not set(skip) & {"all", "always", "untagged"}),
        ("--start-at-task", start, not start),
    ):
        if not is_whole:
            raise VariableError(
                "%s %s leaves out tasks of this playbook, which has no tags and is run as a whole: run it without. %s"
                % (option, found, END)
            )


def host_pattern(value, variable, default):
    """The pattern of hosts that a variable names, as a pattern, a list, or a text with commas, blanks and lines.

    A line that ends with a comma goes on in the next one.
    """
    parts = (
        re.split(r"\s*,\s*|\s*[\r\n]\s*", value.strip())
        if isinstance(value, str)
        else value
        if isinstance(value, (list, tuple))
        else []
        if value is None
        else [value]
    )
    if isinstance(value, str) and not value.strip():
        parts = []
    bad = [part for part in parts if not isinstance(part, str) or len(part.split()) != 1]
    if isinstance(value, str) and value.rstrip().endswith(","):
        raise VariableError(
            "%s is %r, which ends with a comma: on a command line a blank after a comma ends the value. Leave "
            "the blank out. %s" % (variable, value, END)
        )
    if bad:
        raise VariableError(
            "%s is %s; expected hosts and groups of the inventory, as a text such as gpu-a-1,gpu-a-2, one a line, "
            "or as a list. %s" % (variable, _kind(value), END)
        )
    if not parts and not default:
        raise VariableError("%s names nobody: name hosts or groups of the inventory. %s" % (variable, END))
    return ",".join(part.strip() for part in parts) or default


def _kind(value):
    return (
        repr(value[:60])
        if isinstance(value, str)
        else "a list with something else in it"
        if isinstance(value, (list, tuple))
        else "no text and no list"
    )


def refuse_unknown_hosts(patterns, groups):
    """PATTERNS by variable: a host or group that is not in the inventory would be left out with a warning."""
    hosts = {host for members in groups.values() for host in members} | {"localhost", "all", "ungrouped"} | set(groups)
    for variable, pattern in sorted(patterns.items()):
        for part in host_pattern(pattern, variable, "all").split(","):
            for name in [part] if part in hosts else part.split(":"):
                name = name.lstrip("!&")
                if name and name not in hosts and not re.search(r"[*?~\[\]]", name):
                    raise VariableError(
                        "%s names %s, which is neither a host nor a group of the inventory. Correct it, or the "
                        "inventory (-i). %s" % (variable, name, END)
                    )


def refuse_several_hosts(single, patterns, groups):
    """Refuse a pattern, a group or a list in PATTERNS by variable if SINGLE is true.

    SINGLE: the value of gpufleet_single_host; null and the empty text are false. A name of a host that is also that of
    a group stands for the group as well.
    """
    try:
        is_single = single not in (None, "") and boolean(single)
    except TypeError:
        raise VariableError(
            "%s is %s; expected true or false. %s" % (_variable_names.SINGLE_HOST, _kind(single), END)
        ) from None
    for variable, value in sorted(patterns.items() if is_single else ()):
        # "" is a name of no host.
        name = host_pattern(value, variable, ",")
        if name not in groups.get("all", ()) or name in groups or name in ("all", "ungrouped"):
            raise VariableError(
                "%s is %s and %s is true; expected the name of one host of the inventory that is no group's. %s"
                % (variable, ascii(name[:60]), _variable_names.SINGLE_HOST, END)
            )


def refuse_nobody(nodes, patterns, limit):
    """Refuse a run whose NODES, those of PATTERNS by variable that the LIMIT leaves, are none: Ansible passes over a
    play without hosts, and ends as if all had been done.
    """
    found = {
        variable: host_pattern(value, variable, _variable_names.DEFAULT_HOSTS.get(variable, _variable_names.NODES))
        for variable, value in sorted(patterns.items())
    }
    if found and not nodes:
        raise VariableError(
            "No host of %s is within the limit %s. Check --limit and %s. %s"
            % (" or ".join(found.values()), limit, " and ".join(found), END)
            if limit
            else "No host of the inventory matches %s. Check the inventory (-i) and %s. %s"
            % (" or ".join(found.values()), " and ".join(found), END)
        )


def refuse_other_playbook(given, mine, pattern=None):
    """Refuse what the command line says to another playbook than the one whose nodes the variable MINE names: this one
    would take others instead.

    GIVEN: the variables of the command line. PATTERN: the value of MINE, wherever it comes from: a job of a workflow in
    AWX takes the nodes by which the first one goes.
    """
    others = [
        name
        for name in _variable_names.PLAYBOOKS
        if name.endswith("_hosts")
        and name != mine
        and _is_given(given, name)
        and not {name, mine} <= set(_variable_names.COMMON)
    ]  # the playbook monitoring has several of them
    if mine in ("rollback_hosts", "mig_hosts") and "upgrade_hosts" in others:
        raise VariableError(
            "upgrade_hosts is on the command line (-e), and this playbook goes by %s. Leave upgrade_hosts out. %s"
            % (mine, END)
        )
    for name in ("rollback_hosts", "rollback_of") if mine == "upgrade_hosts" else ():
        # An empty rollback_hosts is a list of nodes that came out empty, and this playbook would take all of them.
        if _is_given(given, name) or name == "rollback_hosts" and given.get(name) is not None:
            raise VariableError(
                "%s is on the command line (-e), and this is the playbook upgrade. To take nodes back to the driver "
                "that they had, run gpufleet.lifecycle.rollback. %s" % (name, END)
            )
    if others and not _is_given(given, mine) and pattern in (None, "", []):
        raise VariableError(
            "%s is on the command line (-e), and this playbook goes by %s, which is not: it would take all that %s is "
            "by default. Give it %s. %s" % (others[0], mine, mine, mine, END)
        )


def _is_given(given, name):
    return given.get(name) not in (None, "", [])


def refuse_undo(values, mine):
    """Refuse the variable with which the playbook rollback asks the plan for a rollback in another playbook.

    VALUES: its value by node.
    """
    for node, value in sorted(values.items()):
        if mine != "rollback_hosts" and value not in (None, {}):
            raise VariableError(
                "rollout_undo is set for %s, which would make a rollback of this upgrade. Take it out, or run "
                "gpufleet.lifecycle.rollback with rollback_of. %s" % (node, END)
            )


def refuse_lost_words(words):
    """Refuse words that the command line lost: -e takes a value up to its first blank."""
    if words:
        raise VariableError(
            "The command line (-e) has %r, which belongs to no variable: a value with blanks needs quotes of its own, "
            "as in -e '{\"rollout_reason\": \"two words\"}'. %s" % (words, END)
        )


def drained(backends, order):
    """Describe the schedulers from which the nodes of a rollout are drained. BACKENDS: by node."""
    found = {}
    for name in order:
        found.setdefault(tuple(backends.get(name) or ()), []).append(name)
    said = []
    for schedulers, names in sorted(found.items(), reverse=True):
        more = " and %d more" % (len(names) - 5) if len(names) > 5 else ""
        who = "all %d nodes" % len(names) if len(names) == len(order) > 1 else ", ".join(names[:5]) + more
        said.append(
            "drained in %s: %s" % (" and ".join(schedulers), who)
            if schedulers
            else "drained in no scheduler, as gpu_scheduler_backends names none: %s" % who
        )
    return said
