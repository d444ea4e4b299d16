# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of monitoring: thresholds, series, recording rules and alerts, read from data/ and checked."""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

import yaml

HERE = pathlib.Path(__file__).resolve().parent / "data"
NODE_SERIES = HERE.parents[1] / "_data" / "node_series.json"
FAMILIES = ("health", "heat", "use", "node", "change")
SCOPES = ("gpu", "node", "service", "rack", "fleet")
SEVERITIES = ("page", "ticket", "info")


class MonitoringError(Exception):
    """A value cannot be used; the message says the value that was found, the expected ones, and the next step."""


@functools.lru_cache(maxsize=None)
def _load(name: str) -> t.Dict[str, t.Any]:
    """Return a file of data/, which is read once; what is returned is not to be changed."""
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


def thresholds(overrides: t.Optional[t.Dict[str, t.Any]] = None) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return every threshold by name, with the values of OVERRIDES in the place of its own."""
    found = dict(_load("thresholds.yml")["thresholds"])
    for name, value in (overrides or {}).items():
        if name not in found:
            raise MonitoringError(
                "There is no threshold %s; expected one of %s. Correct gpu_monitoring_thresholds."
                % (name, ", ".join(sorted(found)))
            )
        known = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        if not known and not (value is None and found[name]["value"] is None):
            raise MonitoringError(
                "Threshold %s is %r; expected a number from 0 on, in %s. Correct gpu_monitoring_thresholds."
                % (name, value, found[name]["unit"])
            )
        if found[name]["unit"] == "duration" and (value != int(value) or value < 1):
            raise MonitoringError(
                "Threshold %s is %r; expected whole seconds from 1 on. Correct gpu_monitoring_thresholds."
                % (name, value)
            )
        found[name] = dict(found[name], value=value, source="gpu_monitoring_thresholds")
    return found


def recordings() -> t.List[t.Dict[str, t.Any]]:
    """Return the recording rules, in the order in which they are evaluated."""
    return _load("recordings.yml")["recordings"]


def families() -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the families of alerts by name."""
    return {name: _load("alerts_%s.yml" % name) for name in FAMILIES}


def alerts() -> t.List[t.Dict[str, t.Any]]:
    """Return every alert, with its family."""
    return [dict(alert, family=name) for name, family in families().items() for alert in family["alerts"]]


def node_series() -> t.List[t.Dict[str, t.Any]]:
    """Return the series that gpufleet-node writes."""
    return json.loads(NODE_SERIES.read_text(encoding="utf-8"))["series"]


def exporters() -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the exporters with their series by name, the node's own series among them."""
    found = dict(_load("exporters.yml")["exporters"])
    found["gpufleet-node"] = {
        "source": "this collection: plugins/plugin_utils/_data/node_series.json",
        "install": "the timer of gpufleet-node textfile",
        "series": {one["name"]: one["type"] for one in node_series()},
    }
    return found


def series() -> t.Dict[str, str]:
    """Return the exporter of every series that rules and dashboards may name."""
    return {name: exporter for exporter, found in exporters().items() for name in found["series"]}
