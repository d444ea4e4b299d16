# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that a controller may go on with a rollout: which version of the collection planned it, and for which
inventory. Pure.

The way of a node through an upgrade belongs to a version: one that begins it and another that finishes it may differ in
their steps and in what they take for proven. Versions with the same major and minor number go together, whatever their
patch number and whether they are pre-releases: 1.0.0-rc1, 1.0.0-rc2, 1.0.0 and 1.0.3 do, 1.0.3 and 1.1.0-rc1 do not. A
candidate is corrected as a release is, by the next one, and the rollouts that met the mistake are to go on with that.
What a version cannot read at all is kept apart by the schema of the ledger.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.errors import PlanError

VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


def line(version):
    """Return (major, minor) of a semantic version; None if it is none."""
    found = VERSION.fullmatch(version) if isinstance(version, str) else None
    return (int(found.group(1)), int(found.group(2))) if found else None


def go_together(planned, here):
    """Return True if the version HERE may go on with what the version PLANNED has planned.

    A plan has no version if the controller that made it could not read its own; any version may continue it. A version
    that is not a semantic version goes with no other.
    """
    return not planned or (line(planned) is not None and line(planned) == line(here))


def refuse(view, here, shared):
    """Refuse to go on with a rollout that has not ended, and that a version planned which does not go with HERE.

    HERE: the version of this controller, empty if it is not known. SHARED: several controllers share the plan.
    """
    if view.run is None or view.finished is not None or go_together(view.collection, here):
        return
    raise PlanError(
        "Rollout %s was planned by version %s of gpufleet.lifecycle and has not ended, and this controller has %s; "
        "expected the same major and minor number. Install gpufleet.lifecycle:==%s here, in AWX in the project or the "
        "execution environment, and run it again%s. Nothing was changed."
        % (
            view.rollout_id,
            view.collection,
            "version %s" % here if here else "one whose version neither MANIFEST.json nor galaxy.yml says",
            view.collection,
            ", or end the rollout when none of its jobs runs (rollout_control with rollout_verb=end) and plan it again"
            if shared
            else "",
        )
    )


def refuse_other_inventory(view, inventory):
    """Refuse the id of a rollout whose nodes are all unknown here: its record would be replaced by that of other nodes.

    INVENTORY: every host of the inventory of this run, whatever its limit; None if that is not known.
    """
    planned = (
        {node.name for node in view.nodes.everything()} if view.run is not None and inventory is not None else set()
    )
    if planned and not planned & set(inventory):
        names = sorted(planned)
        raise PlanError(
            "Rollout %s was planned for other nodes (%s%s), and none of them is in this inventory. Give this rollout "
            "an id of its own (rollout_id), or check the inventory (-i). Nothing was changed."
            % (view.rollout_id, ", ".join(names[:3]), ", ..." if len(names) > 3 else "")
        )
