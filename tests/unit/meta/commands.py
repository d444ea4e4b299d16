# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a page shows: its fenced blocks, the commands in them and in its text, its links. Pure.

A block without a language holds commands alone: one with anything else names its language, `text` at least.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex

SHELL = {"", "bash", "sh", "shell"}
CONSOLE = {"console", "shell-session"}
OURS = "tests/tools/with.sh"
BETWEEN = {"|", "||", "&&", "&", ";"}
REDIRECT = {">", ">>", "<"}
BUILTIN = {"cd", "echo", "export"}
ANSIBLE = ("ansible", "ansible-playbook")
# Options of Ansible's commands that have a value.
VALUED = {"-i", "-e", "-m", "-a", "-l", "-f", "--limit", "--forks", "--inventory", "--rulebook", "--vars"}
# In a text, these programs begin a command rather than a mention.
INLINE = re.compile(
    r"(?:ansible(?:-playbook|-rulebook)? .*gpufleet\.lifecycle\.|make |python3 -m tests\.|tests/tools/\S+ )"
)


@dataclasses.dataclass
class Block:
    """A fenced block, and the paragraphs right before and after it."""

    line: int
    language: str
    lines: list
    before: str = ""
    after: str = ""


@dataclasses.dataclass
class Part:
    """One program of a command, with the variables of the environment before it."""

    words: list
    settings: list
    redirected: bool = False


@dataclasses.dataclass
class Command:
    text: str
    parts: list
    block: Block | None = None  # None: it stands in the text


def _paragraph(lines):
    """The lines of the first paragraph of these, a heading and a fence being none."""
    found = []
    for line in lines:
        if re.match(r" *(?:```|#|<!--)", line) or (found and not line.strip()):
            break
        if line.strip():
            found.append(line.strip())
    return found


def blocks(text):
    """Every fenced block of a page."""
    lines, found, fence = text.splitlines(), [], None
    for number, line in enumerate(lines):
        seen = re.match(r"( *)(`{3,})(\S*) *$", line)
        if fence and seen and len(seen.group(2)) >= len(fence.group(2)) and not seen.group(3):
            found[-1].after = " ".join(_paragraph(lines[number + 1 :]))
            fence = None
        elif fence:
            found[-1].lines.append(line[len(fence.group(1)) :])
        elif seen:
            fence = seen
            above = list(reversed(lines[:number]))
            found.append(Block(number + 1, seen.group(3), [], " ".join(reversed(_paragraph(above)))))
    assert fence is None, "the block of line %d has no end" % found[-1].line
    return found


def prose(text):
    """A page without its blocks and comments."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"^( *)(`{3,})\S* *\n.*?^ *\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)


def _logical(block):
    """The lines of a block that hold commands, those that go on in the next line as one."""
    lines = block.lines
    if block.language in CONSOLE:
        lines = [line[2:] for line in lines if line.startswith(("$ ", "# "))]
    return [line.strip() for line in re.sub(r" *\\\n *", " ", "\n".join(lines)).splitlines() if line.strip()]


def split(text):
    """The words of a line, in which what a shell takes for its own is a word by itself."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    return list(lexer)


def _plain(word):
    """A word without the brackets of a synopsis; empty for one that stands for others."""
    if not word.startswith("{"):
        word = word.removeprefix("[").removesuffix("]")
    return "" if word == "..." else word


def parts(text):
    """The programs of a line, and the variables that it sets for the lines after it."""
    found, part = [], Part([], [])
    words = iter([*split(text), ";"])
    for word in words:
        if word in BETWEEN:
            if part.words or part.settings:
                found.append(part)
            part = Part([], [])
        elif word in REDIRECT:
            part.redirected = True
            next(words)
        elif not part.words and re.match(r"[A-Z_a-z]+=", word):
            part.settings.append(word)
        elif _plain(word):
            part.words.append(_plain(word))
    variables = dict(one.split("=", 1) for part in found if not part.words for one in part.settings)
    return [part for part in found if part.words], variables


def _in_block(block):
    known = {}
    for line in _logical(block):
        whole = re.sub(r"\$([A-Z]\w*)", lambda name: known.get(name.group(1), name.group()), line)
        found, more = parts(whole)
        known.update(more)
        if found:
            yield Command(line, found, block)


def commands(text):
    """Every command of a page."""
    found = [one for block in blocks(text) if block.language in SHELL | CONSOLE for one in _in_block(block)]
    for code in re.findall(r"`([^`\n]+)`", prose(text)):
        if INLINE.match(code):
            found.append(Command(code, parts(code)[0]))
    return found


def options(words):
    """(positional words, {option or name=value of a variable}) of one of Ansible's commands; -i is no part of it."""
    positional, found = [], set()
    words = iter(words[1:])
    for word in words:
        value = next(words, "") if word in VALUED else ""
        if word in ("-e", "-a") and value.startswith("{"):
            found |= {"%s=%s" % (name, what) for name, what in json.loads(value).items()}
        elif word in ("-e", "-a"):
            found |= {value} - {""} if not value.startswith("@") else set()
        elif word == "-m":
            positional.append(value)
        elif word.startswith("-"):
            found |= {word} - {"-i", "-b"}
        else:
            positional.append(word)
    return positional, found


def subject(part):
    """(words that say what is run, {what is given}) of a program; of one of Ansible's its playbook or module."""
    words = part.words[2:] if part.words[0] == OURS else part.words
    given = {one for one in part.settings if one.startswith("ANSIBLE_")}
    if words[0] not in ANSIBLE:
        return words, given
    positional, found = options(words)
    names = [word for word in positional if word.startswith("gpufleet.lifecycle.")] or positional[:1]
    return [words[0], *names[:1]], given | found


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
