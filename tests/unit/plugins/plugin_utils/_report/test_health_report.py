# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action health_report by itself: its options, what it writes, and what it does not."""

from __future__ import annotations

import json
import os
import stat

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.action import health_report
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import precheck
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._report import samples

pytestmark = pytest.mark.cores

ALL = ["html", "json", "junit", "markdown"]


class HostVars(dict):
    """As Ansible's: looking a host up makes templates of what it has, raw_get does not."""

    def __getitem__(self, name):
        raise AssertionError("the results of all nodes would be templated")

    def raw_get(self, name):
        return dict.get(self, name, {})


def run(check=False, hostvars=None, **arguments):
    action = actions.make_action(health_report, arguments, check=check)
    return action.run(task_vars={"hostvars": HostVars(hostvars or {})})


def results():
    return {"b": samples.broken(samples.healthy("b"), "gpu.present"), "a": samples.healthy("a")}


def test_writes_all_and_says_where(tmp_path, capsys):
    dest = tmp_path / "new"
    result = run(dest=str(dest), nodes=["b", "a", "c"], results=results(), time=samples.TIME)
    assert (result["verdict"], result["failed_nodes"], result["changed"]) == ("fail", ["b", "c"], True)
    assert result["counts"] == {
        "fail": 1,
        "unknown": 1,
        "pass": 1,
        "judged": 2,
        "unreachable": 0,
        "failed": 0,
        "missing": 1,
        "nodes": 3,
        "notices": 0,
    }
    assert sorted(result["files"]) == ALL and {os.path.dirname(path) for path in result["files"].values()} == {
        str(dest)
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in dest.iterdir()} == {0o600}
    assert json.loads((dest / "report.json").read_text())["time"] == samples.TIME
    again = run(dest=str(dest), nodes=["a", "b", "c"], results=results(), time=samples.TIME)
    assert again["changed"] is False, "the same results give the same bytes"


@pytest.mark.parametrize(
    ("compared", "baselines", "fails", "named"),
    [
        ("", "/srv/baselnes", True, "a, b"),  # it has none, such as one that is misspelled
        ("a", "/srv/baselines", False, "b"),
        ("ab", "/srv/baselines", False, ""),
        ("", "", False, ""),
    ],
)
def test_nodes_that_were_to_be_compared_and_were_not_are_named(tmp_path, capsys, compared, baselines, fails, named):
    found = {name: samples.healthy(name) for name in "ab"}
    for name, result in found.items():
        usable = [check for check in result["health"]["checks"] if check["id"] == precheck.USED]
        usable[0]["status"] = "pass" if name in compared else "not_applicable"
    result = run(dest=str(tmp_path), nodes=["a", "b"], results=found, asked={"baselines": baselines})
    assert bool(result.get("failed")) is fails and result["verdict"] == "pass"
    assert (tmp_path / "report.md").read_text().count("has no baseline: %s" % named) == bool(named)
    assert json.loads((tmp_path / "report.json").read_text())["uncompared"] == [one for one in "ab" if one in named]


def test_takes_what_the_nodes_registered_without_making_templates_of_it(tmp_path):
    hostvars = {"a": {"looked": samples.healthy("a")}, "b": {"other": 1}}
    result = run(hostvars=hostvars, dest=str(tmp_path), nodes=["a", "b", "c"], variable="looked", formats=["json"])
    assert (result["counts"]["pass"], result["counts"]["missing"], list(result["files"])) == (1, 2, ["json"])
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_check_mode_writes_nothing_and_says_the_same(tmp_path):
    result = run(check=True, dest=str(tmp_path / "d"), nodes=["a", "b"], results=results())
    assert (result["verdict"], result["changed"]) == ("fail", True)
    assert not (tmp_path / "d").exists()


def test_now_is_when_nothing_else_is_said(tmp_path):
    run(dest=str(tmp_path), nodes=["a"], results=results(), formats=["json"])
    assert health_report.TIME.fullmatch(json.loads((tmp_path / "report.json").read_text())["time"])


def test_how_it_was_asked_for_is_in_the_report(tmp_path):
    run(
        dest=str(tmp_path),
        nodes=["a"],
        results=results(),
        asked={"policy": "", "limit": None, "expected driver": 535.1},
        mode="0640",
    )
    assert json.loads((tmp_path / "report.json").read_text())["asked"] == {"expected driver": "535.1"}
    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"nodes": ["a"]}, "one of the following is required: variable, results"),
        ({"nodes": ["a"], "results": {}, "variable": "x"}, "mutually exclusive"),
        ({"results": {}}, "nodes"),
        ({"nodes": [], "results": {}, "fail_on": ["fial"]}, "fial"),
        ({"nodes": [], "results": {}, "mode": "0644"}, "0644"),
        ({"nodes": [], "results": {}, "time": "yesterday"}, "yesterday"),
        ({"nodes": [], "results": {}, "format": "pdf"}, "format"),
    ],
)
def test_refuses_what_it_cannot_follow(tmp_path, arguments, says):
    with pytest.raises(AnsibleError, match=says):
        run(dest=str(tmp_path / "d"), **arguments)
    assert not (tmp_path / "d").exists()


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        AnsibleError, match="cannot be written to .*/file/d on the controller: Not a directory; give another dest"
    ):
        run(dest=str(tmp_path / "file" / "d"), nodes=["a"], results=results())
