# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of all stub nodes: a module finds there what it finds in a Python of its own, and ends as it ends
there.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import interpreter
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.stub.plugins.module_utils import python_of_nodes

HERE = "/n/bin/python-of-node"
NOTE = "import os, pathlib, time\npathlib.Path('began').write_text(str(os.getpid()))\n"


@pytest.fixture(name="run")
def _run(tmp_path):
    def run(source, **environment):
        return python_of_nodes.run(
            interpreter.of_nodes().socket, source.encode(), dict(os.environ, **environment), str(tmp_path)
        )

    return run


def wait_for(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def ended(pid):
    """Whether a process is gone, or a zombie that nobody has asked about yet."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize(
    "source, told",
    [
        ("print('yes')", (0, b"yes\n", b"")),
        ("import sys; print('why', file=sys.stderr); sys.exit(3)", (3, b"", b"why\n")),
        ("import atexit, sys; atexit.register(print, 'last'); sys.exit(1)", (1, b"last\n", b"")),
        ("import os; os.write(1, b'cut'); os._exit(5)", (5, b"cut", b"")),
        ("import os; os.kill(os.getpid(), 9)", (137, b"", b"")),
        ("import signal, os; os.kill(os.getpid(), signal.SIGTERM)", (143, b"", b"")),
        ("import sys; print(len(sys.argv), __name__, repr(sys.stdin.read()))", (0, b"1 __main__ ''\n", b"")),
        ("print('x' * 300000)", (0, b"x" * 300000 + b"\n", b"")),
        (
            "import subprocess; subprocess.run(['sh', '-c', 'echo $WORD; pwd | wc -l'], check=True)",
            (0, b"of a node\n1\n", b""),
        ),
        # As a Python that has nothing of the controller's.
        (
            "from ansible.module_utils import basic; import sys; print('ansible.constants' in sys.modules)",
            (0, b"False\n", b""),
        ),
    ],
)
def test_a_module_ends_as_in_a_python_of_its_own(run, source, told):
    assert run(source, WORD="of a node") == told


def test_what_raises_says_so(run):
    code, output, error = run("raise ValueError('why')")
    assert (code, output) == (1, b"") and error.endswith(b"ValueError: why\n")


def test_nothing_is_left_of_the_module_before(run, tmp_path):
    found = "import os, sys; print(os.environ.get('WORD'), hasattr(sys, 'left'), os.getcwd())"
    assert run("import os, sys; sys.left = 1; os.environ['WORD'] = 'left'; os.chdir('/')")[0] == 0
    assert run(found) == (0, b"None False %s\n" % os.fsencode(tmp_path), b"")


def test_a_module_outlives_whoever_began_it_and_is_found_where_it_works(run, tmp_path):
    began, ready = tmp_path / "began", tmp_path / "ready"
    source = NOTE + "while not os.path.exists('go'):\n    time.sleep(0.05)\npathlib.Path('ready').write_text('')\n"
    controller = os.fork()
    if controller == 0:
        try:
            run(source)
        finally:
            os._exit(0)
    try:
        wait_for(lambda: began.exists() and began.read_text())
    finally:
        os.kill(controller, signal.SIGKILL)
        os.waitpid(controller, 0)
    module = int(began.read_text())
    assert os.readlink("/proc/%d/cwd" % module) == str(tmp_path) and not ended(module)
    (tmp_path / "go").write_text("")
    wait_for(lambda: ended(module))
    assert ready.exists(), "it came to its end"
    assert run("print(1)") == (0, b"1\n", b"")


def test_it_ends_with_the_tests_and_with_it_what_still_runs(tmp_path):
    """As the process of the tests does it when it is killed."""
    python = interpreter.Python()
    hanging = threading.Thread(
        target=lambda: pytest.raises(
            ConnectionError,
            python_of_nodes.run,
            python.socket,
            (NOTE + "time.sleep(600)").encode(),
            dict(os.environ),
            str(tmp_path),
        )
    )
    hanging.start()
    wait_for(lambda: (tmp_path / "began").exists() and (tmp_path / "began").read_text())
    python.stop()
    hanging.join(timeout=600)
    assert not hanging.is_alive()
    wait_for(lambda: ended(int((tmp_path / "began").read_text())))
    assert not os.path.exists(os.path.dirname(python.socket))


def test_it_ends_when_whoever_started_it_is_killed():
    """Its stdin is a pipe of which nobody else has the other end."""
    code = (
        "import sys, time\nfrom ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import interpreter\n"
        "python = interpreter.of_nodes()\nprint(python.process.pid, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", "import tests.unit.conftest\n" + code],
        cwd=str(interpreter.collection.ROOT),
        stdout=subprocess.PIPE,
    ) as one:
        pid = int(one.stdout.readline())
        assert not ended(pid)
        one.kill()
    wait_for(lambda: ended(pid))


@pytest.mark.parametrize(
    "command, given",
    [
        ("/bin/sh -c '%s && sleep 0'" % HERE, {}),
        ("/bin/sh -c 'LC_ALL=C A=\"b c\" %s && sleep 0'" % HERE, {"LC_ALL": "C", "A": "b c"}),
        ("/bin/sh -c '%s /tmp/module.py && sleep 0'" % HERE, None),
        ("/bin/sh -c '%s -m this && sleep 0'" % HERE, None),
        ("/bin/sh -c 'cd /; %s && sleep 0'" % HERE, None),
        ("/bin/sh -c 'sudo %s && sleep 0'" % HERE, None),
        ("/bin/sh -c '/another/python && sleep 0'", None),
        ("/bin/sh -c 'echo ~ && sleep 0'", None),
        ("whoami", None),
    ],
)
def test_only_a_module_that_is_read_from_stdin_goes_past_the_shell(command, given):
    assert python_of_nodes.plain(command, HERE) == given
