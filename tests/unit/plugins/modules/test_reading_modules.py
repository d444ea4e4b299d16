# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that read a node and change nothing: gpu_info, gpu_health, gpu_smoke and driver_audit."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health_options, _smoke_options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, snapshot, subsets
from ansible_collections.gpufleet.lifecycle.plugins.modules import driver_audit, gpu_health, gpu_info, gpu_smoke
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver.test_audit import (
    NEW,
    OLD,
    changed,
    empty,
    good,
)

pytestmark = pytest.mark.cores


class Done(Exception):
    pass


class FakeModule:
    """What a module needs of AnsibleModule; the last one made is in LAST."""

    last = None

    def __init__(self, params, argument_spec, supports_check_mode, **dummy_rules):
        self.params = dict((name, option.get("default")) for name, option in argument_spec.items())
        self.params.update(params)
        self.supports_check_mode = supports_check_mode
        self.warnings = []
        self._remote_tmp = params.get("remote_tmp", "/nonexistent")
        FakeModule.last = self

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        self.result = result
        raise Done()

    def fail_json(self, **result):
        self.exit_json(failed=True, **result)


def run(monkeypatch, module, take, **params):
    """Return the result of a module that takes its snapshot with TAKE."""
    monkeypatch.setattr(module, "AnsibleModule", lambda **options: FakeModule(params, **options))
    place, name = (module.run, "take") if module is gpu_smoke else (module.snapshot, "take")
    monkeypatch.setattr(place, name, take)
    with pytest.raises(Done):
        module.main()
    return FakeModule.last.result


def answer(taken):
    return lambda *args, **options: taken


def not_called(*args, **options):
    pytest.fail("GPUs were read")


def healthy():
    taken = snapshot.make_blank("ok", "", 0)
    taken["count"] = codes.value(8)
    return taken


def test_a_reading(monkeypatch):
    result = run(monkeypatch, gpu_info, answer(healthy()))
    assert result == {
        "changed": False,
        "nvml_available": True,
        "driver_loaded": True,
        "gpu_count": 8,
        "snapshot": healthy(),
    }
    assert FakeModule.last.supports_check_mode is True


@pytest.mark.parametrize("rc, loaded", [(9, False), (18, True), (12, None), (999, None), (None, None)])
def test_no_reading_is_no_failure_unless_it_shall_be(monkeypatch, rc, loaded):
    taken = snapshot.make_blank("nvml_error", "why", rc)
    result = run(monkeypatch, gpu_info, answer(taken))
    assert "failed" not in result
    assert (result["nvml_available"], result["driver_loaded"], result["gpu_count"]) == (False, loaded, None)
    failed = run(monkeypatch, gpu_info, answer(taken), fail_if_unavailable=True)
    assert failed["failed"] is True and failed["msg"] == "NVML cannot be read (nvml_error): why"
    assert failed["nvml_available"] is False and failed["snapshot"] == taken


def test_it_passes_on_what_the_action_sent(monkeypatch):
    seen = []
    run(monkeypatch, gpu_info, lambda *args, **more: seen.append((args, more)) or healthy(), timeout_s=7)
    (((deadline_s, stuck_file, gather, load), more),) = seen
    assert (deadline_s, gather) == (7, ["all"]) and load.__self__.stuck_file == stuck_file
    assert more == {"describes": True}


def test_verdict_is_of_what_is_read_now(monkeypatch):
    seen = []
    run(monkeypatch, gpu_health, lambda *args, **more: seen.append(more) or healthy())
    assert [dict({"describes": False}, **more)["describes"] for more in seen] == [False]


ANNOUNCED = {"digest": "d" * 64, "version": "1", "source": None}


@pytest.mark.parametrize("module", [gpu_info, gpu_health, gpu_smoke])
def test_nothing_is_read_before_the_binding_is_there(monkeypatch, module, tmp_path):
    result = run(monkeypatch, module, not_called, binding=ANNOUNCED, level="t0", remote_tmp=str(tmp_path))
    assert result == {"changed": False, "needs_binding": True}
    result = run(monkeypatch, module, not_called, binding=dict(ANNOUNCED, source="x"), level="t0")
    assert result["failed"] is True


@pytest.mark.parametrize("module", [gpu_info, gpu_health])
@pytest.mark.parametrize("timeout_s", [0, -1])
def test_a_timeout_that_is_none_is_refused(monkeypatch, module, timeout_s):
    result = run(monkeypatch, module, not_called, timeout_s=timeout_s)
    assert result["failed"] is True and "expected at least 1 second" in result["msg"]


def test_a_subset_that_does_not_exist_is_named(monkeypatch):
    result = run(monkeypatch, gpu_info, not_called, gather_subset=["clocks", "!clock"])
    assert result["failed"] is True
    assert "gather_subset has '!clock'; expected one of all, min, identity" in result["msg"]


def test_every_subset_and_every_key_is_documented():
    documented = gpu_info.DOCUMENTATION
    for subset in subsets.TABLE:
        text = re.search(
            r"\n      - V\(%s\) is (.*?)(\n      - |\n    type)" % (subset.name,), documented, re.DOTALL
        ).group(1)
        assert sorted(re.findall(r"C\((\w+)\)", text)) == sorted(subset.keys), subset.name


def test_who_has_the_device_files_open_is_told_to_those_who_ask(monkeypatch):
    found = [{"pid": 7, "user": "root", "comm": "x", "unit": None, "devices": ["/dev/nvidia0"]}]
    monkeypatch.setattr(holders, "read_holders", lambda: found)
    assert run(monkeypatch, gpu_info, answer(healthy()), holders=True)["holders"] == found
    assert "holders" not in run(monkeypatch, gpu_info, answer(healthy()))


# ---- gpu_health ----


def test_everything_is_read_in_one_process(monkeypatch):
    taken = snapshot.make_blank("nvml_error", "why", 9)
    seen = []
    monkeypatch.setattr(
        gpu_health.reading,
        "gather_reading",
        lambda *args, **options: seen.append(args + (options,)) or {"a": "reading"},
    )
    result = run(monkeypatch, gpu_health, answer(taken))
    assert result == {"changed": False, "facts": {"a": "reading"}}
    assert seen == [(taken, {"watermark": None})]
    since = {"boot_id": "b", "seq": 7}
    run(monkeypatch, gpu_health, answer(taken), since=since)
    assert seen[-1] == (taken, {"watermark": since})


def test_the_phases_are_those_of_the_verdict():
    assert _health_options.ARGUMENT_SPEC["phase"]["choices"] == list(model.PHASES)


# ---- gpu_smoke ----


def test_what_was_asked_reaches_the_test(monkeypatch):
    seen = {}

    def take(**options):
        seen.update(options)
        return {"level": "t1"}, {"status": "ok"}

    result = run(
        monkeypatch, gpu_smoke, take, level="t1", gpus=["0"], together=True, dcgm_level=3, tests=["device_copy"]
    )
    assert result == {"changed": False, "facts": {"smoke": {"level": "t1"}, "snapshot": {"status": "ok"}}}
    assert type(seen.pop("runner")).__name__ == "Runner"
    assert seen.pop("stuck_file") == seen.pop("load").__self__.stuck_file
    assert seen == {
        "level": "t1",
        "wanted": ["0"],
        "together": True,
        "library_path": None,
        "dcgm_level": 3,
        "only": ["device_copy"],
        "deadline_s": 300,
        "dcgm_deadline_s": 3600,
    }


@pytest.mark.parametrize("level, seconds", [("t0", 90), ("t1", 300), ("t2", 1200), ("t3", 1200)])
def test_the_deadline_follows_from_the_level_unless_it_is_said(monkeypatch, level, seconds):
    seen = []

    def take(deadline_s, **options):
        seen.append(deadline_s)
        return {}, {}

    run(monkeypatch, gpu_smoke, take, level=level)
    run(monkeypatch, gpu_smoke, take, level=level, timeout_s=7)
    assert seen == [seconds, 7]


def test_a_gpu_that_is_not_there_and_a_test_that_does_not_exist_are_refused(monkeypatch):
    def refuse(**options):
        raise gpu_smoke.run.Choice("gpus has '9', and that is no GPU of this node")

    assert run(monkeypatch, gpu_smoke, refuse, gpus=["9"])["msg"].startswith("gpus has '9'")
    assert "tests has x; known: memory_pattern" in run(monkeypatch, gpu_smoke, not_called, tests=["x"])["msg"]


def test_the_module_takes_all_options_and_the_node_only_its_own():
    assert set(_smoke_options.NODE_OPTIONS) < set(_smoke_options.ARGUMENT_SPEC)
    assert not set(_smoke_options.REPEAT_SPEC) & set(_smoke_options.ARGUMENT_SPEC)


# ---- driver_audit ----


@pytest.fixture
def run_audit(monkeypatch, capsys, tmp_path):
    def run(facts, **options):
        arguments = {"ANSIBLE_MODULE_ARGS": dict(options, _ansible_remote_tmp=str(tmp_path))}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode("utf-8"))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        monkeypatch.setattr(driver_audit.audit, "read", lambda root: facts)
        with pytest.raises(SystemExit):
            driver_audit.main()
        return json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    return run


def test_a_report_never_fails_and_never_changes(run_audit):
    result = run_audit(empty(), _ansible_check_mode=True)
    assert result["changed"] is False and not result.get("failed") and result["audit"]["verdict"] == "fail"


def test_a_proof_of_a_good_node(run_audit):
    result = run_audit(good(), wanted_version=NEW, fail_on=["fail", "unknown"], require_reboot_safe=True)
    assert not result.get("failed") and result["audit"]["verdict"] == "pass"


def test_a_proof_that_fails_lists_every_finding_with_found_expected_and_next_step(run_audit):
    facts = changed(("library", "version"), OLD)
    facts["loaded"]["nouveau"] = True
    result = run_audit(facts, wanted_version=NEW, fail_on=["fail"])
    assert result["failed"] and result["audit"]["verdict"] == "fail"
    lines = result["msg"].splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["versions_agree", "nouveau"]
    for text in ("library libnvidia-ml = 535.216.03", "Expected: 535.261.03.", "Next step: Install one coherent set"):
        assert text in lines[1]


@pytest.mark.parametrize(
    ("fail_on", "failed"), [([], False), (["fail"], False), (["unknown"], True), (["fail", "unknown"], True)]
)
def test_unknown_fails_where_it_is_asked_to(run_audit, fail_on, failed):
    result = run_audit(changed(("pci",), None), wanted_version=NEW, fail_on=fail_on)
    assert bool(result.get("failed")) is failed
    assert not failed or "pci_device (node) is unknown" in result["msg"]


def test_an_unknown_finding_is_named_beside_a_failed_one_only_where_both_count(run_audit):
    facts = changed(("pci",), None)
    facts["loaded"]["nouveau"] = True
    assert "pci_device" not in run_audit(facts, fail_on=["fail"])["msg"]
    assert "pci_device" in run_audit(facts, fail_on=["fail", "unknown"])["msg"]


def test_only_the_named_findings_count(run_audit):
    facts = changed(("library", "version"), OLD)
    assert not run_audit(facts, findings=["dpkg_interrupted", "dkms_leftover"], fail_on=["fail", "unknown"]).get(
        "failed"
    )
    assert run_audit(facts, findings=["versions_agree"], fail_on=["fail"])["failed"]


@pytest.mark.parametrize("findings", [["no_such"], ["no_such", "nouveau"]])
def test_a_finding_that_does_not_exist_is_not_a_pass(run_audit, findings):
    result = run_audit(good(), findings=findings, fail_on=["fail", "unknown"])
    assert result["failed"] and "no_such: nothing of this name was judged" in result["msg"]


def test_a_reboot_that_is_not_safe_is_refused(run_audit):
    result = run_audit(changed(("kernel", "next_boot"), None), wanted_version=NEW, require_reboot_safe=True)
    assert result["failed"] and "not safe to reboot" in result["msg"] and "not known" in result["msg"]


def test_between_installation_and_reboot(run_audit):
    facts = changed(("loaded", "version"), OLD)
    assert run_audit(facts, wanted_version=NEW, fail_on=["fail", "unknown"])["failed"]
    result = run_audit(facts, wanted_version=NEW, fail_on=["fail", "unknown"], expect_loaded=False)
    assert not result.get("failed") and result["audit"]["reboot_required"] is True
