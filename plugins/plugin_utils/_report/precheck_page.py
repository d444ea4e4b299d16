# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTML page about a fleet. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import html, leading, precheck, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import precheck_formats as tables

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


def build_view(doc: dict) -> dict:
    """Return the content of the page: words and numbers only, no decision is left to the template."""
    groups = []
    attention = doc["counts"]["nodes"] - doc["counts"]["pass"]
    for key, title, meaning in tables.GROUPS:
        members = [
            _build_card(name, node, attention <= OPEN_NODES)
            for name, node in doc["nodes"].items()
            if tables.find_group(node) == key
        ]
        groups.append({"key": key, "title": title, "meaning": meaning, "nodes": members})
    return {
        "title": "%s: %s" % (tables.TITLE, doc["verdict"]),
        "kind": tables.TITLE,
        "verdict": doc["verdict"],
        "headline": _write_headline(doc, attention),
        "made": tables.format_time(doc["time"]),
        "simulated": doc["simulated"],
        "groups": groups,
        "by_check": tables.group_by_check(doc) if attention > 1 else [],
        "twins": doc["twins"],
        "peers": [
            {
                "text": precheck.describe_outlier(notice),
                "odd": [{"place": precheck.describe_place(entry), "value": entry["value"]} for entry in notice["odd"]],
                **{key: notice[key] for key in ("model", "trait", "alike", "of", "per")},
                "majority": notice["majority"] or "",
            }
            for notice in doc["peers"]
        ],
        "listings": tables.build_listings(doc),
        "matrix": tables.build_matrix(doc),
        "how": tables.describe_run(doc),
    }


def _write_headline(doc, attention) -> str:
    total = doc["counts"]["nodes"]
    if not total:
        return "No node was looked at"
    if not attention:
        return "The node passes" if total == 1 else "All %d nodes pass" % total
    return "%d of %s %s attention" % (attention, text.count_noun(total, "node"), "needs" if attention == 1 else "need")


def _build_card(name, node, opened) -> dict:
    return {
        "name": name,
        "group": tables.find_group(node),
        "open": opened and node["verdict"] != "pass",
        "short": tables.describe_worst(node)
        or " · ".join(part for part in (tables.describe_gpus(node), tables.read_driver_version(node)) if part),
        "message": text.one_line(node["message"], 2000),
        "next_step": node["next_step"],
        "state": node["state"],
        "driver": tables.read_driver_version(node),
        "gpus": tables.describe_gpus(node),
        "kernel": text.one_line(node["kernel"]),
        "compared": node["compared"],
        "action": ACTIONS.get(node["action"], ""),
        "counts": node["counts"],
        "simulated": node["simulated"],
        "fails": node["fails"],
        "blocks": _build_blocks(node),
        "inventory": [
            {
                "index": gpu["index"],
                "cells": [text.one_line(gpu[key]) or "-" for key in ("pci", "serial", "uuid", "name", "vbios")],
            }
            for gpu in node["gpus"]
        ],
    }


def _build_blocks(node) -> list[dict]:
    """Return the findings of a node by check, the worst first. What several GPUs have in common is one entry."""
    blocks = {}
    for entry, cause in leading.sort_findings(node["findings"]):
        empty = entry["observed"] is None and entry["expected"] is None
        said = {
            "observed": "" if empty else text.format_value(entry["observed"]),
            "source": text.one_line(entry["source"]),
            "expected": "" if entry["expected"] is None else text.format_value(entry["expected"]),
            "message": _remove_name(node, entry),
            "since": SINCE.get(entry.get("since"), ""),
            "cause": cause,
            # What is asked of the whole node is said once, above.
            "action": "" if entry["action"] == node["action"] else ACTIONS[entry["action"]],
        }
        block = blocks.setdefault((entry["status"], entry["id"]), {})
        block.setdefault(tuple(sorted(said.items())), (said, entry, []))[2].extend(_find_place(node, entry))
    shown = []
    for key, block in blocks.items():
        entries = [
            dict(said, where=where, message=said["message"] if len(where) > 1 else text.one_line(entry["message"]))
            for said, entry, where in block.values()
        ]
        shown.append({"status": key[0], "id": key[1], "first": entries[:FIRST], "rest": entries[FIRST:]})
    return shown


def _find_place(node, entry) -> list[dict]:
    """Return the GPU that it is about; nothing for the node itself, whose name stands above."""
    label = tables.name_entity(node, entry)
    return (
        []
        if entry["entity"] == model.NODE
        else [{"label": label, "uuid": text.one_line(entry["entity"]) if entry["entity"].startswith("GPU-") else ""}]
    )


def _remove_name(node, entry) -> str:
    """Return the message of a check without the name of its GPU, for several GPUs."""
    message = text.one_line(entry["message"])
    if entry["entity"] == model.NODE:
        return message
    names = {entry["entity"]}
    for gpu in node["gpus"]:
        if gpu["entity"] == entry["entity"] and gpu["pci"]:
            names |= {"%s at %s" % (entry["entity"], gpu["pci"]), gpu["pci"]}
    for name in sorted(names, key=len, reverse=True):
        message = message.replace("GPU " + name, "this GPU").replace(name, "this GPU")
    return message[:1].upper() + message[1:]


def render_page(doc: dict) -> str:
    return html.render_page("precheck.html.j2", build_view(doc))
