# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module's or another plugin's reference page, rendered from what ansible-doc --json says of it.

Pure: data in, text out.
"""

from __future__ import annotations

from tests.tools.markup import inline, option_lines, paragraphs, return_lines

BEGIN = "<!-- generated from the {0}'s own documentation by `make docs` -->"


def _bullets(description):
    return ["- {0}".format(text) for text in paragraphs(description)]


def _attributes(attributes):
    lines = []
    for name in sorted(attributes):
        attribute = attributes[name]
        detail = " ".join(paragraphs(attribute.get("details")))
        platforms = attribute.get("platforms")
        said = (
            "{0} ({1})".format(attribute.get("support", ""), platforms) if platforms else attribute.get("support", "")
        )
        lines.append("- `{0}`: {1}{2}".format(name, said, ". " + detail if detail else ""))
    return lines


def _section(title, lines):
    return ["", "## " + title, "", *lines] if lines else []


def render(name, documented, kind="module"):
    """The page of a module, or of another KIND of plugin, by its name; `documented` is its entry in ansible-doc's
    JSON.
    """
    doc = documented["doc"]
    lines = [BEGIN.format(kind), "", "# {0}".format(name), "", inline(doc["short_description"]), ""]
    lines.append("Since version {0}.".format(doc["version_added"]))
    lines += _section("What it does", _bullets(doc.get("description")))
    lines += _section("Requirements", _bullets(doc.get("requirements")))
    lines += _section("Attributes", _attributes(doc.get("attributes") or {}))
    lines += _section("Options", option_lines(doc.get("options") or {}) or ["This {0} takes none.".format(kind)])
    lines += _section("Notes", _bullets(doc.get("notes")))
    examples = (documented.get("examples") or "").strip("\n")
    lines += _section("Examples", ["```yaml", *examples.splitlines(), "```"] if examples else [])
    lines += _section("Return values", return_lines(documented.get("return") or {}))
    return "\n".join(lines) + "\n"


def index(modules):
    """The table of contents: module name to its entry in ansible-doc's JSON."""
    lines = [BEGIN.format("module"), "", "# Modules", ""]
    for name in sorted(modules):
        short = name.rpartition(".")[2]
        lines.append("- [{0}]({0}.md): {1}".format(short, inline(modules[name]["doc"]["short_description"])))
    return "\n".join(lines) + "\n"
