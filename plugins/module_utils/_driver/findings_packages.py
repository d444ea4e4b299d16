# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""What is right and wrong with how the driver was installed: an interrupted dpkg, and what NVIDIA's own installer left."""

from __future__ import annotations

from ._finding import FAIL, PASS, UNKNOWN, finding


def dpkg_interrupted(facts, target, expect_loaded):
    state = facts["dpkg"]
    if state["interrupted"] or state["journal"]:
        names = ["%s (%s)" % (item["package"], item["state"]) for item in state["interrupted"]]
        yield finding(
            "dpkg_interrupted",
            "node",
            FAIL,
            names or "%d journal entries" % state["journal"],
            [],
            "dpkg was interrupted: %s." % (", ".join(names) or "its journal is not empty"),
            "Run dpkg --configure -a, then apt-get -f install if it asks for it.",
        )
    elif not state["available"]:
        yield finding("dpkg_interrupted", "node", UNKNOWN, None, [], "dpkg cannot be asked: %s." % state["error"], "Run dpkg-query -W on the node.")
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
