# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data: which variables the collection knows. Those of roles are read from their argument specs."""

from __future__ import annotations

import functools
import pathlib
import typing as t

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLLOUT = tuple(options.PREFIX + key for key in options.SPEC)
# What a plan hands on to the next jobs of a workflow in AWX beside variables of these. Playbook report reads it.
HANDED_ON = ("rollout_run_before", "rollout_table", "rollout_nodes_left", "rollout_left_out")
# Variables of the playbooks that are neither a role's nor a rollout's.
PLAYBOOKS = tuple(
    """
    bringup_container_toolkit bringup_hosts bringup_reboot_timeout capacity_days capacity_environment
    capacity_groups capacity_headers capacity_lead_days capacity_peak_target capacity_price_gpu_hour
    capacity_prometheus_url capacity_report_dir capacity_report_mode capacity_target capacity_timeout
    holds_hosts holds_max_days mig_hosts monitoring_dcgm_hosts monitoring_hosts monitoring_log_hosts
    monitoring_textfile_hosts precheck_baseline_dir precheck_expected_driver_version precheck_hosts
    precheck_report_dir precheck_report_mode prestage_hosts quarantine_hosts quarantine_reason quarantine_user
    recover_gpu_actions recover_gpu_hosts recover_gpu_user return_to_service_baseline_dir
    return_to_service_hosts return_to_service_new_baseline return_to_service_smoke_level rollback_hosts
    rollback_of thermal_relief_hosts thermal_relief_hours thermal_relief_percent thermal_relief_state
    thermal_relief_user thermal_relief_watts upgrade_hosts
    """.split()
)
# Those of the playbook rollout_control, which no other one reads.
CONTROL = ("rollout_limits", "rollout_nodes", "rollout_reason", "rollout_user", "rollout_verb")
# What a variable that names hosts stands for when it is not given, "" if it is required; of the others that is NODES.
DEFAULT_HOSTS = {
    **dict.fromkeys(
        ("quarantine_hosts", "recover_gpu_hosts", "return_to_service_hosts", "rollback_hosts", "thermal_relief_hosts"),
        "",
    ),
    "monitoring_hosts": "gpu_monitoring",
    "monitoring_dcgm_hosts": "gpu_dcgm",
    "monitoring_log_hosts": "gpu_logs",
    "monitoring_textfile_hosts": "!all",
}
NODES = "gpu_nodes"
ANSWER_TIMEOUT = "gpufleet_answer_timeout"
# Where a node keeps its claim, its baseline and its quarantine marker.
STATE_DIR = "gpu_node_upgrade_state_dir"
INVENTORY_FAILED = "gpufleet_inventory_failed"  # set by the inventory plugins
# That the variable which names hosts has to name one, such as where the name comes from an alert.
SINGLE_HOST = "gpufleet_single_host"
FLEET = (
    ANSWER_TIMEOUT,
    SINGLE_HOST,
    "gpufleet_artifact_dir",
    "gpufleet_artifact_host",
    "gpufleet_builders_agree",
    "gpufleet_domains",
    "gpufleet_service_hosts",
)
# Results that the roles and the rollout set themselves: the inventory must not have them.
RESULTS = tuple(
    """
    gpu_health_result gpu_node_upgrade_gate gpu_scheduler_blockers gpu_scheduler_drained gpu_scheduler_gres
    gpu_scheduler_mark gpufleet_rollout kernel_hold_boot kernel_hold_report nvidia_driver_reboot_reason
    nvidia_driver_reboot_required nvidia_mig_reset_required nvidia_mig_result nvidia_repository_changed
    """.split()
)
# The groups to which a plan adds its nodes.
GROUPS_OF_PLAN = ("gpufleet_report", "gpufleet_rollout")
# Playbooks whose own names begin with two underscores and this, while an inventory's may begin with it.
INNER = ("capacity_", "monitoring_", "report_")
LAB = ("gpufleet_lab",)
# What holds for a whole rollout, so that no node may have another value.
OF_ALL = tuple(
    """
    gpu_node_upgrade_artifact_dir gpu_node_upgrade_ledger gpu_node_upgrade_rollout_id
    gpu_node_upgrade_rollout_mode gpu_node_upgrade_version gpu_node_upgrade_on_failure gpufleet_artifact_dir
    gpufleet_artifact_host nvidia_driver_tree_dir
    """.split()
)
# What a rollout sets itself, for its plan and for the roles that it includes, and what to do instead. On the command
# line, and as a fact of the node, each would overrule the plan or the way back.
OF_PLAN = {
    "gpu_node_upgrade_version": "rollout_version says which version all nodes get",
    "gpu_node_upgrade_kernel": "rollout_kernel says which kernel boots; a rollback finds that of each node by itself",
    "gpu_node_upgrade_rollout_id": "rollout_id names the rollout",
    "gpu_node_upgrade_install": "rollout_version says which version all nodes get",
    "gpu_node_upgrade_layout": "nvidia_mig_config says in the inventory which MIG layout a node gets",
    "gpu_node_upgrade_on_failure": "rollout_on_failure says what becomes of a node that fails",
    "gpu_node_upgrade_peers": "gpu_health_expect says what a node has",
    "gpu_node_upgrade_builder": "the first canary compiles for the others, see rollout_canaries",
    "gpu_quarantine_marker": "the upgrade writes the marker of a node that failed",
    "gpu_quarantine_origin": "the upgrade writes the marker of a node that failed",
    "gpu_quarantine_reason": "the upgrade records the failure as the reason",
    "gpu_quarantine_state_dir": "gpu_node_upgrade_state_dir names the directory in the inventory",
    "gpu_quarantine_token": "the id of the rollout is the token",
    "gpu_scheduler_expected_gpus": "the baseline of each node says how many GPUs it has",
    "gpu_scheduler_look": "the upgrade decides when a node is read",
    "gpu_scheduler_reason": "the upgrade gives the schedulers its reason",
    "gpu_scheduler_services": "gpu_node_upgrade_services names the services in the inventory",
    "gpu_scheduler_slurm_gres_layout": "the plan has the MIG layout of each node",
    "gpu_scheduler_slurm_gres_step": "the upgrade decides when Slurm is told about MIG devices",
    "gpu_scheduler_snapshot": "the upgrade reads the GPUs of each node",
    "gpu_scheduler_token": "the id of the rollout is the token",
    "kernel_hold_kernel": "rollout_kernel says which kernel boots; a rollback finds that of each node by itself",
    "nvidia_driver_keep": "set it in the inventory",
    "nvidia_driver_kernel": "rollout_kernel says which kernel boots; a rollback finds that of each node by itself",
    "nvidia_driver_repair": "set it in the inventory",
    "nvidia_driver_version": "rollout_version says which version all nodes get",
    "rollout_undo": "run gpufleet.lifecycle.rollback with rollback_of",
}
# The role of whose texts none may be empty but those that are by default. Those of others may: where "" is no path, it
# is that nothing is written there.
FULL = "gpu_node_upgrade"
# Variables of roles of which every playbook and role takes null and the empty text for the default.
DEFAULTED = tuple(
    """
    gpu_health_boot_check gpu_health_expect gpu_health_expected_driver_version gpu_health_fail_on
    gpu_health_policy gpu_health_policy_file gpu_health_timeout gpu_health_waivers gpu_scheduler_backends
    nvidia_mig_config
    """.split()
)
SECRET = ("rollout_webhook", "rollout_hold_queries", "rollout_ledger", "gpu_node_upgrade_ledger")


@functools.lru_cache(maxsize=None)
def _read_options(root: pathlib.Path) -> dict:
    """Return the options of each role's entry points as (name, spec). Read once: it is 100 kB of YAML."""
    found = {}
    for path in sorted(pathlib.Path(root).glob("roles/*/meta/argument_specs.yml")):
        entries = yaml_load(path.read_text(encoding="utf-8"))["argument_specs"].values()
        found[path.parents[1].name] = tuple(
            option for entry in entries for option in (entry.get("options") or {}).items()
        )
    return found


@functools.lru_cache(maxsize=None)
def read_role_variables(root: pathlib.Path = ROOT) -> t.Dict[str, t.FrozenSet[str]]:
    """Return the variables of each role by its name."""
    return {role: frozenset(name for name, dummy in options) for role, options in _read_options(root).items()}


@functools.lru_cache(maxsize=None)
def read_choices(root: pathlib.Path = ROOT) -> t.Dict[str, t.Tuple[bool, t.Tuple[str, ...]]]:
    """Return (whether it is a list, its words) by name of each role's variable with choices."""
    return {
        name: (option["type"] == "list", tuple(option["choices"]))
        for options in _read_options(root).values()
        for name, option in options
        if option.get("choices")
    }


@functools.lru_cache(maxsize=None)
def read_defaults(root: pathlib.Path = ROOT) -> t.Dict[str, t.Tuple[str, bool, t.Any]]:
    """Return (the role, whether it is a free text, the default) by name of each role's variable with a default."""
    return {
        name: (role, option.get("type", "str") in ("str", "path") and not option.get("choices"), option["default"])
        for role, options in _read_options(root).items()
        for name, option in options
        if option.get("default") is not None
    }
