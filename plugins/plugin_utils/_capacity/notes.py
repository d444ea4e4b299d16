# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes on what a report does not know, and why; each has an id. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog, trend
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import History
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

RULES = "Look whether the rules of gpu_monitoring are loaded"
NODE_SERIES = "They come with the timer of gpufleet-node"


def _history(doc: t.Dict[str, t.Any]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield what of the window was not seen."""
    gaps = list(doc["window"]["gaps"])
    if gaps and gaps[0]["start"] == doc["window"]["start"]:
        first = gaps.pop(0)
        yield (
            "no_history_before",
            (
                "There is no history before %s: %s of the %d days asked for. Nothing is assumed for them."
                % (first["end"], text.count_noun(round(first["hours"] / 24, 1), "day"), doc["window"]["days"])
            ),
        )
    if gaps and gaps[-1]["end"] == doc["window"]["end"]:
        last = gaps.pop()
        yield (
            "no_data_since",
            "No GPU has been seen since %s. Look whether Prometheus reaches the nodes." % last["start"],
        )
    if gaps:
        yield (
            "gaps",
            (
                "%s without any data, %s: the first from %s to %s. "
                "Nothing is assumed for them; hours, cost and trend are of what was seen."
                % (
                    text.count_noun(len(gaps), "time"),
                    text.count_noun(sum(one["hours"] for one in gaps), "hour"),
                    gaps[0]["start"],
                    gaps[0]["end"],
                )
            ),
        )


def _list_unseen(doc: t.Dict[str, t.Any]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield where a part of the fleet was not seen."""
    days = doc["days"]
    partial = [one for one in days if one["partial"]]
    if partial:
        yield (
            "partial_days",
            (
                "On %s, the first %s, fewer GPUs were seen than before and after. "
                "What the others did is not known: these days are in no trend."
                % (text.count_noun(len(partial), "day"), partial[0]["day"])
            ),
        )
    most = max((one["gpus"] for one in days), default=0)
    if days and days[-1]["gpus"] < catalog.limit("gpus_share_min") * most:
        yield (
            "fewer_gpus",
            (
                "On the last day %.1f GPUs were seen, and %.1f on the day with the most. "
                "If the others still work, demand is higher than this." % (days[-1]["gpus"], most)
            ),
        )


def _use(doc: t.Dict[str, t.Any]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield what of the use of GPUs is not known."""
    hours = doc["fleet"]["gpu_hours"]
    present, measured = hours["present"] or 0, hours["measured"] or 0
    if measured < 0.99 * present:
        yield (
            "unmeasured",
            (
                "The utilization of %.0f of %.0f GPU-hours is not known. "
                "Under MIG it needs DCGM_FI_PROF_GR_ENGINE_ACTIVE (nvidia_dcgm_exporter with profiling)."
                % (present - measured, present)
            ),
        )
    if hours["allocated"] is None:
        yield (
            "no_allocation",
            (
                "Which GPUs were allocated is not known: "
                "dcgm-exporter tells neither jobs of Slurm nor pods, or none held a GPU."
            ),
        )
    if hours["idle"] is None:
        yield "no_idle", "No GPU was idle for an hour, or gpufleet:gpu_idle is not recorded. %s." % RULES
    untold = sorted(group for group, rows in doc["groups"].items() if any(not one["name"] for one in rows))
    if untold:
        yield (
            "label_missing",
            (
                "Some nodes have no label %s and are in a row of their own; "
                "they get it from the inventory (gpu_monitoring_labels)." % ", ".join(untold)
            ),
        )


def _money(doc: t.Dict[str, t.Any]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield what is not given, and what cannot be said for it."""
    if doc["price_gpu_hour"] is None:
        yield (
            "no_price",
            "No cost is given: set capacity_price_gpu_hour, or price_gpu_hour in gpu_monitoring_thresholds.",
        )
    if doc["lead_days"] is None:
        yield "no_lead_time", "By when to order is not given: set capacity_lead_days."


def _trends(doc: t.Dict[str, t.Any]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield the groups of which no trend can be told."""
    for ident, status, why in (
        ("short_trend", trend.TOO_SHORT, "fewer than %d days with enough data" % catalog.limit("trend_days_min")),
        ("stale_trend", trend.STALE, "no data in the last %d days" % catalog.limit("trend_age_max")),
        ("no_capacity", trend.NO_CAPACITY, "no GPUs whose utilization is known"),
    ):
        which = sorted(
            {
                "%s %s" % (one["group"], one["name"]) if one["group"] != one["name"] else one["name"]
                for one in doc["trends"]
                if one["status"] == status
            }
        )
        if which:
            more = " and %d more" % (len(which) - 5) if len(which) > 5 else ""
            yield ident, "No trend is told for %s%s: %s. None is guessed." % (", ".join(which[:5]), more, why)


def _nodes(doc: t.Dict[str, t.Any], history: History) -> t.Iterator[t.Tuple[str, str]]:
    """Yield what the nodes do not tell."""
    for ident, query, what in (
        ("no_drivers", "drivers", "Which drivers the nodes run is not known: gpufleet_node_info is missing"),
        ("no_holds", "hold_age", "What the nodes hold is not known: gpufleet_hold_age_seconds is missing"),
    ):
        if not history.now.get(query):
            yield ident, "%s. %s." % (what, NODE_SERIES)
    if not history.daily.get("xids"):
        yield "no_xids", "Which XIDs there were is not known: gpufleet_xid_total is missing. %s." % NODE_SERIES
    old = sorted(
        labels.get("node", "") for labels, age in history.now.get("age", []) if age > catalog.limit("series_age_max")
    )
    if old:
        more = " and %d more" % (len(old) - 5) if len(old) > 5 else ""
        yield "stale_nodes", "What these nodes say of drivers and holds is stale: %s%s." % (", ".join(old[:5]), more)


def notes(doc: t.Dict[str, t.Any], history: History) -> t.List[t.Dict[str, str]]:
    """Return the notes of a report."""
    found = [*_history(doc), *_list_unseen(doc), *_use(doc), *_money(doc), *_trends(doc), *_nodes(doc, history)]
    return [{"id": ident, "text": words} for ident, words in found]
