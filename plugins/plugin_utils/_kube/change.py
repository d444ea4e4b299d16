# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the changes of a node object, and the one patch that makes them. Pure.

Every patch names the resourceVersion of the object that was read, so that the server refuses it (409) if the object was
changed in between: no marker, label or taint of another owner is overwritten unseen.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError, Node

PREFIX = "gpufleet.lifecycle/"
MARK = PREFIX + "mark"  # the annotation that says who took the node out of service, and what was found
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def find_node_name_problem(name: str) -> str:
    """Return why this cannot be the name of a node. Empty if it can."""
    if len(name) <= 253 and _NODE_NAME.fullmatch(name):
        return ""
    return "%r cannot be the name of a Kubernetes node: expected lower-case letters, digits, '-' and '.'" % (name,)


def find_key_problem(key: str) -> str:
    """Return why this cannot be the key of a label, an annotation or a taint. Empty if it can."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _NODE_NAME.fullmatch(prefix)):
        return "the part of the key %r before '/' is no DNS name" % (key,)
    if len(name) > 63 or not _KEY_NAME.fullmatch(name):
        return (
            "the key %r needs a name of 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
            % (key,)
        )
    return ""


def find_value_problem(value: str) -> str:
    """Return why this cannot be the value of a label or a taint. Empty if it can."""
    if value == "" or len(value) <= 63 and _KEY_NAME.fullmatch(value):
        return ""
    return (
        "the value %r is none of at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
        % (value,)
    )


@dataclasses.dataclass
class Change:
    """The wanted change: None removes a label or annotation."""

    unschedulable: bool | None = None
    labels: dict = dataclasses.field(default_factory=dict)
    annotations: dict = dataclasses.field(default_factory=dict)
    taints: list = dataclasses.field(default_factory=list)  # of {key, value, effect, state}

    def merge(self, other: Change) -> Change:
        """Return both changes in one. OTHER wins where they differ."""
        return Change(
            self.unschedulable if other.unschedulable is None else other.unschedulable,
            dict(self.labels, **other.labels),
            dict(self.annotations, **other.annotations),
            self.taints + other.taints,
        )


def get_labels(node: Node) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("labels") or {})


def get_annotations(node: Node) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("annotations") or {})


def get_taints(node: Node) -> list[dict[str, str]]:
    return list((node.get("spec") or {}).get("taints") or [])


def is_unschedulable(node: Node) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def wanted(labels: Any, annotations: Any, taints: Any) -> Change:
    """Return the change that the options ask for. Raises KubeError with what the server would not take."""
    problems = []
    for kind, pairs in (("label", labels), ("annotation", annotations)):
        for key, value in pairs.items():
            problems.append(find_key_problem(str(key)))
            if kind == "label" and value is not None:
                problems.append(find_value_problem(str(value)))
            if kind == "annotation" and str(key) == MARK:
                problems.append("%s is the mark of this collection: use state" % (MARK,))
    for taint in taints:
        problems += [find_key_problem(taint["key"]), find_value_problem(taint["value"])]
        if taint["effect"] not in EFFECTS and (taint["effect"] or taint["state"] == "present"):
            problems.append(
                "the taint %s has the effect %r, expected one of %s"
                % (taint["key"], taint["effect"], ", ".join(EFFECTS))
            )
    problems = [problem for problem in problems if problem]
    if problems:
        raise KubeError("Nothing was changed: %s." % ("; ".join(problems),))
    return Change(labels=_make_texts(labels), annotations=_make_texts(annotations), taints=list(taints))


def _make_texts(pairs: Any) -> dict[str, str | None]:
    return dict((str(key), None if value is None else str(value)) for key, value in pairs.items())


def _stands_for(each: Any, taint: Any) -> bool:
    """Tell if a taint of the node takes the place of one that is wanted: a node has one for each key and effect."""
    return each.get("key") == taint["key"] and taint["effect"] in ("", each.get("effect"))


def _change_taints(found: Any, changes: Any) -> list[dict[str, str]]:
    """Return the taints of a node after the changes. One with another value is of another owner, and stays."""
    result = copy.deepcopy(found)
    for taint in changes:
        if taint["state"] == "absent":
            result = [
                each
                for each in result
                if not _stands_for(each, taint) or (each.get("value") or "") != (taint["value"] or "")
            ]
        elif not any(_stands_for(each, taint) for each in result):
            result.append({key: taint[key] for key in ("key", "value", "effect") if taint[key]})
    return result


def find_foreign_taints(node: Node, change: Change) -> list[str]:
    """Return the taints of other owners that keep the node from having a wanted one, as sentences."""
    return [
        "the taint %s=%s:%s stays as it is, expected the value %r: another owner placed it"
        % (each["key"], each.get("value") or "", each.get("effect"), taint["value"] or "")
        for taint in change.taints
        for each in get_taints(node)
        if taint["state"] == "present" and _stands_for(each, taint) and (each.get("value") or "") != taint["value"]
    ]


def patch(node: Node, change: Change) -> dict[str, Any] | None:
    """Return the body of the merge patch, with nothing in it that is so already. None if all of it is."""
    meta, spec = {}, {}
    for name, found, new in (
        ("labels", get_labels(node), change.labels),
        ("annotations", get_annotations(node), change.annotations),
    ):
        differs = dict((key, value) for key, value in new.items() if found.get(key) != value)
        if differs:
            meta[name] = differs
    if change.unschedulable is not None and change.unschedulable != is_unschedulable(node):
        spec["unschedulable"] = True if change.unschedulable else None
    if change.taints:
        after = _change_taints(get_taints(node), change.taints)
        if after != get_taints(node):
            spec["taints"] = after or None
    if not meta and not spec:
        return None
    # Without its version the server would merge the patch into whatever the node is by then.
    meta["resourceVersion"] = node["metadata"]["resourceVersion"]
    return dict({"metadata": meta}, **({"spec": spec} if spec else {}))


def applied(node: Node, body: Any) -> Node:
    """Return the node as the patch would leave it, for check mode."""
    after = copy.deepcopy(node)
    for name in ("labels", "annotations"):
        target = after["metadata"].setdefault(name, {})
        for key, value in ((body or {}).get("metadata", {}).get(name) or {}).items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value
    for key, value in ((body or {}).get("spec") or {}).items():
        if value is None:
            after.setdefault("spec", {}).pop(key, None)
        else:
            after.setdefault("spec", {})[key] = value
    return after


def select_diff(node: Node, keys: Any) -> dict[str, Any]:
    """Return the parts of a node that a diff compares: those that this collection can change."""
    found = {"labels": get_labels(node), "annotations": get_annotations(node)}
    parts = {"unschedulable": is_unschedulable(node), "taints": get_taints(node)}
    for name, pairs in found.items():
        parts[name] = dict((key, pairs[key]) for key in sorted(keys[name]) if key in pairs)
    return parts
