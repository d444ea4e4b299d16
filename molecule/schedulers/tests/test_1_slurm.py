# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real slurmctld and slurmd with running jobs: drained, waited for, refused, upgraded and resumed.

The driver is the lab's stub.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.lab import scenario, slurm
from tests.lab.play import play
from tests.lab.scenario import INVENTORY, controller, wait_for
from tests.lab.slurm import reason, state

OLD, NEW = "535.216.03", "535.261.03"
NODE = "n-slurm-1"
SCHEDULER = {
    "gpu_scheduler_backends": ["slurm"],
    "gpu_scheduler_slurm_host": "slurm-c",
    "gpu_scheduler_slurm_node": "n-{{ inventory_hostname }}",
    "gpu_scheduler_poll": 1,
    "gpu_scheduler_slice": 5,
    "gpu_scheduler_resume_timeout": 30,
}


@pytest.fixture(scope="module")
def node():
    return scenario.machine("slurm-1")


@pytest.fixture
def ask(host):
    """ask(options, on="slurm-c"): how the run went, and what the module returned; nothing is left drained after the
    test.
    """

    def asking(on="slurm-c", check=False, **options):
        return scenario.ask(
            on, "slurm_node", {"node_name": NODE, "token": "tests", "poll_s": 1, **options}, check=check
        )

    yield asking
    for number in host.check_output("squeue --noheader --format=%i").split():
        host.run("scancel " + number)
    if "DRAIN" in state(host, NODE):
        host.run_expect([0], "scontrol update nodename=%s state=resume" % NODE)


def submit(host, seconds):
    """A job on the node that lasts so long; it runs when this returns."""
    return slurm.submit(host, NODE, "sleep %s" % seconds, "--gres=gpu:1")


def test_slurmd_starts_after_the_gpus_and_not_without_them(node):
    assert (
        "nvidia-persistenced.service"
        in node.check_output("systemctl show --property=After slurmd.service").split("=", 1)[1].split()
    )
    assert node.check_output("systemctl is-active slurmd") == "active", (
        "it came up by itself in the boot that made the GPUs"
    )
    assert node.run("systemd-analyze verify slurmd.service 2>&1 | grep gpufleet.conf").stdout == ""
    node.run_expect([0], "mv /dev/nvidia3 /dev/aside && systemctl stop slurmd")
    try:
        refused = node.run("systemctl start slurmd")
        assert refused.rc != 0 and "Assertion failed" in refused.stderr
    finally:
        node.run_expect([0], "mv /dev/aside /dev/nvidia3 && systemctl start slurmd")


def test_a_job_that_outlives_the_timeout_is_named_and_the_node_serves_again(host, ask):
    number = submit(host, 600)
    outcome, result = ask(state="drained", timeout_s=3)
    assert outcome.rc == 2 and result["waiting"] and not result["drained"]
    assert "job %s (user root, partition batch, RUNNING, " % number in result["msg"]
    assert "The drain was lifted again." in result["msg"]
    assert [(job["id"], job["user"]) for job in result["blockers"]] == [(number, "root")]
    # Slurm asks slurmd of a node that was resumed anew, and says NOT_RESPONDING until it answers.
    wait_for(lambda: state(host, NODE) == "MIXED", "the node does not serve again: " + state(host, NODE))
    assert number in host.check_output("squeue --noheader --format=%i"), "the job goes on"
    outcome, result = ask(state="drained", timeout_s=1, on_timeout="keep")
    assert outcome.rc == 2 and state(host, NODE) == "MIXED+DRAIN" and reason(host, NODE) == "gpufleet:tests maintenance"


def test_a_job_that_ends_is_waited_for(host, ask):
    submit(host, 4)
    outcome, result = ask(state="drained", timeout_s=60)
    assert outcome.rc == 0, outcome.tail()
    assert result["drained"] and result["changed"] and result["mark"]["owner"] == "ours"
    assert state(host, NODE) == "IDLE+DRAIN"
    outcome, result = ask(state="resumed", timeout_s=30, expected_gpus=4)
    assert outcome.rc == 0 and result["changed"] and state(host, NODE) == "IDLE", outcome.tail()


def test_what_an_operator_drained_stays_drained(host, ask):
    host.run_expect([0], "scontrol update nodename=%s state=drain reason='bad fan'" % NODE)
    outcome, result = ask(state="drained", timeout_s=5)
    assert outcome.rc == 0 and result["drained"] and not result["changed"] and result["mark"]["owner"] == "operator"
    outcome, result = ask(state="resumed")
    assert outcome.rc == 0 and not result["changed"] and "bad fan" in result["left"][0]
    assert (state(host, NODE), reason(host, NODE)) == ("IDLE+DRAIN", "bad fan")


def test_a_node_without_its_slurmd_is_drained_again(host, node, ask):
    assert ask(state="drained")[0].rc == 0
    node.run_expect([0], "systemctl stop slurmd")
    try:
        outcome, result = ask(state="resumed")
        assert outcome.rc == 2 and "does not serve" in result["msg"] and "DRAIN" in state(host, NODE)
        assert reason(host, NODE).startswith("gpufleet:tests ")
    finally:
        node.run_expect([0], "systemctl start slurmd")
    assert ask(state="resumed", timeout_s=60)[0].rc == 0 and state(host, NODE) == "IDLE"


def test_the_scheduler_makes_the_window(host, ask):
    submit(host, 6)
    outcome, result = ask(state="drained", method="job", timeout_s=90)
    assert outcome.rc == 0, outcome.tail()
    assert result["drained"] and result["job"] and state(host, NODE) == "IDLE+DRAIN"
    assert host.check_output("squeue --noheader --name=gpufleet-tests-%s" % NODE) == "", "our own job is gone"


def test_a_reservation_for_the_time_of_the_maintenance(host, ask):
    outcome, result = ask(state="drained", reservation_minutes=10)
    assert outcome.rc == 0
    assert "Flags=MAINT,IGNORE_JOBS" in host.check_output("scontrol show reservation gpufleet_tests_" + NODE), (
        outcome.tail()
    )
    outcome, result = ask(state="resumed", reservation_minutes=10, timeout_s=30)
    assert outcome.rc == 0 and host.run("scontrol show reservation gpufleet_tests_" + NODE).rc == 1


@contextlib.contextmanager
def stopped(host, unit):
    host.run_expect([0], "systemctl stop " + unit)
    try:
        yield
    finally:
        host.run_expect([0], "systemctl start " + unit)
        wait_for(lambda: host.run("sinfo").rc == 0, "Slurm does not answer again")


def test_bad_input_is_told_before_anything_is_drained(host, ask):
    dummy, result = ask(state="drained", node_name="slurm-1")
    assert result["trouble"] == "node" and "it knows n-slurm-1" in result["msg"]
    dummy, result = ask(state="drained", expected_gpus=8)
    assert "Slurm has 4 GPUs for it (Gres=gpu:a100:4), and the node has 8" in result["msg"]
    dummy, result = ask(state="drained", token="")
    assert "needs a token" in result["msg"]
    with stopped(host, "munge"):
        dummy, result = ask(state="drained")
        assert result["trouble"] == "auth" and "munge does not run" in result["msg"]
    outcome, result = ask(state="drained", check=True)
    assert outcome.rc == 0 and result["changed"] and state(host, NODE) == "IDLE", "check mode"
    with stopped(host, "slurmctld"):
        dummy, result = ask(state="drained")
        assert result["trouble"] == "unreachable"
    wait_for(lambda: state(host, NODE) == "IDLE", "the node is not idle: " + state(host, NODE))


@contextlib.contextmanager
def ahead(other, minutes):
    """Its munge puts a time on its credentials that is so many minutes from now."""
    place = "/run/systemd/system/munge.service.d"
    other.check_output("mkdir -p %s", place)
    other.check_output(
        "printf '[Service]\\nEnvironment=LD_PRELOAD=%%s FAKETIME=+%%dm FAKETIME_DONT_FAKE_MONOTONIC=1\\n' %s "
        "%s >%s/clock.conf",
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
        str(minutes),
        place,
    )
    other.check_output("systemctl daemon-reload && systemctl restart munge")
    try:
        yield
    finally:
        other.check_output("rm -r %s && systemctl daemon-reload && systemctl restart munge", place)


def test_a_clock_that_differs_is_told_before_anything_is_drained(host, ask):
    other = scenario.machine("slurm-2")
    with ahead(other, 20):
        outcome, result = ask(on="slurm-2", state="drained")
    assert outcome.rc == 2 and result.get("trouble") == "auth" and "their clocks differ by minutes" in result["msg"], (
        result
    )
    assert "log of slurmctld says which it is" in result["msg"]
    assert "Rewound credential" in host.check_output("journalctl -q -u slurmctld --since=-2min")
    assert state(host, NODE) == "IDLE"
    outcome, result = ask(on="slurm-2", state="drained")
    assert outcome.rc == 0 and "DRAIN" in state(host, NODE), "with its own clock it is heard"


def upgrade(tmp_path):
    """The playbook and its variables, for both nodes at once."""
    return "gpufleet.lifecycle.upgrade", {
        "gpufleet_artifact_dir": str(tmp_path),
        "rollout_other_ledger_s": 0,  # each test has a ledger of its own
        "nvidia_driver_tree_dir": "",
        "upgrade_hosts": "slurm-1:slurm-2",
        "rollout_version": NEW,
        "rollout_max_down": 2,
        "gpu_scheduler_drain_timeout": 120,
        **SCHEDULER,
    }


@pytest.fixture
def foreign(host):
    """A node that an operator drained."""
    host.run_expect([0], "scontrol update nodename=n-slurm-2 state=drain reason='bad fan'")
    yield "n-slurm-2"
    host.run_expect([0], "scontrol update nodename=n-slurm-2 state=resume")


def test_an_upgrade_waits_for_jobs_and_the_next_controller_lifts_the_mark_of_one_that_died(
    host, node, foreign, tmp_path
):
    other = scenario.machine("slurm-2")
    ours = "gpufleet:upgrade-%s driver %s" % (NEW, NEW)
    boot = node.check_output("cat /proc/sys/kernel/random/boot_id")
    submit(host, "1; while [ ! -e /var/tmp/end ]; do sleep 1; done; date +%s > /var/tmp/ended")
    with controller(tmp_path / "controller.log", *upgrade(tmp_path)) as running:
        running.says("slurm-1: drain (in slurm)")
        wait_for(lambda: (state(host, NODE), reason(host, NODE)) == ("MIXED+DRAIN", ours), "it is not drained")
        said = running.says("slurm-2: stop")
        assert "slurm-1: stop" not in said and state(host, NODE) == "MIXED+DRAIN", (
            "it waits for its job, and holds nobody else up"
        )
        assert OLD in node.check_output("nvidia-smi")
        node.run_expect([0], "touch /var/tmp/end")
        running.says("slurm-1: validate")
    assert node.check_output("cat /proc/sys/kernel/random/boot_id") != boot
    ended = int(node.check_output("cat /var/tmp/ended"))
    assert ended <= float(node.check_output("stat --format=%Y /var/lib/gpufleet/baseline.json")), (
        "the baseline is that of the empty node"
    )
    assert "DRAIN" in state(host, NODE) and reason(host, NODE) == ours, "nobody is left who would resume it"
    name, variables = upgrade(tmp_path)
    outcome = play(name, INVENTORY, variables)
    assert outcome.rc == 0, outcome.tail()
    assert (state(host, NODE), reason(host, NODE)) == ("IDLE", "none")
    assert state(host, foreign).startswith("IDLE+DRAIN") and reason(host, foreign) == "bad fan", (
        "what an operator drained stays drained"
    )
    for upgraded in (node, other):
        assert NEW in upgraded.check_output("nvidia-smi")
    submit(host, 1)
