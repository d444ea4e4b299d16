# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record who took a node out of service, and restore its former state. Pure.

The marker is an annotation, written in the same patch that makes the node unschedulable, so that there is no moment
with one and without the other. It records what was found: if the node was unschedulable, labels of operators that were
changed, and the marker of another owner that it covers.

A kubelet may write any annotation of its own node (admission plugin NodeRestriction), so the marker is data of a node.
Of its labels only those that this collection sets are restored, all of which a kubelet may set itself.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import gpus, operators
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import (
    MARK,
    Change,
    get_annotations,
    get_labels,
    is_unschedulable,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import Node

_ENDS = " :/"  # what may follow a token: rollout-7:gpu-1 belongs to rollout-7, rollout-70 and rollout-7-b do not


def is_ours(token: str, found: str) -> bool:
    """Tell if the found token is ours, or begins with ours."""
    return bool(token) and (found == token or found.startswith(token) and found[len(token)] in _ENDS)


def read_marker(node: Node) -> dict[str, Any] | None:
    """Return the marker on a node, or None. One that cannot be read is not ours: it has no token."""
    text = get_annotations(node).get(MARK)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    found = found if isinstance(found, dict) else {}
    labels = found.get("labels") if isinstance(found.get("labels"), dict) else {}
    token = str(found.get("token") or "")
    return {
        "token": token if token == redaction.redact(token) else "",
        "since": redaction.redact(found.get("since") or ""),
        "reason": redaction.redact(found.get("reason") or ""),
        "unschedulable": found.get("unschedulable") is True,
        "labels": dict((key, pair) for key, pair in labels.items() if operators.is_kept(key, pair)),
        "earlier": found.get("earlier") if isinstance(found.get("earlier"), str) else None,
        "shared": found.get("shared") if gpus.is_shared(found.get("shared")) else None,
    }


def find_ours(node: Node, token: str) -> dict[str, Any] | None:
    """Return the marker if it is ours, else None."""
    mark = read_marker(node)
    return mark if mark is not None and is_ours(token, mark["token"]) else None


def describe_owner(node: Node, token: str) -> dict[str, Any]:
    """Return the owner of the node (ours, an operator or another marker, or none), and the state before us."""
    mark = read_marker(node)
    if mark is not None and is_ours(token, mark["token"]):
        previous = {
            "unschedulable": mark["unschedulable"],
            "labels": dict((key, pair[0]) for key, pair in sorted(mark["labels"].items())),
        }
        return {
            "owner": "ours",
            "token": mark["token"],
            "since": mark["since"],
            "reason": mark["reason"],
            "previous": previous,
        }
    held = mark is not None or is_unschedulable(node)
    found = mark or {"token": "", "since": "", "reason": ""}
    return {
        "owner": "operator" if held else "none",
        "token": found["token"],
        "since": found["since"],
        "reason": found["reason"],
        "previous": None,
    }


def _dump_marker(mark: dict[str, Any]) -> str:
    kept = {key: value for key, value in mark.items() if key != "shared" or value}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def place_marker(node: Node, token: str, reason: str, now: str, labels: Any = None, shared: Any = None) -> Change:
    """Make the node unschedulable under our marker, with labels of operators. SHARED: of gpus.find_sharing()."""
    mark = find_ours(node, token)
    if mark is None:
        mark = {
            "token": token,
            "since": now,
            "reason": reason,
            "unschedulable": is_unschedulable(node),
            "labels": {},
            "earlier": get_annotations(node).get(MARK),
            "shared": shared,
        }
    else:
        mark["reason"] = reason or mark["reason"]
        if not is_unschedulable(node):
            # It was uncordoned in the meantime: schedulable is what was found.
            mark["unschedulable"] = False
    return Change(unschedulable=True).merge(hold_labels(node, mark, labels or {}))


def hold_labels(node: Node, mark: dict[str, Any], labels: Any) -> Change:
    """Set labels, and record in the marker what they were."""
    found = get_labels(node)
    kept = dict(mark["labels"])
    for key, value in labels.items():
        if found.get(key) != value:
            kept[key] = [found.get(key), value]
    return Change(labels=dict(labels), annotations={MARK: _dump_marker(dict(mark, labels=kept))})


def release_labels(node: Node, token: str, value: Any) -> Change:
    """Put back the labels that were set to VALUE, and keep the node closed under our mark; nothing when the mark is not
    ours.
    """
    mark = find_ours(node, token)
    if mark is None:
        return Change()
    found = get_labels(node)
    back = dict((key, pair[0]) for key, pair in mark["labels"].items() if pair[1] == value)
    # A label that is no longer what we made it has another owner by now.
    labels = dict((key, before) for key, before in back.items() if found.get(key) == value)
    kept = dict((key, pair) for key, pair in mark["labels"].items() if key not in back)
    return Change(labels=labels, annotations={MARK: _dump_marker(dict(mark, labels=kept))})


def lift_marker(node: Node, token: str) -> Change:
    """Restore the node as it was found. Nothing if the marker is not ours."""
    mark = find_ours(node, token)
    if mark is None:
        return Change()
    found = get_labels(node)
    # A label that is no longer what we made it has another owner by now.
    labels = dict((key, pair[0]) for key, pair in mark["labels"].items() if found.get(key) == pair[1])
    back = None if mark["unschedulable"] else False
    return Change(unschedulable=back, labels=labels, annotations={MARK: mark["earlier"]})
