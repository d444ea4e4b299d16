# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report of a rollout, and fail when it is not complete."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_report import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, ledger, owner, report, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action import RolloutAction, refresh_report


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars):
        rollout_id = arguments["rollout_id"] or ledger.last_id(arguments["artifact_dir"])
        if not rollout_id:
            raise ledger.LedgerError("No rollout was ever planned in %s." % ledger.rollouts_dir(arguments["artifact_dir"]))
        book = ledger.Ledger(arguments["artifact_dir"], rollout_id)
        if arguments["end"] and self.check:
            return {"skipped": True, "msg": "Check mode: no node was taken, there is nothing to report."}
        if not book.exists():
            raise ledger.LedgerError("There is no rollout %s in %s." % (rollout_id, book.base))
        if arguments["end"]:
            doc = self.end(book)
        else:
            view = state.reduce(book.read())
            doc = report.document(view, view.finished is not None or not self.running(book))
        lines = report.table(doc)
        for line in lines:
            self.say(line)
        if arguments["dest"] and not self.check:
            dest = os.path.expanduser(arguments["dest"])
            ledger.write_json(os.path.join(dest, "report.json"), doc)
            ledger.write_file(os.path.join(dest, "report.md"), report.markdown(doc))
        result = {"report": doc, "verdict": doc["verdict"], "table": lines, "directory": book.directory}
        if arguments["fail_unless_complete"] and doc["verdict"] != "complete":
            result.update(
                failed=True,
                msg="Rollout %s to %s is %s (%s). The report is %s."
                % (rollout_id, doc["target"], doc["verdict"], report.count(doc), book.path("report.md")),
            )
        return result

    def end(self, book):
        """Close the run: whoever is still in flight now left without a verdict."""
        controller = self.controller()
        run = owner.require(book, controller)
        with book.transaction() as transaction:
            view = state.reduce(transaction.events)
            for node in gate.vanished(view, ()):
                transaction.append("state", run=run, node=node.name, state="lost", reason=gate.vanished_reason(node))
            if view.finished is None or len(transaction.added):
                transaction.append("end", run=run)
        doc = refresh_report(book)
        owner.release(book, controller)
        return doc

    @staticmethod
    def running(book):
        record = owner.record(book)
        return bool(record) and not record.get("ended") and owner.liveness(record["owner"]) != "dead"
