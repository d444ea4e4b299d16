# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the lock of a node is held."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.lock import DEFAULT_PATH, try_flock


def is_held(path=DEFAULT_PATH) -> bool | None:
    """True or False; None when the file cannot be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        if not try_flock(fd):
            return True
        return False
    finally:
        os.close(fd)
