# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document about a fleet as lines of a terminal, Markdown and JUnit XML, and the tables of its page. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import formats, precheck, text

# More nodes than these are counted instead of listed in the terminal, once they pass.
PASSING_LINES = 40
# Nodes that a line names.
NAMED = 5
TITLE = "GPU health before maintenance"
COLUMNS = ("node", "verdict", "driver", "GPUs", "worst finding")
GROUPS = (
    ("fail", "Fail", "At least one check failed."),
    ("unknown", "Unknown", "No check failed, but something could not be read. Unknown is not healthy."),
    ("unreachable", "Unreachable", "The node could not be reached, so nothing is known about it."),
    ("pass", "Pass", "Every check passed, does not apply, or is waived."),
)
PLACES = (
    ("loaded", "driver loaded"),
    ("library", "library"),
    ("on_disk", "module on disk"),
    ("next_boot", "next boot"),
    ("nvml", "NVML says"),
)


def find_group(node: dict) -> str:
    """Return the group of the page in which a node is shown."""
    return "unreachable" if node["state"] == precheck.UNREACHABLE else node["verdict"]


def describe_gpus(node: dict) -> str:
    """Return the GPUs of a node by model, such as C(8 x H100 80GB HBM3)."""
    names = {}
    for gpu in node["gpus"]:
        name = re.sub(r"^NVIDIA ", "", gpu["name"] or "unreadable GPU")
        names[name] = names.get(name, 0) + 1
    return ", ".join("%d x %s" % (names[name], text.one_line(name)) for name in sorted(names))


def read_driver_version(node: dict) -> str:
    return text.one_line(node["driver"].get("loaded") or node["driver"].get("nvml") or "", 40)


def name_gpu(node: dict, entity: str) -> str:
    """Return the index, PCI address and serial number of a GPU, by which a technician finds it."""
    for gpu in node["gpus"]:
        if gpu["entity"] == entity or (gpu["uuid"] and gpu["uuid"] == entity):
            parts = (
                ["GPU %d" % gpu["index"]]
                + ([gpu["pci"]] if gpu["pci"] else [])
                + (["S/N %s" % gpu["serial"]] if gpu["serial"] else [])
            )
            return text.one_line(", ".join(parts))
    return text.one_line(entity)


def shorten_gpu_names(node: dict, message: str) -> str:
    """Return a message with C(GPU 2) in place of the UUID and PCI address of a GPU."""
    for gpu in node["gpus"]:
        for name in filter(None, (gpu["uuid"], gpu["entity"])):
            for long_name in ("%s at %s" % (name, gpu["pci"]), name):
                message = message.replace(long_name, "GPU %d" % gpu["index"])
    return message


def describe_worst(node: dict) -> str:
    """Return the worst finding of a node in a sentence; where the GPU is comes last, since a terminal cuts the end."""
    if node["state"] != precheck.JUDGED:
        return text.one_line("%s: %s" % (node["state"], node["message"]) if node["message"] else node["state"])
    found = node["worst"]
    if found is None:
        return "" if node["verdict"] == "pass" else "no check answered; the result is incomplete"
    more = node["counts"]["fail"] + node["counts"]["unknown"] - 1
    return text.one_line(
        "%s%s%s%s"
        % (
            found["id"],
            ": " + shorten_gpu_names(node, found["message"]) if found["message"] else "",
            " (and %d more)" % more if more else "",
            "" if found["entity"] == model.NODE else " [%s]" % name_gpu(node, found["entity"]),
        )
    )


def describe_counts(doc: dict) -> str:
    """Return the number of nodes by verdict, such as C(1 fail, 1 unknown (1 unreachable), 2 pass)."""
    counts = doc["counts"]
    parts = ["%d %s" % (counts[word], word) for word in reversed(precheck.VERDICTS) if counts[word]]
    apart = ", ".join("%d %s" % (counts[state], state) for state in precheck.STATES[1:] if counts[state])
    return ", ".join(parts) + (" (%s)" % apart if apart else "") if parts else "no nodes"


def order_nodes(doc: dict) -> list[tuple[str, dict]]:
    """Return (name, node) of all nodes, the worst first."""
    order = [key for key, dummy, dummy2 in GROUPS]
    return sorted(doc["nodes"].items(), key=lambda entry: (order.index(find_group(entry[1])), entry[0]))


def render_summary(doc: dict, width: int = 90) -> list[str]:
    """Return the table of the nodes and the verdict as lines of plain text, with WIDTH characters of a finding."""
    passing = doc["counts"]["pass"]
    folded = passing > PASSING_LINES
    rows = [COLUMNS]
    rows += [(*row[:4], row[4] or "-") for row in _list_rows(doc, width) if not (folded and row[1] == "pass")]
    lines = text.align_columns(rows)
    if folded:
        lines.append("... and %s that pass" % text.count_noun(passing, "node"))
    lines += ["odd one out: %s" % precheck.describe_outlier(notice) for notice in doc["peers"]]
    if doc["twins"]:
        lines.append("one machine twice: %s" % doc["twins"])
    lines += describe_uncompared(doc)
    if doc["simulated"]:
        lines.append("SIMULATED: at least one node showed the project's simulator and no hardware")
    lines.append(
        "%s: %s of %s%s"
        % (
            doc["verdict"].upper(),
            describe_counts(doc),
            text.count_noun(doc["counts"]["nodes"], "node"),
            ", " + text.count_noun(doc["counts"]["notices"], "notice") if doc["counts"]["notices"] else "",
        )
    )
    return lines


def describe_uncompared(doc: dict) -> list[str]:
    """Return a line about the nodes that were to be compared with a baseline and have none; no line without any."""
    names = doc["uncompared"]
    return (
        [
            "%s not compared, since %s has no baseline: %s%s"
            % (
                text.count_noun(len(names), "node"),
                doc["asked"][precheck.BASELINES],
                ", ".join(names[:NAMED]),
                ", ..." if len(names) > NAMED else "",
            )
        ]
        if names
        else []
    )


def build_matrix(doc: dict) -> dict:
    """Return the versions of the nodes; those that are alike share a row, the largest row is first."""
    rows = {}
    for name, node in doc["nodes"].items():
        if node["state"] == precheck.JUDGED:
            key = (
                describe_gpus(node) or "no GPU",
                *(text.one_line(text.format_value(node["driver"].get(place))) for place, dummy in PLACES),
                node["kernel"] or "nothing",
                _join_values(gpu["gsp"] for gpu in node["gpus"]),
                _join_values(gpu["vbios"] for gpu in node["gpus"]),
            )
            rows.setdefault(key, []).append(name)
    head = ["GPUs", *(label for dummy, label in PLACES), "kernel", "GSP firmware", "VBIOS"]
    listed = sorted(rows.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    usual = (
        [
            max(
                sorted({row[column] for row in rows}),
                key=lambda value: sum(len(names) for row, names in listed if row[column] == value),
            )
            for column in range(len(head))
        ]
        if rows
        else []
    )
    return {
        "head": head,
        "rows": [
            {"nodes": names, "cells": [{"text": cell, "odd": cell != usual[column]} for column, cell in enumerate(row)]}
            for row, names in listed
        ],
    }


def _join_values(values) -> str:
    found = sorted({text.one_line(value) for value in values if value})
    return ", ".join(found) if found else "nothing"


def group_by_check(doc: dict) -> list[dict]:
    """Return the failing and unknown checks of the fleet, those of most nodes first."""
    found = {}
    for name, node in doc["nodes"].items():
        for entry in node["findings"]:
            if entry["status"] in precheck.BARS:
                found.setdefault((entry["status"], entry["id"]), {}).setdefault(name, 0)
                found[(entry["status"], entry["id"])][name] += 1
    return [
        {"status": status, "id": ident, "times": sum(nodes.values()), "nodes": sorted(nodes)}
        for (status, ident), nodes in sorted(
            found.items(), key=lambda item: (precheck.BARS.index(item[0][0]), -len(item[1]), item[0][1])
        )
    ]


def _list_findings(doc, wanted) -> list[tuple]:
    """Return (node name, node, finding) of the findings for which WANTED is true."""
    return [(name, node, entry) for name, node in doc["nodes"].items() for entry in node["findings"] if wanted(entry)]


def list_waivers(doc: dict) -> list[dict]:
    rows = []
    for name, node, entry in _list_findings(doc, lambda entry: entry["status"] == model.WAIVED):
        waiver = entry["waiver"] if isinstance(entry.get("waiver"), dict) else {}
        rows.append(
            {
                "node": name,
                "check": entry["id"],
                "entity": name_entity(node, entry),
                "expires": text.one_line(waiver.get("expires")),
                "reason": text.one_line(waiver.get("reason") or entry["message"]),
            }
        )
    return rows


def list_notices(doc: dict) -> list[dict]:
    return [
        {
            "node": name,
            "check": entry["id"],
            "entity": name_entity(node, entry),
            "observed": text.format_value(entry["observed"]),
            "expected": text.format_value(entry["expected"]),
            "message": text.one_line(entry["message"]),
        }
        for name, node, entry in _list_findings(
            doc, lambda entry: entry.get("notice") and entry["status"] == model.PASS
        )
    ]


def list_changes(doc: dict) -> list[dict]:
    """Return the unexpected changes since the baselines."""
    rows = []
    for name, node in doc["nodes"].items():
        for change in node["changes"]:
            if isinstance(change, dict) and change.get("class") != "expected":
                rows.append(
                    {
                        "node": name,
                        "entity": name_gpu(node, str(change.get("entity"))),
                        "key": text.one_line(change.get("key")),
                        "before": text.format_value(change.get("before")),
                        "after": text.format_value(change.get("after")),
                        "class": text.one_line(change.get("class")),
                    }
                )
    return rows


# name, title, what it says, and the columns: heading and field.
LISTINGS = (
    (
        "changes",
        "Changed since the baseline",
        "What the readings show as different, less what was expected.",
        list_changes,
        (
            ("node", "node"),
            ("of", "entity"),
            ("what", "key"),
            ("before", "before"),
            ("after", "after"),
            ("class", "class"),
        ),
    ),
    (
        "notices",
        "Notices",
        "Worth knowing; no node fails for them.",
        list_notices,
        (
            ("node", "node"),
            ("check", "check"),
            ("of", "entity"),
            ("found", "observed"),
            ("expected", "expected"),
            ("what to do", "message"),
        ),
    ),
    (
        "waivers",
        "Waivers in use",
        "Checks that do not pass and are accepted until the day given.",
        list_waivers,
        (("node", "node"), ("check", "check"), ("of", "entity"), ("until", "expires"), ("reason", "reason")),
    ),
)


def build_listings(doc: dict) -> list[dict]:
    """Return the tables of all nodes that are not about verdicts."""
    return [
        {
            "name": name,
            "title": title,
            "meaning": meaning,
            "head": [head for head, dummy in fields],
            "rows": [[row[field] for dummy, field in fields] for row in take(doc)],
        }
        for name, title, meaning, take, fields in LISTINGS
    ]


def name_entity(node: dict, entry: dict) -> str:
    return "node" if entry["entity"] == model.NODE else name_gpu(node, entry["entity"])


def describe_run(doc: dict) -> list[tuple[str, str]]:
    """Return the last part of the report: how it was made."""
    return [
        *doc["asked"].items(),
        ("verdicts that fail a node", ", ".join(doc["fail_on"]) or "none"),
        ("schema", doc["schema"]),
    ]


def format_time(time: str) -> str:
    """Return 2026-01-31 12:00 for 2026-01-31T12:00:00Z."""
    return time[:16].replace("T", " ")


def build_suites(doc: dict, results: dict) -> list[formats.Suite]:
    """Return a suite for each node, with a case for each check that does not pass and one for each kind that does."""
    return [_build_suite(name, node, results.get(name), doc["time"]) for name, node in doc["nodes"].items()]


def _build_suite(name, node, result, time) -> formats.Suite:
    checks = precheck.list_checks(result) if node["state"] == precheck.JUDGED else []
    quiet = (model.PASS, model.NOT_APPLICABLE)
    cases = [
        _build_case(name, check, title)
        for check, title in _count_checks(check for check in checks if check["status"] in quiet)
    ]
    cases += [
        _build_case(name, check, "%s [%s]" % (check["id"], _name_place(check)), name_gpu(node, _name_place(check)))
        for check in checks
        if check["status"] not in quiet
    ]
    troubled = [case for case in cases if case.outcome in ("failure", "error")]
    if node["verdict"] != "pass" and not troubled:
        # Whatever else keeps a node from passing is a case of its own: no suite may look better than its node.
        cases.append(
            formats.Case(
                "verdict",
                "gpufleet.%s.node" % name,
                "failure" if node["verdict"] == "fail" else "error",
                node["state"],
                describe_worst(node),
                "\n".join(part for part in (node["message"], node["next_step"]) if part),
            )
        )
    properties = [
        ("verdict", node["verdict"]),
        ("state", node["state"]),
        ("driver", read_driver_version(node)),
        ("gpus", describe_gpus(node)),
        ("kernel", node["kernel"]),
    ]
    said = [
        "notice: %s %s: %s" % (entry["id"], name_entity(node, entry), entry["message"])
        for entry in node["findings"]
        if entry.get("notice")
    ]
    return formats.Suite(name, "gpufleet.precheck", node["time"] or time, properties, cases, said)


def _name_place(check) -> str:
    return "node" if check["entity"] == model.NODE else check["entity"]


def _count_checks(checks) -> list[tuple]:
    """Return (first check, title) for each kind of check that passed or does not apply."""
    found = {}
    for check in checks:
        found.setdefault((check["status"], check["id"]), []).append(check)
    return [
        (same[0], "%s [%d %s]" % (ident, len(same), "passed" if status == model.PASS else "not applicable"))
        for (status, ident), same in found.items()
    ]


def _build_case(name, check, title, label="") -> formats.Case:
    classname = "gpufleet.%s.%s" % (name, check["id"].split(".")[0])
    message = "" if check.get("message") is None else str(check["message"])
    if check["status"] == model.PASS:
        return formats.Case(title, classname, "passed", "", "", "")
    if check["status"] in (model.WAIVED, model.NOT_APPLICABLE):
        return formats.Case(
            title, classname, "skipped", "", "%s: %s" % (check["status"].replace("_", " "), message), ""
        )
    found = "of: %s\nfound: %s\nexpected: %s\naction: %s\n%s" % (
        label,
        text.format_value(check.get("observed")),
        text.format_value(check.get("expected")),
        check.get("action"),
        message,
    )
    outcome = "failure" if check["status"] == model.FAIL else "error"
    return formats.Case(
        title, classname, outcome, check["status"], message or "%s: %s" % (check["id"], check["status"]), found
    )


def render_junit(doc: dict, results: dict) -> str:
    return formats.render_junit(build_suites(doc, results))


def _list_rows(doc, width=None) -> Iterator:
    """Yield a row for each node, the worst first."""
    for name, node in order_nodes(doc):
        yield (
            text.one_line(name),
            find_group(node),
            read_driver_version(node) or "-",
            describe_gpus(node) or "-",
            text.one_line(describe_worst(node), width),
        )


def render_markdown(doc: dict) -> str:
    """Return the report as Markdown."""
    section, table = formats.Section, formats.Table
    sections = [section("", "%s. Made %s UTC." % (describe_counts(doc), format_time(doc["time"])))]
    if doc["simulated"]:
        sections.append(section("", "Simulated: at least one node showed the project's simulator and no hardware."))
    sections.append(section("", table(COLUMNS, _list_rows(doc))))
    for name, node in order_nodes(doc):
        if node["verdict"] != "pass":
            sections.append(section("%s: %s" % (name, find_group(node)), _list_node_findings(node)))
    sections.append(section("Not compared", describe_uncompared(doc)))
    sections.append(section("One machine twice", [doc["twins"]] if doc["twins"] else []))
    sections.append(section("Odd ones out", [precheck.describe_outlier(notice) for notice in doc["peers"]]))
    sections += [section(part["title"], table(part["head"], part["rows"])) for part in build_listings(doc)]
    versions = build_matrix(doc)
    rows = ([*(cell["text"] for cell in row["cells"]), ", ".join(row["nodes"])] for row in versions["rows"])
    sections.append(section("Versions", table([*versions["head"], "nodes"], rows)))
    sections.append(section("How it was run", ["%s: %s" % item for item in describe_run(doc)]))
    return formats.render_markdown("%s: %s" % (TITLE, doc["verdict"]), sections)


def _list_node_findings(node) -> formats.Table | list[str]:
    """Return what is wrong with a node: the checks that fail it, or why it has no verdict."""
    if node["state"] != precheck.JUDGED:
        return [node["message"] or node["state"], "Next: " + node["next_step"]]
    rows = (
        (
            entry["id"],
            name_entity(node, entry),
            entry["status"],
            text.format_value(entry["observed"]),
            text.format_value(entry["expected"]),
            entry["message"],
        )
        for entry in node["findings"]
        if entry["status"] in precheck.BARS
    )
    return formats.Table(("check", "of", "status", "found", "expected", "what to do"), rows)
