# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's document in words, tables and lists, as its formats show it. Pure."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import fleet, peers, text

# More nodes than these are counted instead of listed in the terminal, once they pass.
PASSING_LINES = 40
TITLE = "GPU health before maintenance"
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


def group(node):
    """Return the group of the page in which a node is shown."""
    return "unreachable" if node["state"] == fleet.UNREACHABLE else node["verdict"]


def model_name(node):
    """8 x H100 80GB HBM3; the models of a mixed node one after the other."""
    names = {}
    for gpu in node["gpus"]:
        name = re.sub(r"^NVIDIA ", "", gpu["name"] or "unreadable GPU")
        names[name] = names.get(name, 0) + 1
    return ", ".join("%d x %s" % (names[name], text.line(name)) for name in sorted(names))


def driver_version(node):
    return text.line(node["driver"].get("loaded") or node["driver"].get("nvml") or "", 40)


def gpu_label(node, entity):
    """A GPU as a technician finds it: index, address and serial number."""
    for gpu in node["gpus"]:
        if gpu["entity"] == entity or (gpu["uuid"] and gpu["uuid"] == entity):
            parts = (
                ["GPU %d" % gpu["index"]]
                + ([gpu["pci"]] if gpu["pci"] else [])
                + (["S/N %s" % gpu["serial"]] if gpu["serial"] else [])
            )
            return text.line(", ".join(parts))
    return text.line(entity)


def headline(node):
    """The worst of a node in a sentence."""
    if node["state"] != fleet.JUDGED:
        return text.line("%s: %s" % (node["state"], node["message"]) if node["message"] else node["state"])
    found = node["worst"]
    if found is None:
        return "" if node["verdict"] == "pass" else "no check answered; the result is incomplete"
    more = node["counts"]["fail"] + node["counts"]["unknown"] - 1
    return text.line(
        "%s%s%s%s"
        % (
            found["id"],
            "" if found["entity"] == model.NODE else " on " + gpu_label(node, found["entity"]),
            ": " + found["message"] if found["message"] else "",
            " (and %d more)" % more if more else "",
        )
    )


def tally(doc):
    """1 fail, 1 unknown (1 unreachable), 2 pass."""
    counts = doc["counts"]
    parts = ["%d %s" % (counts[word], word) for word in reversed(fleet.VERDICTS) if counts[word]]
    apart = ", ".join("%d %s" % (counts[state], state) for state in fleet.STATES[1:] if counts[state])
    return ", ".join(parts) + (" (%s)" % apart if apart else "") if parts else "no nodes"


def ordered(doc):
    """(name, node), the worst first."""
    order = [key for key, dummy, dummy2 in GROUPS]
    return sorted(doc["nodes"].items(), key=lambda entry: (order.index(group(entry[1])), entry[0]))


def table(doc, width=90):
    """The end of a run as lines of plain text."""
    rows = [("node", "verdict", "driver", "GPUs", "worst finding")]
    passing = doc["counts"]["pass"]
    folded = passing > PASSING_LINES
    for name, node in ordered(doc):
        if not (folded and node["verdict"] == "pass"):
            rows.append(
                (
                    text.line(name),
                    group(node),
                    driver_version(node) or "-",
                    model_name(node) or "-",
                    text.line(headline(node), width) or "-",
                )
            )
    lines = text.columns(rows)
    if folded:
        lines.append("... and %s that pass" % text.count(passing, "node"))
    lines += ["odd one out: %s" % peers.sentence(notice) for notice in doc["peers"]]
    if doc["twins"]:
        lines.append("one machine twice: %s" % doc["twins"])
    if doc["simulated"]:
        lines.append("SIMULATED: at least one node showed the project's simulator and no hardware")
    lines.append(
        "%s: %s of %s%s"
        % (
            doc["verdict"].upper(),
            tally(doc),
            text.count(doc["counts"]["nodes"], "node"),
            ", " + text.count(doc["counts"]["notices"], "notice") if doc["counts"]["notices"] else "",
        )
    )
    return lines


def matrix(doc):
    """The versions of the nodes: those that are alike in one row, the largest row first."""
    rows = {}
    for name, node in doc["nodes"].items():
        if node["state"] == fleet.JUDGED:
            key = (
                model_name(node) or "no GPU",
                *(text.line(text.shown(node["driver"].get(place))) for place, dummy in PLACES),
                node["kernel"] or "nothing",
                _together(gpu["gsp"] for gpu in node["gpus"]),
                _together(gpu["vbios"] for gpu in node["gpus"]),
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


def _together(values):
    found = sorted({text.line(value) for value in values if value})
    return ", ".join(found) if found else "nothing"


def by_check(doc):
    """Failing and unknown checks over the fleet: what is common comes first."""
    found = {}
    for name, node in doc["nodes"].items():
        for entry in node["findings"]:
            if entry["status"] in fleet.BARS:
                found.setdefault((entry["status"], entry["id"]), {}).setdefault(name, 0)
                found[(entry["status"], entry["id"])][name] += 1
    return [
        {"status": status, "id": ident, "times": sum(nodes.values()), "nodes": sorted(nodes)}
        for (status, ident), nodes in sorted(
            found.items(), key=lambda item: (fleet.BARS.index(item[0][0]), -len(item[1]), item[0][1])
        )
    ]


def _rows(doc, wanted):
    """(node name, node, finding) for the findings that WANTED takes."""
    return [(name, node, entry) for name, node in doc["nodes"].items() for entry in node["findings"] if wanted(entry)]


def waived(doc):
    rows = []
    for name, node, entry in _rows(doc, lambda entry: entry["status"] == model.WAIVED):
        waiver = entry["waiver"] if isinstance(entry.get("waiver"), dict) else {}
        rows.append(
            {
                "node": name,
                "check": entry["id"],
                "entity": entity_label(node, entry),
                "expires": text.line(waiver.get("expires")),
                "reason": text.line(waiver.get("reason") or entry["message"]),
            }
        )
    return rows


def notices(doc):
    return [
        {
            "node": name,
            "check": entry["id"],
            "entity": entity_label(node, entry),
            "observed": text.shown(entry["observed"]),
            "expected": text.shown(entry["expected"]),
            "message": text.line(entry["message"]),
        }
        for name, node, entry in _rows(doc, lambda entry: entry.get("notice") and entry["status"] == model.PASS)
    ]


def changed(doc):
    """Return the unexpected changes since the baselines."""
    rows = []
    for name, node in doc["nodes"].items():
        for change in node["changes"]:
            if isinstance(change, dict) and change.get("class") != "expected":
                rows.append(
                    {
                        "node": name,
                        "entity": gpu_label(node, str(change.get("entity"))),
                        "key": text.line(change.get("key")),
                        "before": text.shown(change.get("before")),
                        "after": text.shown(change.get("after")),
                        "class": text.line(change.get("class")),
                    }
                )
    return rows


# name, title, what it says, and the columns: heading and field.
LISTINGS = (
    (
        "changes",
        "Changed since the baseline",
        "What the readings show as different, less what was expected.",
        changed,
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
        notices,
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
        waived,
        (("node", "node"), ("check", "check"), ("of", "entity"), ("until", "expires"), ("reason", "reason")),
    ),
)


def listings(doc):
    """The tables over all nodes that are not about verdicts."""
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


def entity_label(node, entry):
    return "node" if entry["entity"] == model.NODE else gpu_label(node, entry["entity"])


def how(doc):
    """Return the last part of the report: how it was made."""
    return [
        *doc["asked"].items(),
        ("verdicts that fail a node", ", ".join(doc["fail_on"]) or "none"),
        ("schema", doc["schema"]),
    ]


def moment(time):
    """2026-01-31 12:00 out of 2026-01-31T12:00:00Z."""
    return time[:16].replace("T", " ")
