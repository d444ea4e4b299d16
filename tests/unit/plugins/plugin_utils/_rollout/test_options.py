# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the rollout's playbooks: empty is the default, invalid is named, and nothing ends in a traceback."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.action import (
    rollout_control,
    rollout_gate,
    rollout_plan,
    rollout_report,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

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
        return actions.run_rollout(plugin, arguments, check, ansible_forks=50, inventory_hostname="a")

    return run


def is_named(result, name, value):
    assert result["failed"] and isinstance(result["msg"], str), result
    assert name in result["msg"], result["msg"]
    assert "\n" not in result["msg"] and len(result["msg"]) < 1000 and "Traceback" not in result["msg"], result["msg"]
    if value == SECRET and name in ("rollout_webhook", "rollout_hold_queries", "rollout_ledger"):
        assert "secret" not in result["msg"], result["msg"]


# option: values that are refused. test_limits has those of the limits.
REFUSED = {
    "growth_step": ["x", True],
    "waves": [[1, [2]], {"a": 1}, "1,25%", "12,5 %", "1, 12,5%, 100%", "1,10%,100%", ["1,25%"]],
    "max_down": ["1,25%", HUGE],
    "domain_caps": ["rack", {"rack": "1,25%"}],
    "failure_percent": ["1,25%"],
    "mode": ["window s"],
    "on_failure": [["stop"]],
    "require_approval": ["maybe"],
    "canaries": [["a", None]],
    "target": [550.9, "a\nb", "2" * 300],
    "undo": [{"x": 1}],
    "rollout_id": [{"x": 1}],
    "ledger": ["postgresql://h:port/d", "sqlite:///relative"],
    "webhook": [
        SECRET,
        SECRET + "?a=b",
        {"url": ["secret"]},
        {"url": "http://h:port/secret"},
        {"uri": "http://h/secret"},
        {7: "secret"},
        {"url": "http://h", "timeout": "soon"},
        {"url": "http://h", "kind": "pager"},
        {"url": "http://h", "events": ["all"]},
    ],
    "hold_queries": [
        {"name": "x"},
        [SECRET],
        [{"name": "x", "url": "http://h"}],
        [{"name": "x\ny", "url": "http://h", "query": "up"}],
        [{"name": "x", "url": "http://h:port", "query": "up"}],
        [{"name": "x", "url": "http://h:99999", "query": "up"}],
        [{"name": "x", "url": "http://h", "query": "up", "headers": "secret"}],
    ],
    "windows": [[{"from": "22:00", "to": "23:00", "timezone": "Europe"}], "22:00-23:00"],
    "abandon": [[["a"]]],
}
# The options that a playbook gives under another name.
NAMES = {"target": "rollout_version", "rollout_id": "rollout_id", "undo": "rollback_of"}


@pytest.mark.parametrize("key, value", [(key, value) for key, values in REFUSED.items() for value in values], ids=str)
def test_value_that_cannot_be_used_is_refused_by_its_variable(act, key, value):
    result = act(**{"mode": "waves" if key == "waves" else "window", key: value})
    is_named(result, NAMES.get(key, "rollout_" + key), value)
    assert "secret" not in result["msg"]


def test_unknown_variable_is_refused_wherever_it_is_set(act):
    task = {"audits": {}, "policy": {"rollout_max_dwon": 1}, "artifact_dir": "/x"}
    with pytest.raises(options.OptionError, match="rollout_max_dwon"):
        options.read_variables(task["policy"], {**options.LIMITS, **options.START})


# rollout_report_dir is of another action.
@pytest.mark.parametrize("key", sorted({*options.SPEC, "artifact_dir", "rollout_id", "target"} - {"id", "version"}))
def test_every_variable_of_an_upgrade_with_every_kind_of_value(act, key, tmp_path):
    name = {"artifact_dir": "gpufleet_artifact_dir"}.get(key, NAMES.get(key, "rollout_" + key))
    plain = act(**({"undo": ""} if key == "undo" else {}))
    assert not plain.get("failed"), plain.get("msg")
    for kind, value in VALUES.items():
        result = act(**{key: value})
        if key == "target" and kind in ("null", "empty", "blank"):
            assert result["failed"] and "nvidia_driver_version" in result["msg"], (
                "each node has its own, and these none"
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


def test_option_that_is_no_variable_is_read_as_ansible_reads_it():
    given = {"phase": "drain", "webhook": "", "artifact_dir": "/x"}
    read = options.read_options(given, rollout_gate.ARGUMENT_SPEC, options.VARIABLES)
    assert (read["phase"], read["webhook"]) == ("drain", None)
