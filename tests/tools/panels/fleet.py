# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The panels of the fleet. Pure data."""

from __future__ import annotations

from tests.tools.panels.words import GRAPH, MEMORY, STAT, TABLE, UTIL, spread

FLEET = {
    "Now": [
        (
            "Nodes that answer",
            STAT,
            "short",
            "Nodes with an exporter that answers.",
            [("sum(gpufleet:node_up{SEL})", "up"), ("count(gpufleet:node_up{SEL})", "all")],
        ),
        (
            "Nodes out of service",
            STAT,
            "short",
            "Nodes that this collection keeps out of service.",
            [("count(gpufleet:node_out_of_service{SEL}) or vector(0)", "out")],
        ),
        (
            "GPUs",
            STAT,
            "short",
            "GPUs that NVML lists, and that the inventory says.",
            [("sum(gpufleet_gpus_present{SEL})", "present"), ("sum(gpufleet_gpus_expected{SEL})", "expected")],
        ),
        (
            "Alerts that page",
            STAT,
            "short",
            "Alerts of severity page that fire.",
            [('count(ALERTS{ENV,source="gpufleet",alertstate="firing",severity="page"}) or vector(0)', "firing")],
        ),
    ],
    "Alerts and verdicts": [
        (
            "Firing alerts",
            TABLE,
            "short",
            "Every alert of this collection that fires.",
            [('sum by (alertname, severity, rack, node, gpu) (ALERTS{ENV,source="gpufleet",alertstate="firing"})', "")],
        ),
        (
            "Last verdict of the health gate",
            GRAPH,
            "short",
            "Nodes by their last verdict.",
            [("sum by (verdict) (gpufleet_health_verdict{SEL})", "{{verdict}}")],
        ),
        (
            "Driver versions",
            TABLE,
            "short",
            "Nodes by driver; more than one in a class and model is drift.",
            [("count by (class, model, driver) (gpufleet_node_info{SEL})", "")],
        ),
        (
            "XIDs in the last hour",
            GRAPH,
            "short",
            "By what the XID table asks for.",
            [("sum by (xid_class) (gpufleet:gpu_xid_new{SEL})", "{{xid_class}}")],
        ),
    ],
    "Use": [
        ("Utilization", GRAPH, "percentunit", "Of all GPUs.", spread(UTIL + "{SEL}")),
        ("Memory in use", GRAPH, "percentunit", "Of all GPUs.", spread(MEMORY + "{SEL}")),
        (
            "Age of holds",
            GRAPH,
            "s",
            "The oldest hold of any node.",
            [("max by (kind) (gpufleet_hold_age_seconds{SEL})", "{{kind}}")],
        ),
        (
            "Held security updates",
            GRAPH,
            "short",
            "Updates that holds keep out, of all nodes.",
            [("sum by (kind) (gpufleet_held_security_updates{SEL})", "{{kind}}")],
        ),
    ],
}
