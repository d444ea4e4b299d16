# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page on troubleshooting names is there: messages of the code, playbooks, modules, options, anchors."""

from __future__ import annotations

import pathlib
import re
import shlex

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TEXT.split("## By message")[1], re.MULTILINE)
LINKS = [target for target in re.findall(r"\]\(([^)\s]+)\)", TEXT) if not target.startswith("http")]
# Programs of others.
FOREIGN = {"kubectl", "sacct", "df", "systemctl", "journalctl", "python3"}


@pytest.fixture(scope="module")
def code():
    """The texts of the collection, without the places where a text of the source goes on in the next line."""
    folders = ("plugins", "playbooks", "roles")
    paths = [path for folder in folders for end in ("*.py", "*.yml") for path in (ROOT / folder).rglob(end)]
    return " ".join(
        re.sub(r"\s+", " ", re.sub(r"\"\s*\n\s*\"", "", path.read_text(encoding="utf-8"))) for path in paths
    )


def slug(heading):
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_collection(message, code):
    assert [part for part in message.split("...") if part.strip() and part.strip() not in code] == []


def test_the_table_is_read():
    assert len(MESSAGES) >= 15 and len(COMMANDS) >= 10 and len(LINKS) > 20


def wrong_with(command):
    """What a command names that is not there."""
    words, found = shlex.split(command), []
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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_what_there_is(command):
    assert wrong_with(command) == []


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("ansible-playbook gpufleet.lifecycle.none", ["none"]),
        ("ansible-playbook gpufleet.lifecycle.holds -e recover_gpu_hosts=a", ["recover_gpu_hosts"]),
        ("ansible-playbook other.yml", ["no playbook or module"]),
        ("ansible a -m gpufleet.lifecycle.gpu_info -a none=1", ["none"]),
        ("ansible a -m gpufleet.lifecycle.none", ["none"]),
        ("nvtop", ["nvtop"]),
    ],
)
def test_a_command_that_names_something_else_is_found(command, wrong):
    assert wrong_with(command) == wrong


@pytest.mark.parametrize("target", sorted(set(LINKS)))
def test_a_link_leads_to_a_heading(target):
    name, dummy, anchor = target.partition("#")
    page = (PAGE.parent / name) if name else PAGE
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert not anchor or anchor in map(slug, headings)
