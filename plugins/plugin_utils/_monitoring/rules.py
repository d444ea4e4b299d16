# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording and alert rules for Prometheus, out of the data. Pure.

An alert has these fields: id; scope (gpu, node, service, rack, fleet), by which it is grouped and held back; severity
(page, ticket, info); for, in seconds; expr; summary; found, expected and next, which make the description; cause,
look (commands) and look_at (what no command shows), for its page; keep: false, for one that ends with its condition and
not an hour later (routes.py); drained: speaks, for one that is heard from a node that this collection keeps out of
service; and playbook, the one that repairs what it tells of, for the rulebook.
"""

from __future__ import annotations

import json
import re
import typing as t

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, template

RUNBOOKS = "https://github.com/gpufleet/gpufleet.lifecycle/blob/main/docs/runbooks/alerts/"
# Other jobs, such as the GPU Operator's, often scrape the same exporter. A series without a job is a recorded one.
EXPORTED, OWN_JOB = re.compile(r"\b(DCGM_(?:FI|EXP)_\w+)(\{)?"), 'job=~"gpufleet-dcgm|"'
# Prometheus takes a sample that is less than five minutes old.
SLOW_GROUP, SLOW_S = "gpufleet-recordings-slow", 240
SILENT = "unless on (environment, node) gpufleet:node_out_of_service"
# The serial number is asked for and not joined: an alert must not vanish because the number is not known. A label of an
# exporter may hold anything: %q quotes it as PromQL does.
SERIAL = (
    '{{ with printf "gpufleet_gpu_info{node=%q,UUID=%q}" $labels.node $labels.UUID | query }}'
    '{{ . | first | label "serial" }}{{ else }}unknown{{ end }}'
)
WHERE = {
    "gpu": "node {{ $labels.node }}, GPU {{ $labels.gpu }}",
    "node": "node {{ $labels.node }}",
    "service": "node {{ $labels.node }}",
    "rack": "rack {{ $labels.rack }}",
    "fleet": "environment {{ with $labels.environment }}{{ . }}{{ else }}not told{{ end }}",
}
Rule = t.Dict[str, t.Any]
Thresholds = t.Dict[str, t.Dict[str, t.Any]]


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as they are read best."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def document(content: t.Any) -> str:
    """Return CONTENT as the YAML of a file that is kept by this collection."""
    # What comes from Ansible's variables are texts of classes of its own, which YAML does not know.
    body = yaml.dump(json.loads(json.dumps(content)), Dumper=_Dumper, sort_keys=False, width=160, allow_unicode=True)
    return (
        "# Written by the role gpufleet.lifecycle.gpu_monitoring. Changes here are lost; change its variables.\n---\n"
        + body
    )


def page(alert: t.Dict[str, t.Any], base: str = RUNBOOKS) -> str:
    """Return the address of an alert's runbook."""
    return "%s%s.md#%s" % (base, alert["family"], alert["id"].lower())


def left_out(thresholds: Thresholds) -> t.Dict[str, t.List[str]]:
    """Return the alerts that need a threshold without a value, with the names of those."""
    found = {alert["id"]: template.missing(alert["expr"], thresholds) for alert in catalog.alerts()}
    return {name: needs for name, needs in found.items() if needs}


def expression(text: str, thresholds: Thresholds) -> str:
    """Return an expression with its thresholds. Series of DCGM are those of the collection's own job."""
    return EXPORTED.sub(
        lambda found: "%s{%s%s" % (found.group(1), OWN_JOB, "," if found.group(2) else "}"),
        template.fill(text, thresholds),
    )


def recording(rule: t.Dict[str, t.Any], thresholds: Thresholds) -> Rule:
    return {"record": rule["record"], "expr": expression(rule["expr"], thresholds)}


def alert_rule(alert: t.Dict[str, t.Any], thresholds: Thresholds, base: str = RUNBOOKS) -> Rule:
    """Return one alert as a rule."""
    expr = expression(alert["expr"], thresholds)
    if alert["scope"] in ("gpu", "node", "service") and alert.get("drained", "silent") == "silent":
        expr = "(%s)\n%s" % (expr, SILENT) if "\n" in expr else "(%s) %s" % (expr, SILENT)
    rule: Rule = {"alert": alert["id"], "expr": expr}
    if alert.get("for"):
        rule["for"] = "%ds" % alert["for"]
    if alert.get("keep", True):
        rule["keep_firing_for"] = "%ds" % thresholds["flap_memory"]["value"]
    rule["labels"] = {
        "severity": alert["severity"],
        "scope": alert["scope"],
        "family": alert["family"],
        "source": "gpufleet",
    }
    found, expected, after = (template.fill(str(alert[key]), thresholds) for key in ("found", "expected", "next"))
    rule["annotations"] = {
        "summary": "%s: %s" % (WHERE[alert["scope"]], alert["summary"]),
        "description": "Found: %s. Expected: %s. Next: %s." % (found, expected, after),
        "runbook_url": page(alert, base),
    }
    if alert["scope"] == "gpu":
        rule["annotations"]["serial"] = SERIAL
    return rule


def groups(thresholds: Thresholds, base: str = RUNBOOKS) -> t.List[t.Dict[str, t.Any]]:
    """Return the groups of rules: what is recorded first, then the alerts by family."""
    interval = "%ds" % thresholds["evaluation_interval"]["value"]
    found = [
        {
            "name": name,
            "interval": every,
            "rules": [
                recording(rule, thresholds) for rule in catalog.recordings() if rule.get("slow", False) == is_slow
            ],
        }
        for name, every, is_slow in (("gpufleet-recordings", interval, False), (SLOW_GROUP, "%ds" % SLOW_S, True))
    ]
    if thresholds["price_gpu_hour"]["value"] is not None:
        found[0]["rules"].append(
            {
                "record": "gpufleet:price_gpu_hour",
                "expr": "vector(%s)" % template.number(thresholds["price_gpu_hour"]["value"]),
            }
        )
    silent = left_out(thresholds)
    for family in catalog.FAMILIES:
        rules = [
            alert_rule(alert, thresholds, base)
            for alert in catalog.alerts()
            if alert["family"] == family and alert["id"] not in silent
        ]
        found.append({"name": "gpufleet-" + family, "interval": interval, "rules": rules})
    return found


def render(overrides: t.Optional[t.Dict[str, t.Any]] = None, base: str = RUNBOOKS) -> str:
    """Return the rule file."""
    return document({"groups": groups(catalog.thresholds(overrides), base)})
