# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of an Ansible module around a snapshot: the place of the cache, and when to ask the controller for the archive.

The rest of this package comes to the node in the archive. A module that reads NVML imports nothing of it but binding
and node: what it imports, Ansible sends and the node compiles with every task.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import os

from . import binding, runtime

STUCK_FILE = "/run/gpufleet-nvml.stuck"


def cache_directory(remote_tmp):
    """The user's own directory in Ansible's temporary directory on the node."""
    base = os.path.expanduser(os.path.expandvars(remote_tmp or "~/.ansible/tmp"))
    return os.path.join(os.path.abspath(base), "gpufleet-%d" % (os.geteuid(),))


def stuck_file(cache):
    return STUCK_FILE if os.geteuid() == 0 else os.path.join(cache, "nvml.stuck")


def ready(remote_tmp, digest, archive_base64=None):
    """(Runtime or None, warnings): the code of the controller's archive; None if the node does not have it.

    DIGEST is the archive's sha256; ARCHIVE_BASE64 is sent only after the first answer asked for it. The archive travels
    in the task's arguments, not as a file: so it needs no file that both the login user and the user to become can
    read.
    """
    cache = cache_directory(remote_tmp)
    warnings = []
    if archive_base64 is None:
        archive, warning = binding.fetch(cache, digest)
        if warning:
            warnings.append(warning)
        if archive is None:
            return None, warnings
    else:
        try:
            archive = base64.b64decode(archive_base64.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise binding.CacheError("the NVML binding that arrived is not base64") from None
        warning = binding.store(cache, digest, archive)
        if warning:
            # One warning about a cache that cannot be used is enough.
            return runtime.start(digest, archive)[0], [warning]
    started, warning = runtime.start(digest, archive, cache)
    if warning:
        warnings.append(warning)
    return started, warnings


def read(remote_tmp, digest=None, archive_base64=None, timeout_s=60, gather=None, take=None):
    """{"needs_binding": True} or {"snapshot": ...}, always with "warnings". GATHER is what subsets.choose takes."""
    warnings = []
    options = {}
    if digest is not None:
        started, warnings = ready(remote_tmp, digest, archive_base64)
        if started is None:
            return {"needs_binding": True, "warnings": warnings}
        options["load"] = started.load_binding
        take = take or started.module("_nvml.snapshot").take
    else:
        # No action plugin sent a digest: the whole package lies beside this module.
        take = take or importlib.import_module(__package__ + ".snapshot").take
    snapshot = take(deadline_s=timeout_s, stuck_file=stuck_file(cache_directory(remote_tmp)), gather=gather, **options)
    return {"snapshot": snapshot, "warnings": warnings}
