# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests for promtool out of cases/: all cases in one run, each in an environment of its own.

Each rule is evaluated once for all of them. Every aggregation and join of the rules keeps the label environment; a case
that heard another one would fail.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import yaml

CASES = {
    name: entry
    for path in sorted((pathlib.Path(__file__).parent / "cases").glob("*.yml"))
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()
}
LONG = 170
DRAINED = 'gpufleet_node_out_of_service{N,reason="drain"}'


@dataclasses.dataclass
class Case:
    """One environment: its series, and the alerts that fire in it at a minute."""

    name: str
    series: t.Dict[str, str]
    looks: t.List[t.Tuple[int, t.FrozenSet[str]]]
    environment: str = ""


def labels(environment: str, text: str) -> str:
    """Return TEXT with the letters for labels written out."""

    def node(name: str, rack: str = "r1") -> str:
        rack = ',rack="%s"' % rack if rack else ""
        return 'environment="%s"%s,node="%s",class="train",model="h100",team="blue"' % (environment, rack, name)

    written = {
        "G": node("n1") + ',gpu="0",UUID="GPU-0"',
        "H": node("n1") + ',gpu="1",UUID="GPU-1"',
        "N": node("n1"),
        "N1": node("n1"),
        "N2": node("n2"),
        "N3": node("n3"),
        "M1": node("m1", ""),
        "M2": node("m2", ""),
        "K": 'environment="%s",namespace="x",pod="p",container="c"' % environment,
    }
    text = re.sub(r"(?<=[{,])([GHKNM][0-9]?)(?=[,}])", lambda found: written[found.group(1)], text)
    return text.replace('environment="E"', 'environment="%s"' % environment)


def values(text: str) -> str:
    """Return the values as promtool reads them: 5*20 is 5 and 20 more of it (0x5 would be a number to YAML)."""
    return " ".join(re.sub(r"^(-?[0-9.]+)\*(\d+)$", r"\1+0x\2", word) for word in text.split())


def among(name: str, found: t.Any) -> t.FrozenSet[str]:
    return frozenset(found if isinstance(found, list) else [found] if found else [])


def firing(name: str, number: int, case: t.Dict[str, t.Any], scope: str, speaks: bool) -> t.Iterator[Case]:
    """Yield a case that fires, the same with each series left out, and the same on a node that is out of service."""
    title, series, at = "%s fires %d" % (name, number), case["series"], case["at"]
    looks = [(at, frozenset([name] + case.get("also", [])))]
    if "ends" in case:
        looks.append((case["ends"], frozenset(case.get("after", []))))
    yield Case(title, series, looks)
    if case.get("single", True):
        for left in series:
            rest = {key: value for key, value in series.items() if key != left}
            others = among(name, [name] if left in case.get("despite", []) else case.get("instead", {}).get(left))
            if rest or not others:
                yield Case("%s without %s" % (title, left), rest, [(at, others)])
        if scope in ("gpu", "node", "service"):
            drained = dict(series, **{DRAINED: "1*%d" % LONG})
            yield Case("%s while out of service" % title, drained, [(at, frozenset([name] if speaks else []))])


def cases(alerts: t.Iterable[t.Dict[str, t.Any]]) -> t.List[Case]:
    """Return every case of every alert."""
    found = []
    for alert in alerts:
        entry = CASES[alert["id"]]
        for number, case in enumerate(entry.get("fires", []), 1):
            found += firing(alert["id"], number, case, alert["scope"], alert.get("drained") == "speaks")
        for number, case in enumerate(entry.get("quiet", []), 1):
            found.append(Case("%s is quiet %d" % (alert["id"], number), case["series"], [(case["at"], frozenset())]))
    for number, case in enumerate(found):
        case.environment = "e%d" % number
    return found


def test_of(name: str, some: t.List[Case]) -> t.Dict[str, t.Any]:
    """Return one promtool test of SOME cases."""
    # The rule that fires when there is no target at all must not in any of them.
    series = [
        {"series": 'up{environment="other",node="x",job="gpufleet-node"}', "values": "1+0x%d" % LONG},
        {"series": 'gpufleet_textfile_timestamp_seconds{environment="other",node="x"}', "values": "0+60x%d" % LONG},
    ]
    looks = []
    for case in some:
        series += [
            {"series": labels(case.environment, key), "values": values(value)} for key, value in case.series.items()
        ]
        for minute, alerts in case.looks:
            looks.append(
                {
                    "expr": 'count by (alertname, environment) (ALERTS{environment="%s",alertstate="firing"})>bool 0'
                    % case.environment,
                    "eval_time": "%dm" % minute,
                    "exp_samples": [
                        {"labels": '{alertname="%s", environment="%s"}' % (alert, case.environment), "value": 1}
                        for alert in sorted(alerts)
                    ],
                }
            )
    return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": looks}


def document(rule_file: str, some: t.List[Case]) -> t.Dict[str, t.Any]:
    """Return the tests for promtool: all cases together, and no series at all."""
    absent = {
        "name": "no series",
        "interval": "1m",
        "input_series": [],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "15m",
                "exp_samples": [{"labels": '{alertname="MonitoringAbsent"}', "value": 1}],
            },
            {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "9m", "exp_samples": []},
        ],
    }
    return {"rule_files": [rule_file], "evaluation_interval": "1m", "tests": [test_of("cases", some), absent]}
