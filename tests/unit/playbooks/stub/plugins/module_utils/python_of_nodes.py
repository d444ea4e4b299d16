# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module comes to the Python of all stub nodes (forks.py)."""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import socket


def plain(command, python):
    """The environment that is given to a module which PYTHON is to read from stdin.

    None of any other command: what runs on by itself is a file.
    """
    words = shlex.split(command)
    words = shlex.split(words[2]) if words[:2] == ["/bin/sh", "-c"] and len(words) == 3 else []
    if words[-4:] != [python, "&&", "sleep", "0"] or not all(re.match(r"\w+=", word) for word in words[:-4]):
        return None
    return dict(word.split("=", 1) for word in words[:-4])


def run(path, source, environment, directory):
    """What the Python of all stub nodes, which listens at PATH, says of a module: exit status, stdout, stderr."""
    request = os.memfd_create("module")
    output, error = os.pipe(), os.pipe()
    with socket.socket(socket.AF_UNIX) as python:
        try:
            with open(request, "wb", closefd=False) as stream:
                stream.write(json.dumps({"environment": environment, "directory": directory}).encode() + b"\n" + source)
            python.connect(path)
            socket.send_fds(python, [b"x"], [request, output[1], error[1]])
        finally:
            for descriptor in (request, output[1], error[1]):
                os.close(descriptor)
        said = {output[0]: b"", error[0]: b""}
        with selectors.DefaultSelector() as selector:
            for descriptor in said:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                for key, dummy in selector.select():
                    part = os.read(key.fd, 65536)
                    said[key.fd] += part
                    if not part:
                        selector.unregister(key.fd)
                        os.close(key.fd)
        code = python.recv(16)
    if not code:
        raise ConnectionError("the Python of the stub nodes is gone")
    return int(code), said[output[0]], said[error[0]]
