# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that a page shows, and what one of them names that is not there."""

from __future__ import annotations

import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Programs of others.
FOREIGN = {"kubectl", "sacct", "df", "systemctl", "journalctl", "python3"}
OURS = "tests/tools/with.sh"


def blocks(text):
    """The blocks of a page that name no language."""
    return re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def slug(heading):
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(text):
    """The targets of the links that lead to files or headings."""
    return sorted({target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not target.startswith("http")})


def leads_nowhere(page, target):
    """Whether a link of a page names a file or a heading that is not there."""
    name, dummy, anchor = target.partition("#")
    found = (page.parent / name) if name else page
    if not anchor:
        return not found.exists()
    headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor not in map(slug, headings)


def wrong_with(command):
    """What a command names that is not there."""
    words, found = shlex.split(command), []
    if words[0] == OURS:
        words = words[2:]
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return [word for word in words[1:] if word not in targets]
    name = next((word for word in words if word.startswith("gpufleet.lifecycle.")), "").rpartition(".")[2]
    given = [words[number + 1].partition("=")[0] for number, word in enumerate(words) if word in ("-e", "-a")]
    if words[0] == "ansible-playbook":
        page, place = (ROOT / "docs/reference/playbook-variables.md").read_text(encoding="utf-8"), "playbooks/%s.yml"
        section = page.split("\n## %s\n" % name)[-1].split("\n## ")[0]
        found += [option for option in given if "`%s`" % option not in section]
    elif words[0] == "ansible":
        place = "plugins/modules/%s.py"
        page = ROOT / "docs" / "modules" / (name + ".md")
        section = page.read_text(encoding="utf-8").split("## Options")[1].split("\n## ")[0] if page.exists() else ""
        found += [option for option in given if "\n- `%s` (" % option not in section]
    else:
        return [] if words[0] in FOREIGN else [words[0]]
    return found + ([] if name and (ROOT / (place % name)).is_file() else [name or "no playbook or module"])
