# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts about GPUs: pure functions over what was read. Fail closed: what is not known is not healthy.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from .baseline import BaselineError, baseline_of
from .policy import PolicyError
from .verdict import check, evaluate, summary

__all__ = ["BaselineError", "PolicyError", "baseline_of", "check", "evaluate", "summary"]
