# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which command of a page is run by a test, by the table in command_tests.toml, and which the page says is not. Pure,
but for what reads the table and the tests that it names.

A page says it in one of these ways, which no command may contradict:

- "No test runs this command" or "... these commands", in the paragraph right before or after a block; one that ends
  with a colon is about the block after it.
- "No test runs the commands of this page", perhaps ", except those of `PROGRAM`" or ", except the playbook `NAME`".
- "No test runs `COMMAND`", of every command of the page that begins so.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import pathlib
import re

import tomllib

from ansible_collections.gpufleet.lifecycle.tests.unit.meta import commands
from tests.tools import stages

ROOT = pathlib.Path(__file__).resolve().parents[3]
TABLE = pathlib.Path(__file__).with_suffix(".toml")
# A mark ends with its sentence; what is quoted in it may have any sign.
MARK = re.compile(
    r"\bno test runs ((?:this command|these commands|the commands of this page|(?=`))(?:`[^`]*`|[^`.:);])*)",
    re.IGNORECASE,
)
OF_BLOCK = ("this command", "these commands")
OF_PAGE = "the commands of this page"


def table():
    """The rows of the table, as it describes them."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))["command"]


def _permits(given, one):
    """Whether these have an option, a variable with this or any value, or a word by its pattern."""
    return one.partition("=")[0] in given or any(fnmatch.fnmatchcase(one, pattern) for pattern in given)


def _run_by(part, rows):
    """Whether tests run a program of a command. The variables and options of a playbook may be those of several rows;
    of any other program the whole is that of one.
    """
    words, given = commands.subject(part)
    if words[0] in commands.ANSIBLE:
        found = [row for row in rows if row["run"].split() == words]
        permitted = {one for row in found for one in row.get("given", [])}
        return bool(found) and all(_permits(permitted, one) for one in given)
    for row in rows:
        begin = row["run"].split()
        if words[: len(begin)] == begin and all(_permits(row.get("given", []), one) for one in words[len(begin) :]):
            return True
    return False


def _programs(command):
    return [part for part in command.parts if part.words[0] not in commands.BUILTIN or part.redirected]


def counts(command):
    """Whether a test has to run the command. In running text only commands of Ansible count, as others are often no
    more than mentioned; built-in commands of the shell do nothing alone.
    """
    return bool(_programs(command)) and (command.block is not None or command.text.startswith("ansible"))


def is_run(command, rows):
    """Whether tests run each program of a command, with each variable and option that it is given."""
    return all(_run_by(part, rows) for part in _programs(command))


def _named(command, names):
    """Those of the names (programs, playbooks, words, beginnings of commands) that are about a command."""
    words = {word for part in command.parts for word in part.words}
    return [
        name
        for name in names
        if words & {name, "gpufleet.lifecycle." + name} or (command.text + " ").startswith(name + " ")
    ]


def _paragraphs(text):
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", commands.prose(text))]


def _of_blocks(found):
    """[(block, mark)] of the marks beside blocks."""
    blocks, pairs = [], []
    for command in found:
        if command.block and command.block not in blocks:
            blocks.append(command.block)
    for number, block in enumerate(blocks):
        before, after = MARK.search(block.before), MARK.search(block.after)
        if before and before.group(1).strip().startswith(OF_BLOCK):
            other = number and blocks[number - 1].after == block.before
            if block.before.endswith(":") or not other:
                pairs.append((block, block.before))
        if after and after.group(1).strip().startswith(OF_BLOCK) and not block.after.endswith(":"):
            pairs.append((block, block.after))
    return pairs


class Marks:
    """What a page says of its commands."""

    def __init__(self, text, found):
        self.of_blocks = _of_blocks(found)
        self.page, self.exceptions, self.names, self.wrong = "", [], [], []
        for paragraph in _paragraphs(text):
            for mark in MARK.findall(paragraph):
                quoted = re.findall(r"`([^`]+)`", mark)
                if mark.startswith(OF_BLOCK):
                    if paragraph not in [" ".join(where.split()) for block, where in self.of_blocks]:
                        self.wrong.append(("beside no block", mark.strip()))
                elif mark.startswith(OF_PAGE):
                    self.page, self.exceptions = mark.strip(), quoted
                else:
                    self.names += quoted

    def say_not_run(self, command):
        """Whether a mark says that no test runs it."""
        if command.block in [block for block, dummy in self.of_blocks] or _named(command, self.names):
            return True
        return bool(self.page) and not _named(command, self.exceptions)


def wrong_with(text, rows):
    """What is wrong with the marks of a page: [(what, command or mark)]."""
    found = [one for one in commands.commands(text) if counts(one)]
    marks = Marks(text, found)
    wrong = list(marks.wrong)
    for one in found:
        run, marked = is_run(one, rows), marks.say_not_run(one)
        if run == marked:
            wrong.append(("marked, and run" if run else "neither run nor marked", one.text))
    for name in marks.exceptions + marks.names:
        if not any(_named(one, [name]) for one in found):
            wrong.append(("is on no command", name))
    if marks.page and not any(marks.say_not_run(one) for one in found):
        wrong.append(("is on no command", marks.page))
    return wrong


@functools.lru_cache(maxsize=None)
def _functions(path):
    """({name: source} of the tests in a file, what stands beside them)."""
    text = path.read_text(encoding="utf-8")
    tests, lines = {}, text.splitlines()
    rest = list(lines)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
            tests[node.name] = "\n".join(lines[first : node.end_lineno])
            rest[first : node.end_lineno] = [""] * (node.end_lineno - first)
    return tests, "\n".join(rest)


def _beside(path):
    """What helps the tests of a file: what is in its folder and no test, and what it has of a scenario."""
    more = [one for one in path.parent.glob("*.py") if not one.name.startswith("test_")]
    return "\n".join(one.read_text(encoding="utf-8") for one in more)


def source(test):
    """The text of a test that the table names, with its helpers; None if there is no such test."""
    path, dummy, name = test.partition("::")
    if path == "tests/tools/stages.py":
        return next((stage.script for stage in stages.all_stages(True) if stage.name == name), None)
    if not path or not (ROOT / path).is_file():
        return None
    if not name:
        return (ROOT / path).read_text(encoding="utf-8")
    tests, rest = _functions(ROOT / path)
    return "\n".join([tests[name], rest, _beside(ROOT / path)]) if name in tests else None


def wrong_with_row(row):
    """What is wrong with a row of the table: a test that is not there, or what no test of it names."""
    found = {test: source(test) for test in row["tests"]}
    wrong = [test for test, text in found.items() if text is None]
    texts = [text for text in found.values() if text]
    seen = row.get("seen", row["run"].split()[-1].rpartition("gpufleet.lifecycle.")[2])
    for one in [seen, *row.get("given", [])]:
        # A helper takes the options without their dashes.
        words = [one] if one == seen else one.lstrip("-").split("=")
        if "*" not in one and not any(all(word in text for word in words) for text in texts):
            wrong.append(one)
    return wrong
