# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record an operator's request to a rollout in its ledger."""

from __future__ import annotations

import datetime
import getpass

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_control import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import LedgerError, last_id, timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import control, options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import EXPECTED, RolloutAction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import report


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC
    VARIABLES = dict(
        options.VARIABLES, **{key: "rollout_" + key for key in ("verb", "nodes", "limits", "user", "reason")}
    )
    EXPECTED = EXPECTED + (control.ControlError,)

    def act(self, arguments, task_vars):
        database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
        rollout_id = arguments["rollout_id"] or last_id(database)
        if not rollout_id:
            raise LedgerError("No rollout was ever planned in %s." % database.shown)
        ledger = self.ledger(arguments, rollout_id)
        request = dict(
            arguments, user=arguments["user"] or getpass.getuser(), now=datetime.datetime.now(datetime.timezone.utc)
        )

        def write(transaction):
            if transaction.view.run is None:
                raise LedgerError("There is no rollout %s in %s." % (rollout_id, ledger.shown))
            events, lines = control.events(transaction.view, request)
            if self.check:
                return lines
            for fields in events:
                transaction.append("control", run=transaction.view.run, **fields)
            if arguments["verb"] == "break_lock":
                lines.append(self.break_lock(transaction, rollout_id, request))
            return lines

        lines = ledger.transact(write)
        found = ledger.owner()
        running = owner.running(found)
        view = ledger.view()
        doc = report.document(view, view.finished is not None or not running, timestamp())
        lines = lines + report.table(doc) + control.standing(view, found, owner.describe)
        for line in lines:
            self.say(line)
        # No host changes, but the rollout does.
        return {
            "rollout_id": rollout_id,
            "lines": lines,
            "report": doc,
            "owner": found,
            "changed": arguments["verb"] != "status",
        }

    @staticmethod
    def break_lock(transaction, rollout_id, request):
        found = transaction.owner
        if found is None or found.get("ended"):
            raise owner.OwnerError("No controller runs rollout %s: there is no lock to break." % rollout_id)
        now = datetime.datetime.now(datetime.timezone.utc)
        why = owner.refusal(rollout_id, found, [], True, now, break_lock=True)
        if why:
            raise owner.OwnerError(why)
        transaction.hold(dict(found, ended=timestamp(now), broken="%s: %s" % (request["user"], request["reason"])))
        return "The lock of %s is broken by %s: %s." % (
            owner.describe(found["owner"]),
            request["user"],
            request["reason"],
        )
