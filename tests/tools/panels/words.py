# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds, names of series and helpers for the panels. Pure data."""

from __future__ import annotations

GRAPH, STAT, TABLE, GAUGE = "timeseries", "stat", "table", "gauge"
BY_NODE, BY_GPU = "{{node}}", "{{node}} GPU {{gpu}}"
UTIL, MEMORY, POWER = "gpufleet:gpu_utilization:ratio", "gpufleet:gpu_memory_used:ratio", "gpufleet:gpu_power:watts"
HOURS = "30 * 24"


def spread(series):
    """Return the queries for a series of many GPUs: mean, 95th percentile and maximum, never the mean alone."""
    return [
        ("avg(%s)" % series, "mean"),
        ("quantile(0.95, %s)" % series, "95th percentile"),
        ("max(%s)" % series, "maximum"),
    ]
