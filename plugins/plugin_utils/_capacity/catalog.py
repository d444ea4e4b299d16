# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queries and limits of the capacity report, and what may be asked of it. Pure, but for the reading of data/."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
import typing as t

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog as monitoring
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import template

HERE = pathlib.Path(__file__).resolve().parent / "data"
FLEET = "fleet"
LABELS = ("node", "rack", "model", "class", "team", "environment")
DAYS_MAX, LEAD_MAX, TIMEOUT_MAX = 730, 3650, 600


class CapacityError(Exception):
    """The report cannot be made. CODE says which way; the message names thing, found, expected and next step."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options of the report, checked."""

    url: str
    days: int
    groups: t.Tuple[str, ...]
    environment: str
    price: t.Optional[float]
    lead_days: t.Optional[int]
    target: float
    peak_target: float
    timeout: float


@functools.lru_cache(maxsize=None)
def _load(name: str) -> t.Dict[str, t.Any]:
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


def queries(kind: str = "") -> t.List[t.Dict[str, t.Any]]:
    """Return the queries, or those of a KIND."""
    return [one for one in _load("queries.yml")["queries"] if kind in ("", one["kind"])]


def limit(name: str) -> t.Any:
    return _load("limits.yml")["limits"][name]["value"]


def limits() -> t.Dict[str, t.Dict[str, t.Any]]:
    return _load("limits.yml")["limits"]


def expression(query: t.Dict[str, t.Any], environment: str = "", by: str = "") -> str:
    """Return the PromQL of a query for an ENVIRONMENT (all of them if empty), and a group's label BY."""
    select = "environment=%s" % json.dumps(environment, ensure_ascii=False) if environment else ""
    filled = query["expr"].replace("${select}", select).replace("${by}", "" if by == FLEET else by)
    return template.fill(filled, {})


def _refuse(name: str, found: t.Any, expected: str) -> t.NoReturn:
    raise CapacityError(
        "option", "%s is %s; expected %s. Correct it and run again. Nothing was written." % (name, found, expected)
    )


def _number(name: str, value: t.Any, least: float, most: float, unit: str) -> t.Optional[float]:
    """Return VALUE as a number; nothing where none is given."""
    if value is None or isinstance(value, str) and not value.strip():
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if isinstance(value, bool) or not least <= found <= most:
        _refuse(name, repr(value), "a number from %g to %g, in %s" % (least, most, unit))
    return found


def _whole(name: str, value: t.Any, least: int, most: int, unit: str) -> t.Optional[int]:
    found = _number(name, value, least, most, unit)
    if found is not None and found != int(found):
        _refuse(name, repr(value), "a whole number of %s" % unit)
    return None if found is None else int(found)


def _share(name: str, value: t.Any, default: float) -> float:
    found = _number(name, value, 0, 1, "GPUs that work, of all")
    if found == 0:
        _refuse(name, repr(value), "more than 0")
    return default if found is None else found


def read_request(options: t.Dict[str, t.Any]) -> Asked:
    """Return what OPTIONS ask for, or refuse it by the name of the playbook's variable."""
    url = str(options.get("url") or "").strip()
    wrong = web.complaint(url)
    if wrong:
        _refuse(
            "capacity_prometheus_url",
            "no address of a Prometheus (%s)" % wrong,
            "such as http://prometheus.example.com:9090",
        )
    wrong = web.header_problem(options.get("headers") or {})
    if wrong:
        _refuse("capacity_headers", "one that cannot be sent (%s)" % wrong, "names and values of HTTP headers")
    groups = options.get("groups") or []
    unknown = [name for name in groups if name not in LABELS]
    if unknown or len(set(groups)) != len(groups):
        _refuse(
            "capacity_groups", json.dumps(list(groups)), "labels of a node, each once, among %s" % ", ".join(LABELS)
        )
    days = _whole("capacity_days", options.get("days"), 1, DAYS_MAX, "days")
    timeout = _number("capacity_timeout", options.get("timeout"), 1, TIMEOUT_MAX, "seconds")
    return Asked(
        url=url,
        days=90 if days is None else days,
        groups=tuple(groups),
        environment=str(options.get("environment") or ""),
        price=_number("capacity_price_gpu_hour", options.get("price"), 0, 1e9, "the price of an hour of a GPU"),
        lead_days=_whole("capacity_lead_days", options.get("lead_days"), 0, LEAD_MAX, "days"),
        target=_share("capacity_target", options.get("target"), monitoring.thresholds()["utilization_target"]["value"]),
        peak_target=_share("capacity_peak_target", options.get("peak_target"), limit("peak_target")),
        timeout=60.0 if timeout is None else timeout,
    )
