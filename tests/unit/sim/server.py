# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the simulator's commands and small programs that ask its library, each in a process of its own that is forked
from this one.

The tests make thousands of them. Most of the time of such a process is taken by starting Python and reading what it
imports, which this process has done before. One request is a line of JSON on standard input, one answer a line on
standard output.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
import types

SIM, BINDINGS = sys.argv[1], {}
sys.path.insert(0, SIM)

from gpusim import cli  # noqa: E402 (the path to it is an argument)


def binding(path):
    """The code of pynvml.py in a directory, compiled once."""
    if path not in BINDINGS:
        file = os.path.join(path, "pynvml.py")
        with open(file, "rb") as stream:
            BINDINGS[path] = compile(stream.read(), file, "exec")
    return BINDINGS[path]


def ask(request):
    """The program of a request, as ``python3 -c`` would run it with the binding on its path and the node's library
    installed.
    """
    if os.path.exists(request["library"]):
        # The loader reads LD_LIBRARY_PATH once, when a process starts. What is loaded already is found by its name.
        ctypes.CDLL(request["library"], mode=ctypes.RTLD_GLOBAL)
    module = types.ModuleType("pynvml")
    sys.modules["pynvml"] = module
    exec(binding(request["binding"]), module.__dict__)
    exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
    return 0


def child(request):
    """What the new process does; its exit status."""
    os.setsid()
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, encoding="utf-8"),
        open(1, "w", encoding="utf-8"),
        open(2, "w", encoding="utf-8"),
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    status = 1
    try:
        status = ask(request) if "code" in request else cli.run(request["name"], request["arguments"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 (as an interpreter does at its end)
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "code" in request:
            binding(request["binding"])
        pid = os.fork()
        if pid == 0:
            os._exit(child(request))
        status = os.waitpid(pid, 0)[1]
        print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    main()
