# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge how the driver was installed: an interrupted package manager, another owner, and what NVIDIA's own installer
left.
"""

from __future__ import annotations

from .._node import gpu_operator
from ._finding import FAIL, PASS, UNKNOWN, finding

REPAIR = {
    "dpkg": "Run dpkg --configure -a, then apt-get -f install if it asks for it.",
    "rpm": "See dnf check, then remove the older version of each with rpm -e, which refuses what others depend on.",
}


def dpkg_interrupted(facts, target, expect_loaded):
    state = facts["dpkg"]
    manager = state.get("manager", "dpkg")
    if state["interrupted"] or state["journal"]:
        names = ["%s (%s)" % (item["package"], item["state"]) for item in state["interrupted"]]
        yield finding(
            "dpkg_interrupted",
            "node",
            FAIL,
            names or "%d journal entries" % state["journal"],
            [],
            "%s was interrupted: %s." % (manager, ", ".join(names) or "its journal is not empty"),
            REPAIR[manager],
        )
    elif not state["available"]:
        yield finding(
            "dpkg_interrupted",
            "node",
            UNKNOWN,
            None,
            [],
            "%s cannot be asked: %s." % (manager, state["error"]),
            "Run %s on the node." % ("dpkg-query -W" if manager == "dpkg" else "rpm -qa"),
        )
    else:
        yield finding("dpkg_interrupted", "node", PASS, [], [])


def runfile_remains(facts, target, expect_loaded):
    paths = facts["runfile"]
    if paths:
        yield finding(
            "runfile_remains",
            "node",
            FAIL,
            paths,
            [],
            "The driver was once installed with NVIDIA's .run installer: %s." % ", ".join(paths),
            "Run nvidia-uninstall and remove the log, or the packages and the .run files overwrite each other.",
        )
    else:
        yield finding("runfile_remains", "node", PASS, [], [])


def driver_owner(facts, target, expect_loaded):
    owner, signs = facts["operator"]["owner"], facts["operator"]["signs"]
    if owner is None:
        yield finding(
            "driver_owner",
            "node",
            UNKNOWN,
            signs,
            "the node itself",
            "Whether a GPU Operator brings the driver cannot be read: %s." % ", ".join(signs),
            "Look at /run/nvidia on the node as root.",
        )
    elif owner:
        message = (
            "A GPU Operator brings this node's driver in a container (%s): packages of the node would fight it."
            % "; ".join(signs)
        )
        yield finding("driver_owner", "node", FAIL, signs, "the node itself", message, gpu_operator.NEXT_STEP)
    else:
        yield finding("driver_owner", "node", PASS, signs, "the node itself")
