# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's documentation markup and option trees, as Markdown. Pure: text in, text out."""

from __future__ import annotations

import json

from antsibull_docs_parser.format import Formatter, format_paragraphs
from antsibull_docs_parser.parser import Context, Whitespace, parse


class _Markdown(Formatter):
    """Plain Markdown that reads well as a file, too: no HTML, and nothing escaped."""

    def format_error(self, part):
        raise ValueError("%s: %s" % (part.source, part.message))

    def format_text(self, part):
        return part.text

    def format_bold(self, part):
        return "**{0}**".format(part.text)

    def format_italic(self, part):
        return "*{0}*".format(part.text)

    def format_code(self, part):
        return "`{0}`".format(part.text)

    def format_horizontal_line(self, part):
        return ""

    def format_link(self, part):
        return "[{0}]({1})".format(part.text, part.url)

    def format_url(self, part):
        return "<{0}>".format(part.url)

    def format_rst_ref(self, part):
        return part.text

    def format_module(self, part, url):
        return "`{0}`".format(part.fqcn)

    def format_plugin(self, part, url):
        return "`{0}`".format(part.plugin.fqcn)

    def format_env_variable(self, part):
        return "`{0}`".format(part.name)

    def format_option_value(self, part):
        return "`{0}`".format(part.value)

    def format_option_name(self, part, url):
        return "`{0}`".format(part.name if part.value is None else "{0}: {1}".format(part.name, part.value))

    format_return_value = format_option_name


def inline(text):
    """One paragraph of documentation, as Markdown on one line.

    ValueError for markup that Ansible would not understand.
    """
    parsed = parse(" ".join(str(text).split()), Context(), whitespace=Whitespace.STRIP)
    return format_paragraphs(parsed, _Markdown(), par_start="", par_end="", par_sep=" ", par_empty="")


def paragraphs(description):
    """A description, which may be one text or a list of them, as a list of Markdown paragraphs."""
    if description is None:
        return []
    if isinstance(description, str):
        description = [description]
    return [inline(part) for part in description]


def literal(value):
    """A default or a choice as it would be written in YAML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(value) if value == "" or value != value.strip() or "\n" in value else value
    return json.dumps(value, sort_keys=True)


def kind(option):
    """The type of an option or a return value, with that of its elements."""
    name = option.get("type", "str")
    return "{0} of {1}".format(name, option["elements"]) if name == "list" and option.get("elements") else name


def description_lines(documented, pad):
    """The description under a list entry. Two spaces at a line's end break it there."""
    texts = paragraphs(documented.get("description"))
    return ["{0}  {1}{2}".format(pad, text, "" if text is texts[-1] else "  ") for text in texts]


def option_lines(options, depth=0):
    """A tree of options as nested Markdown lists, required ones first, then by name."""
    lines = []
    for name in sorted(options, key=lambda key: (not options[key].get("required", False), key)):
        option = options[name]
        facts = [kind(option)]
        if option.get("required"):
            facts.append("**required**")
        elif option.get("default") is not None:
            facts.append("default `{0}`".format(literal(option["default"])))
        if option.get("aliases"):
            facts.append("also called " + ", ".join("`{0}`".format(alias) for alias in option["aliases"]))
        pad = "  " * depth
        lines.append("{0}- `{1}` ({2})".format(pad, name, ", ".join(facts)))
        lines.extend(description_lines(option, pad))
        lines.extend(choice_lines(option.get("choices"), pad))
        nested = option.get("suboptions") or option.get("options") or {}
        lines.extend(option_lines(nested, depth + 1))
    return lines


def choice_lines(choices, pad):
    """The values an option takes: a list of them, or each with its meaning."""
    if not choices:
        return []
    if isinstance(choices, dict):
        return [
            "{0}  - `{1}`: {2}".format(pad, literal(value), " ".join(paragraphs(meaning)))
            for value, meaning in choices.items()
        ]
    return ["{0}  One of {1}.".format(pad, ", ".join("`{0}`".format(literal(value)) for value in choices))]


def return_lines(values, depth=0):
    """A tree of return values as nested Markdown lists, in the order in which they are documented."""
    lines = []
    for name, value in values.items():
        pad = "  " * depth
        facts = [kind(value)]
        if value.get("returned"):
            facts.append("returned: {0}".format(inline(value["returned"])))
        lines.append("{0}- `{1}` ({2})".format(pad, name, ", ".join(facts)))
        lines.extend(description_lines(value, pad))
        lines.extend(return_lines(value.get("contains") or {}, depth + 1))
    return lines
