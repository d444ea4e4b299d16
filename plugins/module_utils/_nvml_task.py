# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frame of the modules that change GPUs: options, the NVML binding, the node's lock, and how a task ends."""

from __future__ import annotations

import contextlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding


class Undone(Exception):
    """Nothing was done; the text says why. With the snapshot if that is the reason."""

    def __init__(self, text, snapshot=None) -> None:
        super().__init__(text)
        self.snapshot = snapshot


class NvmlTask:
    """One module. A subclass names it and its module of options, and does the work."""

    name = ""
    options = None
    # What a refusal says, such as "nothing was changed", and what needs root.
    undone = ""
    subject = ""

    def __init__(self) -> None:
        options = self.options
        self.module = AnsibleModule(
            argument_spec=dict(options.ARGUMENT_SPEC, **binding.ARGUMENTS),
            mutually_exclusive=getattr(options, "MUTUALLY_EXCLUSIVE", ()),
            supports_check_mode=True,
        )
        self.params, self.check_mode = self.module.params, self.module.check_mode
        self.nvml = None

    # ---- what a module says of itself ----

    def changes(self) -> bool:
        """Return whether something may be changed, so that the node's lock is needed."""
        return not self.check_mode

    def step(self) -> str:
        """The step that the lock names for a task that names none."""
        return ""

    def work(self, held):
        """The result; HELD is the node's lock, None where nothing is changed. Raises Undone."""
        raise NotImplementedError

    # ---- what they share ----

    def lock(self):
        """The node's lock, for as long as something may be changed."""
        if not self.changes():
            return contextlib.nullcontext()
        lock.ignore_hangup()
        owner = {
            "module": self.name,
            "rollout_id": self.params["rollout_id"],
            "step": self.params["step"] or self.step(),
        }
        return lock.NodeLock(owner=owner, timeout_s=self.params["lock_timeout_s"])

    def fail_early(self) -> None:
        """Fail for options that do not go together."""
        problem = self.options.contradiction(self.params)
        if problem:
            self.module.fail_json(msg=problem)

    def main(self) -> None:
        """Run the task to its end."""
        module = self.module
        self.fail_early()
        self.nvml = binding.get_binding(module, self.undone)
        try:
            with self.lock() as held:
                result = self.work(held)
        except lock.LockTimeout as exc:
            module.fail_json(msg=str(exc), lock=exc.holder)
        except PermissionError as exc:
            module.fail_json(msg="%s: %s needs root (become: true): %s" % (self.undone, self.subject, exc))
        except Undone as exc:
            module.fail_json(msg=str(exc), **({"snapshot": exc.snapshot} if exc.snapshot else {}))
        result["lock_waited_s"] = held.waited_s if held else None
        for warning in result.pop("warnings"):
            module.warn(warning)
        if not module._diff:
            result.pop("diff")
        if result.get("failed"):
            module.fail_json(**result)
        module.exit_json(**result)
