# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real modules that install packages on a stub node: they find the kernel that the node says it runs, and the node has
the driver that they installed. Imported before anything that asks the machine for its kernel.
"""

from __future__ import annotations

import os

from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode

MACHINE = os.uname()
os.uname = lambda: os.uname_result(
    (MACHINE.sysname, MACHINE.nodename, stubnode.kernel(stubnode.load())["running"], MACHINE.version, MACHINE.machine)
)


class AnsibleModule(basic.AnsibleModule):
    def exit_json(self, **result):
        resolved = result.get("resolved") or {}
        node = stubnode.load()
        if self.params.get("state") == "present" and not self.check_mode and resolved.get("upstream"):
            node["package"] = resolved["version"]
            if node["disk"] != resolved["upstream"]:
                node["disk"] = resolved["upstream"]
                stubnode.note(node, "installed %s" % node["disk"])
        super().exit_json(**result)
