# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The capacity of a fleet as one document (schema gpufleet.capacity/1), out of a history. Pure."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog, notes, trend
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.catalog import FLEET
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import (
    DAY,
    HOUR,
    History,
    Key,
    days,
    known,
    quantile95,
)

Samples = t.List[t.Tuple[t.Dict[str, str], float]]
Daily = t.Dict[str, t.Dict[t.Tuple[t.Tuple[str, str], ...], float]]
KINDS = ("kernel", "driver", "other")


def drift(samples: Samples) -> t.Dict[str, t.Any]:
    """Return which nodes of each class and model run which driver. A group with more than one has drifted."""
    found: t.Dict[t.Tuple[str, str], t.Dict[str, t.List[str]]] = {}
    for labels, dummy in samples:
        group = found.setdefault((labels.get("class", ""), labels.get("model", "")), {})
        group.setdefault(labels.get("driver", ""), []).append(labels.get("node", ""))
    return {
        "drivers": sorted({driver for group in found.values() for driver in group}),
        "groups": [
            {
                "class": name,
                "model": model,
                "nodes": {driver: sorted(set(nodes)) for driver, nodes in sorted(group.items())},
                "drifted": len(group) > 1,
            }
            for (name, model), group in sorted(found.items())
        ],
    }


def failures(daily: Daily) -> t.Dict[str, t.Any]:
    """Return XIDs and lost node-hours of each class and model. Those of which there were none are left out."""

    def rows(query: str, label: str, amount: str, digits: t.Optional[int]) -> t.List[t.Dict[str, t.Any]]:
        found = []
        for key, value in sorted(daily.get(query, {}).items()):
            labels = dict(key)
            # An increase is an estimate between two scrapes; an XID is a whole one.
            value = round(value, digits)
            if value > 0:
                found.append(
                    {
                        "class": labels.get("class", ""),
                        "model": labels.get("model", ""),
                        label: labels.get(label, ""),
                        amount: value,
                    }
                )
        return found

    return {
        "xids": rows("xids", "xid_class", "count", None),
        "out_of_service": rows("out_of_service", "reason", "node_hours", 2),
    }


def holds(now: t.Dict[str, Samples]) -> t.List[t.Dict[str, t.Any]]:
    """Return the nodes that hold packages, by kind, the oldest hold first."""
    updates = {
        (labels.get("node", ""), labels.get("kind", "")): int(value) for labels, value in now.get("held_updates", [])
    }
    found = [
        {
            "node": labels.get("node", ""),
            "kind": labels.get("kind", ""),
            "age_days": round(value / DAY, 1),
            "security_updates": updates.get((labels.get("node", ""), labels.get("kind", ""))),
        }
        for labels, value in now.get("hold_age", [])
        if value > 0
    ]
    return sorted(found, key=lambda one: (-one["age_days"], one["node"], one["kind"]))


SCHEMA = "gpufleet.capacity/1"
# From the best to the worst.
VERDICTS = ("enough", "unknown", "order", "met")
# GPUs are bought by model, and given out by class.
TREND_GROUPS = ("model", "class")
MEASURES = ("mean", "peak")
HOURS = ("present", "measured", "busy", "allocated", "idle", "idle_allocated")


def date(day: t.Optional[int]) -> t.Optional[str]:
    """Return a day since 1970 as 2026-12-31."""
    return None if day is None else (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()


def moment(seconds: float) -> str:
    """Return a time as 2026-12-31T12:00:00Z."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def round_value(value: t.Optional[float], digits: int = 4) -> t.Optional[float]:
    return None if value is None else round(value, digits)


def price_of(asked: catalog.Asked, history: History) -> t.Tuple[t.Optional[float], str]:
    """Return the price of an hour of a GPU, and where it is from: the variable, else Prometheus, else nothing."""
    if asked.price is not None:
        return asked.price, "capacity_price_gpu_hour"
    told = [value for dummy, value in history.now.get("price", [])]
    return (told[0], "gpufleet:price_gpu_hour") if told else (None, "")


def row(history: History, key: Key, price: t.Optional[float]) -> t.Dict[str, t.Any]:
    """Return what a group was like over the window. Hours that were not seen are in no sum."""
    totals = history.totals.get(key, {})
    peaks = known(history.peaks.get(key, ()))
    hours = {name: totals.get(name) for name in HOURS}
    # A group of which some are told has none where it is not among them.
    for name in ("allocated", "idle", "idle_allocated"):
        if hours[name] is None and history.totals.get((FLEET, FLEET), {}).get(name) is not None:
            hours[name] = 0.0
    measured, seen = hours["measured"], history.hours_seen(key)
    cost = {
        "all": None if price is None or hours["present"] is None else hours["present"] * price,
        "idle": None if price is None or hours["idle"] is None else hours["idle"] * price,
    }
    return {
        "name": key[1],
        "gpus": round_value(hours["present"] / seen, 2) if seen and hours["present"] is not None else None,
        "hours_seen": seen,
        "hours_share": round_value(seen / history.window.hours),
        "utilization": {
            "mean": round_value(hours["busy"] / measured) if measured and hours["busy"] is not None else None,
            "p95": round_value(quantile95(peaks)),
            "maximum": round_value(max(peaks)) if peaks else None,
        },
        "gpu_hours": {name: round_value(value, 2) for name, value in hours.items()},
        "cost": {name: round_value(value, 2) for name, value in cost.items()},
    }


def trend_of(
    history: History, key: Key, measure: str, asked: catalog.Asked, found: t.List[t.Dict[str, t.Any]]
) -> t.Dict[str, t.Any]:
    """Return the trend of a group's demand, in GPUs that work, by the mean or by the peak of its days FOUND."""
    share = asked.target if measure == "mean" else asked.peak_target
    points = [(one["day"], one["busy" if measure == "mean" else "busy_p95"]) for one in found if not one["partial"]]
    today = history.window.end // DAY
    capacity = found[-1]["gpus"] * share if found else None
    told = trend.estimate([(day, value) for day, value in points if value is not None], capacity, today, catalog.limit)
    order = None if told["earliest"] is None or asked.lead_days is None else told["earliest"] - asked.lead_days
    return {
        "group": key[0],
        "name": key[1],
        "measure": measure,
        "status": told["status"],
        "days": told["days"],
        "first_day": date(told["first_day"]),
        "last_day": date(told["last_day"]),
        "target": share,
        "now_gpus": round_value(told["now"], 3),
        "capacity_gpus": round_value(capacity, 3),
        "slope_gpus_a_day": round_value(told["slope"], 6),
        "slope_error": round_value(told["slope_error"], 6),
        "horizon_days": told["horizon_days"],
        "earliest": date(told["earliest"]),
        "likely": date(told["likely"]),
        "latest": date(told["latest"]),
        "order_by": date(order),
        "overdue_days": max(0, today - order) if order is not None else None,
    }


def verdict_of(one: t.Dict[str, t.Any]) -> str:
    """Return what a trend asks for: met, order (its date has come), unknown, enough."""
    if one["status"] == trend.NOT_WITHIN:
        return "enough"
    if one["status"] == trend.MET:
        return "met"
    if one["status"] not in (trend.MEETS, trend.UNCERTAIN) or one["order_by"] is None:
        return "unknown"
    if one["overdue_days"] == 0:
        return "enough"
    return "order" if one["status"] == trend.MEETS else "unknown"


def names(history: History, group: str) -> t.List[str]:
    return sorted(name for label, name in history.totals if label == group)


def document(asked: catalog.Asked, history: History, place: str, time: str) -> t.Dict[str, t.Any]:
    """Return the report. PLACE names the Prometheus; TIME is when, in UTC."""
    window = history.window
    if not any((history.totals.get((FLEET, FLEET)) or {}).get(name) for name in ("present", "measured")):
        raise catalog.CapacityError(
            "empty",
            "Prometheus at %s has seen no GPU%s in the %d days before %s: gpufleet:gpu_temperature:celsius and "
            "gpufleet:gpu_utilization:ratio are empty. Look whether the rules of gpu_monitoring are loaded (playbook "
            "monitoring), and whether capacity_environment is right. Nothing was written."
            % (
                place,
                " of environment %s" % asked.environment if asked.environment else "",
                window.days,
                moment(window.end),
            ),
        )
    price, price_source = price_of(asked, history)
    shares = catalog.limit("day_share_min"), catalog.limit("gpus_share_min")
    keys = [(FLEET, FLEET)] + [
        (group, name) for group in asked.groups if group in TREND_GROUPS for name in names(history, group)
    ]
    by_day = {key: days(history, key, *shares) for key in keys}
    trends = [trend_of(history, key, measure, asked, by_day[key]) for key in keys for measure in MEASURES]
    for one in trends:
        one["verdict"] = verdict_of(one)
    doc: t.Dict[str, t.Any] = {
        "verdict": max((one["verdict"] for one in trends), key=VERDICTS.index),
        "schema": SCHEMA,
        "time": time,
        "source": place,
        "environment": asked.environment,
        "window": {
            "start": moment(window.start),
            "end": moment(window.end),
            "days": window.days,
            "hours": window.hours,
            "hours_seen": history.hours_seen((FLEET, FLEET)),
            "gaps": [
                {
                    "start": moment(window.start + first * HOUR),
                    "end": moment(window.start + (first + number) * HOUR),
                    "hours": number,
                }
                for first, number in history.gaps()
            ],
        },
        "price_gpu_hour": price,
        "price_source": price_source,
        "lead_days": asked.lead_days,
        "target": asked.target,
        "peak_target": asked.peak_target,
        "fleet": row(history, (FLEET, FLEET), price),
        "groups": {
            group: [row(history, (group, name), price) for name in names(history, group)] for group in asked.groups
        },
        "trends": trends,
        "days": [
            dict(
                {name: round_value(value) for name, value in one.items() if name not in ("day", "hours", "partial")},
                day=date(one["day"]),
                hours=one["hours"],
                partial=one["partial"],
            )
            for one in by_day[(FLEET, FLEET)]
        ],
        "drift": drift(history.now.get("drivers", [])),
        "failures": failures(history.daily),
        "holds": holds(history.now),
    }
    doc["notes"] = notes.notes(doc, history)
    return doc
