# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's document as JUnit XML, as Markdown and as an HTML page. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import (
    fleet,
    html,
    junit,
    markdown,
    peers,
    text,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report.precheck import (
    GROUPS,
    TITLE,
    by_check,
    driver_version,
    entity_label,
    gpu_label,
    group,
    headline,
    how,
    listings,
    matrix,
    model_name,
    moment,
    ordered,
    tally,
)


def suites(doc, results):
    """A suite for each node and a case for each check that does not pass; what passes is counted, a case for each kind
    of check.
    """
    return [_suite(name, node, results.get(name), doc["time"]) for name, node in doc["nodes"].items()]


def _suite(name, node, result, time):
    checks = fleet.checks_of(result) if node["state"] == fleet.JUDGED else []
    quiet = (model.PASS, model.NOT_APPLICABLE)
    cases = [
        _case(name, check, title) for check, title in _counted(check for check in checks if check["status"] in quiet)
    ]
    cases += [
        _case(name, check, "%s [%s]" % (check["id"], _place(check)), gpu_label(node, _place(check)))
        for check in checks
        if check["status"] not in quiet
    ]
    troubled = [case for case in cases if case.outcome in ("failure", "error")]
    if node["verdict"] != "pass" and not troubled:
        # Whatever else keeps a node from passing is a case of its own: no suite may look better than its node.
        cases.append(
            junit.Case(
                "verdict",
                "gpufleet.%s.node" % name,
                "failure" if node["verdict"] == "fail" else "error",
                node["state"],
                headline(node),
                "\n".join(part for part in (node["message"], node["next_step"]) if part),
            )
        )
    properties = [
        ("verdict", node["verdict"]),
        ("state", node["state"]),
        ("driver", driver_version(node)),
        ("gpus", model_name(node)),
        ("kernel", node["kernel"]),
    ]
    said = [
        "notice: %s %s: %s" % (entry["id"], entity_label(node, entry), entry["message"])
        for entry in node["findings"]
        if entry.get("notice")
    ]
    return junit.Suite(name, "gpufleet.precheck", node["time"] or time, properties, cases, said)


def _place(check):
    return "node" if check["entity"] == model.NODE else check["entity"]


def _counted(checks):
    """(check, title) for each kind of check that passed, or that does not apply; the check is the first of its kind."""
    found = {}
    for check in checks:
        found.setdefault((check["status"], check["id"]), []).append(check)
    return [
        (same[0], "%s [%d %s]" % (ident, len(same), "passed" if status == model.PASS else "not applicable"))
        for (status, ident), same in found.items()
    ]


def _case(name, check, title, label=""):
    classname = "gpufleet.%s.%s" % (name, check["id"].split(".")[0])
    message = "" if check.get("message") is None else str(check["message"])
    if check["status"] == model.PASS:
        return junit.Case(title, classname, "passed", "", "", "")
    if check["status"] in (model.WAIVED, model.NOT_APPLICABLE):
        return junit.Case(title, classname, "skipped", "", "%s: %s" % (check["status"].replace("_", " "), message), "")
    found = "of: %s\nfound: %s\nexpected: %s\naction: %s\n%s" % (
        label,
        text.shown(check.get("observed")),
        text.shown(check.get("expected")),
        check.get("action"),
        message,
    )
    outcome = "failure" if check["status"] == model.FAIL else "error"
    return junit.Case(
        title, classname, outcome, check["status"], message or "%s: %s" % (check["id"], check["status"]), found
    )


def junit_text(doc, results):
    return junit.render(suites(doc, results))


def markdown_text(doc):
    lines = [
        "# %s: %s" % (TITLE, doc["verdict"]),
        "",
        "%s. Made %s UTC." % (markdown.escape(tally(doc)), markdown.escape(moment(doc["time"]))),
    ]
    if doc["simulated"]:
        lines += ["", "**Simulated:** at least one node showed the project's simulator and no hardware."]
    lines += [
        "",
        *markdown.table(
            ("node", "verdict", "driver", "GPUs", "worst finding"),
            (
                (name, group(node), driver_version(node) or "-", model_name(node) or "-", headline(node))
                for name, node in ordered(doc)
            ),
        ),
    ]
    for name, node in ordered(doc):
        if node["verdict"] != "pass":
            lines += markdown.section("%s: %s" % (name, group(node)), _markdown_node(node))
    lines += markdown.section("One machine twice", ["- " + markdown.escape(doc["twins"])] if doc["twins"] else [])
    lines += markdown.section(
        "Odd ones out", ["- " + markdown.escape(peers.sentence(notice)) for notice in doc["peers"]]
    )
    for part in listings(doc):
        lines += markdown.section(part["title"], part["rows"] and markdown.table(part["head"], part["rows"]))
    versions = matrix(doc)
    lines += markdown.section(
        "Versions",
        versions["rows"]
        and markdown.table(
            [*versions["head"], "nodes"],
            ([*(cell["text"] for cell in row["cells"]), ", ".join(row["nodes"])] for row in versions["rows"]),
        ),
    )
    lines += markdown.section(
        "How it was run", ["- %s: %s" % (markdown.escape(key), markdown.escape(value)) for key, value in how(doc)]
    )
    return "\n".join(lines) + "\n"


def _markdown_node(node):
    if node["state"] != fleet.JUDGED:
        return [markdown.escape(node["message"] or node["state"]), "", "Next: " + markdown.escape(node["next_step"])]
    rows = [entry for entry in node["findings"] if entry["status"] in fleet.BARS]
    return markdown.table(
        ("check", "of", "status", "found", "expected", "what to do"),
        (
            (
                entry["id"],
                entity_label(node, entry),
                entry["status"],
                text.shown(entry["observed"]),
                text.shown(entry["expected"]),
                entry["message"],
            )
            for entry in rows
        ),
    )


# With more nodes that need attention, their details are closed at first.
OPEN_NODES = 12
# Checks of one id on one node that are shown at once; the others are behind a fold.
FIRST = 4
# What an action of a verdict means to the person who has to do it.
ACTIONS = {
    "none": "nothing to do",
    "restore_setting": "restore the setting",
    "restart_service": "restart the service",
    "reset_gpu": "reset the GPU",
    "reboot": "reboot the node",
    "hold": "keep it out of service and look",
    "field_diag": "run NVIDIA's field diagnostics; hardware is suspected",
}
SINCE = {"before": "was already so in the baseline", "during": "new since the baseline"}


def view(doc):
    """Return the content of the page: words and numbers only, no decision is left to the template."""
    groups = []
    attention = doc["counts"]["nodes"] - doc["counts"]["pass"]
    for key, title, meaning in GROUPS:
        members = [
            _card(name, node, attention <= OPEN_NODES) for name, node in doc["nodes"].items() if group(node) == key
        ]
        groups.append({"key": key, "title": title, "meaning": meaning, "nodes": members})
    return {
        "title": "%s: %s" % (TITLE, doc["verdict"]),
        "kind": TITLE,
        "verdict": doc["verdict"],
        "headline": _headline(doc, attention),
        "made": moment(doc["time"]),
        "simulated": doc["simulated"],
        "groups": groups,
        "by_check": by_check(doc) if attention > 1 else [],
        "twins": doc["twins"],
        "peers": [
            {
                "text": peers.sentence(notice),
                "odd": [{"place": peers.place(entry), "value": entry["value"]} for entry in notice["odd"]],
                **{key: notice[key] for key in ("model", "trait", "alike", "of", "per")},
                "majority": notice["majority"] or "",
            }
            for notice in doc["peers"]
        ],
        "listings": listings(doc),
        "matrix": matrix(doc),
        "how": how(doc),
    }


def _headline(doc, attention):
    total = doc["counts"]["nodes"]
    if not total:
        return "No node was looked at"
    if not attention:
        return "The node passes" if total == 1 else "All %d nodes pass" % total
    return "%d of %s %s attention" % (attention, text.count(total, "node"), "needs" if attention == 1 else "need")


def _card(name, node, opened):
    return {
        "name": name,
        "group": group(node),
        "open": opened and node["verdict"] != "pass",
        "short": headline(node) or " · ".join(part for part in (model_name(node), driver_version(node)) if part),
        "message": text.line(node["message"], 2000),
        "next_step": node["next_step"],
        "state": node["state"],
        "driver": driver_version(node),
        "gpus": model_name(node),
        "kernel": text.line(node["kernel"]),
        "compared": node["compared"],
        "action": ACTIONS.get(node["action"], ""),
        "counts": node["counts"],
        "simulated": node["simulated"],
        "fails": node["fails"],
        "blocks": _blocks(node),
        "inventory": [
            {
                "index": gpu["index"],
                "cells": [text.line(gpu[key]) or "-" for key in ("pci", "serial", "uuid", "name", "vbios")],
            }
            for gpu in node["gpus"]
        ],
    }


def _blocks(node):
    """The findings of a node by check, the worst check first. What is the same on several GPUs is said once."""
    blocks = {}
    for entry in node["findings"]:
        if entry["status"] in fleet.BARS:
            empty = entry["observed"] is None and entry["expected"] is None
            said = {
                "observed": "" if empty else text.shown(entry["observed"]),
                "source": text.line(entry["source"]),
                "expected": "" if entry["expected"] is None else text.shown(entry["expected"]),
                "message": _without_name(node, entry),
                "since": SINCE.get(entry.get("since"), ""),
                # What is asked of the whole node is said once, above.
                "action": "" if entry["action"] == node["action"] else ACTIONS[entry["action"]],
            }
            block = blocks.setdefault((entry["status"], entry["id"]), {"severity": 0, "said": {}})
            block["severity"] = max(block["severity"], model.ACTIONS.index(entry["action"]))
            block["said"].setdefault(tuple(sorted(said.items())), (said, entry, []))[2].extend(_where(node, entry))
    order = sorted(
        blocks, key=lambda key: (fleet.BARS.index(key[0]), key[1] != fleet.ROOT, -blocks[key]["severity"], key[1])
    )
    shown = []
    for key in order:
        entries = [
            dict(said, where=where, message=said["message"] if len(where) > 1 else text.line(entry["message"]))
            for said, entry, where in blocks[key]["said"].values()
        ]
        shown.append({"status": key[0], "id": key[1], "first": entries[:FIRST], "rest": entries[FIRST:]})
    return shown


def _where(node, entry):
    """Return the GPU that it is about; nothing for the node itself, whose name stands above."""
    label = entity_label(node, entry)
    return (
        []
        if entry["entity"] == model.NODE
        else [{"label": label, "uuid": text.line(entry["entity"]) if entry["entity"].startswith("GPU-") else ""}]
    )


def _without_name(node, entry):
    """The message of a check without the name of its GPU, to be said of several."""
    message = text.line(entry["message"])
    if entry["entity"] == model.NODE:
        return message
    names = {entry["entity"]}
    for gpu in node["gpus"]:
        if gpu["entity"] == entry["entity"] and gpu["pci"]:
            names |= {"%s at %s" % (entry["entity"], gpu["pci"]), gpu["pci"]}
    for name in sorted(names, key=len, reverse=True):
        message = message.replace("GPU " + name, "this GPU").replace(name, "this GPU")
    return message[:1].upper() + message[1:]


def html_text(doc):
    return html.render("precheck.html.j2", view(doc))
