# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages that a run would install, found in check mode, once for all nodes with the same ones. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

KINDS = ("install", "upgrade", "downgrade", "reinstall", "remove")


def lines(previews):
    """Return lines about PREVIEWS, the results of driver_packages by node.

    Nodes without a usable result are left out.
    """
    alike = {}
    for name in sorted(previews):
        found = previews[name] if isinstance(previews[name], dict) else {}
        packages, transaction = (found.get("resolved") or {}).get("packages"), found.get("transaction")
        if packages is not None and transaction is not None and found.get("resolvable", True):
            alike.setdefault((_packages(packages), _changes(transaction)), []).append(name)
    said = []
    for (packages, changes), names in sorted(alike.items(), key=lambda item: (-len(item[1]), item[1])):
        said.append(
            "%s would get %s: %s" % (text.count(len(names), "node"), packages or "no package", limits.listed(names))
        )
        said += ["  %s" % change for change in changes] or ["  nothing would be installed or removed"]
    return said


def _packages(packages):
    return text.line(", ".join("%s %s" % item for item in sorted(packages.items())))


def _changes(transaction):
    return tuple(
        "%s: %s" % (kind, text.line(", ".join(sorted(_package(entry) for entry in transaction[kind]))))
        for kind in KINDS
        if transaction.get(kind)
    )


def _package(entry):
    return "%s %s" % (entry.get("name"), entry.get("version")) if isinstance(entry, dict) else str(entry)
