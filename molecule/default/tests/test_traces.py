# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However a lab ends, 'down' leaves nothing of it. Done with a second lab of its own, beside the one under test."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
NUMBER = "98"
BRIDGE = "gflab" + NUMBER


def lab(*words, check=True):
    environment = dict(os.environ, GPUFLEET_LAB_ID=NUMBER)
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def processes(of=NUMBER):
    """Processes that carry the lab's mark, and machines that run under its names."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            marked = b"GPUFLEET_LAB_TAG=%s:%s:" % (of.encode(), str(ROOT).encode()) in (entry / "environ").read_bytes()
            named = b"--machine=gf%s-" % of.encode() in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marked or named:
            found.append(entry.name)
    return found


def traces():
    """Everything of the lab that is left on this machine."""
    left = ["process " + pid for pid in processes()]
    left += [
        "mount " + line.split()[4]
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        if "/.lab/lab" + NUMBER in line
    ]
    if os.path.exists("/sys/class/net/" + BRIDGE):
        left.append("bridge " + BRIDGE)
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    left += ["firewall " + line for line in tables.splitlines() if line.endswith("gpufleet_lab" + NUMBER)]
    groups = subprocess.run(
        ["find", "/sys/fs/cgroup", "-maxdepth", "4", "-name", "gpufleet-lab" + NUMBER],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    left += ["control group " + line for line in groups.split()]
    nodes = ROOT / ".lab" / ("lab" + NUMBER) / "nodes"
    return left + (["disk " + str(nodes)] if nodes.exists() else [])


@pytest.fixture(autouse=True)
def ended():
    """A test that fails leaves no machine to the next."""
    yield
    lab("down")


@pytest.fixture
def one_machine():
    lab("up", "gpu-r2-1")
    assert traces(), "a running lab leaves traces, or this test looks in the wrong places"


@pytest.mark.usefixtures("one_machine")
def test_down_leaves_nothing_and_may_be_run_again():
    lab("down")
    assert traces() == []
    assert "nothing was up" in lab("down").stdout


@pytest.mark.usefixtures("one_machine")
def test_a_machine_ends_with_its_supervisor_and_down_cleans_up():
    machine = json.loads(lab("status", "--json").stdout)[0]
    assert machine["state"] == "running"
    for pid in processes():
        command = pathlib.Path("/proc", pid, "cmdline").read_bytes()
        if b"_supervise" in command:
            os.kill(int(pid), signal.SIGKILL)
    deadline = time.monotonic() + 300
    while processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes() == [], "the machine outlived its supervisor"
    assert json.loads(lab("status", "--json").stdout)[0]["state"] == "off"
    lab("down")
    assert traces() == []


@pytest.mark.usefixtures("one_machine")
def test_a_second_up_starts_nothing_again():
    before = processes()
    assert "lab: starting" not in lab("up", "gpu-r2-1").stdout
    assert processes() == before


def interrupt(words, after, number):
    """Run a command of the lab and send it a signal, as a terminal does to all of its processes."""
    # A run in the background of a script may have inherited that it ignores interrupts.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tests.lab", *words]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=dict(os.environ, GPUFLEET_LAB_ID=NUMBER),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as going:
        if after == "at once":
            time.sleep(0.3)
        else:
            assert any(after in line for line in going.stdout)
        os.killpg(going.pid, number)
        going.stdout.read()
    assert going.returncode != 0


@pytest.mark.parametrize(
    ("after", "number"),
    [("lab: starting", signal.SIGINT), ("at once", signal.SIGINT), ("lab: starting", signal.SIGKILL)],
)
def test_an_interrupted_up_is_cleaned_by_down(after, number):
    interrupt(["up", "gpu-r2-1"], after, number)
    lab("down")
    assert traces() == []


def test_a_terminated_demo_leaves_nothing():
    interrupt(["demo"], "lab: starting", signal.SIGTERM)
    assert traces() == []


def test_forwarding_between_interfaces_is_left_as_it_was():
    def forwarding():
        settings = pathlib.Path("/proc/sys/net/ipv4")
        found = {path.parent.name: path.read_text() for path in settings.glob("conf/*/forwarding")}
        mine = {name for name in found if name == BRIDGE or name.startswith("vb-gf%s-" % NUMBER)}
        return (settings / "ip_forward").read_text(), {name: found[name] for name in found if name not in mine}

    registry = pathlib.Path("/run/gpufleet-lab")
    before = forwarding()
    lab("up", "gpu-r2-1")
    assert pathlib.Path("/proc/sys/net/ipv4/conf", BRIDGE, "forwarding").read_text() == "1\n"
    lab("down")
    assert not (registry / (NUMBER + ".json")).exists()
    # the lab under test is up, and keeps its settings
    assert list(registry.glob("[0-9]*.json")) and forwarding() == before
