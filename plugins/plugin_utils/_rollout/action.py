# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rollout actions share. They run on the controller; only rollout_step opens a connection to the node, and only for its own copies.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import (
    holds,
    ledger,
    limits,
    outbox,
    owner,
    plan,
    publish,
    state,
    store,
    windows,
)

display = Display()

EXPECTED = (
    holds.HoldError, ledger.LedgerError, limits.LimitError, outbox.WebhookError, owner.OwnerError, plan.PlanError, state.StateError, store.StoreError,
    windows.WindowError, OSError,
)


class RolloutAction(ActionBase):
    """Arguments, errors and the identity of the controller."""

    TRANSFERS_FILES = False
    ARGUMENT_SPEC: dict = {}
    EXPECTED = EXPECTED
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENT_SPEC)
        try:
            result.update(self.act(arguments, task_vars or {}))
        except self.EXPECTED as exc:
            result.update(failed=True, msg=str(exc))
        result.setdefault("changed", False)
        return result

    def act(self, arguments, task_vars):
        raise NotImplementedError

    @staticmethod
    def book(arguments, rollout_id=None):
        return ledger.Ledger(arguments["artifact_dir"], arguments["rollout_id"] if rollout_id is None else rollout_id, arguments["ledger"])

    @property
    def check(self):
        return bool(self._task.check_mode)

    @staticmethod
    def controller():
        """The playbook's own process: the parent of the worker that runs this task."""
        return owner.identify(os.getppid())

    def tell(self, book, arguments, now=False, idle=False):
        """Bring the reports up to date and see to the webhook, after something was written, or when IDLE. Returns the report if it was asked for NOW."""
        doc = publish.refresh(book, now, idle, arguments.get("textfile_dir"), display.warning)
        outbox.kick(book, arguments.get("webhook"), idle, display.warning)
        return doc

    @staticmethod
    def say(line):
        display.display(line)


def owned_view(transaction, book, controller):
    """The view of a rollout that this controller runs; anybody else is refused."""
    run = owner.require(transaction, book.rollout_id, controller)
    if transaction.view.run != run:
        raise owner.OwnerError("Rollout %s was planned again meanwhile; this run may not go on with it." % book.rollout_id)
    return transaction.view


def progress(view, node, text):
    """C([3/4] gpu-r1-2: install)."""
    found = view.nodes.get(node)
    return "[%s/%d] %s: %s" % (found.went if found is not None and found.went else "-", view.total, node, text)


def numbers(view):
    """Where the rollout stands, for whoever shows its progress."""
    policy = view.policy
    return {
        "counts": view.nodes.count(),
        "total": view.total,
        "max_down": policy.get("max_down"),
        "window": view.window,
        "broken_elsewhere": policy.get("broken_elsewhere", 0),
        "failure_budget": policy.get("failure_budget"),
        "node_s": policy.get("node_s"),
    }
