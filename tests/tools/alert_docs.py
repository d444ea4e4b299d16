# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbooks of the alerts, one page for each family, with thresholds and series beside them. Pure."""

from __future__ import annotations

import re

BEGIN = "<!-- generated from plugins/plugin_utils/_monitoring/data by `make docs` -->"
# The commands that tests run: our playbooks, and the program that the role gpu_monitoring asks
# (tests/unit/meta/command_tests.toml).
RUN_BY_TESTS = re.compile(r"(?:^ansible-playbook gpufleet\.lifecycle\.(?=\w)|^(?=promtool ))(\w+)")
SEVERITIES = {
    "page": "needs someone now",
    "ticket": "can wait for working hours",
    "info": "needs no one, and is told to no one unless a receiver is given",
}


def plain(text):
    """Return a text of an alert without the templates of Prometheus, for people who read before it fires."""
    text = re.sub(r"\{\{-? *with .*?\}\}.*?\{\{-? *else *-?\}\}(.*?)\{\{-? *end *-?\}\}", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", lambda found: found.group(1).upper(), text)
    return re.sub(r"\{\{.*?\}\}", "N", text)


def entry(alert, rule, fill):
    """Return the lines about one alert."""
    held = "is not heard" if "gpufleet:node_out_of_service" in rule["expr"] else "is heard"
    lines = [
        "",
        "## " + alert["id"],
        "",
        alert["summary"] + ".",
        "",
        "- Severity: %s, %s." % (alert["severity"], SEVERITIES[alert["severity"]]),
    ]
    if alert.get("for"):
        lines.append("- Has to hold for %d s before it fires." % alert["for"])
    if alert.get("keep"):
        lines.append(
            "- Stays for %s after its end, so that one that comes and goes notifies at most once in that time."
            % rule["keep_firing_for"]
        )
    lines += [
        "- Found: %s." % plain(fill(alert["found"])),
        "- Expected: %s." % plain(fill(alert["expected"])),
        "- Likely cause: %s" % alert["cause"].strip(),
    ]
    if alert["scope"] in ("gpu", "node", "service"):
        lines.append("- On a node that this collection keeps out of service it %s." % held)
    if alert.get("look"):
        lines += ["", "Look:", "", "```", *alert["look"], "```"]
    if alert.get("look_at"):
        lines += ["", "Look at %s." % alert["look_at"]]
    lines += ["", "Then: %s." % plain(fill(alert["next"])), "", "The rule:", "", "```text", rule["expr"], "```"]
    return lines


def family(page, alerts, rules, fill):
    """Return the page of a family of alerts."""
    run = sorted({name for alert in alerts for line in alert.get("look", ()) for name in RUN_BY_TESTS.findall(line)})
    but = ", except those with %s" % " and ".join("`%s`" % one for one in run)
    lines = [BEGIN, "", "# " + page["title"], "", "[All alerts, thresholds and series](README.md)", ""]
    lines.append("No test runs the commands of this page%s." % (but if run else ""))
    for alert in alerts:
        lines += entry(alert, rules[alert["id"]], fill)
    return "\n".join(lines) + "\n"


def cell(text):
    return str(text).replace("|", "\\|").replace("<", "&lt;")


def index(families, thresholds, recordings, exporters, node_series):
    """Return the page with all alerts, the thresholds with their sources, and the series that the rules read."""
    lines = [
        BEGIN,
        "",
        "# Alerts",
        "",
        "What the role `gpu_monitoring` lets Prometheus watch. Each notification leads to its place in these pages.",
        "",
    ]
    lines += ["| Alert | Severity | Says |", "|---|---|---|"]
    for name, page in families.items():
        lines += [
            "| [%s](%s.md#%s) | %s | %s |" % (one["id"], name, one["id"].lower(), one["severity"], cell(one["summary"]))
            for one in page["alerts"]
        ]
    lines += [
        "",
        "## Thresholds",
        "",
        "Changed by name with `gpu_monitoring_thresholds`. One without a value leaves out the alerts that need it.",
        "",
    ]
    lines += ["| Name | Value | Unit | Meaning | Source |", "|---|---|---|---|---|"]
    for name, one in thresholds.items():
        value = "not set" if one["value"] is None else one["value"]
        unit = "s" if one["unit"] == "duration" else one["unit"]
        lines.append("| `%s` | %s | %s | %s | %s |" % (name, value, unit, cell(one["text"]), cell(one["source"])))
    lines += ["", "## Series that the node writes", "", "| Series | Labels | Meaning |", "|---|---|---|"]
    lines += [
        "| `%s` | %s | %s |"
        % (one["name"], ", ".join("`%s`" % label for label in one["labels"]) or "none", cell(one["help"]))
        for one in node_series
    ]
    lines += ["", "## Series that are recorded", "", "| Series | Meaning |", "|---|---|"]
    lines += ["| `%s` | %s |" % (one["record"], cell(" ".join(one["text"].split()))) for one in recordings]
    lines += ["", "## Series of others", "", "| Exporter | Comes from | Names by | Series |", "|---|---|---|---|"]
    for name, one in exporters.items():
        if name != "gpufleet-node":
            lines.append(
                "| %s | %s | %s | %s |"
                % (
                    name,
                    cell(one["install"] or "Prometheus"),
                    cell(one["source"]),
                    ", ".join("`%s`" % key for key in one["series"]),
                )
            )
    return "\n".join(lines) + "\n"
