# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page on troubleshooting names is there: messages of the code and anchors; its commands are in
test_commands.py.
"""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.meta import commands

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
TEXT = PAGE.read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TEXT.split("## By message")[1], re.MULTILINE)
LINKS = commands.links(TEXT)


@pytest.fixture(scope="module")
def code():
    """The texts of the collection, without the places where a text of the source goes on in the next line."""
    folders = ("plugins", "playbooks", "roles")
    paths = [path for folder in folders for end in ("*.py", "*.yml") for path in (ROOT / folder).rglob(end)]
    return " ".join(
        re.sub(r"\s+", " ", re.sub(r"\"\s*\n\s*\"", "", path.read_text(encoding="utf-8"))) for path in paths
    )


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_collection(message, code):
    assert [part for part in message.split("...") if part.strip() and part.strip() not in code] == []


def test_the_table_is_read():
    assert len(MESSAGES) >= 15 and len(LINKS) > 20


@pytest.mark.parametrize("target", LINKS)
def test_a_link_leads_to_a_heading(target):
    assert not commands.leads_nowhere(PAGE, target)
