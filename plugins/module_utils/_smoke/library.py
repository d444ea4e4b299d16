# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the driver's libcuda.so.1, and decide if a task that runs as root may load it.

The path is found here and the file is opened by it. The environment is ignored, so that neither a compatibility library
of a toolkit nor a file of a user on the loader's path is tested in place of the driver's own.
"""

from __future__ import annotations

import os
import re
import stat

NAME = "libcuda.so.1"
# Where the loader looks without its cache, in its order; the first ones are what administrators put in front.
PLACES = ("usr/local/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
LINE = re.compile(r"^\s*libcuda\.so\.1 \((?P<kind>[^)]*)\) => (?P<path>/.*)$")
# What marks a library of this machine's word length in the loader's cache.
WORDS = {"x86_64": "x86-64", "aarch64": "AArch64"}


class Untrusted(Exception):
    """The library must not be loaded; the text says why."""


def find(root="/", runner=None, machine=None):
    """The path of libcuda.so.1 below ROOT, or None: what the loader's cache says, then the usual directories."""
    if runner is not None:
        rc, out, dummy = runner(["/sbin/ldconfig", "-p"], 20)
        if rc == 0:
            path = cached(out, machine or os.uname().machine)
            if path and os.path.exists(os.path.join(root, path.lstrip("/"))):
                return path
    for place in PLACES:
        path = os.path.join("/", place, NAME)
        if os.path.exists(os.path.join(root, path.lstrip("/"))):
            return path
    return None


def cached(text, machine):
    """The first libcuda.so.1 for MACHINE in the output of ldconfig -p; its order is the loader's."""
    wanted = WORDS.get(machine)
    for line in text.splitlines():
        match = LINE.match(line)
        if match and (wanted is None or wanted in match.group("kind")):
            return match.group("path")
    return None


def trusted(path, user=None):
    """Return the real path of PATH if only root (and this user) can change it or anything on the way to it; raises
    Untrusted otherwise.
    """
    user = os.geteuid() if user is None else user
    try:
        real = os.path.realpath(path)
        about = os.stat(real)
        if not stat.S_ISREG(about.st_mode):
            raise Untrusted("%s is not a regular file" % (real,))
        for start in (os.path.abspath(path), real):
            _way(start, user)
    except OSError as exc:
        raise Untrusted("%s cannot be looked at: %s" % (path, exc.strerror)) from exc
    return real


def _way(path, user):
    while True:
        about = os.lstat(path)
        if about.st_uid not in (0, user):
            raise Untrusted("%s belongs to uid %d, not to root" % (path, about.st_uid))
        # The mode of a link means nothing, and in a sticky directory only owners replace files.
        shared = about.st_mode & 0o022 and not stat.S_ISLNK(about.st_mode)
        if shared and not (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
            raise Untrusted("%s can be changed by other users (mode %04o)" % (path, stat.S_IMODE(about.st_mode)))
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def loader_problem(environment, user=None):
    """Return why the loader of this process must not be trusted to load the libraries that libcuda needs, or None.

    The loader read its variables when the process began. sudo removes them; if they are set, only paths that root alone
    can change are accepted.
    """
    user = os.geteuid() if user is None else user
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"):
        for place in re.split(r"[:; ]", environment.get(name, "")):
            try:
                if place and not os.path.isabs(place):
                    raise Untrusted("%s is no absolute path" % (place,))
                if place and os.path.exists(place):
                    for start in (os.path.abspath(place), os.path.realpath(place)):
                        _way(start, user)
            except (Untrusted, OSError) as exc:
                return "%s is set for this task, and %s; remove it from the task's environment" % (name, exc)
    return None


def version(real):
    """The driver version in the name of the library's file, or None."""
    match = re.search(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)$", real)
    return match.group(1) if match else None


def sanitise(environment, visible):
    """Take out of ENVIRONMENT whatever steers CUDA and the loader, and show the one GPU that is to be tested.

    Variables such as CUDA_VISIBLE_DEVICES, CUDA_INJECTION64_PATH, CUDA_LAUNCH_BLOCKING or an MPS pipe would test
    something else.
    """
    for name in list(environment):
        if re.match(r"^(CUDA|NVIDIA|NV|CU|LD)_", name):
            del environment[name]
    environment["CUDA_VISIBLE_DEVICES"] = visible
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    # No files of compiled kernels in a home directory: what the driver compiles is part of what is tested.
    environment["CUDA_CACHE_DISABLE"] = "1"
