# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real commands answered, and a runner that answers with it."""

from __future__ import annotations

import pathlib

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
KERNEL = "6.1.0-56-amd64"


def recorded(name):
    return (FIXTURES / name).read_text(encoding="utf-8")


class Recorded:
    """Answers by the first words of the command; a command without an answer is not on the machine."""

    def __init__(self, answers):
        self.answers = answers
        self.calls = []

    def __call__(self, argv, timeout=None):
        self.calls.append(list(argv))
        for words, answer in self.answers.items():
            if " ".join(argv).startswith(words):
                return answer if isinstance(answer, tuple) else (0, answer, "")
        return 127, "", "%s: command not found" % argv[0]


def write(root, path, content=""):
    """A file below a root directory, with the directories above it."""
    target = pathlib.Path(str(root)) / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        target.write_bytes(content)
    else:
        target.write_text(content, encoding="utf-8")
    return target


def link(root, path, to):
    target = pathlib.Path(str(root)) / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(to)
    return target


def kernel(root, name, headers=True):
    """A kernel that can boot."""
    write(root, "/boot/vmlinuz-%s" % name)
    write(root, "/lib/modules/%s/modules.dep" % name)
    if headers:
        write(root, "/usr/src/linux-headers-%s/include/linux.h" % name)
        link(root, "/lib/modules/%s/build" % name, "/usr/src/linux-headers-%s" % name)
