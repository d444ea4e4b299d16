# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands of the machine's dnf, each in a process that is forked from this one.

Most of the time of such a command is taken by starting Python and importing dnf, which this process has done before.
It runs with the Python of dnf. One request is a line of JSON on standard input, one answer a line on standard output.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys

from dnf.cli import main as dnf_main


def command(request):
    """What the new process does; its exit status."""
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, encoding="utf-8"),
        open(1, "w", encoding="utf-8"),
        open(2, "w", encoding="utf-8"),
    )
    sys.argv = ["dnf"] + request["arguments"]
    status = 1
    try:
        dnf_main.user_main(request["arguments"], exit_code=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 (as an interpreter does at its end)
        sys.excepthook(*sys.exc_info())
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def serve():
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(command(request))
        status = os.waitpid(pid, 0)[1]
        print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    # What a plugin imports; the plugins themselves are loaded by each command, with its own options.
    with contextlib.suppress(ImportError):
        importlib.import_module("dnfpluginscore")
    serve()
