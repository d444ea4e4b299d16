# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stored names that differ from the names in the code. They stay, so that ledgers and reports of earlier versions
can be read.
"""

from __future__ import annotations

# The flag of an orphaned node: a column and a key in ledgers, a key in plans and reports.
ORPHANED = "suspect"


def stored(fields):
    """Return the fields of a node as its row in a ledger keeps them."""
    fields = dict(fields)
    fields[ORPHANED] = fields.pop("orphaned")
    return fields


def restored(fields):
    """Return the fields of a node of the code, from those of its row in a ledger."""
    fields = dict(fields)
    fields["orphaned"] = fields.pop(ORPHANED)
    return fields
