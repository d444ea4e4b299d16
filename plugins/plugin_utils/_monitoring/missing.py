# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells which series a Prometheus lacks: of which exporter they are, and which alerts cannot see without them. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, template


def needs(thresholds: t.Dict[str, t.Dict[str, t.Any]]) -> t.Dict[str, t.Set[str]]:
    """Return the series that each alert reads in the end, through the rules that record."""
    known = {name: dict(one, value=1) if one["value"] is None else one for name, one in thresholds.items()}
    raw: t.Dict[str, t.Set[str]] = {}

    def resolve(expr: str) -> t.Set[str]:
        found: t.Set[str] = set()
        for name in template.find_series(template.fill(expr, known)):
            found |= raw.get(name, {name})
        return found

    for rule in catalog.recordings():
        raw[rule["record"]] = resolve(rule["expr"])
    return {alert["id"]: resolve(alert["expr"]) for alert in catalog.alerts()}


def report(names: t.Iterable[str]) -> t.List[t.Dict[str, t.Any]]:
    """Return the exporters of which series are missing, what they are, how to get them, and which alerts read them."""
    there, wanted = set(names), needs(catalog.thresholds())
    found = []
    for exporter, one in catalog.exporters().items():
        series = sorted(set(one["series"]) - there - {"ALERTS"})
        if series:
            alerts = sorted(alert for alert, reads in wanted.items() if reads & set(series))
            found.append(
                {
                    "exporter": exporter,
                    "all": len(series) == len(set(one["series"]) - {"ALERTS"}),
                    "series": series,
                    "alerts": alerts,
                    "install": one["install"],
                }
            )
    return found


def lines(found: t.List[t.Dict[str, t.Any]]) -> t.List[str]:
    """Return what REPORT found, for people."""
    return [
        "%s: %s. Alerts that cannot see what they need: %s. Comes from: %s."
        % (
            one["exporter"],
            "none of its series is there" if one["all"] else "missing are " + ", ".join(one["series"]),
            ", ".join(one["alerts"]) or "none",
            one["install"] or "Prometheus itself",
        )
        for one in found
    ]
