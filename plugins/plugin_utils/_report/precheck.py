# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's document as a table, as Markdown, as JUnit XML and as an HTML page. Pure."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import (
    fleet,
    html,
    junit,
    markdown,
    peers,
    text,
)

# More nodes than these are counted instead of listed in the terminal, once they pass.
PASSING_LINES = 40
# With more nodes that need attention, their details are closed at first.
OPEN_NODES = 12
# Checks of one id on one node that are shown at once; the others are behind a fold.
FIRST = 4
TITLE = "GPU health before maintenance"
GROUPS = (
    ("fail", "Fail", "At least one check failed."),
    ("unknown", "Unknown", "No check failed, but something could not be read. Unknown is not healthy."),
    ("unreachable", "Unreachable", "The node could not be reached, so nothing is known about it."),
    ("pass", "Pass", "Every check passed, does not apply, or is waived."),
)
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
                "entity": _entity(node, entry),
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
            "entity": _entity(node, entry),
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


def _entity(node, entry):
    return "node" if entry["entity"] == model.NODE else gpu_label(node, entry["entity"])


# Markdown


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
                _entity(node, entry),
                entry["status"],
                text.shown(entry["observed"]),
                text.shown(entry["expected"]),
                entry["message"],
            )
            for entry in rows
        ),
    )


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


# JUnit


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
        "notice: %s %s: %s" % (entry["id"], _entity(node, entry), entry["message"])
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


# HTML


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
    label = _entity(node, entry)
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
