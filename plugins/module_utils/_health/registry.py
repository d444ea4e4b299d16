# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All families of checks, in the order of the report. A new family is a module with a function checks(context) and a line here.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import baseline, gpus, nvml, settings, state, versions

FAMILIES = (nvml, baseline, gpus, versions, state, settings)
