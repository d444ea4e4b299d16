# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything on the disk of a machine, to be compared with what is there later. A machine is a testinfra host."""

from __future__ import annotations

import contextlib
import re

# What is in memory (/run, /tmp) goes with a boot, and logs are there to be written to.
# The time is that of the last change of anything about the file: it cannot be set back. A directory's own time is left
# out.
LISTING = (
    r"""find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log """
    r"""\) -prune -o \
 \( -type d -printf '%p\t%y %m %u:%g\n' -o -printf '%p\t%y %m %u:%g %s %C@ %l\n' \)"""
)


def listing(host):
    return dict(line.split("\t", 1) for line in host.check_output(LISTING).splitlines())


# Ansible's async_wrapper looks at its module every five seconds, and removes its files from the remote temporary
# directory when it has seen the end: by then the task has long returned.
ASYNC_ENDED = "timeout 120 sh -c 'while pgrep -f [a]sync_wrapper.py; do sleep 0.2; done'"


@contextlib.contextmanager
def unchanged_but(*machines, allowed=()):
    """Nothing on the disks of the machines changes, but for paths that one of the expressions matches whole.

    Yields what did, by host.
    """
    before = [listing(host) for host in machines]
    changes = {}
    yield changes
    for host, old in zip(machines, before, strict=True):
        host.run_expect([0], ASYNC_ENDED)
        new = listing(host)
        assert len(new) > 10000, "this is no listing of a machine"
        differ = {path: (old.get(path), new.get(path)) for path in {*old, *new} if old.get(path) != new.get(path)}
        changes[host.backend.host.name] = sorted(differ)
        wrong = {
            path: was
            for path, was in differ.items()
            if not any(re.fullmatch(expression, path) for expression in allowed)
        }
        assert not wrong, "\n".join("%s: %s -> %s" % (path, *was) for path, was in sorted(wrong.items()))
