# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a node in quarantine as Markdown, for a ticket of the vendor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import formats, text

Answer = Mapping[str, Any]


def render(record: Answer) -> str:
    escape = formats.escape_markdown
    lines = ["# %s in quarantine" % escape(record["node"]), ""]
    facts = [
        ("since", record["time"]),
        ("by", "%s on %s" % (record["user"] or "unknown", record["controller"] or "unknown")),
        ("reason", record["reason"]),
        (
            "verdict",
            "%s, action %s" % (record["verdict"], record["action"])
            if record["verdict"]
            else "none: the node was not judged",
        ),
        ("machine id", _or_unknown(record["machine"]["machine_id"])),
        ("serial number of the board", _or_unknown(record["machine"]["board_serial"])),
        ("driver", _or_unknown(record["driver"].get("loaded"))),
        ("evidence", record["evidence"] or "none"),
    ]
    facts += [("simulated", "the project's simulator was read and no hardware")] if record["simulated"] else []
    lines += formats.render_table(("what", "value"), facts)
    lines += formats.render_section(
        "GPUs",
        formats.render_table(
            ("GPU", "serial number", "part number", "model", "UUID", "PCI address", "VBIOS", "InfoROM"),
            [
                (
                    _or_unknown(gpu["index"]),
                    *[_read_field(gpu, key) for key in ("serial", "part_number", "name", "uuid", "pci")],
                    _or_unknown(gpu["vbios"]),
                    "%s%s"
                    % (
                        _or_unknown(gpu["inforom"]),
                        {False: ", not valid", True: ""}.get(gpu["inforom_valid"], ", validity unknown"),
                    ),
                )
                for gpu in record["gpus"]
            ],
        )
        if record["gpus"]
        else ["None is known."],
    )
    lines += (
        formats.render_section(
            "Memory",
            formats.render_table(
                ("UUID", "ECC counters", "remapped rows", "remap histogram", "retired pages", "recovery action"),
                [
                    (
                        _or_unknown(gpu["uuid"]),
                        *[
                            _told_value(gpu[key])
                            for key in ("ecc", "remapped_rows", "remap_histogram", "retired_pages", "recovery_action")
                        ],
                    )
                    for gpu in record["gpus"]
                ],
            ),
        )
        if record["gpus"]
        else []
    )
    lines += formats.render_section(
        "XIDs in this boot",
        formats.render_table(
            ("XID", "class", "meaning", "GPU", "how often", "first", "last", "line"),
            [
                (
                    _or_unknown(row["xid"]),
                    row["class"],
                    row["meaning"] or "",
                    row["uuid"] or row["pci"] or "none is named",
                    row["count"],
                    _or_unknown(row["first"]),
                    _or_unknown(row["last"]),
                    row["text"] or "",
                )
                for row in record["xids"]
            ],
        )
        if record["xids"]
        else ["None was read."],
    )
    lines += formats.render_section(
        "Checks that did not pass",
        formats.render_table(
            ("check", "of", "status", "found", "expected", "message"),
            [
                (
                    check["id"],
                    check["entity"],
                    check["status"],
                    text.format_value(check["observed"]),
                    text.format_value(check["expected"]),
                    check["message"],
                )
                for check in record["checks"]
            ],
        )
        if record["checks"]
        else [],
    )
    lines += formats.render_section(
        "What could not be read",
        formats.render_table(("what", "why"), [(entry["part"], entry["reason"]) for entry in record["missing"]])
        if record["missing"]
        else [],
    )
    return "\n".join(lines) + "\n"


def _or_unknown(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _read_field(gpu: Answer, key: str) -> str:
    return _or_unknown(gpu[key]) + (" (of its baseline)" if key in gpu["from_baseline"] else "")


def _told_value(value: Any) -> str:
    return "unknown" if value is None else text.format_value(value)
