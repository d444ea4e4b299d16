# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules that change GPUs (_nvml_task) without a node: their options, a lock below a directory, and what the
archive would answer.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _nvml_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding


class Done(Exception):
    pass


class FakeModule:
    """What the frame needs of AnsibleModule."""

    def __init__(self, options, given, check_mode, diff):
        spec = dict(options.ARGUMENT_SPEC, **options.INTERNAL_SPEC)
        self.params = dict((name, option.get("default")) for name, option in spec.items())
        self.params.update({"binding_digest": "d" * 64}, **given)
        self.check_mode, self._diff = check_mode, diff
        self.warnings = []
        self._remote_tmp = "/tmp/x"

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        self.result = result
        raise Done()

    def fail_json(self, **result):
        self.exit_json(**dict(result, failed=True))


class Frame:
    """Runs the modules of a test; the last AnsibleModule is in module."""

    def __init__(self, monkeypatch, path):
        self.monkeypatch, self.path, self.real = monkeypatch, path, lock.NodeLock
        self.module = None
        monkeypatch.setattr(
            lock, "NodeLock", lambda owner, timeout_s: self.real(path=path, owner=owner, timeout_s=timeout_s)
        )
        monkeypatch.setattr(lock, "ignore_hangup", lambda: None)

    def taken(self, **owner):
        """The lock, taken by another."""
        return self.real(path=self.path, owner=owner)

    def holder(self):
        """Who holds the lock; None where it is free."""
        return lock.read_json(self.path) if lock.is_held(self.path) else None

    def run(self, main, options, runtime, check_mode=False, diff=True, ready=None, **given):
        """The result of MAIN, the main function of a module with OPTIONS; RUNTIME is what node.ready answers."""
        self.module = FakeModule(options, given, check_mode, diff)
        self.monkeypatch.setattr(_nvml_task, "AnsibleModule", lambda **spec: self.module)
        self.monkeypatch.setattr(_nvml_task.node, "ready", ready or (lambda *args: (runtime, ["cache"])))
        with pytest.raises(Done):
            main()
        return self.module.result


def answer(**more):
    """A result of the work of a module."""
    return dict({"changed": True, "warnings": ["careful"], "diff": {"before": {}, "after": {}}, "msg": "done"}, **more)


class Runtime:
    """What node.ready answers for a module whose work is PACKAGE of the archive.

    It notes each call, and answers RESULT or raises it. What it is called has to be in the archive that the controller
    sends.
    """

    def __init__(self, frame, package, result, **names):
        assert package.replace(".", "/") + ".py" in _binding.code_files(), package
        self.frame, self.package, self.result, self.seen = frame, package, result, []
        for name, value in names.items():
            setattr(self, name, value)

    def module(self, name):
        assert name == self.package
        return self

    def load_binding(self):
        raise AssertionError("only the child loads the binding")

    def run(self, *arguments):
        self.seen.append((arguments, self.frame.holder()))
        if isinstance(self.result, Exception):
            raise self.result
        return dict(self.result)
