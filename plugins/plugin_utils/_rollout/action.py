# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rollout actions share. They run on the controller and never open a connection to the node.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger, owner, plan, report, state

display = Display()

EXPECTED = (ledger.LedgerError, owner.OwnerError, plan.PlanError, state.StateError, OSError)


class RolloutAction(ActionBase):
    """Arguments, errors and the identity of the controller."""

    TRANSFERS_FILES = False
    ARGUMENT_SPEC: dict = {}
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENT_SPEC)
        try:
            result.update(self.act(arguments, task_vars or {}))
        except EXPECTED as exc:
            result.update(failed=True, msg=str(exc))
        result.setdefault("changed", False)
        return result

    def act(self, arguments, task_vars):
        raise NotImplementedError

    @property
    def check(self):
        return bool(self._task.check_mode)

    @staticmethod
    def controller():
        """The playbook's own process: the parent of the worker that runs this task."""
        return owner.identify(os.getppid())

    @staticmethod
    def say(line):
        display.display(line)


def refresh_report(book, ended=False):
    """Write the report as it stands, so that it is there whatever happens next."""
    with ledger.locked(book.path("report.lock")):
        view = state.reduce(book.read())
        doc = report.document(view, ended or view.finished is not None)
        ledger.write_json(book.path("report.json"), doc)
        ledger.write_file(book.path("report.md"), report.markdown(doc))
    return doc


def progress(view, node, text):
    """C([3/4] gpu-r1-2: install)."""
    position = view.position(node)
    return "[%s/%d] %s: %s" % (position if position else "-", len(view.order), node, text)
