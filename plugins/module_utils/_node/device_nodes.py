# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's files below /dev: what they are, whose they are, and what the driver says they should be."""

from __future__ import annotations

import os
import re
import stat

from . import files

NAMES = re.compile(r"^nvidia(\d+|ctl|-uvm|-uvm-tools|-modeset|-nvlink|-nvswitch(\d+|ctl)|-fs\d*)$")
CAPABILITIES = "nvidia-caps"
KINDS = (
    (stat.S_ISCHR, "char"),
    (stat.S_ISBLK, "block"),
    (stat.S_ISREG, "file"),
    (stat.S_ISLNK, "link"),
    (stat.S_ISDIR, "directory"),
)


def read_device_nodes(root) -> list[dict] | None:
    """``[{"path", "kind", "mode", "uid", "gid", "major", "minor"}]``; None when /dev cannot be listed.

    ``mode`` is an octal text such as 0666. A node that is listed and cannot be looked at has None for everything.
    """
    base = files.under(root, "/dev")
    names = files.listing(base)
    if names is None:
        return None
    paths = ["/dev/%s" % name for name in names if NAMES.match(name)]
    if CAPABILITIES in names:
        paths += ["/dev/%s/%s" % (CAPABILITIES, name) for name in files.listing(os.path.join(base, CAPABILITIES)) or []]
    return [describe(root, path) for path in paths]


def describe(root, path) -> dict:
    answer = dict.fromkeys(("kind", "mode", "uid", "gid", "major", "minor"))
    answer["path"] = path
    try:
        found = os.lstat(files.under(root, path))
    except OSError:
        return answer
    kind = [name for test, name in KINDS if test(found.st_mode)]
    answer.update(
        kind=kind[0] if kind else "other", mode="%04o" % stat.S_IMODE(found.st_mode), uid=found.st_uid, gid=found.st_gid
    )
    if answer["kind"] in ("char", "block"):
        answer.update(major=os.major(found.st_rdev), minor=os.minor(found.st_rdev))
    return answer


def numbers(root) -> dict[str, int] | None:
    """``{driver name: major number}`` of the character devices of NVIDIA's driver; None when /proc/devices cannot be
    read.
    """
    content = files.read_text(files.under(root, "/proc/devices"))
    if content is None:
        return None
    found = {}
    for line in content.partition("Block devices:")[0].splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdigit() and words[1].startswith("nvidia"):
            found[words[1]] = int(words[0])
    return found


def read_wanted_mode(root) -> dict | None:
    """Return the mode and the owner that the driver gives its device nodes, ``{"mode", "uid", "gid", "modify"}``; None
    if it does not report them."""
    content = files.read_text(files.under(root, "/proc/driver/nvidia/params"))
    if content is None:
        return None
    params = dict(
        (key.strip(), value.strip())
        for key, colon, value in (line.partition(":") for line in content.splitlines())
        if colon
    )
    values = [params.get(key, "") for key in ("DeviceFileMode", "DeviceFileUID", "DeviceFileGID", "ModifyDeviceFiles")]
    if not all(value.isdigit() for value in values):
        return None
    return {"mode": "%04o" % int(values[0]), "uid": int(values[1]), "gid": int(values[2]), "modify": values[3] != "0"}
