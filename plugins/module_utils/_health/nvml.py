# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether NVML answers at all.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import codes, model
from .model import FAIL, NODE, PASS, UNKNOWN

IDENT = "nvml.answers"


def checks(ctx):
    status = model.item(ctx.snapshot, "status")
    rc = model.item(ctx.snapshot, "nvml", "rc")
    if isinstance(rc, bool):
        rc = None
    message = str(model.item(ctx.snapshot, "message") or "")
    if status == "ok" and rc == 0:
        return [model.check(IDENT, NODE, PASS, "ok", "ok", "hardware")]
    if status == "nvml_error" and isinstance(rc, int) and rc != 0:
        verdict, action, step = codes.meaning(rc)
        error = model.item(ctx.snapshot, "nvml", "error")
        return [model.check(IDENT, NODE, verdict, "%s (%d)" % (error, rc), "SUCCESS (0)", "hardware", action, message or step)]
    if status in ("timeout", "stuck"):
        return [model.check(IDENT, NODE, FAIL, status, "an answer", "hardware", "reboot", message)]
    if status == "nvml_error":
        return [model.check(IDENT, NODE, FAIL, "nvml_error", "an answer", "hardware", "hold", message)]
    return [model.check(IDENT, NODE, UNKNOWN, status, "ok", "hardware", "hold", message or "There is no reading of NVML. Read the node again.")]
