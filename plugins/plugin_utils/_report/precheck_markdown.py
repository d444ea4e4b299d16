# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's document as Markdown. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import fleet, markdown, peers, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report.precheck import (
    TITLE,
    driver_version,
    entity_label,
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
