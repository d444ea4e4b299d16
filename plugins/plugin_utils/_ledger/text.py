# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values and times as a ledger stores them. Pure."""

from __future__ import annotations

import json


def dump_json(value) -> str:
    """Return the JSON text of a value, equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def format_time(now) -> str:
    """Return a UTC time in the format of a rollout's documents.

    The order of such times as text is their order in time.
    """
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000)
