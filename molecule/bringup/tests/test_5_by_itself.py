# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine does by itself, under its own systemd: the series of its timer, and the check at boot.

The cases build on each other.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.lab.scenario import wait_for

GPUS = 4
SERIES = "/var/lib/prometheus/node-exporter/gpufleet.prom"
SERVICE, TIMER, CHECK = "gpufleet-textfile.service", "gpufleet-textfile.timer", "gpufleet-boot-check.service"
# Stands in for slurmd: a unit that the check at boot is required by.
WORK = "gpufleet-batch.service"
UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
EXPECT = {"hardware": {"gpus": GPUS}}
REBOOT = [{"hosts": "up-2", "become": True, "gather_facts": False, "tasks": [{"ansible.builtin.reboot": {}}]}]


def play(entry, **variables):
    """A play of one entry point of role gpu_health."""
    role = {"name": "gpufleet.lifecycle.gpu_health", "tasks_from": entry}
    task = {"name": "Have the node do it by itself", "ansible.builtin.include_role": role, "vars": variables}
    return [{"hosts": "up-2", "gather_facts": False, "tasks": [task]}]


def state(host, unit):
    return host.run("systemctl is-active " + unit).stdout.strip()


def written(host):
    """{name with labels: value} of the series, once the service has run again."""
    host.run_expect([0], "systemctl start " + SERVICE)
    lines = host.check_output("cat " + SERIES).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


def summed(series, name, **labels):
    """The sum of the samples of NAME that have LABELS."""
    parts = ['%s="%s"' % item for item in labels.items()]
    return sum(
        value for key, value in series.items() if re.match(name + r"(\{|$)", key) and all(part in key for part in parts)
    )


def booted(run, host):
    """Reboot, and wait until all that starts at boot has come to its end, well or not."""
    assert run(REBOOT).rc == 0
    host.run("systemctl is-system-running --wait")


@pytest.fixture(scope="module")
def series(run):
    """One run of the role's entry point textfile."""
    return lambda: run(play("textfile", gpu_health_textfile=True, gpu_health_expect=EXPECT))


class TestSeries:
    def test_the_timer_is_installed_and_a_second_run_changes_nothing(self, up_2, series):
        first = series()
        assert first.rc == 0 and first.changed["up-2"] > 0, first.tail()
        again = series()
        assert (again.rc, again.changed.get("up-2", 0)) == (0, 0), again.tail()
        assert (state(up_2, TIMER), up_2.file(SERIES).user, up_2.file(SERIES).mode) == ("active", "root", 0o644)

    def test_they_are_those_of_this_node(self, up_2):
        found = written(up_2)
        assert (found["gpufleet_nvml_answers"], found["gpufleet_gpus_present"], found["gpufleet_gpus_expected"]) == (
            1,
            GPUS,
            GPUS,
        )
        loaded = up_2.file("/sys/module/nvidia/version").content_string.strip()
        assert summed(found, "gpufleet_node_info", driver=loaded, kernel=up_2.check_output("uname -r")) == 1
        assert summed(found, "gpufleet_gpu_info") == GPUS and summed(found, "gpufleet_next_kernel_has_driver") == 1
        # The driver's packages and the kernel are held since the bring-up.
        assert summed(found, "gpufleet_hold_age_seconds", kind="driver") > 0
        assert summed(found, "gpufleet_changed_files") == summed(found, "gpufleet_xid_code_total") == 0

    def test_an_xid_and_a_file_that_was_changed_are_counted(self, up_2, series):
        up_2.run_expect([0], "gpusim inject xid 79 --gpu 1 && echo '# by hand' >> /etc/systemd/system/" + SERVICE)
        found = written(up_2)
        assert summed(found, "gpufleet_xid_code_total", xid="79", gpu="1") == 1
        assert summed(found, "gpufleet_xid_code_total") == summed(found, "gpufleet_changed_files") == 1
        assert series().rc == 0
        assert summed(written(up_2), "gpufleet_changed_files") == 0
        up_2.run_expect([0], "gpusim clear")

    def test_a_mark_is_told_at_once(self, up_2):
        mark = "/var/lib/gpufleet/drain.json"
        up_2.run_expect([0], "systemctl stop " + TIMER)
        for command, value in (("echo {} > " + mark, 1), ("rm " + mark, 0)):
            up_2.run_expect([0], command)
            told = 'gpufleet_node_out_of_service{reason="drain"} %d\n' % value
            wait_for(lambda told=told: told in up_2.file(SERIES).content_string, "the mark is not told")
        up_2.run_expect([0], "systemctl start " + TIMER)

    def test_a_boot_begins_to_count_again(self, up_2, run):
        booted(run, up_2)
        assert state(up_2, TIMER) == "active"
        found = written(up_2)
        assert (summed(found, "gpufleet_xid_code_total"), found["gpufleet_gpus_present"]) == (0, GPUS)


class TestBootCheck:
    def test_it_is_installed_on_a_node_that_passes_and_a_second_run_changes_nothing(self, up_2, run):
        up_2.run_expect(
            [0],
            "printf '%s' > /etc/systemd/system/%s && systemctl daemon-reload && systemctl enable --now %s"
            % (UNIT.replace("\n", "\\n"), WORK, WORK),
        )
        wanted = {
            "gpu_health_boot_check": True,
            "gpu_health_boot_required_by": [WORK],
            "gpu_health_expect": EXPECT,
            "gpu_health_expected_driver_version": up_2.file("/sys/module/nvidia/version").content_string.strip(),
        }
        first = run(play("boot_check", **wanted))
        assert first.rc == 0 and first.changed["up-2"] > 0, first.tail()
        again = run(play("boot_check", **wanted))
        assert (again.rc, again.changed.get("up-2", 0)) == (0, 0), again.tail()

    def test_a_boot_with_all_gpus_starts_work(self, up_2, run):
        booted(run, up_2)
        assert (state(up_2, CHECK), state(up_2, WORK)) == ("active", "active")
        assert json.loads(up_2.check_output("cat /run/gpufleet/boot-check.json"))["verdict"] == "pass"

    def test_a_boot_with_a_gpu_missing_starts_no_work(self, up_2, run):
        up_2.run_expect([0], "gpusim inject gpu-missing --gpu 2")
        booted(run, up_2)
        assert (state(up_2, CHECK), state(up_2, WORK)) == ("failed", "inactive")
        verdict = json.loads(up_2.check_output("cat /run/gpufleet/boot-check.json"))
        assert verdict["verdict"] == "fail"
        assert "node.hardware" in {check["id"] for check in verdict["checks"] if check["status"] == "fail"}

    def test_a_boot_with_the_gpu_back_starts_work_again(self, up_2, run):
        up_2.run_expect([0], "gpusim clear")
        booted(run, up_2)
        assert (state(up_2, CHECK), state(up_2, WORK)) == ("active", "active")
