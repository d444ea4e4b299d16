# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runbooks say of the variables of a rollout, and of alerts and thresholds, is what the code does."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, routes, rules
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in (ROOT / "docs" / "runbooks" / "rollout.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `rollout_")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_every_variable_of_a_rollout_has_a_row():
    assert set(_variable_names.ROLLOUT) == set(ROWS)


@pytest.mark.parametrize("variable", sorted(ROWS))
def test_a_row_is_whole_and_its_default_is_that_of_the_option(variable):
    default, meaning, refused = ROWS[variable]
    assert default and meaning and refused is not None
    wanted = options.SPEC[variable.removeprefix(options.PREFIX)].get("default")
    if wanted not in (None, ""):
        assert yaml.safe_load(default.strip("`")) == wanted
    else:
        assert not re.fullmatch("`[^`]*`", default) or variable == "rollout_version", default


PAGES = ROOT / "docs" / "runbooks" / "alerts"
RENDERED = [
    rule
    for group in yaml.safe_load(rules.render({"rack_power_limit_watts": 1}))["groups"]
    for rule in group["rules"]
    if "alert" in rule
]


def anchors(page):
    """The anchors of a page's headings, as they are made for headings of one word."""
    return [found.lower() for found in re.findall(r"^## (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)]


@pytest.mark.parametrize("rule", RENDERED, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_place(rule):
    address, dummy, anchor = rule["annotations"]["runbook_url"].partition("#")
    name = address[len(rules.RUNBOOKS) :]
    assert address.startswith(rules.RUNBOOKS) and rules.RUNBOOKS.endswith("/docs/runbooks/alerts/")
    assert anchors(PAGES / name).count(anchor) == 1


def test_no_page_tells_of_an_alert_that_is_gone():
    told = {name for family in catalog.FAMILIES for name in anchors(PAGES / (family + ".md"))}
    assert told == {rule["alert"].lower() for rule in RENDERED} and len(told) > 45


def test_pages_are_written_for_people_and_not_in_templates():
    for path in PAGES.glob("*.md"):
        assert not re.search(r"\{\{|\$\{", path.read_text(encoding="utf-8")), path.name


def test_the_example_can_be_used():
    example = yaml.safe_load(
        re.findall(
            r"^```yaml\n(.*?)^```",
            (PAGES.parent / "monitoring.md").read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )[0]
    )
    given = {name[len("gpu_monitoring_") :]: value for name, value in example["gpu_monitoring"]["vars"].items()}
    options = yaml.safe_load((ROOT / "roles/gpu_monitoring/defaults/main.yml").read_text(encoding="utf-8"))
    assert {"gpu_monitoring_" + name for name in given} <= set(options)
    assert routes.config(given["receivers"], given["receiver_page"], given["receiver_ticket"])["receivers"]
    assert rules.left_out(catalog.thresholds(given["thresholds"])) == {}


def test_every_threshold_is_listed_with_its_source():
    rows = {
        cells[0].strip(" `"): cells
        for line in (PAGES / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
        for cells in [[cell.strip() for cell in line.strip("|").split(" | ")]]
    }
    assert set(catalog.thresholds()) - set(rows) == set()
    assert [name for name in catalog.thresholds() if len(rows[name]) != 5 or not all(rows[name])] == []
