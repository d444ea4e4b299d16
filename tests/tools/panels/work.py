# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The panels of rollouts and of queues. Pure data."""

from __future__ import annotations

from tests.tools.panels.words import GRAPH, STAT, TABLE

ROLLOUT = {
    "Rollouts": [
        (
            "Nodes by state",
            GRAPH,
            "short",
            "Of each rollout.",
            [("sum by (rollout, state) (gpufleet_rollout_nodes{ENV})", "{{rollout}} {{state}}")],
        ),
        (
            "Verdict",
            TABLE,
            "short",
            "What each rollout is now.",
            [("max by (rollout, verdict) (gpufleet_rollout_verdict{ENV}) == 1", "")],
        ),
        (
            "Down slots",
            GRAPH,
            "short",
            "In use, allowed now, and there are.",
            [
                ("max by (rollout) (gpufleet_rollout_down_nodes{ENV})", "{{rollout}} used"),
                ("max by (rollout) (gpufleet_rollout_down_window{ENV})", "{{rollout}} allowed"),
                ("max by (rollout) (gpufleet_rollout_down_budget{ENV})", "{{rollout}} budget"),
            ],
        ),
        (
            "Nodes that drain",
            GRAPH,
            "short",
            "And how many may.",
            [
                ("max by (rollout) (gpufleet_rollout_draining_nodes{ENV})", "{{rollout}} draining"),
                ("max by (rollout) (gpufleet_rollout_draining_budget{ENV})", "{{rollout}} budget"),
            ],
        ),
        (
            "Failures",
            GRAPH,
            "short",
            "Against the failure budget.",
            [
                ("max by (rollout) (gpufleet_rollout_failures{ENV})", "{{rollout}} failures"),
                ("max by (rollout) (gpufleet_rollout_failure_budget{ENV})", "{{rollout}} budget"),
            ],
        ),
        (
            "Expected end",
            STAT,
            "s",
            "Time until the last node is over.",
            [("max by (rollout) (gpufleet_rollout_remaining_seconds{ENV})", "{{rollout}}")],
        ),
        (
            "Time since the last event",
            STAT,
            "s",
            "A running rollout that is silent is stalled.",
            [("time() - max by (rollout) (gpufleet_rollout_last_event_timestamp_seconds{ENV})", "{{rollout}}")],
        ),
        (
            "Driver versions",
            GRAPH,
            "short",
            "Nodes by driver.",
            [("count by (driver) (gpufleet_node_info{SEL})", "{{driver}}")],
        ),
    ]
}

QUEUES = {
    "Queues": [
        (
            "Waiting and running jobs",
            GRAPH,
            "short",
            "Of Slurm, and pods that find no node.",
            [
                ("gpufleet:jobs_pending{ENV}", "waiting"),
                ("sum(slurm_queue_running{ENV})", "running in Slurm"),
                (
                    (
                        'count(kube_pod_status_phase{ENV,phase="Running"} == 1 and on (namespace, pod) '
                        'kube_pod_container_resource_requests{resource=~"nvidia_com_.*"})'
                    ),
                    "running pods",
                ),
            ],
        ),
        (
            "Waiting jobs by account",
            GRAPH,
            "short",
            "Of Slurm.",
            [("sum by (account) (slurm_account_jobs_pending{ENV})", "{{account}}")],
        ),
        (
            "Running jobs by account",
            GRAPH,
            "short",
            "Of Slurm.",
            [("sum by (account) (slurm_account_jobs_running{ENV})", "{{account}}")],
        ),
        (
            "Failed jobs",
            GRAPH,
            "short",
            "Of Slurm, and those without memory.",
            [("sum(slurm_queue_failed{ENV})", "failed"), ("sum(slurm_queue_out_of_memory{ENV})", "out of memory")],
        ),
        (
            "Longest wait of a pod",
            STAT,
            "s",
            "A pod that asks for GPUs and finds no node.",
            [
                (
                    "max(time() - kube_pod_created{ENV} and on (namespace, pod) (kube_pod_status_unschedulable == 1))",
                    "wait",
                )
            ],
        ),
        (
            "Idle GPUs while jobs wait",
            GRAPH,
            "short",
            "GPUs without work for an hour that no job holds.",
            [
                ("count(gpufleet:gpu_idle{SEL} unless gpufleet:gpu_allocated{SEL}) or vector(0)", "idle"),
                ("sum(gpufleet:jobs_pending{ENV})", "waiting"),
            ],
        ),
    ]
}
