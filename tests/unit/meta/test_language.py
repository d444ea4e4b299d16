# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places whose words have been put right keep to the glossary of CONTRIBUTING."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACES = (
    "roles/gpu_node_upgrade/*/*.yml",
    "roles/gpu_quarantine/**/*.yml",
    "roles/gpu_scheduler/**/*.yml",
    "plugins/**/*.py",
    "playbooks/*.yml",
    "docs/migration.md",
    "docs/runbooks/3am.md",
    "docs/runbooks/rollout.md",
    "docs/runbooks/upgrade.md",
    "docs/security.md",
    "docs/tour.md",
    "tests/unit/plugins/plugin_utils/views.py",
    "tests/unit/plugins/plugin_utils/_ledger/*.py",
    "tests/unit/plugins/plugin_utils/_rollout/*.py",
    "tests/unit/plugins/plugin_utils/_rollout_report/*.py",
)
# Phrases that stay in one file: files on nodes have them, which other words would change, or messages that tests of
# playbooks compare.
STORED = {
    "playbooks/rollback.yml": {"nobody"},
    "plugins/module_utils/_packages/kernel_set.py": {"somebody"},
    "plugins/module_utils/_packages/pins.py": {"somebody"},
    "plugins/modules/driver_reload.py": {"anew"},
    "plugins/plugin_utils/_variables.py": {"nobody"},
}
# Places whose docstrings say "Return ...", not what, whether or who.
DECLARATIVE = (
    "plugins/**/*.py",
    "tests/unit/plugins/plugin_utils/_ledger/*.py",
    "tests/unit/plugins/plugin_utils/_rollout/*.py",
    "tests/unit/plugins/plugin_utils/_rollout_report/*.py",
)


def glossary():
    """{phrase that is not used: term that is}, of the table."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Glossary")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")
    ][1:]
    return {phrase.strip(): row[0] for row in rows for phrase in row[2].split(";") if phrase.strip()}


def found(text, phrases):
    return [
        phrase
        for phrase in phrases
        if re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(phrase).replace(r"\ ", r"\s+"), text, re.IGNORECASE)
    ]


def test_the_table_is_read():
    assert glossary()["anew"] == "again" and glossary()["in vain"] == "failed" and len(glossary()) > 15


def test_a_phrase_is_found_across_lines_and_not_inside_a_word():
    assert found("It asked\n  for\n  leave.", ["for leave", "anew"]) == ["for leave"]
    assert found("sanew, a-new, Nobody", ["anew", "new", "nobody"]) == ["nobody"]


@pytest.mark.parametrize("place", PLACES)
def test_words_of_the_glossary_are_used(place):
    paths = sorted(ROOT.glob(place))
    assert paths, "nothing is there any more"
    names = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    wrong = {name: set(found(text, glossary())) - STORED.get(name, set()) for name, text in names.items()}
    assert {name: phrases for name, phrases in wrong.items() if phrases} == {}


@pytest.mark.parametrize("name", sorted(STORED))
def test_a_stored_phrase_is_still_in_its_file(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert set(found(text, STORED[name])) == STORED[name], "the exception is not needed any more"


def questions(text):
    """The first lines of docstrings that begin as a question would."""
    documented = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    )
    lines = ((ast.get_docstring(node) or "").partition("\n")[0] for node in documented)
    return [line for line in lines if re.match(r"(What|Whether|Who|Whom|Whose|Which|Where|Why|When|How)\b", line)]


def test_a_docstring_that_begins_as_a_question_is_found():
    assert questions('"""Whatever."""\n\n\ndef one():\n    """Who goes.\n\n    What else.\n    """\n') == ["Who goes."]


@pytest.mark.parametrize("place", DECLARATIVE)
def test_docstrings_are_declarative(place):
    paths = sorted(ROOT.glob(place))
    assert paths, "nothing is there any more"
    wrong = {str(path.relative_to(ROOT)): questions(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: lines for name, lines in wrong.items() if lines} == {}
