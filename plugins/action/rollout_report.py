# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report of a rollout, and fail when it is not complete."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_report import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.others import last_id
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import LedgerError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, options, requests
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import RolloutAction, display
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import (
    formats,
    publish,
    report,
    webhook,
)


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC
    VARIABLES = dict(options.VARIABLES, dest="rollout_report_dir")

    def act(self, arguments, task_vars) -> dict:
        if arguments["end"] and self.check:
            return self.preview(arguments, task_vars)
        database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
        rollout_id = arguments["rollout_id"] or last_id(database)
        if not rollout_id:
            raise LedgerError("No rollout was ever planned in %s." % database.shown)
        ledger = self.ledger(arguments, rollout_id)
        if ledger.look(lambda view: view.run) is None:
            raise LedgerError("There is no rollout %s in %s." % (rollout_id, ledger.store.shown))
        several = members.is_shared(ledger.owner())
        part = None
        if arguments["end"]:
            doc, part, over = self.close_run(ledger, arguments)
            story = None
        else:
            if several and not (arguments["between_jobs"] or self.check):
                self.end_if_nothing_is_left(ledger)
            over = self.is_over(ledger, several, arguments["between_jobs"])
            doc, story = self.read_current(ledger, over, written=arguments["between_jobs"])
        if doc is None:
            return self.answer_without_report(ledger, arguments)
        result = {
            "verdict": doc["verdict"],
            "directory": ledger.directory,
            "files": sorted(publish.NAMES.values()),
            "several": several,
            "plan": ledger.look(lambda view: view.sha256) or "",
            "run": ledger.look(lambda view: view.run),
        }
        if arguments["end"]:
            hosts = task_vars.get("ansible_play_hosts") or []
            gone = set(task_vars.get("ansible_play_hosts_all") or []) - set(hosts)
            result["blame"] = formats.find_failing_hosts(
                doc, hosts, gone, task_vars.get("inventory_hostname"), self.describe_verdict(ledger, doc), part
            )
        else:
            # At the end of a run each reason was printed in full when its node failed.
            length = report.REFERENCE if arguments["between_jobs"] else report.REASON
            result["table"] = formats.render_summary(doc, ledger.path(publish.NAMES["html"]), length)
            for line in result["table"]:
                self.say(line)
        if arguments["dest"] and not self.check:
            dest = os.path.expanduser(arguments["dest"])
            if story is None:
                doc, story = publish.gather_document(ledger, over)
            files.write(dest, publish.render_files(doc, story))
        if arguments["fail_unless_complete"] and doc["verdict"] != "complete":
            result.update(failed=True, msg=self.describe_verdict(ledger, doc))
        return result

    def preview(self, arguments, task_vars) -> dict:
        """Return what a run would install and leave out, in check mode, which has no rollout to report."""
        lines = formats.preview_packages(_answers.accept_all("driver_packages", arguments["previews"]))
        for line in lines:
            self.say(line)
        hosts = task_vars.get("ansible_play_hosts") or []
        return {
            "table": lines,
            "blame": formats.find_refused_hosts(arguments["planned"], hosts, task_vars.get("inventory_hostname")),
            "msg": "Check mode: no node was changed, there is nothing to report.",
        }

    @staticmethod
    def is_over(ledger, several, between_jobs) -> bool:
        """Return True if the rollout is judged as one that is over."""
        finished, stops = ledger.look(lambda view: (view.finished is not None, gate.has_stopped(view)))
        return finished or not (between_jobs and several and not stops or ledger.running())

    @staticmethod
    def end_if_nothing_is_left(ledger) -> None:
        """End a rollout of several controllers that has nothing left to do and no living member.

        Its last member ends it, unless its process was killed before, or an operator skipped the last nodes.
        """

        def may_end(view) -> bool:
            return view.finished is None and state.nothing_left(view)

        def work(transaction) -> None:
            if may_end(transaction.view) and not members.find_living(transaction):
                transaction.append("end", run=transaction.view.run)

        if ledger.look(may_end):
            ledger.transact(work)

    def read_current(self, ledger, over, written) -> tuple:
        """Return the report as it is now, and its timeline if it was made on the way.

        WRITTEN: this run has written the files. Others may be missing, or older than what other controllers did since.
        """
        if self.check or (written and os.path.exists(ledger.path(publish.NAMES["html"]))):
            return publish.try_gather(ledger, display.warning, over)
        return publish.refresh_files(ledger, True, complain=display.warning, ended=over), None

    @staticmethod
    def describe_verdict(ledger, doc) -> str:
        return "Rollout %s to %s is %s (%s). The report is %s." % (
            ledger.rollout_id,
            doc["target"],
            doc["verdict"],
            report.describe_counts(doc),
            ledger.path(publish.NAMES["html"]),
        )

    @staticmethod
    def answer_without_report(ledger, arguments) -> dict:
        """Return the result without a report: the verdict of the ledger counts."""
        verdict, target = ledger.look(lambda view: (state.judge_rollout(view, True), view.target))
        result = {"verdict": verdict, "directory": ledger.directory}
        # At the end of a run no later task can fail.
        if verdict != "complete" and (arguments["fail_unless_complete"] or arguments["end"]):
            result.update(
                failed=True,
                msg=(
                    "Rollout %s to %s is %s. No report of it could be made: see the warning above, and "
                    "the ledger in %s." % (ledger.rollout_id, target, verdict, ledger.store.shown)
                ),
            )
        return result

    def close_run(self, ledger, arguments) -> tuple:
        """Close the run, or this controller's part of it: nodes that are still in flight are lost.

        Returns the report, the hosts of the part, None if the rollout has one controller, and if the rollout is over,
        None if its ledger says so.

        Between the jobs of a rollout with several controllers it is running. Where no further node starts there is no
        job to wait for: the report of the last one says how the rollout stands.
        """
        controller = self.controller()

        def close(transaction) -> tuple[frozenset | None, bool]:
            view = requests.open_view(transaction, ledger.rollout_id, controller)
            part = members.find_hosts(transaction, controller)
            for node in gate.find_vanished(view, (), part):
                transaction.append(
                    "state",
                    run=view.run,
                    node=node.name,
                    state="lost",
                    reason=gate.vanished_reason(node),
                    failure=state.LOST,
                )
            # The end of one member is not the end of the rollout, unless it leaves nothing to do.
            over = part is None or state.nothing_left(view)
            if over and (view.finished is None or transaction.added):
                transaction.append("end", run=view.run)
            members.release_part(transaction, controller)
            return part, gate.has_stopped(transaction.view)

        part, stops = ledger.transact(close)
        over = (part is not None and stops and not ledger.running()) or None
        doc = self.tell(ledger, arguments, now=True, ended=over)
        webhook.flush_pending(ledger, arguments["webhook"], display.warning)
        return doc, part, over
