# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the rollout's playbooks: empty is the default, invalid is named, and nothing ends in a traceback."""

from __future__ import annotations

from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import (
    rollout_control,
    rollout_gate,
    rollout_plan,
    rollout_report,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

HUGE = 10**30
SECRET = "https://user-secret@host/secret"
VALUES = {
    "null": None,
    "empty": "",
    "blank": "  ",
    "text": "some thing",
    "huge": HUGE,
    "endless": 10**5000,
    "huge text": "9" * 5000,
    "negative": -(10**12),
    "float": 1.5,
    "infinite": float("inf"),
    "nan": float("nan"),
    "list": ["x", {}],
    "empty list": [],
    "list of null": [None],
    "dict": {"x": 1},
    "empty dict": {},
    "dict of null": {"x": None},
    "dict of list": {1: [2]},
    "true": True,
    "secret": SECRET,
    "unclosed": "[1, ",
    "nul": "a\0b",
    "lines": "a\nb",
}


@pytest.fixture
def act(tmp_path):
    def run(plugin=rollout_plan, check=True, **more):
        arguments = {"artifact_dir": str(tmp_path / "artifacts"), "rollout_id": "r1", **more}
        if plugin is rollout_plan:
            found = {name: {"audit": {"versions": {"loaded": "1.0"}}} for name in "ab"}
            arguments = {
                "target": "2.0",
                "audits": found,
                "markers": {name: {"stat": {}} for name in "ab"},
                **arguments,
            }
        task = mock.Mock(args=arguments, async_val=0, check_mode=check, diff=False, action="x", environment=None)
        action = plugin.ActionModule(task, mock.Mock(), mock.Mock(check_mode=check), DataLoader(), mock.Mock(), None)
        action._load_name = "x"
        action._shared_loader_obj = mock.Mock()
        return action.run(task_vars={"ansible_forks": 50, "inventory_hostname": "a"})

    return run


def is_named(result, name, value):
    assert result["failed"] and isinstance(result["msg"], str), result
    assert name in result["msg"], result["msg"]
    assert "\n" not in result["msg"] and len(result["msg"]) < 1000 and "Traceback" not in result["msg"], result["msg"]
    if value == SECRET and name in ("rollout_webhook", "rollout_hold_queries", "rollout_ledger"):
        assert "secret" not in result["msg"], result["msg"]


def test_no_option_that_a_task_makes_is_called_a_variable_of_the_playbook():
    assert not {"targets", "audits", "markers", "health", "checked", "schedulers"} & set(
        rollout_plan.ActionModule.VARIABLES
    )


# the others are of other actions
@pytest.mark.parametrize("key", sorted(set(rollout_plan.ActionModule.VARIABLES) & set(rollout_plan.ARGUMENT_SPEC)))
def test_every_variable_of_an_upgrade_with_every_kind_of_value(act, key, tmp_path):
    name = rollout_plan.ActionModule.VARIABLES[key]
    plain = act(**({"undo": ""} if key == "undo" else {}))
    assert not plain.get("failed"), plain.get("msg")
    for kind, value in VALUES.items():
        result = act(**{key: value})
        if key == "target" and kind in ("null", "empty", "blank"):
            assert result["failed"] and "Set nvidia_driver_version (or rollout_version)" in result["msg"], (
                "each node has its own then, and these have none"
            )
        elif key == "artifact_dir" and kind in ("null", "empty", "blank"):
            is_named(result, name, value)  # the playbook passes its own default on
        elif kind in ("null", "empty", "blank"):
            assert not result.get("failed"), "%s as %s: %s" % (name, kind, result.get("msg"))
            assert result["sha256"] == plain["sha256"], "%s as %s is not the default" % (name, kind)
        elif result.get("failed"):
            is_named(result, name, value)
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("growth_step", "x", "rollout_growth_step is 'x'; expected a whole number, at most 1000000"),
        ("growth_step", True, "rollout_growth_step is true; expected a whole number"),
        ("node_s", HUGE, "rollout_node_s is 1000000000000000000000000000000; expected a whole number, at most 604800"),
        (
            "ticket_s",
            10**100,
            "rollout_ticket_s is a number of more than 60 digits; expected a whole number, at most 2678400",
        ),
        ("max_down", HUGE, "rollout_max_down is"),
        ("max_down", "9" * 30, "rollout_max_down is"),
        ("domain_caps", {"rack": HUGE}, "rollout_domain_caps.rack is 1000000000000000000000000000000; expected"),
        ("domain_caps", {"rack": None}, "rollout_domain_caps.rack is null; expected"),
        ("domain_caps", "rack", "rollout_domain_caps is 'rack'; expected a dictionary"),
        ("waves", [1, [2]], "rollout_waves[1] is a list; expected a number such as 2"),
        ("waves", {"a": 1}, "rollout_waves is a dictionary; expected a list"),
        ("waves", "1,25%", "rollout_waves is '1,25%'; expected a point in a share (1.25%), or a blank"),
        ("waves", "12,5 %", "rollout_waves is '12,5 %'; expected a point"),
        ("waves", "1, 12,5%, 100%", "rollout_waves is '1, 12,5%, 100%'; expected a point"),
        ("waves", "1,10%,100%", "rollout_waves is '1,10%,100%'; expected a point"),
        ("waves", ["1,25%"], "rollout_waves[0] is '1,25%'; expected a number of nodes"),
        ("max_down", "1,25%", "rollout_max_down is '1,25%'; expected a number of nodes"),
        ("max_draining", "1,25%", "rollout_max_draining is '1,25%'; expected a number of nodes"),
        ("domain_caps", {"rack": "1,25%"}, "rollout_domain_caps.rack is '1,25%'; expected a number of nodes"),
        ("failure_percent", "1,25%", "rollout_failure_percent is '1,25%'; expected percent"),
        ("max_delta_unhealthy", "1,25%", "rollout_max_delta_unhealthy is '1,25%'; expected percent"),
        ("node_s", "1,25", "rollout_node_s is '1,25'; expected a whole number"),
        ("mode", "window s", "rollout_mode is 'window s'; expected one of window, waves"),
        ("on_failure", ["stop"], "rollout_on_failure is a list; expected a text"),
        ("require_approval", "maybe", "rollout_require_approval is 'maybe'; expected true or false"),
        ("canaries", ["a", None], "rollout_canaries[1] is null; expected no empty entry"),
        ("target", 550.9, "rollout_version is 550.9; expected a text, in quotes"),
        ("rollout_id", {"x": 1}, "rollout_id is a dictionary; expected a text"),
        ("ledger", "postgresql://h:port/d", "rollout_ledger is not a database URL"),
        ("ledger", "sqlite:///relative", "rollout_ledger is"),
        ("webhook", SECRET, "rollout_webhook is a text; expected a dictionary"),
        ("webhook", {"url": ["secret"]}, "rollout_webhook.url is a list; expected a text"),
        ("webhook", {"url": "http://h:port/secret"}, "rollout_webhook cannot be used: its port is no number"),
        (
            "webhook",
            {"uri": "http://h/secret"},
            "rollout_webhook.uri is null; expected only the keys events, kind, timeout, url",
        ),
        ("webhook", {"url": "http://h", "timeout": "soon"}, "rollout_webhook.timeout is"),
        ("webhook", {"url": "http://h", "kind": "pager"}, "rollout_webhook.kind is"),
        ("hold_queries", {"name": "x"}, "rollout_hold_queries is a dictionary; expected a list"),
        (
            "hold_queries",
            [{"name": "x", "url": "http://h"}],
            "rollout_hold_queries[0].query is null; expected a value, which every entry needs",
        ),
        (
            "hold_queries",
            [{"name": "x", "url": "http://h:port", "query": "up"}],
            "rollout_hold_queries: the url of x cannot be used: its port is no number",
        ),
        (
            "hold_queries",
            [{"name": "x", "url": "http://h:99999", "query": "up"}],
            "rollout_hold_queries: the url of x cannot be used: its port is no number",
        ),
        (
            "windows",
            [{"from": "22:00", "to": "23:00", "timezone": "Europe"}],
            "rollout_windows[0].timezone is 'Europe', a directory of time zones",
        ),
        ("windows", "22:00-23:00", "rollout_windows is '22:00-23:00'; expected a list"),
        ("abandon", [["a"]], "rollout_abandon[0] is a list"),
    ],
)
def test_what_is_wrong_is_told_by_its_variable(act, key, value, words):
    result = act(**{"mode": "waves" if key == "waves" else "window", key: value})
    assert result.get("failed") and words in result["msg"] and "secret" not in result["msg"], result.get("msg")
    assert "\n" not in result["msg"]


@pytest.mark.parametrize(
    "key, value, same",
    [
        ("canaries", "a, b", ["a", "b"]),
        ("canaries", " a ,b,", ["a", "b"]),
        ("canaries", '["a", "b"]', ["a", "b"]),
        ("domain_caps", '{"rack": 1}', {"rack": 1}),
        ("canaries", "a\r\nb\r\n", ["a", "b"]),
        ("canaries", "a,\n\n b", ["a", "b"]),
        ("waves", "1, 100%", ["1", "100%"]),
        ("waves", "1, 25%", [1, "25%"]),
        ("waves", "1\n25%", [1, "25%"]),
        ("waves", '["1", "25%"]', [1, "25%"]),
        ("waves", "12.5%, 100%", ["12.5%", "100%"]),
        ("waves", "1,2,3", [1, 2, 3]),
        ("waves", "25%,100%", ["25%", "100%"]),
        ("require_approval", "no", False),
        ("max_down", "2", 2),
        ("webhook", {"url": None}, {}),
        ("hold_queries", [], None),
    ],
)
def test_what_a_survey_or_a_command_line_gives_is_understood(act, key, value, same):
    more = {"domains": {"a": {"rack": 1}, "b": {"rack": 2}}, "mode": "waves" if key == "waves" else "window"}
    one, other = act(**{key: value, **more}), act(**{key: same, **more})
    assert not one.get("failed"), one.get("msg")
    assert (one["sha256"], one["canaries"]) == (other["sha256"], other["canaries"])


@pytest.mark.parametrize("check", [True, False])
def test_an_artifact_directory_that_is_a_file_is_named(act, tmp_path, check):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        result = act(check=check, artifact_dir=str(tmp_path / place))
        is_named(result, "gpufleet_artifact_dir", None)


def test_a_ledger_in_proc_is_named(act):
    is_named(act(check=False, ledger="sqlite:////proc/ledger.sqlite"), "rollout_ledger", None)
    is_named(act(check=False, artifact_dir="/proc/gpufleet"), "gpufleet_artifact_dir", None)


@pytest.mark.parametrize(
    "plugin, key, name",
    [
        (rollout_control, "verb", "rollout_verb"),
        (rollout_control, "nodes", "rollout_nodes"),
        (rollout_control, "limits", "rollout_limits"),
        (rollout_control, "reason", "rollout_reason"),
        (rollout_report, "dest", "rollout_report_dir"),
        (rollout_report, "webhook", "rollout_webhook"),
        (rollout_gate, "hold_age_s", "rollout_hold_age_s"),
        (rollout_gate, "hold_queries", "rollout_hold_queries"),
        (rollout_gate, "webhook", "rollout_webhook"),
        *((plugin, "rollout_id", "rollout_id") for plugin in (rollout_control, rollout_report)),
    ],
)
def test_other_actions_of_a_rollout_name_them_too(act, plugin, key, name):
    assert not act(check=False).get("failed")
    for kind, value in VALUES.items():
        result = act(
            plugin=plugin, **{key: value, **({"fail_unless_complete": False} if plugin is rollout_report else {})}
        )
        if kind in ("null", "empty", "blank"):
            assert not result.get("failed"), result.get("msg")
        elif result.get("failed") and "is no rollout" not in result["msg"]:
            assert name in result["msg"] or "rollout id" in result["msg"] or plugin is rollout_control, result["msg"]
            assert "\n" not in result["msg"] and "Traceback" not in result["msg"], result["msg"]


def test_what_is_no_variable_is_left_to_ansible():
    assert options.read({"phase": None, "webhook": ""}, rollout_gate.ARGUMENT_SPEC, options.VARIABLES) == {
        "phase": None
    }
