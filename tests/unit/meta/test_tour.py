# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour shows files and lines of the demonstration that are still there."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

from tests.lab import demo

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "tour.md"
TEXT = PAGE.read_text(encoding="utf-8")
TIMED = re.findall(r"^ *\d+:\d\d  (.+)$", TEXT, re.MULTILINE)
STEPS = [line for line in TIMED if line.startswith("[")]
# What a line of a rollout may tell beside the steps that are in the demonstration's report.
WORDS = {"prestage", "evidence", "drain", "wait to drain", "go down", "soak", "done", "failed", "rolled_back"}
LARGEST = 200_000


def said():
    """A pattern for each line that the demonstration prints by itself."""
    tree = ast.parse((ROOT / "tests" / "lab" / "demo.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "say" and len(node.args) == 1:
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)


def test_output_in_readme_is_of_the_same_run():
    (shown,) = re.findall(
        r"^```text\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [line for line in shown.splitlines() if line]
    assert len(lines) == 11 and set(lines) <= set(TEXT.splitlines())


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_page_is_read():
    assert len(STEPS) > 15 and len(TIMED) > len(STEPS) + 8


@pytest.mark.parametrize("line", [line for line in TIMED if line not in STEPS])
def test_a_line_is_one_of_the_demonstration(line):
    stages = {
        "%s: %s (%d/%d)" % (name, stage, number, len(demo.STAGES))
        for name in demo.NAMES
        for number, stage in enumerate(demo.STAGES.values(), 1)
    }
    assert line in stages or any(re.fullmatch(pattern, line) for pattern in said() if pattern != ".+"), line


@pytest.mark.parametrize("line", STEPS)
def test_a_step_is_one_of_a_rollout(line):
    assert demo.STEP_LINE.fullmatch(line)
    assert line.split(": ", 1)[1].split(" (")[0] in WORDS | set(demo.OUT_OF_SERVICE)


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").iterdir()), ids=lambda path: path.name)
def test_a_picture_is_small_and_is_shown_with_words(picture):
    assert picture.stat().st_size < LARGEST
    assert re.search(r"!\[[^\]]{40,}\]\(pictures/%s\)" % re.escape(picture.name), TEXT)
