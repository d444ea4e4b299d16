# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of playbooks through ansible-runner: what they answer, and that an interrupted one leaves nothing running."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.lab import processes
from tests.lab.config import CHECKOUT
from tests.lab.play import play, signals_held

INVENTORY = {
    "all": {
        "hosts": {
            name: {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
            for name in ("one", "two")
        }
    }
}
# Its own length of sleep, by which no other run of these tests on the machine is taken for this one.
NAP = "301.%07d" % os.getpid()
SLEEPER = """
import sys
from tests.lab.play import play
play([{"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.command": {"argv": ["sleep", \
sys.argv[2]]}}]}], sys.argv[1])
"""


def inventory(tmp_path):
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(INVENTORY))
    return path


def test_an_outcome_says_what_became_of_every_host(tmp_path):
    tasks = [
        {"ansible.builtin.command": {"argv": ["true"]}},
        {"ansible.builtin.fail": {"msg": "not this one"}, "when": "inventory_hostname == 'two'"},
    ]
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    outcome = play([{"hosts": "all", "gather_facts": False, "tasks": tasks}], inventory(tmp_path))
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert (outcome.rc, outcome.changed) == (2, {"one": 1, "two": 1})
    assert outcome.failed == {"two": ["not this one"]} and outcome.why("one") == ""
    assert "PLAY RECAP" in outcome.tail()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_run_reaches_its_caller_at_the_end(number):
    received = []
    before = signal.signal(number, lambda caught, _frame: received.append(caught))
    try:
        with signals_held() as caught:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert (caught, received) == ([number, number], [])
        assert received == [number]
    finally:
        signal.signal(number, before)


def test_an_interrupted_run_leaves_no_process(tmp_path):
    def sleepers():
        done = subprocess.run(["pgrep", "-f", "^sleep %s$" % NAP], capture_output=True, text=True, check=False)
        return done.stdout.split()

    mark, path = "play:%s" % tmp_path, inventory(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, str(path), NAP],
        cwd=CHECKOUT,
        start_new_session=True,
        env=dict(os.environ, TMPDIR=str(tmp_path)),
    )
    try:
        deadline = time.monotonic() + 600
        while len(sleepers()) < 2:
            assert time.monotonic() < deadline and child.poll() is None, "the playbook never came to its task"
            time.sleep(0.2)
        assert processes.tagged(mark, whole=False) != []
        os.killpg(child.pid, signal.SIGINT)
        child.wait(timeout=600)
        assert sleepers() == []
        assert processes.tagged(mark, whole=False) == []
    finally:
        subprocess.run(["pkill", "-KILL", "-f", "^sleep %s$" % NAP], check=False)
        child.kill()
