# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""driver_audit: a report, or a proof that fails with every reason."""

from __future__ import annotations

import io
import json
import sys

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.modules import driver_audit
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver.test_audit import (
    NEW,
    OLD,
    changed,
    empty,
    good,
)

pytestmark = pytest.mark.cores


@pytest.fixture(name="run")
def run_module(monkeypatch, capsys, tmp_path):
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


def test_a_report_never_fails_and_never_changes(run):
    result = run(empty(), _ansible_check_mode=True)
    assert result["changed"] is False and not result.get("failed") and result["audit"]["verdict"] == "fail"


def test_a_proof_of_a_good_node(run):
    result = run(good(), wanted_version=NEW, fail_on=["fail", "unknown"], require_reboot_safe=True)
    assert not result.get("failed") and result["audit"]["verdict"] == "pass"


def test_a_proof_that_fails_lists_every_finding_with_found_expected_and_next_step(run):
    facts = changed(("library", "version"), OLD)
    facts["loaded"]["nouveau"] = True
    result = run(facts, wanted_version=NEW, fail_on=["fail"])
    assert result["failed"] and result["audit"]["verdict"] == "fail"
    lines = result["msg"].splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["versions_agree", "nouveau"]
    assert (
        "library libnvidia-ml = 535.216.03" in lines[1]
        and "Expected: 535.261.03." in lines[1]
        and "Next step: Install one coherent set" in lines[1]
    )


@pytest.mark.parametrize(
    ("fail_on", "failed"), [([], False), (["fail"], False), (["unknown"], True), (["fail", "unknown"], True)]
)
def test_unknown_fails_where_it_is_asked_to(run, fail_on, failed):
    result = run(changed(("pci",), None), wanted_version=NEW, fail_on=fail_on)
    assert bool(result.get("failed")) is failed
    assert not failed or "pci_device (node) is unknown" in result["msg"]


def test_an_unknown_finding_is_named_beside_a_failed_one_only_where_both_count(run):
    facts = changed(("pci",), None)
    facts["loaded"]["nouveau"] = True
    assert "pci_device" not in run(facts, fail_on=["fail"])["msg"]
    assert "pci_device" in run(facts, fail_on=["fail", "unknown"])["msg"]


def test_only_the_named_findings_count(run):
    facts = changed(("library", "version"), OLD)
    assert not run(facts, findings=["dpkg_interrupted", "dkms_leftover"], fail_on=["fail", "unknown"]).get("failed")
    assert run(facts, findings=["versions_agree"], fail_on=["fail"])["failed"]


@pytest.mark.parametrize("findings", [["no_such"], ["no_such", "nouveau"]])
def test_a_finding_that_does_not_exist_is_not_a_pass(run, findings):
    result = run(good(), findings=findings, fail_on=["fail", "unknown"])
    assert result["failed"] and "no_such: nothing of this name was judged" in result["msg"]


def test_a_reboot_that_is_not_safe_is_refused(run):
    result = run(changed(("kernel", "next_boot"), None), wanted_version=NEW, require_reboot_safe=True)
    assert result["failed"] and "not safe to reboot" in result["msg"] and "not known" in result["msg"]


def test_between_installation_and_reboot(run):
    facts = changed(("loaded", "version"), OLD)
    assert run(facts, wanted_version=NEW, fail_on=["fail", "unknown"])["failed"]
    result = run(facts, wanted_version=NEW, fail_on=["fail", "unknown"], expect_loaded=False)
    assert not result.get("failed") and result["audit"]["reboot_required"] is True
