# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of gpu_smoke (gpufleet.smoke/1): whether it can be judged, and its entry for a GPU."""

from __future__ import annotations

from .. import model, policy
from ..nodefacts import Checks

SCHEMA = "gpufleet.smoke/1"
LEVELS = ("t0", "t1", "t2", "t3")


class Judge:
    """One context with what every judge of this family asks of it."""

    def __init__(self, ctx):
        self.ctx, self.document = ctx, ctx.smoke

    def limit(self, key, gpu=None):
        return policy.limit(self.ctx, key, gpu)

    @property
    def required(self):
        return bool(self.limit("smoke_required"))

    def nothing(self, ident, entity, message):
        """Return the checks for what cannot be tested here: not applicable, unless the policy requires the test."""
        checks = Checks(ident, entity)
        if self.required:
            return checks.unknown(
                None,
                "a test at work",
                message
                + (
                    " The policy requires the test (smoke_required): run gpu_smoke, and repair what keeps "
                    "it from testing."
                ),
            )
        return checks.none(message)

    def unusable(self, ident, entity):
        """The check for a document without any tests, or None."""
        checks = Checks(ident, entity)
        if self.document is None:
            return self.nothing(ident, entity, "The GPUs were not tested at work (gpu_smoke).")
        status = model.item(self.document, "status")
        if (
            model.item(self.document, "schema") != SCHEMA
            or model.item(self.document, "level") not in LEVELS
            or not isinstance(self.document.get("gpus"), list)
        ):
            return checks.unknown(
                model.item(self.document, "schema"), SCHEMA, "This is no result of gpu_smoke. Run it again."
            )
        if status == "no_library":
            return self.nothing(ident, entity, "%s." % (self.document.get("message"),))
        if status != "ok":
            return checks.unknown(
                status, "ok", "The GPUs were not tested at work: %s" % (self.document.get("message"),)
            )
        return None

    def entry(self, ident, gpu):
        """(what was found out about a GPU, None), or (None, the check that says why there is nothing)."""
        who = model.entity(gpu)
        checks = Checks(ident, who)
        check = self.unusable(ident, who)
        if check:
            return None, check
        mine = [
            entry
            for entry in self.document["gpus"]
            if isinstance(entry, dict) and entry.get("uuid") and entry["uuid"] == model.uuid(gpu)
        ]
        if len(mine) != 1:
            if not mine and self.document.get("asked"):
                return None, checks.none("The test was asked of other GPUs only.")
            return None, checks.unknown(
                None, "one result", "The test says nothing about %s. Run it again." % (model.named(gpu),)
            )
        entry = mine[0]
        if entry.get("state") == "not_applicable":
            return None, self.nothing(ident, who, "%s was not tested: %s." % (model.named(gpu), entry.get("reason")))
        if entry.get("state") != "tested":
            return None, checks.unknown(
                entry.get("state"), "tested", "%s was not tested: %s" % (model.named(gpu), entry.get("reason"))
            )
        return entry, None
