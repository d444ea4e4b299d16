# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an action waits with.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import os
import time

from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import lot

LEAST_S = 2.0  # to begin a task anew costs more than to sleep for less


class Waiting:
    """For one run of one action.

    Where tasks may be given up, ``pause`` ends this process, and the action is run from its beginning again with what it passed as ``note``. So it is called
    where all that was done before can be done once more, or is in the note. Everywhere else ``pause`` sleeps, and ``note`` stays empty.

    Both refuse to go on for a playbook that has ended.
    """

    def __init__(self, action, task_vars, sleep=None, leave=None):
        _controller.require()
        self._action, self._sleep, self._leave = action, sleep, leave
        task = action._task
        self._key = (str((task_vars or {}).get("inventory_hostname") or ""), task._uuid)
        # The items of a loop and the turns of until are one task, of which the worker knows how far it came.
        self.gives_up = bool(lot.CURRENT and lot.CURRENT.open and self._key[0]) and not (task.loop or task.until or task.retries or task.check_mode)
        self.note = lot.CURRENT.note(*self._key) if self.gives_up else {}

    def pause(self, seconds, **note):
        """Wait. NOTE is added to what is known already, and has to be made of what JSON has."""
        _controller.require()
        self.note.update(note)
        if not self.gives_up:
            (self._sleep or time.sleep)(seconds)
            _controller.require()
            return
        # What a worker does at its end: files of the controller that were decrypted, and the place for files on the node, which may be about to reboot.
        with contextlib.suppress(AnsibleError):
            self._action.cleanup()
        self._action._connection.close()
        self._action._loader.cleanup_all_tmp_files()
        lot.CURRENT.leave(*self._key, max(seconds, LEAST_S), self.note)
        (self._leave or os._exit)(0)  # no result: the task has not ended
