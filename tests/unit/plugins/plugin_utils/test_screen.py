# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller prints by itself, and what it returns for Ansible to print."""

from __future__ import annotations

import ast
import pathlib

import pytest

pytest.importorskip("ansible", reason="the screen is Ansible's")

from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _screen

pytestmark = pytest.mark.cores

PLUGINS = pathlib.Path(__file__).resolve().parents[4] / "plugins"
EVIL = "boom \x1b[2K\x1b[1A\x9b2K\u202eall done"


@pytest.mark.parametrize("method", ["display", "warning"])
def test_nothing_that_is_printed_steers_the_terminal(monkeypatch, method):
    said = []
    monkeypatch.setattr(Display(), method, lambda text, **options: said.append((text, options)))
    getattr(_screen.display, method)("  " + EVIL)
    assert said[0][0].isprintable() and said[0][0].startswith("  boom")


def test_texts_of_a_result_that_ansible_prints_are_cleaned():
    found = _screen.clean_result({"msg": EVIL, "warnings": [EVIL, {"msg": EVIL}], "facts": {"a": EVIL}, "rc": 1})
    assert found["msg"].isprintable() and found["warnings"][0].isprintable()
    assert found["facts"] == {"a": EVIL} and found["rc"] == 1, "data stays as it is"


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
