# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for a node's Python: runs what Ansible sends with the real one and notes what it cost.

    interpreter.py NOTES PYTHON [ARGUMENT...]

One line of JSON a call goes to NOTES: the bytes that arrived on standard input, whether each module's name was in them,
and the CPU seconds (user and system) of the real interpreter with all its children. What this process itself takes is
not in them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys


def main():
    notes, python = sys.argv[1:3]
    sent = sys.stdin.buffer.read()
    done = subprocess.run([python] + sys.argv[3:], input=sent, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    module = [name for name in ("gpu_info", "ping") if b"modules." + name.encode() in sent]
    line = {"module": module[0] if module else None, "bytes": len(sent), "cpu_s": used.ru_utime + used.ru_stime}
    with open(notes, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
