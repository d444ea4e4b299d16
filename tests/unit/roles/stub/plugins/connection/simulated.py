# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: simulated
short_description: A simulated node below a directory
description:
  - Does what P(ansible.builtin.local#connection) does. Modules are run by the one Python of all nodes that the tests
    have started, which has imported already what every module imports.
author: gpufleet contributors (@gpufleet)
"""

import os

from ansible.plugins.connection.local import Connection as LocalConnection

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import python_of_nodes


class Connection(LocalConnection):
    transport = "gpufleet.lifecycle.simulated"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        given = python_of_nodes.plain(cmd, os.environ["GPUFLEET_NODE_PYTHON"]) if in_data else None
        if given is None:
            return super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return python_of_nodes.run(os.environ["GPUFLEET_STUB_PYTHON"], in_data, dict(os.environ, **given), os.getcwd())
