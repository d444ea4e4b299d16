# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles run by Ansible with modules that answer what a test says, and write down what they were asked."""

from __future__ import annotations

import importlib
import json
import types

import yaml

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node

MODULE = """
import json, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec=json.loads(%(options)r), supports_check_mode=True)
given = dict((key, value) for key, value in module.params.items() if value is not None)
with open(%(root)r + "/asked", "a") as stream:
    stream.write(json.dumps({"module": %(name)r, "check": module.check_mode, "options": given}) + "\\n")
with open(%(root)r + "/answers.json") as stream:
    answers = json.load(stream)
answer = answers[%(name)r].pop(0) if len(answers[%(name)r]) > 1 else answers[%(name)r][0]
with open(%(root)r + "/answers.json", "w") as stream:
    json.dump(answers, stream)
(module.fail_json if answer.get("failed") else module.exit_json)(**dict({"changed": False, "msg": ""}, **answer))
"""


def options_of(name):
    """Return the names of a module's options."""
    module = importlib.import_module("ansible_collections.gpufleet.lifecycle.plugins.modules." + name)
    for place in (module, getattr(module, "options", None)):
        if hasattr(place, "ARGUMENT_SPEC"):
            return list(place.ARGUMENT_SPEC)
    return list(yaml.safe_load(module.DOCUMENTATION)["options"])


class RecordedNode(simulated_node.SimulatedNode):
    """A node without a simulator.

    ANSWERS are the results of each recorded module in their order; the last one stays.
    """

    def __init__(self, base, roles, **answers):
        root = base / "root"
        root.mkdir(parents=True)
        super().__init__(
            base / "node", types.SimpleNamespace(root=root, model="", units={}, daemons={}, close=lambda: None), roles
        )
        for name in answers:
            path = collection.place(self.base / "collections") / "plugins/modules" / (name + ".py")
            if path.is_symlink():
                path.unlink()
            path.write_text(
                MODULE
                % {
                    "options": json.dumps(dict.fromkeys(options_of(name), {"type": "raw"})),
                    "root": str(root),
                    "name": name,
                }
            )
            self.own_modules.append(name)  # not to be kept for other runs
        self.answer(**answers)

    def answer(self, **answers):
        path = self.root / "answers.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known.update((name, found if isinstance(found, list) else [found]) for name, found in answers.items())
        path.write_text(json.dumps(known))

    def asked(self, name, check=False):
        """The options of each call of a module, in check mode or not."""
        path = self.root / "asked"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call["options"] for call in found if call["module"] == name and call["check"] is check]
