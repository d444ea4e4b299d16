# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts about GPUs: pure functions over what was read. Fail closed: what is not known is not healthy."""

from __future__ import annotations

from .baseline import BaselineError, baseline_of, check_baseline
from .policy import PolicyError
from .tables import TableError
from .tables import check as check_table
from .verdict import check_policy, compact, evaluate, joining, summary, with_peers

__all__ = [
    "BaselineError",
    "PolicyError",
    "TableError",
    "baseline_of",
    "check_baseline",
    "check_policy",
    "check_table",
    "compact",
    "evaluate",
    "joining",
    "summary",
    "with_peers",
]
