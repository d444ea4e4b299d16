# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles of evidence on the controller: a directory with files and a manifest, there whole or not at all, and never
written to again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report.text import one_line

SCHEMA = "gpufleet.evidence/1"

MAX_REASON = 300
# A node is believed what is in a file, not what it is called.
NAMES = ("processes.json", "kernel.log", "nvidia-smi.xml")
NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")
ROLLOUT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
MOMENT = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class EvidenceError(Exception):
    """No bundle was written; the text says where, why and what to do."""


def check(node, rollout_id, attempt, moment) -> None:
    """Refuse what cannot be the name of a directory."""
    for what, text, pattern, allowed in (
        ("node name", node, NODE, "letters, digits and . _ : -"),
        ("rollout_id", rollout_id, ROLLOUT, "letters, digits and . _ + ~ -"),
        ("moment", moment, MOMENT, "small letters, digits, _ and -"),
    ):
        if not pattern.fullmatch(text or ""):
            raise EvidenceError(
                "%s: the %s %r cannot name a bundle of evidence; expected %s." % (node, what, text, allowed)
            )
    if attempt < 0:
        raise EvidenceError("%s: attempt is %d; expected 0 or more." % (node, attempt))


def bundle(answer, **about) -> tuple[dict, dict]:
    """({name: bytes}, manifest) of what the module answered. ABOUT are node, rollout_id, attempt, moment and time.

    Raises:
        EvidenceError: the answer has another form than the module's, or its reading is too large.
    """
    facts, most = answer["facts"], _host_answers.MAX_DOCUMENT_BYTES
    snapshot = facts.get("snapshot") if isinstance(facts.get("snapshot"), dict) else {}
    sent, reading = answer.get("files") or {}, as_json(facts)
    try:
        _host_answers.check_size(len(reading), most, "its reading")
        missing = [
            {key: one_line(entry.get(key), MAX_REASON) for key in ("part", "reason")}
            for entry in _host_answers.check_list(answer.get("missing"), "missing")
        ]
        others = _host_answers.check_list(sorted(set(sent) - set(NAMES)), "files")
    except (_host_answers.AnswerError, AttributeError, TypeError) as exc:
        raise EvidenceError("%s: its evidence cannot be kept: %s." % (about["node"], exc)) from exc
    missing += [
        {
            "part": _host_answers.shorten_value(name),
            "reason": "the node sent a file of a name that is none of a bundle's",
        }
        for name in others
    ]
    files = {"reading.json": (reading, False, "")}
    for name in (name for name in NAMES if name in sent):
        try:
            files[name] = (
                _artifacts.unpack(sent[name].get("data"), most),
                bool(sent[name].get("truncated")),
                str(sent[name].get("note") or "")[:MAX_REASON],
            )
        except (ValueError, zlib.error, AttributeError) as exc:
            missing.append({"part": name, "reason": "it did not arrive whole: %s" % (exc,)})
    told = set(entry["part"] for entry in missing)
    missing += [
        {"part": name, "reason": "the node did not say why"} for name in NAMES if name not in files and name not in told
    ]
    manifest = dict(
        about,
        schema=SCHEMA,
        boot_id=facts.get("boot_id"),
        simulated=bool(snapshot.get("simulated")),
        missing=missing,
        files=[
            {
                "name": name,
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "truncated": truncated,
                "note": note,
            }
            for name, (data, truncated, note) in sorted(files.items())
        ],
    )
    return dict(
        ((name, data) for name, (data, dummy, dummy2) in files.items()), **{"manifest.json": as_json(manifest)}
    ), manifest


def as_json(document) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("utf-8", "backslashreplace")


def write(artifact_dir, files, manifest) -> str:
    """Keep the FILES; the path of the new directory."""
    node = manifest["node"]
    path = os.path.join(
        os.path.abspath(os.path.expanduser(artifact_dir)),
        "evidence",
        manifest["rollout_id"],
        node,
        "%d-%s" % (manifest["attempt"], manifest["moment"]),
    )
    try:
        return _artifacts.write(path, files)
    except OSError as exc:
        raise EvidenceError(
            "%s: the bundle of evidence (%d bytes) cannot be written as %s: %s. Make room there, or let user %d write "
            "there, and run again."
            % (node, sum(len(data) for data in files.values()), path, exc.strerror or exc, os.geteuid())
        ) from exc
