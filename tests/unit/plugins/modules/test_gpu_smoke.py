# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_smoke: it measures, hands on what it was asked, and judges nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _smoke_options as options
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_smoke

pytestmark = pytest.mark.cores


class Done(Exception):
    pass


class FakeModule:
    def __init__(self, params, **keywords):
        self.params = dict((name, option.get("default")) for name, option in keywords["argument_spec"].items())
        self.params.update(params)
        self._remote_tmp = None
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        raise Done(dict(result, warned=self.warnings))

    def fail_json(self, **result):
        raise Done(dict(result, failed=True))


def run(monkeypatch, read, **params):
    monkeypatch.setattr(gpu_smoke, "AnsibleModule", lambda **keywords: FakeModule(params, **keywords))
    monkeypatch.setattr(gpu_smoke.node, "read", read)
    with pytest.raises(Done) as done:
        gpu_smoke.main()
    return done.value.args[0]


def reader(remote_tmp, digest, archive, timeout_s, take):
    return {"snapshot": take(deadline_s=timeout_s, stuck_file="/x", gather=None, load="load"), "warnings": ["careful"]}


def test_what_was_asked_reaches_the_test(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        gpu_smoke.run, "take", lambda **keywords: seen.update(keywords) or ({"level": "t1"}, {"status": "ok"})
    )
    result = run(monkeypatch, reader, level="t1", gpus=["0"], together=True, dcgm_level=3, tests=["device_copy"])
    assert result == {
        "changed": False,
        "facts": {"smoke": {"level": "t1"}, "snapshot": {"status": "ok"}},
        "warned": ["careful"],
    }
    assert type(seen.pop("runner")).__name__ == "Runner"
    assert seen == {
        "level": "t1",
        "wanted": ["0"],
        "together": True,
        "library_path": None,
        "dcgm_level": 3,
        "only": ["device_copy"],
        "load": "load",
        "deadline_s": 300,
        "dcgm_deadline_s": 3600,
        "stuck_file": "/x",
    }


@pytest.mark.parametrize("level, seconds", [("t0", 90), ("t1", 300), ("t2", 1200), ("t3", 1200)])
def test_the_deadline_follows_from_the_level_unless_it_is_said(monkeypatch, level, seconds):
    seen = []
    monkeypatch.setattr(gpu_smoke.run, "take", lambda **keywords: seen.append(keywords["deadline_s"]) or ({}, {}))
    run(monkeypatch, reader, level=level)
    run(monkeypatch, reader, level=level, timeout_s=7)
    assert seen == [seconds, 7]


def test_nothing_is_tested_before_the_binding_is_there(monkeypatch):
    monkeypatch.setattr(gpu_smoke.run, "take", lambda **keywords: pytest.fail("tested too early"))
    assert run(monkeypatch, lambda *args, **keywords: {"needs_binding": True, "warnings": []})["needs_binding"] is True


def test_a_gpu_that_is_not_there_and_a_test_that_does_not_exist_are_refused(monkeypatch):
    def refuse(**keywords):
        raise gpu_smoke.run.Choice("gpus has '9', and that is no GPU of this node")

    monkeypatch.setattr(gpu_smoke.run, "take", refuse)
    assert run(monkeypatch, reader, gpus=["9"])["msg"].startswith("gpus has '9'")
    assert "tests has x; known: memory_pattern" in run(monkeypatch, reader, tests=["x"])["msg"]


def test_the_module_takes_all_options_and_the_node_only_its_own():
    assert set(options.NODE_OPTIONS) < set(options.ARGUMENT_SPEC)
    assert not set(options.INTERNAL_SPEC) & set(options.ARGUMENT_SPEC)
    assert options.INTERNAL_SPEC["binding_archive"]["no_log"] is True
