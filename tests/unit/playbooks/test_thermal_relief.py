# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power limits of nodes that throttle for heat, lowered and restored by the playbook."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import test_quarantine

HW_THERMAL, POWER_BRAKE = 0x48, 0x88
LIMITS = {"GPU-a": 500000, "GPU-b": 650500}
BMC = "Inlet Temp,41,degrees C,ok\nFAN1,5000,RPM,ok\n"


def note(fleet, name):
    path = fleet.nodes / name / "state" / "thermal_relief.json"
    return json.loads(path.read_text()) if path.exists() else None


def limits(fleet, name):
    return list(fleet.read(name)["power"].values())


def ipmitool(fleet, script):
    """What the nodes have as ipmitool."""
    path = fleet.nodes / "bin" / "ipmitool"
    path.write_text('#!/bin/sh\n[ "$*" = "-c sdr list full" ] || exit 9\n%s\n' % script)
    path.chmod(0o755)


def test_the_limits_of_hot_gpus_are_lowered_once_and_put_back(fleet):
    """GPU-a of a1 is hot; of a2 a power brake holds a GPU back; a3 is held by a rollout, and its GPU is hot too; of a4
    one of two GPUs does not take the limit.
    """
    fleet.add("a1", power=LIMITS, reasons={"GPU-a": HW_THERMAL})
    fleet.add("a2", power=LIMITS, reasons={"GPU-a": POWER_BRAKE})
    fleet.add("a3", power=LIMITS, reasons={"GPU-a": HW_THERMAL})
    fleet.add("a4", power=dict(LIMITS, **{"GPU-a": 220000}), reasons={"GPU-a": HW_THERMAL, "GPU-b": HW_THERMAL})
    claim = {"schema": "gpufleet.claim/1", "ledger": "another", "rollout_id": "other", "attempt": 1, "run": "r"}
    claim.update(plan="p", controller="ctl9", time="2026-01-01T00:00:00Z", state="held")
    (fleet.nodes / "a3" / "state" / "claim.json").write_text(json.dumps(claim))
    ipmitool(fleet, "printf '%s'" % BMC)
    given = {"thermal_relief_hosts": "gpu_nodes", "thermal_relief_percent": "30", "thermal_relief_user": "kim"}
    before = test_quarantine.everything(fleet)
    foreseen = fleet.run("thermal_relief", "--check", **given)
    assert foreseen.rc == 2 and test_quarantine.everything(fleet) == before, "check mode changed something"
    assert '"lowered_w": 350.0' in foreseen.output and '"cause": "inlet: ' in foreseen.output

    done = fleet.run("thermal_relief", **given)
    said = done.text
    assert done.rc == 2 and fleet.touched() == ["a1"]
    assert limits(fleet, "a1") == [350000, 650500], "a GPU that is not hot keeps its limit"
    kept = note(fleet, "a1")
    assert kept["gpus"] == [{"uuid": "GPU-a", "before_mw": 500000, "lowered_mw": 350000}] and kept["user"] == "kim"
    assert [note(fleet, name) for name in ("a2", "a3", "a4")] == [None] * 3
    assert "a3 is left as it is: it is held by rollout other" in said
    assert "a4 keeps its power limits: 154 W is out of the range of GPU-a, which takes 200 to 700 W" in said

    fleet.change("a1", reasons={})
    after = test_quarantine.everything(fleet)
    again = fleet.run("thermal_relief", **dict(given, thermal_relief_hosts="a1"))
    assert again.rc == 0 and test_quarantine.everything(fleet) == after, "a second run changed something"

    # A reboot took the lowered limit away; NVML does not set it at first.
    fleet.change("a1", power=LIMITS, refuses_power=["GPU-a"])
    failed = fleet.run("thermal_relief", **dict(given, thermal_relief_hosts="a1"))
    assert failed.rc == 2 and note(fleet, "a1") == kept
    fleet.change("a1", refuses_power=[])
    assert fleet.run("thermal_relief", **dict(given, thermal_relief_hosts="a1")).rc == 0
    assert limits(fleet, "a1") == [350000, 650500] and note(fleet, "a1") == kept

    back = {"thermal_relief_hosts": "a1,a2", "thermal_relief_state": "restored"}
    fleet.change("a1", refuses_power=["GPU-a"])
    assert fleet.run("thermal_relief", **back).rc == 2 and note(fleet, "a1") == kept, (
        "it says so as long as it is lowered"
    )
    fleet.change("a1", refuses_power=[])
    before = test_quarantine.everything(fleet)
    assert fleet.run("thermal_relief", "--check", **back).rc == 0 and test_quarantine.everything(fleet) == before
    assert fleet.run("thermal_relief", **back).rc == 0
    assert limits(fleet, "a1") == [500000, 650500] and note(fleet, "a1") is None
    after = test_quarantine.everything(fleet)
    assert fleet.run("thermal_relief", **back).rc == 0 and test_quarantine.everything(fleet) == after


def test_a_bmc_that_does_not_answer_costs_the_cause_alone(fleet):
    """It hangs on a1; and what is not one of the states is refused before a node is asked."""
    fleet.add("a1", power=LIMITS, reasons={"GPU-a": HW_THERMAL})
    ipmitool(fleet, "exec sleep 300")
    given = {"thermal_relief_hosts": "a1", "gpu_quarantine_bmc_timeout": 1}
    refused = fleet.run("thermal_relief", thermal_relief_state="lower", **given)
    assert refused.rc == 2 and "lower" in refused.output and fleet.touched() == []
    done = fleet.run("thermal_relief", thermal_relief_watts="300", thermal_relief_hours="8", **given)
    assert done.rc == 0 and limits(fleet, "a1") == [300000, 650500] and '"cause": "unknown: ' in done.output
    assert note(fleet, "a1")["request"] == {"watts": 300, "hours": 8}
