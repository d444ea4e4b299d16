# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller prints and keeps: no secret, and nothing that steers a terminal."""

from __future__ import annotations

import ast
import base64
import configparser
import dataclasses
import http.client
import pathlib
import re
import time
import urllib.parse

import pytest

pytest.importorskip("ansible", reason="the screen is Ansible's")

from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _rollout_action, _screen
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import serving

pytestmark = pytest.mark.cores

PLUGINS = pathlib.Path(__file__).resolve().parents[4] / "plugins"
EVIL = "boom \x1b[2K\x1b[1A\x9b2K\u202eall done"


@pytest.mark.parametrize("method", ["display", "warning"])
def test_nothing_that_is_printed_steers_the_terminal(monkeypatch, method):
    said = []
    monkeypatch.setattr(Display(), method, lambda text, **options: said.append((text, options)))
    getattr(_screen.display, method)("  " + EVIL)
    assert said[0][0].isprintable() and said[0][0].startswith("  boom")


@pytest.mark.parametrize(("callbacks", "printed"), [([], 1), ([_rollout_action.PROGRESS], 0), (["timer"], 1)])
def test_transition_is_printed_once_with_the_live_view_and_without(monkeypatch, capsys, callbacks, printed):
    """The callback prints each transition itself."""
    monkeypatch.setattr(_rollout_action.C, "CALLBACKS_ENABLED", callbacks)
    capsys.readouterr()
    _rollout_action.RolloutAction.say_progress(_rollout_action.RolloutAction, "a1: install")
    assert capsys.readouterr().err.count("a1: install") == printed


def test_live_view_is_the_line_of_ansible_cfg_that_the_page_shows():
    page = (PLUGINS.parent / "docs" / "runbooks" / "rollout.md").read_text(encoding="utf-8")
    (shown,) = [part for part in re.findall(r"```ini\n(.*?)```", page, re.S) if "callbacks_enabled" in part]
    given = configparser.ConfigParser()
    given.read_string(shown)
    assert given["defaults"]["callbacks_enabled"] == _rollout_action.PROGRESS


@pytest.mark.parametrize("mark", "\u061c\u200b\u200d\u200e\u2028\u202a\u2060\u2066\u206f\ufeff\ufff9\xad\u180e")
def test_invisible_marks_are_replaced(mark):
    found = text.one_line("node %s1 is done" % mark)
    assert found.isprintable() and mark not in found and found != text.one_line("node 1 is done")


def test_texts_of_a_result_that_ansible_prints_are_cleaned():
    found = _screen.clean_result({"msg": EVIL, "warnings": [EVIL], "facts": {"a": EVIL}, "rc": 1})
    assert found["msg"].isprintable() and found["warnings"][0].isprintable()
    assert found["facts"] == {"a": EVIL} and found["rc"] == 1, "data stays as it is"


@dataclasses.dataclass(frozen=True)
class Event:
    """As Ansible's summaries of warnings and errors, which a node's JSON makes from ansible-core 2.19 on."""

    msg: str
    help_text: str | None = None
    events: tuple[Event, ...] = ()


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("warnings", [Event("x", EVIL)], lambda found: found[0].help_text),
        ("warnings", [Event("x", events=(Event(EVIL),))], lambda found: found[0].events[0].msg),
        ("warnings", [{"msg": EVIL}], lambda found: found[0]["msg"]),
        ("deprecations", [{"msg": EVIL, "version": "9"}], lambda found: found[0]["msg"]),
        ("exception", Event(EVIL), lambda found: found.msg),
        ("diff", {"before": "", "after": EVIL}, lambda found: found["after"]),
        ("diff", [{"prepared": EVIL}], lambda found: found[0]["prepared"]),
        ("stdout_lines", [EVIL], lambda found: found[0]),
    ],
)
def test_what_ansible_prints_of_lists_and_objects_is_cleaned(key, value, read):
    found = _screen.clean_result({key: value})[key]
    assert type(found) is type(value)
    assert read(found).startswith("boom") and read(found).isprintable()


def test_every_plugin_prints_through_the_screen():
    """Ansible's own Display is asked for its verbosity alone."""
    others = []
    for path in sorted(PLUGINS.rglob("*.py")):
        if path.name == "_screen.py" or "module_utils" in path.parts or "modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if (
                isinstance(called, ast.Attribute)
                and called.attr in ("display", "warning", "v", "vv", "vvv", "error", "deprecated")
                and not (isinstance(called.value, ast.Name) and called.value.id == "display")
            ):
                others.append("%s:%d" % (path.relative_to(PLUGINS), node.lineno))
    assert others == []


SECRET = "s3cr3t/t0ken+x="
PIECES = ("s3cr3t", "t0ken")


@pytest.mark.parametrize(
    "text",
    [
        "refused: %s" % SECRET,
        "refused: %r" % ("Bearer %s\n" % SECRET).encode(),
        "refused: %s" % urllib.parse.quote(SECRET, safe=""),
        "refused: %s" % urllib.parse.quote_plus(SECRET),
        "refused: %s" % base64.b64encode(SECRET.encode()).decode(),
        "%s%s" % (SECRET, SECRET),
    ],
    ids=["plain", "repr", "quoted", "quoted-plus", "base64", "twice"],
)
@pytest.mark.parametrize("given", [SECRET, "Bearer %s\n" % SECRET, "Bearer %s\nX: y" % SECRET, "Token\t" + SECRET])
def test_known_secret_is_removed_in_each_form(text, given):
    found = redaction.redact(text, [given])
    assert not [piece for piece in PIECES if piece in found] and "***" in found
    assert base64.b64encode(SECRET.encode()).decode() not in found


def test_scheme_of_a_header_is_no_secret():
    assert redaction.redact("Basic realm, Bearer expected", ["Bearer abcdefgh"]) == "Basic realm, Bearer expected"


def test_short_secret_is_removed_as_a_word_alone():
    assert redaction.redact("tenant 1 has 12 series", ["1"]) == "tenant *** has 12 series"


def test_empty_secret_changes_nothing():
    assert redaction.redact("as it was", ["", " ", None]) == "as it was"


@pytest.mark.parametrize(
    "text",
    [
        "cannot open https://user:s3cr3t@host.example/x",
        "cannot open https://user:s3cr3t@t0ken@host.example/x",
        "cannot open https://user:a/s3cr3t@host.example/x",
        "cannot open https://s3cr3t@host.example/x",
        "GET /x?password=s3cr3t&a=b",
        "GET https://h/x?a=b&sslpassword=s3cr3t",
        "GET https://h/x?access_token=s3cr3t",
        "GET https://h/x?X-Amz-Signature=s3cr3t",
        "GET https://h/x?sig=s3cr3t",
        "connection string: host=h password=s3cr3t user=u",
        "connection string: host=h password='s3cr3t t0ken' user=u",
    ],
)
def test_credentials_that_nobody_named_are_removed(text):
    found = redaction.redact(text)
    assert not [piece for piece in PIECES if piece in found] and "***" in found


@pytest.mark.parametrize("text", ["https://host.example/a/b?c=d", "a@b.example", "token: none", "http://h:1/x failed"])
def test_text_without_credentials_stays(text):
    assert redaction.redact(text) == text


def test_control_characters_do_not_reach_the_terminal():
    found = redaction.redact("a\x1b[2Kb\x9bc\r\nd\u202ee")
    assert found == "a\\x1b[2Kb\\x9bc d\\x202ee"


def test_text_is_bounded_and_no_part_of_a_secret_is_left_at_its_end():
    found = redaction.redact(("x" * 7 + SECRET) * 5000, [SECRET], 100)
    assert len(found) <= 100 and not [piece for piece in PIECES if piece in found]
    for length in range(redaction.MOST - 40, redaction.MOST + 40):
        found = redaction.redact("s3cr3t-t0ken " * 20 + "y" * length + SECRET, [SECRET, "s3cr3t-t0ken"], 1 << 20)
        assert "s3cr" not in found


def test_hostile_text_takes_no_time():
    began = time.monotonic()
    redaction.redact("://" * 400000, [SECRET])
    redaction.redact(" password=" * 400000, [SECRET])
    assert time.monotonic() - began < 10


def test_exception_without_text_is_named_by_its_type():
    assert redaction.describe(http.client.BadStatusLine(""), [SECRET])
    assert redaction.describe(ValueError(""), [SECRET]) == "ValueError"
    assert redaction.describe(ValueError("bad %s" % SECRET), [SECRET]) == "bad ***"


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("Authorization", "Bearer x", True),
        ("X-Scope-OrgID", "team a", True),
        ("Authorization", "Bearer x\n", False),
        ("Authorization", "Bearer x\r\nX: y", False),
        ("Authorization", "Bearer \x00", False),
        ("Authorization", "Bearer \u2026", False),
        ("Authorization", "Bearer \x7f", False),
        ("X y", "z", False),
        ("", "z", False),
        ("X:", "z", False),
        ("X\n", "z", False),
    ],
)
def test_which_header_can_be_sent(name, value, fine):
    problem = web.header_problem({name: value})
    assert (problem == "") == fine
    assert value not in problem


@pytest.mark.parametrize("value", ["Bearer %s\n", "Bearer %s\nX: y", "%s\x00", "\u2026%s"])
def test_header_that_cannot_be_sent_is_refused_unsent_and_unseen(value):
    with serving() as server, pytest.raises(web.WebError) as caught:
        web.request(server.url, 600, headers={"Authorization": value % SECRET})
    assert not server.requests and not caught.value.sent and "Authorization" in str(caught.value)
    assert not [piece for piece in PIECES if piece in str(caught.value)]
    assert caught.value.__cause__ is None


def test_lines_of_a_rollout_go_to_stderr_and_leave_stdout_to_the_tasks(capsys):
    _rollout_action.RolloutAction.say("a1: done")
    printed = capsys.readouterr()
    assert "a1: done" in printed.err and printed.out == ""
    actions = list((PLUGINS / "action").glob("rollout_*.py"))
    assert actions and not any("display.display(" in path.read_text(encoding="utf-8") for path in actions)
