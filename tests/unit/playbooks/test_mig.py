# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes in MIG mode keep their layout through an upgrade, and on the way back: with the real playbook, role and
ledger.
"""

from __future__ import annotations

import contextlib
import os
import signal

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_upgrade_course import wait_for

OLD, NEW = "1.0.1", "2.0.1"
UP = ["mig_clear: 0 MIG devices", "installed " + NEW, "reboot into " + NEW, "mig: 0 MIG devices", "mig: 7 MIG devices"]
BACK = ["installed " + OLD, "reboot into " + OLD, "rollback_mig: 0 MIG devices", "rollback_mig: 7 MIG devices"]


def done(fleet, name, words=("MIG", "installed", "reboot")):
    return [line for line in fleet.read(name)["log"] if any(word in line for word in words)]


def test_a_layout_is_kept_and_what_mig_hides_is_read_before_and_after(fleet):
    """a1 goes well; a2 has rows that failed, which is seen when its instances are gone; a3 shows them with the new
    driver; a4 does not get its layout.
    """
    fleet.add("a1", mig_devices=7)
    fleet.add("a2", mig_devices=7, rows_failed_with=[OLD])
    fleet.add("a3", mig_devices=7, rows_failed_with=[NEW])
    fleet.add("a4", mig_devices=7, mig_fails_with=[NEW])
    fleet.add("b1")
    result = fleet.run("upgrade", rollout_max_down=5, rollout_failure_budget=9, rollout_common_cause=0)
    assert result.rc == 2
    assert result.states == {"a1": "done", "a2": "quarantined", "a3": "rolled_back", "a4": "rolled_back", "b1": "done"}
    assert done(fleet, "a1") == UP and done(fleet, "b1") == ["installed " + NEW, "reboot into " + NEW]
    # Nothing was installed on a node whose hidden values were bad, and it got its layout back, though not its place: it
    # is sick.
    assert "installed " + NEW not in done(fleet, "a2") and done(fleet, "a2")[0] == UP[0]
    assert "A row remapping of GPU 0 failed." in result.report["nodes"]["a2"]["reason"]
    assert done(fleet, "a3") == UP + BACK and done(fleet, "a4") == UP[:4] + BACK
    for name in ("a1", "a3", "a4"):
        assert fleet.read(name)["mig_now"] == 7 and fleet.document(name, "health-after")["verdict"] == "pass"


def test_a_node_in_mig_mode_whose_controller_died_is_finished(fleet):
    """a1 waits while its instances are destroyed, a2 while they are made again."""
    fleet.add("a1", mig_devices=7, waits_at=["mig_clear"])
    fleet.add("a2", mig_devices=7, waits_at=["mig"])
    process = fleet.start("upgrade", rollout_max_down=2)
    try:
        wait_for(lambda: all("waits" in fleet.read(name)["log"] for name in ("a1", "a2")))
    finally:
        # With its workers, which would go on.
        for pid in fleet.controllers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        fleet.ended(process)
    for name in ("a1", "a2"):
        fleet.change(name, waits_at=[])
    result = fleet.run("upgrade", rollout_max_down=2)
    assert result.rc == 0 and result.states == {"a1": "done", "a2": "done"}
    for name in ("a1", "a2"):
        node = fleet.read(name)
        assert (node["loaded"], node["mig_now"], node["log"].count("installed " + NEW)) == (NEW, 7, 1)
        assert fleet.document(name, "health-after")["verdict"] == "pass"
