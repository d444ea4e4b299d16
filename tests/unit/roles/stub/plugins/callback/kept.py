# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kept
type: aggregate
short_description: Keep the modules that Ansible packed for the next run
description:
  - Packages of modules of earlier runs of the same tests are as good as those that a run makes itself.
author: gpufleet contributors (@gpufleet)
"""

import contextlib
import gc
import importlib

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import action_loader, connection_loader, shell_loader

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import kept_packages

# What nearly every task asks for, and no task before it left in the main process.
PLUGINS = (
    (connection_loader, ("ansible.builtin.local",)),
    (shell_loader, ("sh",)),
    (action_loader, ("ansible.builtin.normal",)),
)
PROFILES = tuple("ansible.module_utils._internal._json._profiles._module_legacy_" + way for way in ("c2m", "m2c"))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpufleet.lifecycle.kept"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        kept_packages.fetch()
        self.prepare()

    @staticmethod
    def prepare():
        """The workers are copies of this process: what is here each of them has, and need not load again."""
        for name in PROFILES:
            with contextlib.suppress(ImportError):  # ansible-core 2.18 has none
                importlib.import_module(name)
        for loader, names in PLUGINS:
            for name in names:
                loader.get(name, class_only=True)
        # Garbage is looked for rarely: that writes to all memory, which a worker shares with this process as long as
        # neither does.
        gc.freeze()
        gc.set_threshold(50000)

    def v2_playbook_on_stats(self, stats):
        kept_packages.keep()
