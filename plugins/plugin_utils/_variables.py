# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find which variables the collection knows, and what is wrong with those of the nodes.

Pure, but for the reading of the roles' argument specs.
"""

from __future__ import annotations

import difflib
import functools
import json
import pathlib
import re

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_plan import ARGUMENT_SPEC

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Options of rollout_plan that it finds out or calls otherwise, and those of other tasks.
OTHERWISE = (
    "rollout_id",
    "artifact_dir",
    "target",
    "targets",
    "audits",
    "markers",
    "health",
    "domains",
    "domain_group_prefix",
    "checked",
    "schedulers",
    "given_version",
    "role_mode",
    "expected",
    "job",
    "layouts",
    "layout_looks",
    "hand_over",
)
ROLLOUT = tuple(
    sorted(
        ["rollout_" + key for key in ARGUMENT_SPEC if key not in OTHERWISE]
        + ["rollout_id", "rollout_version", "rollout_domain_prefix", "rollout_report_dir", "rollout_join_canaries"]
    )
)
# Variables of the playbooks that are neither a role's nor a rollout's.
PLAYBOOKS = (
    "bringup_container_toolkit",
    "bringup_hosts",
    "bringup_reboot_timeout",
    "capacity_days",
    "capacity_environment",
    "capacity_groups",
    "capacity_headers",
    "capacity_lead_days",
    "capacity_peak_target",
    "capacity_price_gpu_hour",
    "capacity_prometheus_url",
    "capacity_report_dir",
    "capacity_report_mode",
    "capacity_target",
    "capacity_timeout",
    "holds_hosts",
    "holds_max_days",
    "mig_hosts",
    "monitoring_dcgm_hosts",
    "monitoring_hosts",
    "monitoring_log_hosts",
    "monitoring_textfile_hosts",
    "precheck_baseline_dir",
    "precheck_expected_driver_version",
    "precheck_hosts",
    "precheck_report_dir",
    "precheck_report_mode",
    "prestage_hosts",
    "quarantine_hosts",
    "quarantine_reason",
    "quarantine_user",
    "recover_gpu_actions",
    "recover_gpu_hosts",
    "recover_gpu_user",
    "return_to_service_baseline_dir",
    "return_to_service_hosts",
    "return_to_service_new_baseline",
    "return_to_service_smoke_level",
    "rollback_hosts",
    "rollback_of",
    "thermal_relief_hosts",
    "thermal_relief_hours",
    "thermal_relief_percent",
    "thermal_relief_state",
    "thermal_relief_user",
    "thermal_relief_watts",
    "upgrade_hosts",
)
# Those of the playbook rollout_control, which no other one reads.
CONTROL = ("rollout_limits", "rollout_nodes", "rollout_reason", "rollout_user", "rollout_verb")
# Variables that many inventories have begin like those of these playbooks, so that only the command line is judged by
# them.
COMMON = dict.fromkeys(
    ("monitoring_dcgm_hosts", "monitoring_hosts", "monitoring_log_hosts", "monitoring_textfile_hosts"), "monitoring_"
)
ANSWER_TIMEOUT = "gpufleet_answer_timeout"
INVENTORY_FAILED = "gpufleet_inventory_failed"  # set by the inventory plugins
FLEET = (
    ANSWER_TIMEOUT,
    "gpufleet_artifact_dir",
    "gpufleet_artifact_host",
    "gpufleet_domains",
    "gpufleet_service_hosts",
)
# Results that the roles and the rollout set themselves: the inventory must not have them.
RESULTS = (
    "gpu_health_result",
    "gpu_node_upgrade_gate",
    "gpu_scheduler_blockers",
    "gpu_scheduler_drained",
    "gpu_scheduler_gres",
    "gpu_scheduler_mark",
    "gpufleet_rollout",
    "kernel_hold_boot",
    "kernel_hold_report",
    "nvidia_driver_reboot_reason",
    "nvidia_driver_reboot_required",
    "nvidia_mig_reset_required",
    "nvidia_mig_result",
    "nvidia_repository_changed",
)
LAB = ("gpufleet_lab",)
# What holds for a whole rollout, so that no node may have another value.
OF_ALL = (
    "gpu_node_upgrade_artifact_dir",
    "gpu_node_upgrade_ledger",
    "gpu_node_upgrade_rollout_id",
    "gpu_node_upgrade_rollout_mode",
    "gpu_node_upgrade_version",
    "gpu_node_upgrade_on_failure",
    "gpufleet_artifact_dir",
)
# What the plan says to the role; the playbook hides them from the inventory, so that what is left comes from the
# command line.
OF_PLAN = {
    "gpu_node_upgrade_version": "rollout_version",
    "gpu_node_upgrade_kernel": "rollout_undo",
    "gpu_node_upgrade_rollout_id": "rollout_id",
    "gpu_node_upgrade_install": "rollout_version",
    "gpu_node_upgrade_layout": "nvidia_mig_config",
    "gpu_node_upgrade_peers": "gpu_health_expect",
}
SECRET = ("rollout_webhook", "rollout_hold_queries", "rollout_ledger", "gpu_node_upgrade_ledger")
END = "Nothing was changed."


class VariableError(Exception):
    """A variable cannot stay as it is; the message names it and says what to do."""


@functools.lru_cache(maxsize=None)
def of_roles(root=ROOT):
    """The variables of each role, by its name."""
    found = {}
    for path in sorted(pathlib.Path(root).glob("roles/*/meta/argument_specs.yml")):
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values()
        found[path.parents[1].name] = frozenset(name for entry in entries for name in entry.get("options") or {})
    return found


@functools.lru_cache(maxsize=None)
def choices(root=ROOT):
    """By name of a role's variable that is one of a few words, or a list of them: (whether it is a list, the words)."""
    found = {}
    for path in sorted(pathlib.Path(root).glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found.update(
                {
                    name: (option["type"] == "list", tuple(option["choices"]))
                    for name, option in (entry.get("options") or {}).items()
                    if option.get("choices")
                }
            )
    return found


def refuse_no_choice(node, name, value, allowed):
    """Refuse a value that the role would refuse too, but on a node of which something was changed already."""
    several, words = allowed
    if value is None or value == "":
        return
    given = value if isinstance(value, (list, tuple)) else [value]
    bad = [one for one in given if one not in words]
    if several is not isinstance(value, (list, tuple)) or bad:
        raise VariableError(
            "%s of %s is %s; expected %s%s. %s"
            % (
                name,
                node,
                json.dumps(value, default=str)[:80],
                "a list of some of " if several else "one of ",
                ", ".join(words),
                END,
            )
        )


def refuse_bad_timeout(node, value):
    """ANSWER_TIMEOUT of a node; empty text means its default, and 0 would be no limit for Ansible."""
    if value in (None, ""):
        return
    text = str(value).strip()
    if isinstance(value, (bool, float)) or not text.isascii() or not text.isdigit() or not 1 <= int(text[:10]) <= 86400:
        raise VariableError(
            "%s of %s is %s; expected a whole number of seconds from 1 to 86400. %s"
            % (ANSWER_TIMEOUT, node, json.dumps(value, default=str)[:80], END)
        )


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


def strangers(names, roles, more=()):
    """(name, whose it would be, the nearest one that there is or "") of each that only looks like a variable of the
    collection.

    MORE: names of variables that the playbook knows beside those that all of them know.
    """
    known = frozenset(ROLLOUT + PLAYBOOKS + FLEET + RESULTS + LAB + (INVENTORY_FAILED,) + tuple(more)).union(
        *roles.values()
    )
    offered = sorted(known - set(RESULTS + LAB + (INVENTORY_FAILED,)))
    found = []
    for name in sorted(set(names) - known):
        whose = [words for prefix, words in prefixes(roles).items() if name.startswith(prefix)]
        if whose:
            found.append((name, whose[-1], (difflib.get_close_matches(name, offered, 1) or [""])[0]))
    return found


def kept(names, roles):
    """Names that the roles and playbooks keep for themselves."""
    inner = tuple("__" + prefix for prefix in prefixes(roles))
    return sorted(name for name in set(names) if name in RESULTS or name.startswith(inner))


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
        if mine in COMMON and name not in PLAYBOOKS and name.startswith(COMMON[mine]):
            raise VariableError(
                "%s is on the command line (-e), and is no variable of the playbook %s: did you mean %s? %s"
                % (name, COMMON[mine].rstrip("_"), mine, END)
            )


def refuse_misspelt(given, prefix):
    """Refuse a name of the command line, in GIVEN, that begins with the PREFIX of a playbook's variables and is none of
    them.
    """
    mine = [name for name in PLAYBOOKS if name.startswith(prefix)]
    for name in sorted(name for name in given if isinstance(name, str)):
        if prefix and name.startswith(prefix) and name not in mine:
            raise VariableError(
                "%s is on the command line (-e), and is no variable of the playbook %s: did you mean %s? %s"
                % (name, prefix.rstrip("_"), (difflib.get_close_matches(name, mine, 1, 0) or mine)[0], END)
            )


def refuse_kept(names, roles):
    for name in kept(names, roles):
        raise VariableError(
            "%s is set, a name that the collection keeps for itself, and it would overrule what is found on the nodes "
            "or planned for them. Take it out of the command line (-e) and the inventory; after roles of the "
            "collection in the same run, run this playbook by itself. %s" % (name, END)
        )


def refuse_of_plan(values):
    """VALUES: by name what the command line says of something that the plan says."""
    for name, value in sorted(values.items()):
        if value is not None:
            raise VariableError(
                "%s is %r on the command line (-e), which goes before the plan of the rollout. Leave it "
                "out there; %s. %s"
                % (
                    name,
                    value,
                    "rollout_version says which version all nodes get"
                    if OF_PLAN[name] == "rollout_version"
                    else "nvidia_mig_config says in the inventory which MIG layout a node gets"
                    if OF_PLAN[name] == "nvidia_mig_config"
                    else "rollout_id names the rollout"
                    if OF_PLAN[name] == "rollout_id"
                    else "a rollback finds the kernel of each node by itself",
                    END,
                )
            )


def of_all(name):
    """Tell if a variable must have the same value for all nodes of a rollout."""
    return name.startswith("rollout_") or name in OF_ALL


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
    if name in SECRET or isinstance(value, (dict, list)):
        return "one value"
    return repr(str(value)) if isinstance(value, str) else str(value)


def refuse_tags(run, skip):
    """No task of the playbooks has a tag: those that are run or skipped by one would leave out what makes the others
    safe.
    """
    for option, found, well in (
        ("--tags", run, not run or set(run) & {"all", "untagged"}),
        ("--skip-tags", skip, not set(skip) & {"all", "untagged"}),
    ):
        if not well:
            raise VariableError(
                "%s %s leaves out tasks of this playbook, which has no tags and is run as a whole: run it without. %s"
                % (option, ",".join(found), END)
            )


def host_pattern(value, variable, default):
    """The pattern of hosts that a variable names, as a pattern, a list, or a text with commas and blanks."""
    parts = (
        value.split(",")
        if isinstance(value, str)
        else value
        if isinstance(value, (list, tuple))
        else []
        if value is None
        else [value]
    )
    if isinstance(value, str) and not value.strip():
        parts = []
    bad = [part for part in parts if not isinstance(part, str) or not part.strip() or " " in part.strip()]
    if isinstance(value, str) and value.rstrip().endswith(","):
        raise VariableError(
            "%s is %r, which ends with a comma: on a command line a blank after a comma ends the value. Leave "
            "the blank out. %s" % (variable, value, END)
        )
    if bad:
        raise VariableError(
            "%s is %s; expected hosts and groups of the inventory, as a text such as gpu-a-1,gpu-a-2 or as a list. %s"
            % (variable, _kind(value), END)
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


def refuse_other_playbook(given, mine):
    """Refuse what the command line says to another playbook than the one whose nodes the variable MINE names: this one
    would take others instead.

    GIVEN: the variables of the command line.
    """
    others = [
        name
        for name in PLAYBOOKS
        if name.endswith("_hosts") and name != mine and _is_given(given, name) and not {name, mine} <= set(COMMON)
    ]  # the playbook monitoring has several of them
    if mine == "rollback_hosts" and "upgrade_hosts" in others:
        raise VariableError(
            "upgrade_hosts is on the command line (-e), and the playbook rollback goes by rollback_hosts. Leave "
            "upgrade_hosts out. %s" % (END,)
        )
    for name in ("rollback_hosts", "rollback_of") if mine == "upgrade_hosts" else ():
        # An empty rollback_hosts is a list of nodes that came out empty, and this playbook would take all of them.
        if _is_given(given, name) or name == "rollback_hosts" and given.get(name) is not None:
            raise VariableError(
                "%s is on the command line (-e), and this is the playbook upgrade. To take nodes back to the driver "
                "that they had, run gpufleet.lifecycle.rollback. %s" % (name, END)
            )
    if others and not _is_given(given, mine):
        raise VariableError(
            "%s is on the command line (-e), and this playbook goes by %s, which is not: it would take all that %s is "
            "by default. Give it %s. %s" % (others[0], mine, mine, mine, END)
        )


def _is_given(given, name):
    return given.get(name) not in (None, "", [])


def refuse_undo(values, mine):
    """VALUES: by node the variable with which the playbook rollback asks the plan for a rollback, and which would make
    one of an upgrade.
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
