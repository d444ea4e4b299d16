# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In place of gpu_health: answers what the test has written for the node, after a while if it says so, or is
unreachable.
"""

from __future__ import annotations

import json
import os
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        directory, name = os.environ["GPUFLEET_STUB_RESULTS"], task_vars["inventory_hostname"]
        with open(os.path.join(directory, name + ".args"), "w", encoding="utf-8") as stream:
            json.dump(self._task.args, stream)
        with open(os.path.join(directory, name + ".json"), encoding="utf-8") as stream:
            answer = json.load(stream)
        time.sleep(answer.pop("hangs_s", 0))
        if answer.get("unreachable"):
            raise AnsibleConnectionFailure(answer["msg"])
        result.update(answer)
        return result
