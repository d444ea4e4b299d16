# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of all stub nodes, started once: SOCKET, in a directory of its own.

What every module imports is there, and each module is run by a copy.

Whoever connects sends three descriptors: of a file with a line of JSON (the C(directory) of the node, the
C(environment)) and the source of the module, and of the ends of two pipes for what it says. The answer is the exit
status, as a shell would tell it. A module goes on when whoever began it is gone, as on a node. When nobody holds the
other end of stdin any more, this ends, and what still runs ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys


def imported():
    """What modules import, beside what is theirs alone; ansible-core 2.18 has not all of it."""
    for name in (
        "ansible.module_utils.basic",
        "ansible.module_utils._internal._ansiballz._loader",
        "ansible.module_utils.facts",
        "ansible.module_utils.service",
        "base64",
        "datetime",
        "runpy",
        "shutil",
        "subprocess",
        "tempfile",
        "zipfile",
        "zipimport",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The copies share the memory of all this as long as nobody writes to it.
    gc.collect()
    gc.freeze()


def begun(connection):
    """In a copy: become what was asked for; the source of the module."""
    with connection:
        dummy, descriptors, dummy2, dummy3 = socket.recv_fds(connection, 1, 3)
    if len(descriptors) < 3:
        os._exit(1)  # whoever connected is gone
    with open(descriptors[0], "rb") as stream:
        stream.seek(0)
        head = json.loads(stream.readline())
        source = stream.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, descriptors[1], descriptors[2])):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(head["environment"])
    # Where it works says on which node.
    os.chdir(head["directory"])
    return source


def served(path):
    """Answer until nobody is there any more. It returns in the copies alone, with the source of a module."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen(256)
    os.rename(path + ".new", path)
    running = {}  # descriptor of a copy: its number, and who waits for it
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            for key, dummy in selector.select():
                if key.fd == 0:
                    shutil.rmtree(os.path.dirname(path))
                    if running:
                        os.killpg(0, signal.SIGKILL)
                    sys.exit(0)
                if key.fileobj is not listener:
                    selector.unregister(key.fd)
                    pid, connection = running.pop(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with connection, contextlib.suppress(OSError):
                        connection.sendall(b"%d" % (code if code >= 0 else 128 - code))
                    continue
                connection = listener.accept()[0]
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    listener.close()
                    for descriptor, (dummy2, other) in running.items():
                        os.close(descriptor)
                        other.close()
                    return begun(connection)
                descriptor = os.pidfd_open(pid)
                running[descriptor] = pid, connection
                selector.register(descriptor, selectors.EVENT_READ)


if __name__ == "__main__":
    imported()
    text = served(sys.argv.pop())
    exec(compile(text, "<stdin>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
