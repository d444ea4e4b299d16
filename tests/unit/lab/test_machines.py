# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of the lab: what each is made of, how a process of one is found, and which are removed at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import cli, demo, machines, network, processes, supervisor
from tests.lab import machine as build
from tests.lab.config import Lab
from tests.lab.inventory import Machine

LAB = Lab(checkout=Path("/checkout"), cache=Path("/cache"), number=0)
SECOND = Lab(checkout=Path("/checkout"), cache=Path("/cache"), number=3)
ONE = Machine("gpu-r1-1", 11)
TWO = Machine("gpu-r2-1.dc.example", 21, "a100-sxm", 4)


def test_machines_of_two_labs_share_no_name_on_the_host():
    assert len({build.unit_name(lab, machine) for lab in (LAB, SECOND) for machine in (ONE, TWO)}) == 4
    last = Lab(checkout=Path("/checkout"), cache=Path("/cache"), number=99)
    # Linux takes 15 characters; beyond them systemd-nspawn invents names, which the lab could not remove.
    assert build.port(last, Machine("a-node-with-a-long-name", 254)) == "vb-gf99-254"
    assert len({build.machine_id(LAB, "n1"), build.machine_id(LAB, "n2"), build.machine_id(SECOND, "n1")}) == 3
    assert LAB.bridge != SECOND.bridge
    assert LAB.table != SECOND.table
    assert LAB.subnet != SECOND.subnet


def test_foreign_hosts_keep_a_mirror_and_drop_what_is_only_the_hosts():
    text = (
        "127.0.0.1 localhost\n127.0.1.1 builder\n::1 ip6-localhost\n192.0.2.9 mirror.example mirror # cache\n"
        "192.0.2.2 builder\n192.0.2.3 builder alias\n"
    )
    assert build.foreign_hosts(text, {"builder"}) == ["192.0.2.9 mirror.example mirror", "192.0.2.3 alias"]


def test_name_servers_that_a_machine_can_reach_are_taken():
    assert build.resolv_conf("nameserver 192.0.2.53\nsearch example\n") == "nameserver 192.0.2.53\nsearch example\n"


def test_a_stub_on_loopback_is_replaced_by_what_is_behind_it():
    stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch example\n"
    assert (
        build.resolv_conf(stub, "nameserver 192.0.2.53\nnameserver 127.0.0.1\n")
        == "nameserver 192.0.2.53\nsearch example\n"
    )


def test_mtu_is_that_of_the_way_out():
    links = [{"ifname": "lo", "mtu": 65536}, {"ifname": "eth0", "mtu": 1400}]
    assert network.route_mtu([{"dst": "default", "dev": "eth0"}], links) == 1400
    assert network.route_mtu([], links) == 1500


def test_a_device_in_the_labs_subnet_is_found_but_not_its_own_bridge():
    own = {"ifname": "gflab0", "addr_info": [{"family": "inet", "local": "10.213.77.1"}]}
    other = {
        "ifname": "vpn0",
        "addr_info": [{"family": "inet6", "local": "fe80::1"}, {"family": "inet", "local": "10.213.77.9"}],
    }
    assert network.clash(LAB, [own]) is None
    assert network.clash(LAB, [own, other]) == "vpn0"
    assert network.clash(SECOND, [own, other]) is None


MOUNTS_V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def test_control_groups_on_both_kinds_of_host():
    found = supervisor.cgroup_dirs(LAB, MOUNTS_V1, "9:name=systemd:/\n1:cpu:/\n0::/")
    assert found == [Path("/sys/fs/cgroup/systemd/gpufleet-lab0"), Path("/sys/fs/cgroup/unified/gpufleet-lab0")]
    unified = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
    assert supervisor.cgroup_dirs(LAB, unified, "0::/box") == [Path("/sys/fs/cgroup/box/gpufleet-lab0")]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab that down() empties; `lab.present` are its machines."""
    found = Lab(checkout=tmp_path, cache=tmp_path / "cache", number=3)
    calls = []
    monkeypatch.setattr(machines, "need_root", lambda: None)
    monkeypatch.setattr(machines, "existing", lambda _lab: present)
    present = {}

    def down(_lab):
        calls.append("down")
        present.clear()
        found.temporary.unlink(missing_ok=True)

    monkeypatch.setattr(machines, "down", down)
    return found, present, calls


@pytest.mark.parametrize(("words", "left", "count"), [([], False, 6), (["--keep"], True, 6), (["--few"], False, 4)])
def test_demo_removes_its_machines_unless_told_to_keep_them(lab, monkeypatch, words, left, count):
    here, present, _calls = lab
    started = []
    monkeypatch.setattr(cli.config, "current", lambda: here)

    def run(_lab, names):
        started.extend(names)
        present.update((name, Machine(name, 101)) for name in names)
        return 0

    monkeypatch.setattr(demo, "run", run)
    assert cli.main(["demo", *words]) == 0
    assert list(present) == (started if left else []) and len(started) == count
    assert {demo.CANARY, demo.FAULTY} <= set(started)


@pytest.mark.parametrize("end", [None, KeyboardInterrupt(), SystemExit(143), ValueError()])
def test_machines_of_a_run_are_removed_however_it_ends(lab, end):
    here, present, calls = lab
    try:
        with machines.temporary(here, keep=False):
            present["n1"] = Machine("n1", 101)
            assert here.temporary.exists() and calls == []
            if end:
                raise end
    except (KeyboardInterrupt, SystemExit, ValueError) as error:
        assert error is end
    assert calls == ["down"] and not here.temporary.exists()


def test_interruption_does_not_end_the_removal(lab, monkeypatch):
    here, _present, calls = lab
    before = {number: signal.getsignal(number) for number in machines.STOPPING}

    def down(_lab):
        for number in machines.STOPPING:
            os.kill(os.getpid(), number)
        calls.append("whole")

    monkeypatch.setattr(machines, "down", down)
    with machines.temporary(here, keep=False):
        pass
    assert calls == ["whole"]
    assert {number: signal.getsignal(number) for number in machines.STOPPING} == before


@pytest.mark.parametrize(("keep", "there"), [(True, False), (False, True)])
def test_machines_that_are_kept_or_were_there_before_stay(lab, keep, there):
    here, present, calls = lab
    present.update({"n1": Machine("n1", 101)} if there else {})
    with machines.temporary(here, keep=keep):
        pass
    assert calls == []


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_killed_run_left_is_removed_first(lab, keep):
    here, present, calls = lab
    present["n1"] = Machine("n1", 101)
    here.temporary.parent.mkdir(parents=True)
    here.temporary.touch()
    with machines.temporary(here, keep=keep):
        assert calls == ["down"] and present == {}
    assert calls == ["down"] * (1 if keep else 2)


def test_process_is_found_while_it_executes_another_program():
    """A shell that executes itself all the time, which leaves it without an environment for moments."""
    tag = "test:%d" % os.getpid()
    script = 'exec "$0" -c "$1" "$0" "$1"'
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "/bin/sh", script], env={processes.MARK: tag}, stderr=subprocess.DEVNULL
    ) as child:
        try:
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert f"{processes.MARK}={tag}".encode() in processes.environment_of(child.pid)
            assert child.pid in processes.tagged(tag, whole=True)
        finally:
            child.kill()


def test_supervisor_that_ended_ends_the_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "system_state", lambda _lab, _name: "off")
    lab = Lab(checkout=tmp_path, cache=tmp_path, number=3)
    with subprocess.Popen([sys.executable, "-c", ""]) as keeper:
        with pytest.raises(machines.LabError, match="n1 did not come up"):
            machines.wait_for(lab, Machine("n1", 101), keeper, time.monotonic())
