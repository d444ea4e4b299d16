# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that are rendered from data."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, registry
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from tests.tools import data_pages

ROWS = {row.ident: row for row in registry.TABLE}


@pytest.fixture(scope="module")
def policy():
    return json.loads(data_pages.POLICY.read_text(encoding="utf-8"))


def test_generated_files_match_their_data():
    assert data_pages.main(["--check"]) == 0


def test_check_reports_a_changed_and_a_stale_page(monkeypatch, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("old\n", encoding="utf-8")
    (tmp_path / "stale.md").write_text("", encoding="utf-8")
    monkeypatch.setattr(data_pages, "ROOT", tmp_path)
    monkeypatch.setattr(data_pages, "ALERT_PAGES", tmp_path)
    monkeypatch.setattr(data_pages, "render_files", lambda: {page: "new\n"})
    assert data_pages.main(["--check"]) == 1
    assert page.read_text(encoding="utf-8") == "old\n"
    output = capsys.readouterr().out
    assert "+new" in output.splitlines() and "stale.md" in output
    assert data_pages.main([]) == 0
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("page.md", "new\n")]


@pytest.mark.parametrize(
    ("ident", "action"),
    [
        ("gpu.persistence", "restart_service"),
        ("gpu.power_limit", "restore_setting"),
        ("gpu.remap_pending", "reset_gpu"),
        ("gpu.remap_failure", "field_diag"),
        ("nvml.answers", "reboot"),
        ("gpu.count", "hold"),
        ("driver.loaded", "reboot"),
    ],
)
def test_actions_of_a_check_are_found_in_its_code(ident, action):
    assert action in data_pages.find_actions(ROWS[ident], model.ACTIONS)


def test_actions_of_other_checks_in_the_same_module_are_left_out():
    assert data_pages.find_actions(ROWS["gpu.count"], model.ACTIONS) == ["hold"]
    assert "field_diag" not in data_pages.find_actions(ROWS["gpu.remap_pending"], model.ACTIONS)


@pytest.mark.parametrize(
    ("ident", "keys"),
    [
        ("gpu.ecc_volatile", ["ecc_volatile_uncorrected_max"]),
        ("gpu.bank_availability", ["bank_low_max", "bank_none_max", "bank_partial_max"]),
        ("gpu.count", []),
    ],
)
def test_thresholds_of_a_check_are_found_in_its_code(policy, ident, keys):
    assert data_pages.find_thresholds(ROWS[ident], policy) == keys


def test_every_threshold_is_read_by_a_check(policy):
    used = {key for row in registry.TABLE for key in data_pages.find_thresholds(row, policy)}
    assert set(policy) - {"schema"} - used == set()


def test_page_lists_every_check_and_every_threshold_once(policy):
    lines = data_pages.render_checks(registry.FAMILIES, model.ACTIONS, policy).splitlines()
    listed = [line.split("|")[1].strip(" `") for line in lines if line.startswith("| `")]
    assert sorted(listed) == sorted([*ROWS, *(set(policy) - {"schema"})])


def test_bar_and_line_end_in_a_text_keep_the_table_whole():
    row = model.node_row("x.y", lambda ctx: None, "a | b\nc", ("s",), "source")
    family = type("Family", (), {"ROWS": (row,), "__doc__": "A family.\n\nMore."})
    page = data_pages.render_checks([family], model.ACTIONS, {})
    (line,) = [line for line in page.splitlines() if line.startswith("| `x.y`")]
    assert "a \\| b c" in line


def test_an_alert_with_a_playbook_has_the_commands_that_repair_it():
    words = dict.fromkeys(("summary", "found", "expected", "next", "cause"), "x")
    alert = {"id": "Broken", "scope": "node", "severity": "page", "playbook": "quarantine", **words}
    lines = data_pages.render_alert_family({"title": "T"}, [alert], {"Broken": {"expr": "up"}}, str).splitlines()
    begin = lines.index("Repair:") + 3
    assert [line.split("    #")[0] for line in lines[begin : lines.index("```", begin)]] == [
        "ansible-playbook -i inventory gpufleet.lifecycle.quarantine -e quarantine_hosts=NODE"
        """ -e '{"quarantine_reason": "alert Broken"}'""",
        "ansible-playbook -i inventory gpufleet.lifecycle.return_to_service -e return_to_service_hosts=NODE",
    ]


def test_threshold_without_a_value_is_named_and_not_shown_as_a_number():
    thresholds = {"limit": {"value": None}, "share": {"value": 0.9}}
    alert = {"expr": "power > ${limit} * ${share}", "for": 300}
    named = {"expr": "power > limit * ${share}", "for": 300}
    assert data_pages.name_unset_thresholds(alert, thresholds) == named


def test_example_of_the_page_of_checks_is_a_policy_that_can_be_used():
    (text,) = re.findall("```yaml\n(.*?)```", data_pages.CHECKS_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    example = yaml.safe_load(text)
    full = _judging.policy(given=example["gpu_health_policy"], waivers=example["gpu_health_waivers"])
    assert full["strict"] == ["gpu.ecc_*"] and [one["check"] for one in full["waivers"]] == ["gpu.power_limit"]
