# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the rollout actions, which run on the controller.

Only rollout_gate and rollout_step connect to the node, for its claim and its copies of documents.
"""

from __future__ import annotations

import os
import typing as t

from ansible import constants as C

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller, _variables
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, owner, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.others import find_last_changes, last_id
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import ROLLOUT_ID, LedgerError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import holds, limits, options, order, plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import publish, webhook
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result, display

PROGRESS = "gpufleet.lifecycle.rollout_progress"
EXPECTED = (
    _controller.ControllerError,
    order.DomainError,
    holds.HoldError,
    LedgerError,
    options.OptionError,
    webhook.WebhookError,
    owner.OwnerError,
    plan.PlanError,
    state.StateError,
    store.StoreError,
    _variables.VariableError,
    limits.WindowError,
    OSError,
)


# Options that are no part of the way of a node. Nodes that have not started need those of holds all the same.
BESIDE = ("webhook", "textfile_dir", "hold_queries", "hold_deadline_s", "hold_age_s")


class RolloutAction(NodeActionBase):
    """Arguments, errors and the identity of the controller."""

    TRANSFERS_FILES = False
    ARGUMENT_SPEC: dict = {}
    EXPECTED = EXPECTED
    VARIABLES = options.VARIABLES
    unusable: dict = {}  # why options were left out, by name
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars or {})
        try:
            arguments = self.read_options(self._task.args)
            files.require_home(str(arguments.get("artifact_dir") or ""))
            result.update(self.act(arguments, task_vars or {}))
        except OSError as exc:
            result.update(failed=True, msg=self.unwritable(exc))
        except self.EXPECTED as exc:
            result.update(failed=True, msg=str(exc))
        result.setdefault("changed", False)
        return clean_result(result)

    def read_options(self, given: dict) -> dict:
        """Return the options as the specification has them.

        The plan is refused where a webhook, the textfile or a hold cannot be used. A node in flight is finished
        without.
        """
        beside = {key: value for key, value in given.items() if key in BESIDE}
        self.unusable = options.find_unusable(beside, self.ARGUMENT_SPEC, self.VARIABLES)
        for why in self.unusable.values():
            display.warning("%s It is left out here." % why)
        usable = {key: value for key, value in given.items() if key not in self.unusable}
        return options.read_options(usable, self.ARGUMENT_SPEC, self.VARIABLES)

    def act(self, arguments, task_vars):
        raise NotImplementedError

    def unwritable(self, exc) -> str:
        """Return the message for a path of the controller that cannot be used, with the variable that sets it."""
        path, given = str(exc.filename or ""), dict(self._task.args)
        given.update((name.removeprefix(options.PREFIX), value) for name, value in given.get("policy", {}).items())
        names = {"dest": "rollout_report_dir", "textfile_dir": "rollout_textfile_dir"}
        places = [
            (names.get(key, "gpufleet_artifact_dir"), os.path.abspath(os.path.expanduser(str(given[key]))))
            for key in ("dest", "textfile_dir", "artifact_dir")
            if given.get(key)
        ]
        if given.get("ledger") and not any(path.startswith(place) for dummy, place in places):
            places = [("rollout_ledger", path)]
        name = next(
            (variable for variable, place in places if path.startswith(place)),
            places[-1][0] if places else "gpufleet_artifact_dir",
        )
        return "%s: %s cannot be used on the controller: %s. Set %s to a directory that can be written." % (
            name,
            path or "it",
            exc.strerror or exc,
            name,
        )

    @staticmethod
    def ledger(arguments, rollout_id=None) -> Ledger:
        return Ledger(
            arguments["artifact_dir"],
            arguments["rollout_id"] if rollout_id is None else rollout_id,
            arguments["ledger"],
        )

    def undone(self, arguments, names) -> tuple[Ledger | None, str]:
        """Return (ledger of the rollout to roll back, id of an interrupted rollback of it); None and "" if none.

        Without rollback_of it is the last rollout if that is an interrupted rollback, else the last one that changed
        the nodes NAMES. Nodes that were changed last by different rollouts are refused.
        """
        wanted = arguments["undo"]
        if not wanted:
            return None, ""
        if not ROLLOUT_ID.fullmatch(wanted):
            raise plan.PlanError(
                "rollback_of is %r; expected the id of a rollout such as upgrade-535.261.03, or nothing for the last "
                "one. Nothing was changed." % wanted
            )
        database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
        rollout_id, broken_off = last_id(database) if wanted == "last" else wanted, ""
        if not rollout_id:
            raise plan.PlanError("There is no rollout to roll back in %s. Nothing was changed." % database.shown)
        ledger = self.ledger(arguments, rollout_id)
        view = ledger.view()
        if wanted == "last" and not (view.undo and view.finished is None):
            rollout_id = find_rollout_to_undo(find_last_changes(database, names)) or rollout_id
            ledger = self.ledger(arguments, rollout_id)
            view = ledger.view()
        if wanted == "last" and view.undo:
            if view.finished is not None:
                raise plan.PlanError(
                    "The last rollout, %s, was itself a rollback, and has ended. Name the rollout to roll back, such "
                    "as rollback_of=%s. Nothing was changed." % (rollout_id, view.undo)
                )
            broken_off, rollout_id = rollout_id, view.undo
            ledger = self.ledger(arguments, rollout_id)
            view = ledger.view()
        if view.run is None:
            raise plan.PlanError(
                "There is no rollout %s to roll back in %s. Correct rollback_of. Nothing was "
                "changed." % (rollout_id, database.shown)
            )
        return ledger, broken_off

    @property
    def check(self) -> bool:
        return bool(self._task.check_mode)

    @staticmethod
    def controller() -> dict:
        """Return the identity of the playbook's process; refuse a task whose playbook has ended."""
        return owner.identify_process(_controller.require())

    def on_node(self, task_vars, **args) -> dict:
        """Return the result of node_state on the node of the task; a failure where it does not answer in time."""
        seconds = _controller.answer_timeout(self, task_vars) + int(args.get("lock_timeout_s") or 0)
        try:
            with _controller.limit(seconds, str(task_vars.get("inventory_hostname"))):
                return self.run_module("gpufleet.lifecycle.node_state", args, task_vars)
        except _controller.AnswerTimeout as exc:
            return {"failed": True, "msg": str(exc)}

    def tell(self, ledger, arguments, now=False, idle=False, ended=None) -> dict | None:
        """Update the reports and notify the webhook, after a write or when IDLE. Returns the report if NOW.

        ENDED: as in publish.gather_document().
        """
        textfile_dir = arguments.get("textfile_dir")
        identity = self.controller() if textfile_dir else None
        doc = publish.refresh_files(ledger, now, idle, textfile_dir, display.warning, ended, identity)
        webhook.send_pending(ledger, arguments.get("webhook"), idle, display.warning)
        return doc

    def say_brakes(self, ledger, found) -> None:
        """Print what keeps nodes from starting, once for the whole rollout, and when that has ended."""
        before = self.update_file(ledger, "brakes.lock", lambda kept: (kept.get("brakes") or [], {"brakes": found}))
        if before is None or before == found:
            return
        for line in [line for line in found if line not in before] or ([] if found else ["Nodes may start again."]):
            self.say(line)

    @staticmethod
    def update_file(ledger, name, decide) -> bool | list[str] | None:
        """Return the answer of DECIDE(content), which answers (answer, new content), for the JSON file NAME.

        For what one process of the controller prints for all: None if another process has the file, or if it cannot be
        used, which is a warning.
        """
        try:
            with files.open_locked(ledger.path(name), 0.0) as handle:
                if handle is None:
                    return None
                before = files.read_json(handle)
                answer, after = decide(before)
                if after != before:
                    files.write_json(handle, after)
                return answer
        except OSError as exc:
            display.warning(
                "Why nodes of rollout %s do not start yet is not printed here: %s" % (ledger.rollout_id, exc)
            )
            return None

    @staticmethod
    def say(line) -> None:
        """Print a line of progress to stderr, so that what a JSON callback prints to stdout stays JSON."""
        display.display(line, stderr=True)

    def say_progress(self, line) -> None:
        """Print the line of a transition, unless callback rollout_progress does."""
        if PROGRESS not in C.CALLBACKS_ENABLED:
            self.say(line)


def find_rollout_to_undo(changes: t.Mapping[str, t.Sequence[str]]) -> str:
    """Return the rollout that changed the nodes last; "" if none did.

    CHANGES: as find_last_changes() returns them.

    Raises:
        PlanError: The nodes were changed last by different rollouts.
    """
    if len(changes) > 1:
        raise plan.PlanError(
            "The nodes were changed last by %d rollouts, and a rollback is of one. Nothing was changed. Run "
            "gpufleet.lifecycle.rollback for each: %s."
            % (
                len(changes),
                "; ".join(
                    "-e rollback_of=%s -e rollback_hosts=%s" % (rollout_id, ",".join(names))
                    for rollout_id, names in changes.items()
                ),
            )
        )
    return next(iter(changes), "")
