# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The panels of a node. Pure data."""

from __future__ import annotations

from tests.tools.panels.words import BY_GPU, BY_NODE, GRAPH, MEMORY, POWER, UTIL

NODE = {
    "GPUs": [
        ("Utilization", GRAPH, "percentunit", "Of each GPU.", [(UTIL + "{SEL,NODE}", BY_GPU)]),
        ("Memory in use", GRAPH, "percentunit", "Of each GPU.", [(MEMORY + "{SEL,NODE}", BY_GPU)]),
        ("Temperature", GRAPH, "celsius", "Of each GPU.", [("gpufleet:gpu_temperature:celsius{SEL,NODE}", BY_GPU)]),
        (
            "Power",
            GRAPH,
            "watt",
            "Of each GPU, and of the whole node.",
            [(POWER + "{SEL,NODE}", BY_GPU), ("gpufleet:node_power:watts{SEL,NODE}", "{{node}} whole")],
        ),
    ],
    "System": [
        (
            "CPU in use",
            GRAPH,
            "percentunit",
            "Of all cores.",
            [('1 - avg by (node) (rate(node_cpu_seconds_total{SEL,NODE,mode="idle"}[$__rate_interval]))', BY_NODE)],
        ),
        (
            "Memory in use",
            GRAPH,
            "percentunit",
            "Main memory.",
            [
                (
                    (
                        "1 - max by (node) (node_memory_MemAvailable_bytes{SEL,NODE}) / max by (node) "
                        "(node_memory_MemTotal_bytes{SEL,NODE})"
                    ),
                    BY_NODE,
                )
            ],
        ),
        (
            "Free space",
            GRAPH,
            "percentunit",
            "Of each file system.",
            [
                (
                    (
                        'min by (node, mountpoint) (node_filesystem_avail_bytes{SEL,NODE,fstype!~"tmpfs|overlay"} '
                        '/ node_filesystem_size_bytes{SEL,NODE,fstype!~"tmpfs|overlay"})'
                    ),
                    "{{node}} {{mountpoint}}",
                )
            ],
        ),
        (
            "Wear of NVMe disks",
            GRAPH,
            "percentunit",
            "Share of the rated life.",
            [("max by (node, device) (nvme_percentage_used_ratio{SEL,NODE})", "{{node}} {{device}}")],
        ),
    ],
    "Links": [
        (
            "InfiniBand",
            GRAPH,
            "Bps",
            "Received and sent.",
            [
                (
                    "sum by (node) (rate(node_infiniband_port_data_received_bytes_total{SEL,NODE}[$__rate_interval]))",
                    "{{node}} received",
                ),
                (
                    (
                        "sum by (node) (rate(node_infiniband_port_data_transmitted_bytes_total{SEL,"
                        "NODE}[$__rate_interval]))"
                    ),
                    "{{node}} sent",
                ),
            ],
        ),
        (
            "InfiniBand errors",
            GRAPH,
            "short",
            "Receive and symbol errors, and links lost, in 10 minutes.",
            [
                (
                    "sum by (node) (increase(node_infiniband_port_errors_received_total{SEL,NODE}[10m]))",
                    "{{node}} receive",
                ),
                ("sum by (node) (increase(node_infiniband_symbol_error_total{SEL,NODE}[10m]))", "{{node}} symbol"),
                ("sum by (node) (increase(node_infiniband_link_downed_total{SEL,NODE}[10m]))", "{{node}} link lost"),
            ],
        ),
        (
            "NVLink errors",
            GRAPH,
            "short",
            "Of each GPU, in 10 minutes.",
            [("gpufleet:gpu_nvlink_errors:increase10m{SEL,NODE}", BY_GPU)],
        ),
        (
            "PCI Express replays",
            GRAPH,
            "short",
            "Of each GPU, a minute.",
            [("gpufleet:gpu_pcie_replays:rate_minute{SEL,NODE}", BY_GPU)],
        ),
    ],
}
