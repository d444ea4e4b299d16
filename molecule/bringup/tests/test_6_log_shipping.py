# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine ships its log lines through its own journald and rsyslog; another rsyslogd of it is the host for logs.

The kernel log of a container is not its own. Lines of the kernel are sent in tests/unit/roles.
"""

from __future__ import annotations

import re
import time

import pytest

PORT, RECEIVED, CONFIG, UNIT = 5140, "/run/gpufleet-received", "/run/gpufleet-host.conf", "gpufleet-log-host"
HOST = """module(load="imtcp")
input(type="imtcp" port="%d" address="127.0.0.1")
action(type="omfile" file="%s" template="RSYSLOG_TraditionalFileFormat")
""" % (PORT, RECEIVED)
# sshd logs a client that does not speak its protocol. The tests may use a connection that is open already.
SPEAK_NO_SSH = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/22 && echo gpufleet >&3 && timeout 30 cat <&3'"
LIMIT_S = 180
GIVEN = {"gpu_log_shipping_host": "127.0.0.1", "gpu_log_shipping_port": PORT, "gpu_log_shipping_protocol": "tcp"}


@pytest.fixture(scope="module")
def ship(run):
    role = {"name": "gpufleet.lifecycle.gpu_log_shipping"}
    task = {"name": "Ship its lines", "ansible.builtin.include_role": role}
    return lambda **variables: run(
        [{"hosts": "up-2", "become": True, "gather_facts": False, "tasks": [task]}], **variables
    )


def arrived(host, text):
    """The lines that arrived, once one with TEXT is among them."""
    end = time.monotonic() + LIMIT_S
    while True:
        lines = host.run("cat " + RECEIVED).stdout.splitlines()
        if any(text in line for line in lines):
            return lines
        assert time.monotonic() < end, lines
        time.sleep(0.5)


def test_a_line_that_was_logged_while_the_host_was_away_arrives_alone(up_2, ship):
    done = ship(**GIVEN)
    assert done.rc == 0, done.tail()
    up_2.run_expect([0], "logger -t gpufleet-test 'nvidia, said by a program'")
    up_2.run_expect([0], SPEAK_NO_SSH)
    up_2.run_expect([0], "logger -p authpriv.info -t sudo 'shipped by gpufleet'")
    up_2.run_expect([0], "cat > %s <<'EOF'\n%sEOF" % (CONFIG, HOST))
    up_2.run_expect([0], "systemd-run --unit=%s rsyslogd -n -iNONE -f %s" % (UNIT, CONFIG))
    arrived(up_2, " sshd[")
    lines = arrived(up_2, "shipped by gpufleet")
    programs = {re.split(r"[\[:]", line.split()[4])[0] for line in lines}
    assert {"sshd", "sudo"} <= programs <= {"sshd", "sudo", "kernel"}
    assert "nvidia, said by a program" in up_2.run("journalctl -t gpufleet-test --output=cat").stdout


def test_a_second_run_changes_nothing(ship):
    again = ship(**GIVEN)
    assert (again.rc, again.changed.get("up-2", 0)) == (0, 0), again.tail()


def test_absent_leaves_none_of_its_files(up_2, ship):
    done = ship(gpu_log_shipping_state="absent")
    assert done.rc == 0, done.tail()
    assert up_2.run("find /etc -name 60-gpufleet.conf").stdout == ""
    up_2.run_expect([0], "systemctl is-active rsyslog.service systemd-journald.service")
    up_2.run_expect([0], "systemctl stop " + UNIT)
