# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The panels of capacity and cost, and of power and cooling by rack. Pure data."""

from __future__ import annotations

from tests.tools.panels.words import GAUGE, GRAPH, HOURS, STAT, TABLE, UTIL

CAPACITY = {
    "Capacity": [
        (
            "Mean utilization",
            GAUGE,
            "percentunit",
            "Over the range of the dashboard, against the target.",
            [("avg(avg_over_time(%s{SEL}[$__range]))" % UTIL, "mean"), ("vector(TARGET)", "target")],
        ),
        (
            "Peaks",
            STAT,
            "percentunit",
            "The busiest moments over the range: 95th percentile and maximum of the whole fleet.",
            [
                ("quantile_over_time(0.95, avg(%s{SEL})[$__range:5m])" % UTIL, "95th percentile"),
                ("max_over_time(avg(%s{SEL})[$__range:5m])" % UTIL, "maximum"),
            ],
        ),
        (
            "Utilization by class",
            GRAPH,
            "percentunit",
            "Mean and 95th percentile of each class.",
            [
                ("avg by (class) (%s{SEL})" % UTIL, "{{class}} mean"),
                ("quantile by (class) (0.95, %s{SEL})" % UTIL, "{{class}} 95th percentile"),
            ],
        ),
        (
            "Allocated GPUs",
            GRAPH,
            "short",
            "Held by jobs, and all.",
            [
                ("count(gpufleet:gpu_allocated{SEL})", "allocated"),
                ("count(gpufleet:gpu_temperature:celsius{SEL})", "all"),
            ],
        ),
        (
            "Allocated GPUs by team",
            GRAPH,
            "short",
            "Of the team of the node.",
            [("count by (team) (gpufleet:gpu_allocated{SEL})", "{{team}}")],
        ),
    ],
    "Cost": [
        (
            "Cost of a month",
            STAT,
            "short",
            "GPUs times hours times price, in the currency of price_gpu_hour; empty while that is not set.",
            [
                (
                    "count(gpufleet:gpu_temperature:celsius{SEL}) * %s * on () group_left () gpufleet:price_gpu_hour"
                    % HOURS,
                    "all",
                )
            ],
        ),
        (
            "Cost of a month by team",
            GRAPH,
            "short",
            "Of allocated GPUs.",
            [
                (
                    "count by (team) (gpufleet:gpu_allocated{SEL}) * %s * on () group_left () gpufleet:price_gpu_hour"
                    % HOURS,
                    "{{team}}",
                )
            ],
        ),
        (
            "Cost of idle GPUs, a month",
            GRAPH,
            "short",
            "GPUs without work for an hour.",
            [
                (
                    (
                        "count by (class, model) (gpufleet:gpu_idle{SEL}) * on () group_left () (%s * "
                        "gpufleet:price_gpu_hour)" % HOURS
                    ),
                    "{{class}} {{model}}",
                )
            ],
        ),
    ],
}

HEAT = {
    "Racks": [
        (
            "Power by rack",
            GRAPH,
            "watt",
            "By the BMCs, or by the GPUs alone.",
            [("gpufleet:rack_power:watts{ENV}", "{{rack}}")],
        ),
        (
            "Inlet by rack",
            GRAPH,
            "celsius",
            "The warmest inlet of a rack.",
            [('max by (rack) (ipmi_temperature_celsius{SEL,name=~"(?i).*(inlet|ambient).*"})', "{{rack}}")],
        ),
        (
            "Temperature of GPUs by rack",
            GRAPH,
            "celsius",
            "95th percentile and maximum.",
            [
                ("quantile by (rack) (0.95, gpufleet:gpu_temperature:celsius{SEL})", "{{rack}} 95th percentile"),
                ("max by (rack) (gpufleet:gpu_temperature:celsius{SEL})", "{{rack}} maximum"),
            ],
        ),
        ("Nodes with hot GPUs", GRAPH, "short", "By rack.", [("gpufleet:rack_hot_nodes{ENV}", "{{rack}}")]),
    ],
    "Cooling and throttling": [
        ("Slowest fan", GRAPH, "rotrpm", "By rack.", [("min by (rack) (ipmi_fan_speed_rpm{SEL} > 0)", "{{rack}}")]),
        (
            "Fans and power supplies that failed",
            TABLE,
            "short",
            "Sensors that are not nominal.",
            [
                ("max by (rack, node, name) (ipmi_fan_speed_state{SEL} > 0)", ""),
                ('max by (rack, node, name) (ipmi_sensor_state{SEL,type="Power Supply"} > 0)', ""),
            ],
        ),
        (
            "Throttled GPUs by cause",
            GRAPH,
            "short",
            "GPUs whose clocks were held down in the last 5 minutes.",
            [
                (
                    (
                        'count by (rack, clock_event) '
                        '(gpufleet:gpu_clock_events{SEL,clock_event=~"hw_.*|sw_thermal|power_cap"} > 0)'
                    ),
                    "{{rack}} {{clock_event}}",
                )
            ],
        ),
        (
            "Memory of GPUs",
            GRAPH,
            "celsius",
            "The hottest memory of a rack.",
            [("max by (rack) (DCGM_FI_DEV_MEMORY_TEMP{SEL} < 2147483632)", "{{rack}}")],
        ),
    ],
}
