# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: hosttasks
type: aggregate
short_description: Count the host-tasks of a run, and keep what Ansible made of the modules for the next one
description:
  - Writes each task that is started on a host, by play and host, those included that are skipped, include others or validate arguments.
  - Ansible packs each module with what it imports once in a run. The packages of earlier runs of the same tests are as good.
author: gpufleet contributors (@gpufleet)
"""

import contextlib
import json
import os
import pathlib

from ansible import constants
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpufleet.lifecycle.hosttasks"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.play = ""
        self.counted = {}
        self.last = {}
        self.copy(self.kept(), self.packed())

    @staticmethod
    def packed():
        """Where this run has its packages."""
        return pathlib.Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache"

    @staticmethod
    def kept():
        return pathlib.Path(os.environ["GPUFLEET_MODULES"])

    @staticmethod
    def copy(source, target):
        """Whole files only: a link appears at once, and what another run made meanwhile is the same."""
        target.mkdir(parents=True, exist_ok=True)
        for path in source.glob("*"):
            if path.suffix not in (".lock", ".part") and not path.name.endswith("-part"):
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    os.link(path, target / path.name)

    def v2_playbook_on_play_start(self, play):
        self.play = play.get_name()

    def v2_runner_on_start(self, host, task):
        if self.last.get(host.get_name()) == task._uuid:
            return  # it gave its worker back and goes on
        self.last[host.get_name()] = task._uuid
        # Each turn of the gate is a task too. How many there are is a matter of waiting, not of the path.
        self.counted.setdefault(self.play, {}).setdefault(host.get_name(), []).append("%s | %s" % (task.get_name(), task.action))

    def v2_playbook_on_stats(self, stats):
        self.copy(self.packed(), self.kept())
        with open(os.environ["GPUFLEET_HOST_TASKS"], "w", encoding="utf-8") as stream:
            json.dump(self.counted, stream)
