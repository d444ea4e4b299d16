# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""setup.sh installs what is missing and leaves no new service behind; apt-get and systemctl are stand-ins."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.tools.common import ROOT

SETUP = ROOT / "tests" / "tools" / "setup.sh"
NEEDED = "bash sh sed sort dirname cat env grep flock chmod cp mv rm ls true touch sleep".split()
APT_GET = """
if [ "${{*: -1}}" = update ]; then echo update >> {0}/calls; rm {0}/broken; exit; fi
while [ "$1" != install ]; do shift; done
shift; echo "install $*" >> {0}/calls
[ ! -e {0}/broken ] || exit 100
printf '%s\\n' "$@" >> {0}/installed
for name; do
    printf '%s.service enabled\\n' "$name" >> {0}/units
    for unit in "$name.service" "$name@main.service" sshd.service; do
        if [ -x {0}/usr/sbin/policy-rc.d ] && ! {0}/usr/sbin/policy-rc.d "$unit" start; then continue; fi
        echo "$unit" >> {0}/started
    done
done
if [ -e {0}/hang ]; then touch {0}/hangs; sleep 60; fi
"""
SYSTEMCTL = """
case $1 in
    list-unit-files) case "$*" in *state=enabled*) grep ' enabled' {0}/units ;; *) cat {0}/units ;; esac ;;
    disable) for unit; do sed -i "s/^$unit enabled/$unit disabled/" {0}/units; done; echo "$*" >> {0}/systemctl ;;
esac
"""


@pytest.fixture
def machine(tmp_path):
    """A machine with sshd and a disabled service, on which package alpha is installed and beta is not."""
    (tmp_path / "usr" / "sbin").mkdir(parents=True)
    (tmp_path / "etc" / "init.d").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    for name in ("calls", "started", "systemctl"):
        (tmp_path / name).touch()
    (tmp_path / "installed").write_text("alpha\n")
    (tmp_path / "units").write_text("sshd.service enabled\ngetty@.service enabled\nquiet.service disabled\n")
    (tmp_path / "list").write_text("# a comment\n\nalpha\nbeta   # with a reason\n")
    write_command(tmp_path, "id", "echo 0")
    write_command(tmp_path, "dpkg-query", 'grep -qx "${{*: -1}}" {0}/installed && echo installed')
    write_command(tmp_path, "apt-get", APT_GET)
    write_command(tmp_path, "systemctl", SYSTEMCTL)
    return tmp_path


def write_command(machine, name, script):
    path = machine / "bin" / name
    path.write_text("#!/bin/bash\n%s\n" % script.format(machine))
    path.chmod(0o755)


def environment(machine):
    return {"PATH": str(machine / "bin"), "SETUP_ROOT": str(machine)}


def run_setup(machine, *lists):
    return subprocess.run(
        ["/bin/bash", str(SETUP), *(lists or [str(machine / "list")])],
        env=environment(machine),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def lines(machine, name):
    return (machine / name).read_text().splitlines()


def test_nothing_missing_changes_and_prints_nothing(machine):
    (machine / "installed").write_text("alpha\nbeta\n")
    done = run_setup(machine)
    assert (done.returncode, done.stdout, done.stderr, lines(machine, "calls")) == (0, "", "", [])


def test_missing_package_is_installed(machine):
    assert run_setup(machine).returncode == 0
    assert lines(machine, "calls") == ["install beta"]


def test_stale_package_lists_are_updated(machine):
    (machine / "broken").touch()
    assert run_setup(machine).returncode == 0
    assert lines(machine, "calls") == ["install beta", "update", "install beta"]


def test_failed_installation_fails_and_leaves_no_policy(machine):
    write_command(machine, "apt-get", "exit 100")
    assert run_setup(machine).returncode != 0
    assert os.listdir(machine / "usr/sbin") == []


def test_other_system_gets_the_list(machine):
    (machine / "bin" / "dpkg-query").unlink()
    done = run_setup(machine)
    assert done.returncode == 1 and "alpha beta" in done.stderr


def test_user_without_sudo_gets_the_command(machine):
    write_command(machine, "id", "echo 1000")
    done = run_setup(machine)
    assert done.returncode == 1 and "apt-get install beta" in done.stderr
    assert lines(machine, "calls") == []


def test_default_list_is_the_labs(machine):
    assert subprocess.run(["/bin/bash", str(SETUP)], env=environment(machine), check=False).returncode == 0
    text = (ROOT / "tests/lab/host-packages.txt").read_text()
    wanted = sorted(line for line in text.splitlines() if line and not line.startswith("#"))
    assert lines(machine, "calls") == ["install " + " ".join(wanted)]


def test_new_service_is_not_started_and_is_disabled(machine):
    assert run_setup(machine).returncode == 0
    assert lines(machine, "started") == ["sshd.service"]
    assert lines(machine, "systemctl") == ["disable --quiet beta.service"]
    assert "sshd.service enabled" in lines(machine, "units")
    assert os.listdir(machine / "usr/sbin") == []


def test_new_service_is_stopped_where_systemd_runs(machine):
    (machine / "run/systemd/system").mkdir(parents=True)
    assert run_setup(machine).returncode == 0
    assert lines(machine, "systemctl") == ["disable --quiet --now beta.service"]


def test_machine_without_systemd(machine):
    (machine / "bin" / "systemctl").unlink()
    (machine / "etc/init.d/sshd").touch()
    assert run_setup(machine).returncode == 0
    assert lines(machine, "started") == ["sshd.service"]
    assert os.listdir(machine / "usr/sbin") == []


def test_unknown_services_end_the_setup_before_the_installation(machine):
    write_command(machine, "systemctl", "exit 1")
    assert run_setup(machine).returncode != 0
    assert lines(machine, "calls") == []


def test_policy_of_the_machine_is_kept(machine):
    policy = machine / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o750)
    assert run_setup(machine).returncode == 0
    assert lines(machine, "started") == [], "the machine's own policy denies sshd too"
    assert policy.read_text() == "#!/bin/sh\nexit 101\n" and policy.stat().st_mode & 0o777 == 0o750
    assert os.listdir(policy.parent) == ["policy-rc.d"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_setup_leaves_nothing_denied_and_the_next_one_cleans_up(machine, number):
    policy = machine / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    policy.chmod(0o755)
    (machine / "hang").touch()
    command = ["env", "--default-signal=INT", "/bin/bash", str(SETUP), str(machine / "list")]
    with subprocess.Popen(command, env=environment(machine), start_new_session=True) as going:
        while not (machine / "hangs").exists():
            assert going.poll() is None
        assert subprocess.run([policy, "beta", "start"], check=False).returncode == 101
        os.killpg(going.pid, number)
    assert going.returncode != 0
    # The lock goes with the last process of the group, which may outlive the first one for a moment.
    deadline = time.monotonic() + 600
    while subprocess.run([policy, "beta", "start"], check=False).returncode != 0:
        assert time.monotonic() < deadline, "a new service is denied although apt has ended"
    if number == signal.SIGKILL:
        assert lines(machine, "systemctl") == []
        assert run_setup(machine).returncode == 0
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert os.listdir(policy.parent) == ["policy-rc.d"]
    assert lines(machine, "systemctl") == ["disable --quiet beta.service"]
