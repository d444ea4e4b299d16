# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_info: what it makes of a reading, and when it fails."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, codes, snapshot, subsets
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_info

pytestmark = pytest.mark.cores


class Done(Exception):
    pass


class FakeModule:
    """What a module needs of AnsibleModule; the last one made is in LAST."""

    last = None

    def __init__(self, argument_spec, supports_check_mode, params):
        self.params = dict((name, option.get("default")) for name, option in argument_spec.items())
        self.params.update(params)
        self.supports_check_mode = supports_check_mode
        self.warnings = []
        self._remote_tmp = "/tmp/x"
        FakeModule.last = self

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        self.result = result
        raise Done()

    def fail_json(self, **result):
        self.exit_json(failed=True, **result)


def run(monkeypatch, read, **params):
    monkeypatch.setattr(
        gpu_info,
        "AnsibleModule",
        lambda argument_spec, supports_check_mode: FakeModule(argument_spec, supports_check_mode, params),
    )
    monkeypatch.setattr(gpu_info.node, "read", read)
    with pytest.raises(Done):
        gpu_info.main()
    return FakeModule.last.result


def answer(taken, warnings=()):
    return lambda *args: {"snapshot": taken, "warnings": list(warnings)}


def healthy():
    taken = snapshot.blank("ok", "", 0)
    taken["count"] = codes.value(8)
    return taken


def test_a_reading(monkeypatch):
    result = run(monkeypatch, answer(healthy(), ["careful"]))
    assert result == {
        "changed": False,
        "nvml_available": True,
        "driver_loaded": True,
        "gpu_count": 8,
        "snapshot": healthy(),
    }
    assert FakeModule.last.warnings == ["careful"] and FakeModule.last.supports_check_mode is True


@pytest.mark.parametrize("rc, loaded", [(9, False), (18, True), (12, None), (999, None), (None, None)])
def test_no_reading_is_no_failure_unless_it_shall_be(monkeypatch, rc, loaded):
    taken = snapshot.blank("nvml_error", "why", rc)
    result = run(monkeypatch, answer(taken))
    assert "failed" not in result
    assert (result["nvml_available"], result["driver_loaded"], result["gpu_count"]) == (False, loaded, None)
    failed = run(monkeypatch, answer(taken), fail_if_unavailable=True)
    assert failed["failed"] is True and failed["msg"] == "NVML cannot be read (nvml_error): why"
    assert failed["nvml_available"] is False and failed["snapshot"] == taken


def test_it_passes_on_what_the_action_sent(monkeypatch):
    seen = []

    def read(*args):
        seen.append(args)
        return {"needs_binding": True, "warnings": []}

    result = run(monkeypatch, read, binding_digest="d", binding_archive="a", timeout_s=7)
    assert result == {"changed": False, "needs_binding": True}
    assert seen == [("/tmp/x", "d", "a", 7, ["all"])]


def test_an_archive_that_is_wrong_fails(monkeypatch):
    def read(*args):
        raise binding.CacheError("no match")

    assert run(monkeypatch, read)["msg"] == "NVML was not read: no match"


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_a_timeout_that_is_none_is_refused(monkeypatch, timeout_s):
    result = run(monkeypatch, answer(healthy()), timeout_s=timeout_s)
    assert result["failed"] is True and "expected at least 1 second" in result["msg"]


def test_a_subset_that_does_not_exist_is_named(monkeypatch):
    def read(remote_tmp, digest, archive, timeout_s, gather):
        subsets.choose(gather)

    result = run(monkeypatch, read, gather_subset=["clocks", "!clock"])
    assert (
        result["failed"] is True and "gather_subset has '!clock'; expected one of all, min, identity" in result["msg"]
    )


def test_every_subset_and_every_key_is_documented():
    documented = gpu_info.DOCUMENTATION
    for subset in subsets.TABLE:
        text = re.search(
            r"\n      - V\(%s\) is (.*?)(\n      - |\n    type)" % (subset.name,), documented, re.DOTALL
        ).group(1)
        assert sorted(re.findall(r"C\((\w+)\)", text)) == sorted(subset.keys), subset.name


def test_who_has_the_device_files_open_is_told_to_those_who_ask(monkeypatch):
    found = [{"pid": 7, "user": "root", "comm": "x", "unit": None, "devices": ["/dev/nvidia0"]}]
    monkeypatch.setattr(holders, "read", lambda: found)
    assert run(monkeypatch, answer(healthy()), holders=True)["holders"] == found
    assert "holders" not in run(monkeypatch, answer(healthy()))


def test_the_module_brings_no_code_that_lies_in_the_archive():
    """What it imports is sent and compiled with every task."""
    with open(gpu_info.__file__, encoding="utf-8") as stream:
        imported = re.findall(r"^from ansible_collections\S* import (.*)$", stream.read(), re.MULTILINE)
    assert imported == ["binding, node"]


def test_the_archive_stays_out_of_the_logs():
    assert gpu_info.ARGUMENT_SPEC["binding_archive"]["no_log"] is True
