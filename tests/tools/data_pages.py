# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the pages and the rulebook that are rendered from data: health checks, alerts, Event-Driven Ansible.

python3 -m tests.tools.data_pages           write the files that differ
python3 -m tests.tools.data_pages --check   write nothing, print the differences, exit 1 if there are any

Runs in the environment `main`; `make docs` does.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import json
import re
import sys
import types
from typing import Any, Callable, Iterable, Iterator

from tests.tools.common import COLLECTION, ROOT, collections_path

BEGIN = "<!-- generated from %s by `make docs` -->"
CHECKS_PAGE = ROOT / "docs" / "reference" / "health-checks.md"
ALERT_PAGES = ROOT / "docs" / "runbooks" / "alerts"
RULEBOOK = ROOT / "extensions" / "eda" / "rulebooks" / "alerts.yml"
POLICY = ROOT / "plugins" / "plugin_utils" / "_data" / "health_policy.json"

HEALTH_PACKAGE = "module_utils._health."
# Modules of _health that every check uses: their texts say nothing about one check.
SHARED_MODULES = ("codes", "model", "policy", "signals")
CHECKS_INTRODUCTION = """\
The checks of `gpufleet.lifecycle.gpu_health`, by family. A check of scope *gpu* runs for every GPU that NVML opens, a
check of scope *node* once. A check whose signal is missing is `unknown` and asks to `hold` the node, besides the
actions in its row; a signal that the baseline has and the node no longer gives is a failure. *Policy* names the
[thresholds](#thresholds) of the check. A check marked *(a notice)* passes and is reported; it fails if `strict` of the
policy names it.
"""
CHECKS_EXAMPLE = """\
## A policy, a waiver, and a stricter check

In the inventory of the nodes it is about, or with `-e`. An id, a threshold or an entry that does not exist is refused.
A waiver that is over does not count, and the report shows those that do.

```yaml
gpu_health_policy:
  memory_total_tolerance_percent: 0     # another threshold
  models:
    '*H100*':
      memory_total_tolerance_percent: 0.2     # for GPUs whose name fits
  strict: [gpu.ecc_*]     # the notices of these checks fail
gpu_health_waivers:
  - check: gpu.power_limit
    reason: the rack is short of cooling
    expires: '2027-03-31'
```
"""
ALERTS_INTRODUCTION = """\
The alerts of the role `gpu_monitoring`. Each notification links its runbook in these pages, and Prometheus shows its
rule on the page *Alerts*. [How long they stay, and when they are silent](../monitoring.md).
"""
SEVERITIES = {
    "page": "needs someone now",
    "ticket": "can wait for working hours",
    "info": "needs no one, and is sent only to a receiver set for it",
}


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _code(names: Iterable[str]) -> str:
    return ", ".join("`%s`" % name for name in names)


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    head = list(head)
    return [
        "| %s |" % " | ".join(head),
        "|%s" % ("---|" * len(head)),
        *("| %s |" % " | ".join(_cell(cell) for cell in row) for row in rows),
    ]


# Health checks


def _find_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _find_strings(key)
            yield from _find_strings(inner)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for inner in value:
            yield from _find_strings(inner)


def _is_check_module(name: str) -> bool:
    return HEALTH_PACKAGE in name and name.rpartition(".")[2] not in SHARED_MODULES


def _find_references(code: types.CodeType, scope: dict, check_id: str) -> Iterator[Any]:
    """Yield the constants and objects that a code object refers to; of a table by check id, the entry of the check."""

    def entry(value):
        return value[check_id] if isinstance(value, dict) and check_id in value else value

    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _find_references(constant, scope, check_id)
        else:
            yield constant
    for name in code.co_names:
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and _is_check_module(value.__name__):
            yield from (entry(getattr(value, inner, None)) for inner in code.co_names)
        else:
            yield entry(value)


def _find_texts(row: Any) -> set[str]:
    """Return every text that the code of a check can use: action names and threshold names are among them."""
    texts, seen, pending = set(), set(), [row.judge]
    while pending:
        item = pending.pop()
        if isinstance(item, functools.partial):
            pending += [item.func, *item.args, *item.keywords.values()]
        elif isinstance(item, (types.FunctionType, type)):
            if item in seen or not _is_check_module(item.__module__):
                continue
            seen.add(item)
            if isinstance(item, type):
                parts = [value for name, value in vars(item).items() if not name.startswith("__")]
                pending += [part.fget if isinstance(part, property) else part for part in parts]
            else:
                pending += [*_find_references(item.__code__, item.__globals__, row.ident), *(item.__defaults__ or ())]
                pending += [cell.cell_contents for cell in item.__closure__ or ()]
        else:
            texts.update(_find_strings(item))
    return texts


def find_actions(row: Any, known_actions: Iterable[str]) -> list[str]:
    """Return the actions that a check can ask for, in the order of `known_actions`."""
    texts = _find_texts(row)
    return [action for action in known_actions if action in texts and action != "none"] or ["hold"]


def find_thresholds(row: Any, known: Iterable[str]) -> list[str]:
    """Return the names of the thresholds that a check reads, including names that it builds with a format string."""
    texts = _find_texts(row)
    # The compiler splits "bank_%s_max" into its two ends.
    starts = tuple(text for text in texts if re.fullmatch(r"[a-z0-9_]+_", text))
    ends = tuple(text for text in texts if re.fullmatch(r"_[a-z0-9_]+", text))
    return sorted(
        key for key in known if key in texts or (starts and ends and key.startswith(starts) and key.endswith(ends))
    )


def render_checks(families: Iterable[Any], known_actions: Iterable[str], policy: dict) -> str:
    """Render the page of the health checks.

    Args:
        families: The modules of `_health/checks`, each with ROWS.
        known_actions: All actions of a verdict.
        policy: The content of health_policy.json.
    """
    limits = {key: row for key, row in policy.items() if isinstance(row, dict)}
    used_by: dict[str, list[str]] = {}
    lines = [BEGIN % "plugins/module_utils/_health and the health policy", "", "# The health checks", ""]
    lines += CHECKS_INTRODUCTION.splitlines()
    for family in families:
        rows = []
        for row in family.ROWS:
            thresholds = find_thresholds(row, limits)
            for key in thresholds:
                used_by.setdefault(key, []).append(row.ident)
            actions = find_actions(row, known_actions)
            rows.append(
                (
                    *(_code([row.ident]), row.scope, row.title, _code(row.signals)),
                    *(_code(actions), _code(thresholds), row.source),
                )
            )
        title = " ".join(family.__doc__.strip().split("\n\n")[0].split()).rstrip(".")
        head = ("Check", "Scope", "Passes when", "Reads", "Asks for", "Policy", "Source of the rule")
        lines += ["", "## " + title, "", *_table(head, rows)]
    lines += ["", *CHECKS_EXAMPLE.splitlines()]
    lines += ["", "## Thresholds", "", "Set one with `gpu_health_policy`.", ""]
    lines += _table(
        ("Threshold", "Default", "Unit", "From", "To", "Meaning", "Source", "Used by"),
        (
            (
                *(_code([key]), row["value"], row["unit"], row.get("minimum", 0), row.get("maximum", "")),
                *(row["text"], row["source"], _code(used_by.get(key, ()))),
            )
            for key, row in sorted(limits.items())
        ),
    )
    return "\n".join(lines) + "\n"


# Alerts


def _strip_templates(text: str) -> str:
    """Replace the templates of Prometheus in a text of an alert: a label by its name, any other by N."""
    text = re.sub(r"\{\{-? *with .*?\}\}.*?\{\{-? *else *-?\}\}(.*?)\{\{-? *end *-?\}\}", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", lambda found: found.group(1).upper(), text)
    return re.sub(r"\{\{.*?\}\}", "N", text)


def _list_repairs(alert: dict) -> list[str]:
    """Return the commands of the playbook that repairs what the alert tells of, to be run in this order."""
    playbook = alert.get("playbook")
    if not playbook:
        return []
    run = "ansible-playbook -i inventory gpufleet.lifecycle.%s -e %s_hosts=NODE"
    commands = [run % (playbook, playbook)]
    if playbook == "quarantine":
        commands[0] += " -e '{\"quarantine_reason\": \"alert %s\"}'" % alert["id"]
    if playbook in ("quarantine", "recover_gpu"):
        commands.append(run % (("return_to_service",) * 2) + "    # of a node in quarantine, after its repair")
    return ["", "Repair:", "", "```", *commands, "```"]


def _render_alert(alert: dict, rule: dict, fill: Callable[[str], str]) -> list[str]:
    def text(key):
        return _strip_templates(fill(alert[key]))

    lines = ["", "## " + alert["id"], "", alert["summary"] + ".", ""]
    lines.append("- Severity: %s." % alert["severity"])
    if alert.get("for"):
        lines.append("- Fires when the condition has held for %d s." % alert["for"])
    lines += ["- Found: %s." % text("found"), "- Expected: %s." % text("expected")]
    lines.append("- Likely cause: %s" % alert["cause"].strip())
    if alert["scope"] in ("gpu", "node", "service") and "gpufleet:node_out_of_service" not in rule["expr"]:
        lines.append("- Fires also while the collection keeps the node out of service.")
    if alert.get("look"):
        lines += ["", "Check:", "", "```", *alert["look"], "```"]
    if alert.get("look_at"):
        lines += ["", "Check %s." % alert["look_at"]]
    return [*lines, "", "Then: %s." % text("next"), *_list_repairs(alert)]


def render_alert_family(page: dict, alerts: Iterable[dict], rules: dict, fill: Callable[[str], str]) -> str:
    """Render the runbooks of a family of alerts.

    Args:
        page: The title of the family.
        alerts: Its alerts as the catalog has them.
        rules: The rendered rule of each alert by its id.
        fill: Puts the values of thresholds into a text.
    """
    lines = [BEGIN % "plugins/plugin_utils/_monitoring/data", "", "# " + page["title"], ""]
    lines.append("[All alerts, thresholds and series](README.md)")
    for alert in alerts:
        lines += _render_alert(alert, rules[alert["id"]], lambda text: fill(str(text)))
    return "\n".join(lines) + "\n"


def render_alert_index(families: dict, thresholds: dict, recordings: list, exporters: dict, node_series: list) -> str:
    """Render the page with all alerts, the thresholds with their sources, and the series that the rules read."""
    lines = [BEGIN % "plugins/plugin_utils/_monitoring/data", "", "# Alerts", ""]
    lines += [*ALERTS_INTRODUCTION.splitlines(), ""]
    lines += [*_table(("Severity", "Meaning"), SEVERITIES.items()), ""]
    lines += _table(
        ("Alert", "Severity", "Summary"),
        (
            ("[%s](%s.md#%s)" % (one["id"], name, one["id"].lower()), one["severity"], one["summary"])
            for name, page in families.items()
            for one in page["alerts"]
        ),
    )
    lines += ["", "## Thresholds", ""]
    lines += ["Set one with `gpu_monitoring_thresholds`. Alerts that need one without a value are left out.", ""]
    lines += _table(
        ("Name", "Value", "Unit", "Meaning", "Source"),
        (
            (
                _code([name]),
                "not set" if one["value"] is None else one["value"],
                "s" if one["unit"] == "duration" else one["unit"],
                one["text"],
                one["source"],
            )
            for name, one in thresholds.items()
        ),
    )
    lines += ["", "## Series of the node", ""]
    lines += _table(
        ("Series", "Labels", "Meaning"),
        ((_code([one["name"]]), _code(one["labels"]) or "none", one["help"]) for one in node_series),
    )
    lines += ["", "## Recorded series", ""]
    lines += _table(
        ("Series", "Meaning"), ((_code([one["record"]]), " ".join(one["text"].split())) for one in recordings)
    )
    lines += ["", "## Series of exporters", ""]
    lines += _table(
        ("Exporter", "Installed by", "Source of the names", "Series"),
        (
            (name, one["install"] or "Prometheus", one["source"], _code(one["series"]))
            for name, one in exporters.items()
            if name != "gpufleet-node"
        ),
    )
    return "\n".join(lines) + "\n"


# Files


def _import(name: str) -> types.ModuleType:
    return importlib.import_module(".".join(("ansible_collections", *COLLECTION, "plugins", name)))


def name_unset_thresholds(alert: dict, thresholds: dict) -> dict:
    """Return an alert whose texts name each threshold that has no value until an operator sets it."""
    unset = {"${%s}" % name: name for name, one in thresholds.items() if one["value"] is None}

    def name_them(text):
        for place, name in unset.items():
            text = text.replace(place, name)
        return text

    return {key: name_them(value) if isinstance(value, str) else value for key, value in alert.items()}


def _render_alert_files() -> Iterator[tuple]:
    catalog, rulebook, rules, template = (
        _import("plugin_utils._monitoring." + name) for name in ("catalog", "rulebook", "rules", "template")
    )
    yield RULEBOOK, rulebook.render()
    thresholds = catalog.thresholds()
    every = [name_unset_thresholds(alert, thresholds) for alert in catalog.alerts()]
    rendered = {alert["id"]: rules.alert_rule(alert, thresholds) for alert in every}
    for name, page in catalog.families().items():
        alerts = [alert for alert in every if alert["family"] == name]
        text = render_alert_family(page, alerts, rendered, lambda text: template.fill(text, thresholds))
        yield ALERT_PAGES / (name + ".md"), text
    yield (
        ALERT_PAGES / "README.md",
        render_alert_index(
            catalog.families(), catalog.thresholds(), catalog.recordings(), catalog.exporters(), catalog.node_series()
        ),
    )


def render_files() -> dict:
    """Return the wanted content of each generated file by its path."""
    sys.path.insert(0, collections_path())
    registry, model = (_import(HEALTH_PACKAGE + name) for name in ("registry", "model"))
    policy = json.loads(POLICY.read_text(encoding="utf-8"))
    checks = render_checks(registry.FAMILIES, model.ACTIONS, policy)
    return {CHECKS_PAGE: checks, **dict(_render_alert_files())}


def diff_file(path: Any, content: str) -> list[str]:
    """Return the unified diff from the file to its wanted content; empty if they are equal."""
    existing = path.read_text(encoding="utf-8") if path.exists() else ""
    name = str(path.relative_to(ROOT))
    return list(difflib.unified_diff(existing.splitlines(), content.splitlines(), name, name, lineterm=""))


def main(arguments: list[str]) -> int:
    """Write or check the files; return the exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = render_files()
    changed = {path: lines for path, content in wanted.items() for lines in [diff_file(path, content)] if lines}
    stale = sorted(set(ALERT_PAGES.glob("*.md")) - set(wanted))
    if arguments:
        for lines in changed.values():
            print("\n".join(lines[:20]))
        for path in stale:
            print("%s: no family of alerts has this name" % path.relative_to(ROOT))
        if changed or stale:
            print("%d generated files differ from their data. Run `make docs`." % (len(changed) + len(stale)))
        return 1 if changed or stale else 0
    for path in changed:
        path.write_text(wanted[path], encoding="utf-8")
        print("wrote %s" % path.relative_to(ROOT))
    for path in stale:
        path.unlink()
        print("removed %s" % path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
