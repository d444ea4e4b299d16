# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record an operator's request to a rollout in its ledger."""

from __future__ import annotations

import getpass

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_control import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.others import last_id
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import LedgerError, format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import control, options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import EXPECTED, RolloutAction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import formats, publish, report


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC
    VARIABLES = dict(
        options.VARIABLES, **{key: "rollout_" + key for key in ("verb", "nodes", "limits", "user", "reason")}
    )
    EXPECTED = EXPECTED + (control.ControlError,)

    def act(self, arguments, task_vars) -> dict:
        database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
        rollout_id = arguments["rollout_id"] or last_id(database)
        if not rollout_id:
            raise LedgerError("No rollout was ever planned in %s." % database.shown)
        ledger = self.ledger(arguments, rollout_id)
        request = dict(arguments, user=arguments["user"] or getpass.getuser())

        def write(transaction) -> list[str]:
            if transaction.view.run is None:
                raise LedgerError("There is no rollout %s in %s." % (rollout_id, ledger.store.shown))
            now = transaction.clock()
            running = members.is_running(transaction, now)
            beside = set() if arguments["rollout_id"] else transaction.others.find_running(now)
            request.update(now=now, running=running, beside=beside)
            events, lines = control.decide_events(transaction.view, request)
            if self.check:
                return lines
            for fields in events:
                transaction.append("control", run=transaction.view.run, **fields)
            if arguments["verb"] == "break_lock":
                lines.append(self.break_lock(transaction, rollout_id, request))
            if arguments["verb"] == "end":
                lines.append(self.end(transaction, rollout_id, request))
            return lines

        lines = ledger.transact(write)
        found, dummy, parts = ledger.controllers()
        view = ledger.view()
        over = view.finished is not None or not ledger.running()
        doc = report.build_document(
            view, over, format_time(ledger.store.clock()), before=publish.read_done_nodes(ledger)
        )
        lines = lines + formats.render_table(doc) + control.standing(view, found, owner.describe_owner, parts)
        for line in lines:
            self.say(line)
        # No host changes, but the rollout does.
        return {
            "rollout_id": rollout_id,
            "lines": lines,
            "report": doc,
            "owner": found,
            "members": parts,
            "changed": arguments["verb"] != "status",
        }

    @staticmethod
    def end(transaction, rollout_id, request) -> str:
        view = transaction.view
        if not members.is_shared(transaction.owner):
            raise owner.OwnerError(
                "Rollout %s was planned for one controller, whose run ends it; expected one that "
                "gpufleet.lifecycle.plan has planned. Use rollout_verb=stop to keep further nodes from starting."
                % rollout_id
            )
        if view.finished is not None:
            raise owner.OwnerError("Rollout %s ended at %s already." % (rollout_id, view.finished))
        living = members.find_at_work(transaction, transaction.clock())
        if living:
            raise owner.OwnerError(
                "Rollout %s has %d running job%s: %s. Use rollout_verb=stop to keep further nodes from starting, and "
                "end the rollout when they have ended."
                % (
                    rollout_id,
                    len(living),
                    "" if len(living) == 1 else "s",
                    owner.list_names(owner.describe_owner(member.owner) for member in living),
                )
            )
        transaction.append("end", run=view.run)
        return "Ended by %s: %s." % (request["user"], request["reason"])

    @staticmethod
    def break_lock(transaction, rollout_id, request) -> str:
        found = transaction.owner
        if found is None or found.get("ended"):
            raise owner.OwnerError("No controller runs rollout %s: there is no lock to break." % rollout_id)
        if members.is_shared(found):
            raise owner.OwnerError(
                "Rollout %s was planned for several controllers, and none of them holds a lock on it. A member that is "
                "gone keeps its hosts for %d s after its last heartbeat: run its job again then. To keep further "
                "nodes from starting, use rollout_verb=pause or stop." % (rollout_id, owner.LEASE_S)
            )
        now = transaction.clock()
        why = owner.explain_refusal(rollout_id, found, [], True, now, break_lock=True)
        if why:
            raise owner.OwnerError(why)
        transaction.hold(dict(found, ended=format_time(now), broken="%s: %s" % (request["user"], request["reason"])))
        return "The lock of %s is broken by %s: %s." % (
            owner.describe_owner(found["owner"]),
            request["user"],
            request["reason"],
        )
