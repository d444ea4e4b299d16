# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the simulator's state lies, and how it is read and written."""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import os

NODE = "/etc/gpusim/node.ini"
FAULTS = "/etc/gpusim/faults.ini"
INFOROM = "/var/lib/gpusim/inforom.ini"
LOADED = "/run/gpusim/loaded"
SETTINGS = "/run/gpusim/settings.ini"
PROCESSES = "/run/gpusim/processes.ini"
PERSISTENCED = "/run/gpusim/persistenced"
RELEASE = "/run/gpusim/release"
CALLS = "/run/gpusim/calls"
SYS = "/run/gpusim/sys"
PROC_DRIVER = "/run/gpusim/proc-driver"
PROC_MODULES = "/run/gpusim/proc-modules"
HOST_MODULES = "/run/gpusim/host-modules"
_descriptions: dict[str, tuple] = {}


class SimError(Exception):
    """Something the user has to know; the text is the whole message."""


def root() -> str:
    value = os.environ.get("GPUSIM_ROOT", "")
    return "" if value == "/" else value.rstrip("/")


def path(name: str) -> str:
    """A path of the node below GPUSIM_ROOT."""
    return root() + name


def ini() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"), strict=False)
    parser.optionxform = str
    return parser


def read(name: str) -> configparser.ConfigParser:
    parser = ini()
    with contextlib.suppress(FileNotFoundError):
        with open(path(name), encoding="utf-8") as stream:
            parser.read_file(stream)
    return parser


def described() -> configparser.ConfigParser:
    """The node's description, which is looked at for every value: read again only when the file is another one.

    Nobody changes the answer.
    """
    target = path(NODE)
    try:
        about = os.stat(target)
    except FileNotFoundError:
        return ini()
    mark = (about.st_ino, about.st_size, about.st_mtime_ns)
    if _descriptions.get(target, (None,))[0] != mark:
        _descriptions[target] = (mark, read(NODE))
    return _descriptions[target][1]


def write(name: str, parser: configparser.ConfigParser) -> None:
    if parser.sections():
        lines = []
        for section in parser.sections():
            lines.append("[%s]" % section)
            lines.extend("%s = %s" % item for item in parser.items(section))
        write_text(name, "\n".join(lines) + "\n")
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path(name))


def write_text(name: str, text: str) -> None:
    target = path(name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = "%s.%d" % (target, os.getpid())
    with open(temporary, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(temporary, target)


def read_text(name: str) -> str:
    try:
        with open(path(name), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


@contextlib.contextmanager
def locked():
    """One writer at a time; the same lock as in the library."""
    os.makedirs(path("/run/gpusim"), exist_ok=True)
    with open(path("/run/gpusim/lock"), "a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def require_root() -> None:
    if os.geteuid() != 0 and not root():
        raise SimError("this changes the simulated node: run it as root")


def release() -> str:
    """The simulated kernel's release; the real one before a kernel was chosen."""
    return read_text(RELEASE).strip() or os.uname().release


def gpu_count() -> int:
    return described().getint("node", "gpus", fallback=0)


def gpu_value(gpu: int, key: str, fallback: str = "") -> str:
    node = described()
    return node.get("gpu %d" % gpu, key, fallback=node.get("gpu", key, fallback=fallback))


def gpu_now(gpu: int, key: str, fallback: str = "") -> str:
    """The value as the library answers it, with faults that hold whatever the driver; for what shows outside the
    library, too.
    """
    faults = read(FAULTS)
    for name in faults.sections():
        section = faults[name]
        if (
            "set." + key in section
            and section.get("gpu", str(gpu)) in (str(gpu), "all")
            and not {"driver", "from_s", "until_s"} & set(section)
        ):
            return section["set." + key]
    return gpu_value(gpu, key, fallback)


def sysfs_address(pci: str) -> str:
    """00000000:1b:00.0 as the kernel writes it: 0000:1b:00.0"""
    return pci.lower()[-12:]
