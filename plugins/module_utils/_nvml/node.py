# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an Ansible module does around a snapshot: where the cache lies, and when to ask the controller for the binding.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import base64
import binascii
import os

from . import binding, snapshot

STUCK_FILE = "/run/gpufleet-nvml.stuck"


def cache_directory(remote_tmp):
    """The user's own directory in Ansible's temporary directory on the node."""
    base = os.path.expanduser(os.path.expandvars(remote_tmp or "~/.ansible/tmp"))
    return os.path.join(os.path.abspath(base), "gpufleet-%d" % (os.geteuid(),))


def stuck_file(cache):
    return STUCK_FILE if os.geteuid() == 0 else os.path.join(cache, "nvml.stuck")


def read(remote_tmp, digest=None, archive_base64=None, timeout_s=60, take=snapshot.take):
    """{"needs_binding": True} or {"snapshot": ...}, always with "warnings".

    DIGEST is the sha256 of the controller's binding, or None if it has none; ARCHIVE_BASE64 is sent only after the first answer asked
    for it. The archive travels in the task's arguments, not as a file: so it needs no file that both the login user and the user to
    become can read.
    """
    cache = cache_directory(remote_tmp)
    warnings = []
    archive = None
    if digest is not None:
        if archive_base64 is None:
            archive, warning = binding.fetch(cache, digest)
            if warning:
                warnings.append(warning)
            if archive is None:
                return {"needs_binding": True, "warnings": warnings}
        else:
            try:
                archive = base64.b64decode(archive_base64.encode("ascii"), validate=True)
            except (binascii.Error, UnicodeEncodeError):
                raise binding.CacheError("the NVML binding that arrived is not base64") from None
            warning = binding.store(cache, digest, archive)
            if warning:
                warnings.append(warning)
    return {"snapshot": take(archive=archive, deadline_s=timeout_s, stuck_file=stuck_file(cache)), "warnings": warnings}
