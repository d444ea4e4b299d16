# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: hosttasks
type: aggregate
short_description: Count the host-tasks of a run, and keep what Ansible made of the modules for the next one
description:
  - Writes each task that is started on a host, by play and host, those included that are skipped, include others or
    validate arguments; at the end, and one by one at once where a test waits for it.
  - Ansible packs each module with what it imports once in a run. The packages of earlier runs of the same tests are as
    good.
author: gpufleet contributors (@gpufleet)
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import time

import sqlalchemy
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import (
    action_loader,
    connection_loader,
    filter_loader,
    lookup_loader,
    shell_loader,
    test_loader,
)

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import kept_packages
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import html

# What nearly every task of a rollout asks for, and no task before it left in the main process.
PLUGINS = (
    (connection_loader, ("ansible.builtin.local", "gpufleet.lifecycle.stubnode")),
    (shell_loader, ("sh",)),
    (action_loader, ("ansible.builtin.normal", "ansible.builtin.copy")),
    (lookup_loader, ("ansible.builtin.env",)),
    (filter_loader, ("ansible.builtin.bool", "gpufleet.lifecycle.scheduler_state", "gpufleet.lifecycle.upgrade_state")),
    (test_loader, ("ansible.builtin.version",)),
)
PROFILES = tuple("ansible.module_utils._internal._json._profiles._module_legacy_" + way for way in ("c2m", "m2c"))


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
        kept_packages.fetch()
        # Where it is measured what a controller takes, nothing is made cheaper.
        self.cheap = bool(os.environ.get("GPUFLEET_CHEAP"))
        if self.cheap:
            self.prepare()

    @staticmethod
    def prepare():
        """The workers are copies of this process: what is here each of them has, and need not load or compile again."""
        for name in PROFILES:
            with contextlib.suppress(ImportError):  # ansible-core 2.18 has none
                importlib.import_module(name)
        # What they make at their first use.
        time.strptime("2026-01-01T00:00:00.000000Z", "%Y-%m-%dT%H:%M:%S.%fZ")
        with sqlalchemy.create_engine(sqlalchemy.make_url("sqlite://")).connect() as connection:
            connection.execute(sqlalchemy.select(1))
        for loader, names in PLUGINS:
            for name in names:
                loader.get(name, class_only=True)
        html.make_environment = functools.lru_cache(maxsize=None)(html.make_environment)
        for name in html.make_environment().list_templates(extensions=["j2"]):
            html.make_environment().get_template(name)
        # Garbage is looked for rarely: that writes to all memory, which a worker shares with this process as long as
        # neither does.
        gc.freeze()
        gc.set_threshold(50000)

    def v2_playbook_on_play_start(self, play):
        self.play = play.get_name()
        if self.cheap:
            gc.freeze()

    def v2_runner_on_start(self, host, task):
        if self.last.get(host.get_name()) == task._uuid:
            return  # it gave its worker back and goes on
        self.last[host.get_name()] = task._uuid
        # Each turn of the gate is a task too. How many there are is a matter of waiting, not of the path.
        self.counted.setdefault(self.play, {}).setdefault(host.get_name(), []).append(
            "%s | %s" % (task.get_name(), task.action)
        )
        if "GPUFLEET_STARTED" in os.environ:
            with open(os.environ["GPUFLEET_STARTED"], "a", encoding="utf-8") as stream:
                stream.write("%s %s\n" % (host.get_name(), task.get_name()))

    def v2_playbook_on_stats(self, stats):
        kept_packages.keep()
        with open(os.environ["GPUFLEET_HOST_TASKS"], "w", encoding="utf-8") as stream:
            json.dump(self.counted, stream)
