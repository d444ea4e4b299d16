# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_health: one process that reads all there is to read, and judges nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_health
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _nvml_action

pytestmark = pytest.mark.cores


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
    monkeypatch.setattr(
        gpu_health.reading, "gather", lambda *args, **options: seen.append(args + (options,)) or {"a": "reading"}
    )
    result = run(monkeypatch, lambda *args: {"snapshot": taken, "warnings": []})
    assert result == {"changed": False, "facts": {"a": "reading"}}
    assert seen == [(taken, {"watermark": None})]
    since = {"boot_id": "b", "seq": 7}
    run(monkeypatch, lambda *args: {"snapshot": taken, "warnings": []}, since=since)
    assert seen[-1] == (taken, {"watermark": since})


def test_nothing_else_is_read_before_the_binding_is_there(monkeypatch):
    monkeypatch.setattr(gpu_health.reading, "gather", lambda *args: pytest.fail("read too early"))
    assert run(monkeypatch, lambda *args: {"needs_binding": True, "warnings": []}) == {
        "changed": False,
        "needs_binding": True,
    }


def test_a_timeout_that_is_none_is_refused(monkeypatch):
    assert run(monkeypatch, lambda *args: pytest.fail("read"), timeout_s=0)["failed"] is True


def test_the_options_of_the_action_alone_are_not_for_playbooks():
    assert options.INTERNAL_SPEC["binding_archive"]["no_log"] is True
    assert options.ARGUMENT_SPEC["phase"]["choices"] == list(model.PHASES)
    assert set(options.INTERNAL_SPEC) == set(_nvml_action.INTERNAL) and not set(options.INTERNAL_SPEC) & set(
        options.ARGUMENT_SPEC
    )
