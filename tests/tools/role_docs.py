# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's README, rendered from its argument specification. Pure: data in, text out.

What stands below the end mark of an existing README is written by hand and kept.
"""

from __future__ import annotations

from tests.tools.markup import inline, option_lines, paragraphs

BEGIN = "<!-- generated from meta/argument_specs.yml by `make docs`; edit that file -->"
END = "<!-- end of the generated part; what follows is kept -->"


def _entry_point(name, spec, main):
    lines = []
    if name != "main":
        lines += ["", "## Entry point `{0}`".format(name)]
        if spec.get("short_description"):
            lines += ["", inline(spec["short_description"])]
    for text in paragraphs(spec.get("description")):
        lines += ["", text]
    options = spec.get("options") or {}
    if name != "main" and options and options == main.get("options"):
        return [*lines, "", "It takes the variables of the role."]
    lines += ["", "### Variables" if name != "main" else "## Variables", ""]
    return lines + (option_lines(options) or ["None."])


def _example(collection, role, specs):
    required = [
        name for name, option in sorted((specs.get("main", {}).get("options") or {}).items()) if option.get("required")
    ]
    lines = [
        "## Use",
        "",
        "```yaml",
        "- hosts: gpu_nodes",
        "  become: true",
        "  roles:",
        "    - role: {0}.{1}".format(collection, role),
    ]
    if required:
        lines.append("      vars:")
        for name in required:
            value = specs["main"]["options"][name].get("example", "...")
            lines.append("        {0}: {1}".format(name, value))
    return [*lines, "```"]


def render(collection, role, specs, existing=""):
    """The README of `role`; `specs` is what argument_specs.yml holds under argument_specs."""
    main = specs.get("main", {})
    lines = [BEGIN, "", "# {0}.{1}".format(collection, role)]
    if main.get("short_description"):
        lines += ["", inline(main["short_description"])]
    for name in sorted(specs, key=lambda key: (key != "main", key)):
        lines += _entry_point(name, specs[name], main)
        if name == "main":
            lines += ["", *_example(collection, role, specs)]
    head = "\n".join([*lines, "", END]) + "\n"
    tail = existing.split(END, 1)[1].lstrip("\n") if END in existing else ""
    return head + ("\n" + tail if tail else "")
