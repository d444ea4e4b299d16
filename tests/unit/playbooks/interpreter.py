# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one Python of all stub nodes, started by the first fleet and ended with the tests."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
import time

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection


class Python:
    """The Python of all stub nodes (stub/forks.py), for as long as this process lives."""

    def __init__(self):
        # A path that is short enough for a socket; the process removes it.
        self.socket = os.path.join(tempfile.mkdtemp(prefix="gpufleet-"), "python")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        self.process = subprocess.Popen(
            [sys.executable, str(collection.STUB / "forks.py"), self.socket],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        deadline = time.monotonic() + 600
        while not os.path.exists(self.socket):
            assert self.process.poll() is None and time.monotonic() < deadline, (
                "the Python of the stub nodes does not start"
            )
            time.sleep(0.01)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=600)


@functools.lru_cache(maxsize=None)
def of_nodes():
    """Started once, by the first who needs it."""
    python = Python()
    atexit.register(python.stop)
    return python
