# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every relative link of a page leads to a file of the checkout and, with an anchor, to a heading of that file."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.tools.common import ROOT, tracked_files

PAGES = [name for name in tracked_files() if name.endswith((".md", ".rst"))]
FENCE = re.compile(r"^( *)(`{3,}).*?^ *\2 *$", re.MULTILINE | re.DOTALL)
MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
RST_LINK = re.compile(r"`[^`<]*<([^>`]+)>`__?")


def find_links(text: str, suffix: str) -> list[str]:
    """Return the targets of the relative links of a page, without those in code."""
    if suffix == ".rst":
        found = RST_LINK.findall(text)
    else:
        found = MARKDOWN_LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text)))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def find_anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a Markdown page, as GitHub names them."""
    anchors: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+?) *$", FENCE.sub("", text), re.MULTILINE):
        title = re.sub(r"\]\([^)]*\)", "", heading)
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchors[anchor] = anchors.get(anchor, -1) + 1
    return {anchor + ("-%d" % count if count else "") for anchor, last in anchors.items() for count in range(last + 1)}


def find_broken_links(page: pathlib.Path, root: pathlib.Path = ROOT) -> list[str]:
    """Return the links of a page to files below the root whose file or heading does not exist."""
    broken = []
    for target in find_links(page.read_text(encoding="utf-8"), page.suffix):
        name, _hash, anchor = target.partition("#")
        file = root / name[1:] if name.startswith("/") else page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in find_anchors(file.read_text(encoding="utf-8"))):
            broken.append(target)
    return broken


@pytest.mark.parametrize("name", PAGES)
def test_relative_links_of_a_page_lead_to_files_and_headings(name):
    assert find_broken_links(ROOT / name) == []


def test_broken_file_and_anchor_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# Go on\n\n## Go on\n\n```\n# Not a heading\n```\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` (c)\n[1](other.md#go-on) [2](other.md#go-on-1) [3](#a-b-c) [4](https://example.com/x.md)\n"
        "[5](other.md#not-a-heading) [6](none.md) [7](#none) `[8](code.md)` ![9](none.svg) [/](/other.md) [/](/none)\n"
        "```\n[10](code.md)\n```\n",
        encoding="utf-8",
    )
    broken = ["other.md#not-a-heading", "none.md", "#none", "none.svg", "/none"]
    assert find_broken_links(page, tmp_path) == broken
    rst = tmp_path / "page.rst"
    rst.write_text("`a <other.md>`_ `b <none.md>`__ `c <https://example.com>`_\n", encoding="utf-8")
    assert find_broken_links(rst) == ["none.md"]
