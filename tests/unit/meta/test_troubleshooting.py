# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages that the page on troubleshooting explains are messages of the code."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
TEXT = PAGE.read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TEXT.split("## By message")[1], re.MULTILINE)


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
    assert len(MESSAGES) >= 15
