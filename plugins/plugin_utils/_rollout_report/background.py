# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that outlive the task that starts them.

Each is a separate process that imports one module of this collection, without a daemon library. Only Ansible's
command-line programs set up the import hook for collections, so this module creates the packages above that module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

BOOT = """
import importlib, json, sys, types
asked = json.load(sys.stdin)
sys.path[:] = asked["path"]
for name, path in asked["packages"]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
importlib.import_module(asked["module"]).main(asked)
"""


def start(module, asked, keep=()):
    """Start MODULE.main(ASKED) in a new session, and do not wait for it.

    ASKED is sent through a pipe, so that it is not visible in the arguments. KEEP: file descriptors that it inherits.
    """
    package = module.partition(".plugins.")[0]
    root = os.path.abspath(__file__)
    for dummy in range(4):
        root = os.path.dirname(root)
    parts = package.split(".")
    packages = [(".".join(parts[:end]), [root] if end == len(parts) else []) for end in range(1, len(parts) + 1)]
    process = subprocess.Popen(
        [sys.executable, "-c", BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        close_fds=True,
        pass_fds=keep,
    )
    with process.stdin as pipe:
        pipe.write(
            json.dumps(
                dict(
                    asked,
                    path=[os.path.abspath(entry) for entry in sys.path if entry],
                    packages=packages,
                    module=module,
                )
            ).encode()
        )
    return process
