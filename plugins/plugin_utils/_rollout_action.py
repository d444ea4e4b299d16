# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rollout actions share. They run on the controller; only rollout_step opens a connection to the node, and only for its own copies."""

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, owner, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger, LedgerError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import domains, holds, limits, options, plan, windows
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import outbox, publish

display = Display()

EXPECTED = (
    _controller.ControllerError,
    domains.DomainError,
    holds.HoldError,
    LedgerError,
    limits.LimitError,
    options.OptionError,
    outbox.WebhookError,
    owner.OwnerError,
    plan.PlanError,
    state.StateError,
    store.StoreError,
    windows.WindowError,
    OSError,
)


class RolloutAction(ActionBase):
    """Arguments, errors and the identity of the controller."""

    TRANSFERS_FILES = False
    ARGUMENT_SPEC: dict = {}
    EXPECTED = EXPECTED
    VARIABLES = options.VARIABLES
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        try:
            self._task.args = options.read(self._task.args, self.ARGUMENT_SPEC, self.VARIABLES)
            dummy, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENT_SPEC)
            result.update(self.act(arguments, task_vars or {}))
        except OSError as exc:
            result.update(failed=True, msg=self.unwritable(exc))
        except self.EXPECTED as exc:
            result.update(failed=True, msg=str(exc))
        result.setdefault("changed", False)
        return result

    def act(self, arguments, task_vars):
        raise NotImplementedError

    def unwritable(self, exc):
        """What to say of a directory or file of the controller that cannot be used: whose it is, and the variable that says where it lies."""
        path, given = str(exc.filename or ""), self._task.args
        places = [(self.VARIABLES.get(key, key), os.path.abspath(os.path.expanduser(str(given[key])))) for key in ("dest", "textfile_dir", "artifact_dir")
                  if given.get(key)]
        if given.get("ledger") and not any(path.startswith(place) for dummy, place in places):
            places = [("rollout_ledger", path)]
        name = next((variable for variable, place in places if path.startswith(place)), places[-1][0] if places else "gpufleet_artifact_dir")
        return "%s: %s cannot be used on the controller: %s. Give %s a directory that can be written." % (name, path or "it", exc.strerror or exc, name)

    @staticmethod
    def ledger(arguments, rollout_id=None):
        return Ledger(
            arguments["artifact_dir"],
            arguments["rollout_id"] if rollout_id is None else rollout_id,
            arguments["ledger"],
        )

    @property
    def check(self):
        return bool(self._task.check_mode)

    @staticmethod
    def controller():
        """The playbook's own process, as long as this task still belongs to it."""
        return owner.identify(_controller.require())

    def on_node(self, task_vars, **args):
        """What node_claim answers on the node of the task."""
        return self._execute_module(module_name="gpufleet.lifecycle.node_claim", module_args=args, task_vars=task_vars)

    def tell(self, ledger, arguments, now=False, idle=False):
        """Bring the reports up to date and see to the webhook, after something was written, or when IDLE. Returns the report if it was asked for NOW."""
        doc = publish.refresh(ledger, now, idle, arguments.get("textfile_dir"), display.warning)
        outbox.kick(ledger, arguments.get("webhook"), idle, display.warning)
        return doc

    def say_brakes(self, ledger, found):
        """Say what keeps nodes from starting, once for the whole rollout, and when that is over."""
        path = ledger.path("brakes.lock")
        try:
            with files.locked(path, 0.0) as handle:
                if handle is None:
                    return  # somebody else is about to say it
                before = files.read_json(handle).get("brakes") or []
                if before == found:
                    return
                files.write_json(handle, {"brakes": found})
        except OSError as exc:
            display.warning("What holds rollout %s is not said here: %s" % (ledger.rollout_id, exc))
            return
        for line in [line for line in found if line not in before] or ([] if found else ["Nodes may start again."]):
            self.say(line)

    @staticmethod
    def say(line):
        display.display(line)


def owned_view(transaction, ledger, identity):
    """The view of a rollout that this controller runs; anybody else is refused, and so is what is left of this one after its end."""
    _controller.require()
    run = owner.require(transaction, ledger.rollout_id, identity)
    if transaction.view.run != run:
        raise owner.OwnerError(
            "Rollout %s was planned again meanwhile; this run may not go on with it." % ledger.rollout_id
        )
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
