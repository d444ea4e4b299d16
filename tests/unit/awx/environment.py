# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment `awx` of the tests: ansible-builder, and the collection awx.awx with an ansible-core to run it."""

from __future__ import annotations

import functools
import os
import subprocess

from tests.tools import common


@functools.lru_cache(maxsize=None)
def place():
    """Return the directory of the environment."""
    return common.environment("awx")


def variables(home, **more):
    """The environment variables of a command: the user's configuration of Ansible takes no part."""
    bare = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANSIBLE_", "CONTROLLER_", "TOWER_", "AWX_"))
    }
    return dict(
        bare,
        HOME=str(home),
        PATH="%s%s%s" % (place() / "bin", os.pathsep, os.environ["PATH"]),
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_PIPELINING="1",
        **more,
    )


def builder(*words):
    """What ansible-builder answers; that it fails is the test's failure, with all it said."""
    done = subprocess.run(
        [str(place() / "bin" / "ansible-builder"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
