# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node says itself whose it is: to a controller with another ledger, and to what is left of a controller that was
killed.
"""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import test_resume

OLD, NEW, OTHER = "1.0.1", "2.0.1", "3.0.1"


def claim(fleet, name):
    path = fleet.nodes / name / "state" / "claim.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_a_controller_with_another_ledger_takes_no_node_that_a_rollout_left_half_changed(fleet):
    names = ("a1", "a2")
    for name in names:
        fleet.add(name, waits_at=["install " + NEW])
    test_resume.killed_in_install(fleet, names, rollout_max_down=2)
    held, before = claim(fleet, "a1"), [fleet.read(name)["log"] for name in names]
    # The first ledger is away; the second one has never heard of the rollout.
    fleet.artifacts = fleet.directory / "another-ledger"
    refused = fleet.run("upgrade", rollout_version=OTHER)
    assert refused.rc == 2 and [fleet.read(name)["log"] for name in names] == before
    words = refused.text
    assert "since %s" % held["time"] in words
    assert "a1 cannot be taken: it is held by rollout upgrade-2.0.1 (attempt 1, begun on " in words
    assert "(so are a2)" in words
    assert "rollout_id=upgrade-2.0.1" in words and "rollout_abandon=a1,a2" in words
    assert claim(fleet, "a1") == held
    brought = fleet.run("bringup", "--limit", "a1", nvidia_driver_version=OLD)
    assert brought.rc == 2
    assert "a1 belongs to rollout upgrade-2.0.1 (attempt 1, begun on " in brought.text
    assert [fleet.read(name)["log"] for name in names] == before

    result = fleet.run("upgrade", rollout_version=OTHER, rollout_abandon=["a1", "a2"], rollout_max_down=2)
    assert result.rc == 0, result.output[-3000:]
    assert [fleet.read(name)["loaded"] for name in names] == [OTHER, OTHER]
    assert [claim(fleet, name) for name in names] == [None, None], "who is done gives its nodes up"
