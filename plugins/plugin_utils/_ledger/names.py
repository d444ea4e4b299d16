# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of rollouts and nodes that a ledger accepts, which are names of directories too."""

from __future__ import annotations

import re

ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")


class LedgerError(Exception):
    """The ledger cannot be used in this way; the message says what to do."""


def check_id(rollout_id) -> str:
    """Refuse a rollout id that cannot be the name of a directory."""
    if not ROLLOUT_ID.fullmatch(rollout_id or ""):
        raise LedgerError(
            "rollout_id is %r, which cannot be the name of a directory; expected up to 100 letters, digits and . _ + ~ "
            "-." % (rollout_id,)
        )
    return rollout_id


def check_node(name) -> str:
    """Refuse the name of a node that cannot be the name of a directory."""
    if not NODE_NAME.fullmatch(name or ""):
        raise LedgerError(
            "The node name %r cannot be the name of a directory; expected letters, digits and . _ : -." % (name,)
        )
    return name
