# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The panels of a GPU: busy, or waiting for data? Pure data."""

from __future__ import annotations

from tests.tools.panels.words import BY_GPU, BY_NODE, GRAPH, TABLE, UTIL

GPU = {
    "Busy, or waiting for data?": [
        (
            "Utilization",
            GRAPH,
            "percentunit",
            "A GPU that does little while disk or network are busy waits for data.",
            [(UTIL + "{SEL,NODE,GPU}", BY_GPU)],
        ),
        (
            "CPU in use",
            GRAPH,
            "percentunit",
            "Of the node.",
            [('1 - avg by (node) (rate(node_cpu_seconds_total{SEL,NODE,mode="idle"}[$__rate_interval]))', BY_NODE)],
        ),
        (
            "Disk",
            GRAPH,
            "Bps",
            "Read and written by the node, and how much it waits for storage.",
            [
                ("sum by (node) (rate(node_disk_read_bytes_total{SEL,NODE}[$__rate_interval]))", "{{node}} read"),
                ("sum by (node) (rate(node_disk_written_bytes_total{SEL,NODE}[$__rate_interval]))", "{{node}} written"),
            ],
        ),
        (
            "Waiting for storage",
            GRAPH,
            "percentunit",
            "The share of time in which every process waits.",
            [("gpufleet:node_io_stalled:ratio{SEL,NODE}", BY_NODE)],
        ),
        (
            "Network",
            GRAPH,
            "Bps",
            "Received and sent by the node.",
            [
                (
                    'sum by (node) (rate(node_network_receive_bytes_total{SEL,NODE,device!="lo"}[$__rate_interval]))',
                    "{{node}} received",
                ),
                (
                    'sum by (node) (rate(node_network_transmit_bytes_total{SEL,NODE,device!="lo"}[$__rate_interval]))',
                    "{{node}} sent",
                ),
            ],
        ),
        (
            "Activity of MIG instances",
            GRAPH,
            "percentunit",
            "Each of its own share.",
            [("gpufleet:mig_activity:ratio{SEL,NODE,GPU}", BY_GPU + " {{GPU_I_PROFILE}}")],
        ),
    ],
    "Health": [
        (
            "Clock events",
            GRAPH,
            "short",
            "What held the clocks down, in 5 minutes.",
            [("gpufleet:gpu_clock_events{SEL,NODE,GPU}", BY_GPU + " {{clock_event}}")],
        ),
        (
            "Temperature",
            GRAPH,
            "celsius",
            "And the limit of the card.",
            [
                ("gpufleet:gpu_temperature:celsius{SEL,NODE,GPU}", BY_GPU),
                ("gpufleet:gpu_temperature_limit:celsius{SEL,NODE,GPU}", BY_GPU + " limit"),
            ],
        ),
        (
            "Clock",
            GRAPH,
            "megahertz",
            "Of the streaming multiprocessors.",
            [("max by (node, gpu) (DCGM_FI_DEV_SM_CLOCK{SEL,NODE,GPU})", BY_GPU)],
        ),
        (
            "What the GPU is",
            TABLE,
            "short",
            "Serial number, part number and VBIOS.",
            [("max by (node, gpu, UUID, serial, part_number, vbios, name) (gpufleet_gpu_info{SEL,NODE,GPU})", "")],
        ),
    ],
}
