# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to a node's work when its controller dies or its connection breaks.

After a SIGKILL of the controller the next run finds the node's lock, waits or says so, and starts nothing beside it. A
connection that breaks ends
nothing: the controller asks again.

The driver packages are the lab's stubs (tests/lab/stubs.py), one slow to compile and one slow to install.
"""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.lab import scenario
from tests.lab.play import play
from tests.lab.scenario import INVENTORY

NODE = "int-1"
PLAY = [{"hosts": NODE, "become": True, "roles": ["gpufleet.lifecycle.nvidia_driver"]}]


@pytest.fixture(scope="module")
def host():
    return scenario.machine(NODE)


def at_work(host, pattern):
    """Pids of the machine's processes whose command line has the pattern; the subshells that such a process forks are
    left out.
    """
    rows = [line.split(None, 2) for line in host.check_output("ps -e -o pid= -o ppid= -o args=").splitlines()]
    found = {pid: parent for pid, parent, args in rows if pattern in args and "ansible" not in args}
    return sorted(pid for pid, parent in found.items() if parent not in found)


def wait_for(what, seconds, problem):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            found = what()
        except RuntimeError:
            found = None  # testinfra's own connection was one of those that broke; it makes a new one
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(problem)


@contextlib.contextmanager
def controller_at(host, tmp_path, version, pattern, more=""):
    """A controller that installs VERSION, from the moment at which the node is at what the pattern names; in the end
    all its processes are killed.
    """
    playbook = tmp_path / "driver.yml"
    playbook.write_text(
        "- hosts: %s\n  become: true\n  roles: [gpufleet.lifecycle.nvidia_driver]\n"
        "  vars: {nvidia_driver_version: '%s', nvidia_driver_tree_dir: ''%s}\n" % (NODE, version, more)
    )
    with scenario.controller(tmp_path / "controller.log", str(playbook), {}) as running:
        ended = running.process.poll
        wait_for(lambda: at_work(host, pattern) or ended() is not None, 120, "the node never came to %r" % pattern)
        assert ended() is None, running.log.read_text()
        yield running


def test_a_connection_that_breaks_ends_no_installation(host, tmp_path):
    with controller_at(host, tmp_path, "535.556.01", "nvidia-kernel-dkms.postinst") as running:
        working = at_work(host, "nvidia-kernel-dkms.postinst")
        sessions = set(at_work(host, "sshd: fleet"))
        assert sessions
        # Every SSH session of the node, and not by one of them; it takes new ones.
        with contextlib.suppress(RuntimeError):  # that of this command is one of them, and may end before its answer
            host.check_output("systemd-run --quiet --collect pkill -KILL -f '^sshd: fleet'")
        wait_for(lambda: not sessions & set(at_work(host, "sshd: fleet")), 300, "the sessions did not end")
        wait_for(
            lambda: at_work(host, "nvidia-kernel-dkms.postinst") == working,
            300,
            "the installation ended with its connection",
        )
        running.ends(300)
    assert host.check_output("dpkg-query -W -f '${Version}' nvidia-kernel-dkms").startswith("535.556.01")
    assert host.check_output("dpkg --audit") == ""
    assert "535.556.01, %s, x86_64: installed" % host.check_output("uname -r") in host.check_output("dkms status")


@pytest.mark.parametrize(
    ("version", "pattern", "module"),
    [
        pytest.param("535.555.01", "dkms build", "dkms_module", id="during the DKMS build"),
        pytest.param("535.556.01", "nvidia-kernel-dkms.postinst", "driver_packages", id="during dpkg"),
    ],
)
def test_a_killed_controller_leaves_a_lock_that_the_next_run_respects(host, tmp_path, version, pattern, module):
    with controller_at(host, tmp_path, version, pattern):
        pass
    working = at_work(host, pattern)
    assert working, "the node's work has to outlive its controller, or there is nothing to respect"

    variables = {"nvidia_driver_version": version, "nvidia_driver_tree_dir": ""}
    hasty = play(PLAY, INVENTORY, {**variables, "nvidia_driver_lock_timeout": 2})
    assert hasty.rc == 2
    why = hasty.why(NODE)
    assert "/run/gpufleet.lock" in why and module in why and "nothing was started" in why
    assert len(working) == 1 and at_work(host, pattern) == working, (
        "the hasty run started something beside the running work, or ended it"
    )

    patient = play(PLAY, INVENTORY, {**variables, "nvidia_driver_lock_timeout": 300})
    assert patient.rc == 0, patient.tail()
    kernel = host.check_output("uname -r")
    assert "%s, %s, x86_64: installed" % (version, kernel) in host.check_output("dkms status")
    assert host.check_output("modinfo -F version /lib/modules/%s/updates/dkms/nvidia-current.ko*" % kernel) == version
    assert host.check_output("dpkg --audit") == ""
    assert host.run("flock --nonblock /run/gpufleet.lock true").rc == 0, "the lock is free again"
