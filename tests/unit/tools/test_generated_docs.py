# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that is rendered from argument specifications and module documentation."""

from __future__ import annotations

import pytest

from tests.tools import markup, module_docs, role_docs

SPECS = {
    "main": {
        "short_description": "Install one driver",
        "description": ["It sets O(nvidia_version).", "See U(https://example.org)."],
        "options": {
            "b_flag": {"type": "bool", "default": False, "description": "Whether to."},
            "a_required": {"type": "str", "required": True, "description": ["The version."], "choices": ["1", "2"]},
            "c_list": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "description": "Things.",
                "options": {"name": {"type": "str", "description": "Its name."}},
            },
            "d_empty": {"type": "str", "default": "", "description": "Nothing."},
        },
    },
    "other": {"short_description": "Something else", "options": {}},
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("set O(state=present) now", "set `state: present` now"),
        ("O(ns.coll.mod#module:name)", "`name`"),
        ("RV(audit.verdict)", "`audit.verdict`"),
        ("V(a\\)b)", "`a)b`"),
        ("M(ansible.builtin.apt) and P(ns.coll.x#filter)", "`ansible.builtin.apt` and `ns.coll.x`"),
        ("B(bold) I(leaning) C(code)", "**bold** *leaning* `code`"),
        ("L(a page,https://example.org)", "[a page](https://example.org)"),
        ("many\n  lines\nhere", "many lines here"),
        ("NO(markup)", "NO(markup)"),
    ],
)
def test_markup_becomes_markdown(text, wanted):
    assert markup.inline(text) == wanted


@pytest.mark.parametrize("text", ["O(unfinished", "P(no type)", "M(no_collection)"])
def test_markup_that_ansible_does_not_understand_is_refused(text):
    with pytest.raises(ValueError):
        markup.inline(text)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (True, "true"),
        ("", '""'),
        ("a b", "a b"),
        (["x"], '["x"]'),
        (3, "3"),
        ({"b": 1, "a": None}, '{"a": null, "b": 1}'),
    ],
)
def test_values_are_written_as_in_yaml(value, wanted):
    assert markup.literal(value) == wanted


def test_role_page_lists_required_options_first_and_nests():
    lines = role_docs.render("ns.coll", "a_role", SPECS).splitlines()
    options = [line for line in lines if line.lstrip().startswith("- `")]
    assert options == [
        "- `a_required` (str, **required**)",
        "- `b_flag` (bool, default `false`)",
        "- `c_list` (list of dict, default `[]`)",
        "  - `name` (str)",
        '- `d_empty` (str, default `""`)',
    ]
    assert "  One of `1`, `2`." in lines
    assert "It sets `nvidia_version`." in lines
    assert "## Entry point `other`" in lines
    assert "        a_required: ..." in lines


def test_an_entry_point_with_the_variables_of_the_role_does_not_repeat_them():
    specs = dict(SPECS, other=dict(SPECS["other"], options=SPECS["main"]["options"]))
    text = role_docs.render("ns.coll", "a_role", specs)
    assert text.count("- `b_flag`") == 1
    assert "It takes the variables of the role." in text


def test_what_was_written_by_hand_is_kept():
    first = role_docs.render("ns.coll", "a_role", SPECS)
    by_hand = first + "\n## How to go back\n\nLike this.\n"
    assert role_docs.render("ns.coll", "a_role", SPECS, by_hand) == by_hand
    assert role_docs.render("ns.coll", "a_role", SPECS, first) == first


def test_module_page_has_every_part():
    documented = {
        "doc": {
            "short_description": "Read it",
            "version_added": "0.1.0",
            "description": ["Reads."],
            "attributes": {
                "check_mode": {"support": "full"},
                "platform": {"support": "full", "platforms": "Debian"},
                "diff_mode": {"support": "N/A", "details": ["Changes nothing."]},
            },
            "options": {"path": {"type": "path", "required": True, "description": ["Where."]}},
        },
        "examples": "\n- name: Read\n  ns.coll.read:\n",
        "return": {
            "data": {
                "type": "dict",
                "returned": "always",
                "description": "All.",
                "contains": {"unit": {"type": "int", "description": "In bytes."}},
            }
        },
    }
    text = module_docs.render("ns.coll.read", documented)
    assert module_docs.render("ns.coll.read", documented, "callback").splitlines()[0] == text.splitlines()[0].replace(
        "module's", "callback's"
    )
    for part in (
        "# ns.coll.read",
        "Since version 0.1.0.",
        "- `platform`: full (Debian)",
        "- `diff_mode`: N/A. Changes nothing.",
        "- `path` (path, **required**)",
        "- `data` (dict, returned: always)",
        "  - `unit` (int)",
        "    In bytes.",
        "```yaml\n- name: Read",
    ):
        assert part in text


def test_index_links_every_module():
    modules = {"ns.coll.b": {"doc": {"short_description": "B"}}, "ns.coll.a": {"doc": {"short_description": "A"}}}
    assert module_docs.index(modules).splitlines()[-2:] == ["- [a](a.md): A", "- [b](b.md): B"]
