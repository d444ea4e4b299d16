# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the tasks started on each host, skipped ones and argument validation too."""

from __future__ import annotations

import json
import os

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpufleet.lifecycle.host_tasks"

    def __init__(self):
        super().__init__()
        self.started = {}

    def v2_runner_on_start(self, host, task):
        self.started.setdefault(host.get_name(), []).append(task.get_name())

    def v2_playbook_on_stats(self, stats):
        with open(os.environ["GPUFLEET_STUB_RESULTS"] + "/started.json", "w", encoding="utf-8") as stream:
            json.dump(self.started, stream)
