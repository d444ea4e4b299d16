# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_health: one process that reads GPUs, driver and boot id, and judges nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_health as action
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import session, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_health


class Done(Exception):
    pass


class FakeModule:
    def __init__(self, params, **options):
        self.params = dict((name, option.get("default")) for name, option in options["argument_spec"].items())
        self.params.update(params)
        self.options = options
        self._remote_tmp = None
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        raise Done(result)

    def fail_json(self, **result):
        raise Done(dict(result, failed=True))


def run(monkeypatch, read, **params):
    monkeypatch.setattr(gpu_health, "AnsibleModule", lambda **options: FakeModule(params, **options))
    monkeypatch.setattr(gpu_health.node, "read", read)
    with pytest.raises(Done) as done:
        gpu_health.main()
    return done.value.args[0]


def test_everything_is_read_in_one_process(monkeypatch):
    taken = snapshot.blank("nvml_error", "why", 9)
    seen = []
    monkeypatch.setattr(gpu_health.audit, "read", lambda root, runner: seen.append((root, type(runner).__name__)) or {"facts": 1})
    monkeypatch.setattr(gpu_health.audit, "decide", lambda facts: {"of": facts})
    result = run(monkeypatch, lambda *args: {"snapshot": taken, "warnings": []})
    assert result == {"changed": False, "facts": {"snapshot": taken, "audit": {"of": {"facts": 1}}, "boot_id": session.boot_id()}}
    assert seen == [("/", "Runner")]


def test_nothing_else_is_read_before_the_binding_is_there(monkeypatch):
    monkeypatch.setattr(gpu_health.audit, "read", lambda root, runner: pytest.fail("read too early"))
    assert run(monkeypatch, lambda *args: {"needs_binding": True, "warnings": []}) == {"changed": False, "needs_binding": True}


def test_a_timeout_that_is_none_is_refused(monkeypatch):
    assert run(monkeypatch, lambda *args: pytest.fail("read"), timeout_s=0)["failed"] is True


def test_module_and_action_take_the_same_options():
    mine = dict(gpu_health.ARGUMENT_SPEC)
    assert mine.pop("binding_archive")["no_log"] is True
    assert mine.pop("binding_digest")
    assert mine == action.ARGUMENT_SPEC
