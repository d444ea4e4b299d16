# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of check mode: the packages that a run would install, and the nodes that it would leave out. Pure.

Packages are told once for all nodes with the same ones.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

CONTROLLER = "localhost"
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


def blame(nodes, hosts, host):
    """Return {host: message} for the HOSTS that have to fail, as the rollout itself would not be complete.

    NODES: the nodes of the plan, by name. HOST: the host of the task, which fails if no other one can.
    """
    out = {name: node for name, node in nodes.items() if node.get("state") in state.FAILED and not node.get("orphaned")}
    if not out:
        return {}
    found = {
        name: "%s would be left out: %s%s" % (name, node["state"], ", " + node["reason"] if node.get("reason") else "")
        for name, node in out.items()
        if name in hosts
    }
    if CONTROLLER in hosts or not found:
        found[CONTROLLER if CONTROLLER in hosts else host] = (
            "Check mode: the rollout would not be complete. %s of %s would be left out: %s. The plan above says "
            "why. Repair them, or leave them out of the hosts."
            % (len(out), text.count(len(nodes), "node"), limits.listed([text.line(name) for name in sorted(out)]))
        )
    return found


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
