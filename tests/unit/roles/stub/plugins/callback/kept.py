# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kept
type: aggregate
short_description: Keep what Ansible made of modules and templates for the next run
description:
  - Packages of modules and compiled templates of earlier runs of the same tests are as good as those that a run makes
    itself.
author: gpufleet contributors (@gpufleet)
"""

from ansible.plugins.callback import CallbackBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import kept_packages, kept_templates


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpufleet.lifecycle.kept"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        kept_packages.fetch()
        kept_templates.Kept(kept_packages.directory() / "templates").install()

    def v2_playbook_on_stats(self, stats):
        kept_packages.keep()
