# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG layout on a machine: made, kept over reboots and driver upgrades, and required before work starts.

The cases build on each other.
"""

from __future__ import annotations

import json

import pytest

OLD, NEW = "535.216.03", "535.261.03"
PROGRAM = "/usr/local/lib/gpufleet/gpufleet-node.pyz"
# Stands in for slurmd: a unit that the layout is required by.
WORK = "gpufleet-work.service"
UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
CONFIGS = {
    "version": "v1",
    "mig-configs": {
        "balanced": [
            {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
        ],
        "impossible": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.40gb": 3, "1g.10gb": 1}}],
    },
}
BALANCED = ["MIG 1g.10gb", "MIG 1g.10gb", "MIG 2g.20gb", "MIG 3g.40gb"]
ROLE = [{"hosts": "up-1", "become": True, "gather_facts": False, "roles": ["gpufleet.lifecycle.nvidia_mig"]}]
REBOOT = [{"hosts": "up-1", "become": True, "gather_facts": False, "tasks": [{"ansible.builtin.reboot": {}}]}]


@pytest.fixture(scope="module")
def partition(run, up_1):
    """partition(name): one run of the role."""
    up_1.run_expect(
        [0],
        "printf '%s' > /etc/systemd/system/%s && systemctl daemon-reload && systemctl enable --now %s"
        % (UNIT.replace("\n", "\\n"), WORK, WORK),
    )

    def running(name, **more):
        return run(ROLE, nvidia_mig_config=name, nvidia_mig_configs=CONFIGS, nvidia_mig_required_by=[WORK], **more)

    return running


def layout(ask):
    """The profiles of the MIG devices of each GPU, as NVML has them."""
    outcome, result = ask("up-1", "gpu_info", {"gather_subset": ["mig"]})
    assert outcome.rc == 0, outcome.tail()
    return [
        sorted(" ".join(device["name"].split()[-2:]) for device in gpu["mig_instances"]["value"])
        for gpu in result["snapshot"]["gpus"]
    ]


def state(host, unit):
    return host.run("systemctl is-active " + unit).stdout.strip()


def booted(run, host):
    """Reboot, and wait until all that starts at boot has come to its end, well or not."""
    assert run(REBOOT).rc == 0
    host.run("systemctl is-system-running --wait")


def show(host, unit, name):
    return int(host.check_output("systemctl show --property=%s --value %s" % (name, unit)))


class TestMig:
    def test_a_layout_that_cannot_be_made_changes_nothing(self, up_1, ask, partition):
        outcome = partition("impossible")
        assert outcome.rc == 2 and "3 x 2g.20gb and 1 x 1g.10gb" in outcome.why("up-1")
        assert layout(ask) == [[]] * 8 and not up_1.file("/etc/gpufleet/mig.json").exists
        assert not up_1.file(PROGRAM).exists

    def test_it_is_made_and_a_second_run_changes_nothing(self, up_1, ask, partition):
        outcome = partition("balanced")
        assert outcome.rc == 0, outcome.tail()
        assert layout(ask) == [BALANCED] * 8
        again = partition("balanced")
        assert (again.rc, again.changed.get("up-1", 0)) == (0, 0), again.tail()
        for path in (
            PROGRAM,
            PROGRAM + ".sha256",
            "/etc/gpufleet/mig.json",
            "/etc/systemd/system/gpufleet-mig.service",
        ):
            assert (up_1.file(path).user, up_1.file(path).mode & 0o022) == ("root", 0)

    def test_a_boot_makes_it_before_work_starts(self, up_1, run, ask, boot_id):
        before = boot_id(up_1)
        booted(run, up_1)
        assert boot_id(up_1) != before
        assert (state(up_1, "gpufleet-mig.service"), state(up_1, WORK)) == ("active", "active")
        assert layout(ask) == [BALANCED] * 8
        assert (
            0
            < show(up_1, "gpufleet-mig.service", "ExecMainExitTimestampMonotonic")
            <= show(up_1, WORK, "ExecMainStartTimestampMonotonic")
        )
        assert up_1.run("/usr/bin/python3 -I %s mig assert" % PROGRAM).rc == 0

    def test_a_boot_that_cannot_make_it_starts_no_work(self, up_1, run, ask):
        up_1.run_expect([0], "gpusim inject error nvmlDeviceCreateGpuInstanceWithPlacement 999 --gpu 5")
        booted(run, up_1)
        assert (state(up_1, "gpufleet-mig.service"), state(up_1, WORK)) == ("failed", "inactive")
        assert "GPU 5" in up_1.check_output("journalctl -b -u gpufleet-mig.service")
        assert up_1.run("/usr/bin/python3 -I %s mig assert" % PROGRAM).rc == 1
        up_1.run_expect([0], "gpusim clear")
        up_1.run_expect([0], "systemctl start " + WORK)
        assert (state(up_1, "gpufleet-mig.service"), layout(ask)) == ("active", [BALANCED] * 8)

    def test_a_program_that_was_changed_is_not_run(self, up_1):
        up_1.run_expect(
            [0], "cp -p {0} /root/program && printf x >> {0} && systemctl stop gpufleet-mig.service".format(PROGRAM)
        )
        up_1.run_expect([1], "systemctl start gpufleet-mig.service")
        up_1.run_expect(
            [0],
            "cp -p /root/program {0} && systemctl reset-failed gpufleet-mig.service && systemctl start {1}".format(
                PROGRAM, WORK
            ),
        )
        assert state(up_1, WORK) == "active"

    def test_an_upgrade_keeps_it(self, up_1, run, ask, artifacts, boot_id):
        before = boot_id(up_1)
        outcome = run("gpufleet.lifecycle.upgrade", upgrade_hosts="up-1", rollout_version=OLD, rollout_id="mig-down")
        assert outcome.rc == 0, outcome.tail()
        assert boot_id(up_1) != before and up_1.file("/sys/module/nvidia/version").content_string.strip() == OLD
        assert layout(ask) == [BALANCED] * 8
        node = json.loads((artifacts / "rollouts" / "mig-down" / "report.json").read_text())["nodes"]["up-1"]
        names = [step["name"] for step in node["steps"]]
        assert names == [
            "prestage",
            "evidence",
            "drain",
            "stop",
            "mig_clear",
            "install",
            "prove",
            "reboot",
            "mig",
            "validate",
            "return",
        ]

    def test_a_driver_that_is_bad_brings_back_the_old_one_and_the_layout(self, up_1, run, ask):
        up_1.run_expect([0], "gpusim inject gpu-not-brought-up --gpu 3 --driver " + NEW)
        outcome = run("gpufleet.lifecycle.upgrade", upgrade_hosts="up-1", rollout_version=NEW, rollout_id="mig-bad")
        assert outcome.rc == 2, outcome.tail()
        up_1.run_expect([0], "gpusim clear")
        assert up_1.file("/sys/module/nvidia/version").content_string.strip() == OLD
        assert layout(ask) == [BALANCED] * 8 and state(up_1, WORK) == "active"
