# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of mutants: one file for each subject, read, checked and applied here. Nothing here runs a test.

A mutant replaces one text of one file by another. The text stands there exactly once, so that a mutant whose place was
changed is refused and not applied somewhere else.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import tomllib

LIST = pathlib.Path(__file__).resolve().parent
TEXTS = ("name", "file", "before", "after", "harm")
KNOWN = (*TEXTS, "tests", "environment")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class MutantError(Exception):
    """A mutant cannot be used; the message names it and says why."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mistake, and the tests that should notice it."""

    name: str
    subject: str
    file: str
    before: str
    after: str
    harm: str  # what an operator would meet
    tests: t.Tuple[str, ...]
    environment: str = "main"

    @property
    def checks(self) -> t.Tuple[str, t.Tuple[str, ...]]:
        """What is run to notice it. Mutants of equal checks share the run without a mutant."""
        return self.environment, self.tests


def _mutant(subject: str, entry: t.Any) -> Mutant:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise MutantError(
            "{0}.toml: a mutant has the name {1!r}; expected small letters, digits and dashes".format(subject, name)
        )
    strangers = sorted(set(entry) - set(KNOWN))
    if strangers:
        raise MutantError("{0}: {1} is not known; known: {2}".format(name, ", ".join(strangers), ", ".join(KNOWN)))
    for key in TEXTS:
        if not isinstance(entry.get(key), str) or not entry[key].strip() and key != "after":
            raise MutantError("{0}: {1} is {2!r}; expected a text".format(name, key, entry.get(key)))
    tests = entry.get("tests")
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) and test for test in tests):
        raise MutantError("{0}: tests is {1!r}; expected a list of test files or node ids".format(name, tests))
    if entry["before"] == entry["after"]:
        raise MutantError("{0}: it changes nothing".format(name))
    fields = dict(entry, tests=tuple(tests), subject=subject)
    return Mutant(**fields)


def read(directory: pathlib.Path = LIST) -> t.List[Mutant]:
    """All mutants, by subject in the order of the files' names, each file from its beginning."""
    found: t.List[Mutant] = []
    for path in sorted(directory.glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as exc:
            raise MutantError("{0} cannot be read: {1}".format(path.name, exc)) from None
        entries = content.pop("mutant", None)
        if content or not isinstance(entries, list) or not entries:
            raise MutantError("{0}: expected [[mutant]] entries and nothing else".format(path.name))
        found.extend(_mutant(path.stem, entry) for entry in entries)
    names = [mutant.name for mutant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MutantError("two mutants have the name {0}".format(twice[0]))
    return found


def choose(mutants: t.Sequence[Mutant], wanted: t.Sequence[str]) -> t.List[Mutant]:
    """Those of some names or subjects; all of them when none was asked for."""
    known = {mutant.name for mutant in mutants} | {mutant.subject for mutant in mutants}
    unknown = [word for word in wanted if word not in known]
    if unknown:
        raise MutantError("no mutant or subject is called {0}; --list names them".format(", ".join(unknown)))
    return [mutant for mutant in mutants if not wanted or mutant.name in wanted or mutant.subject in wanted]


def mutated(mutant: Mutant, text: str) -> str:
    """The file's text with the mistake in it."""
    number = text.count(mutant.before)
    if number != 1:
        raise MutantError(
            "{0}: the text that it replaces occurs {1} times in {2}; expected once. The code has changed: bring the "
            "mutant up to date".format(mutant.name, number or "no", mutant.file)
        )
    return text.replace(mutant.before, mutant.after)


def applied(mutant: Mutant, root: pathlib.Path) -> str:
    """The text that the mutant's file below a root has with the mistake in it. Writes nothing."""
    try:
        text = (root / mutant.file).read_text(encoding="utf-8")
    except OSError as exc:
        raise MutantError("{0}: {1} cannot be read: {2}".format(mutant.name, mutant.file, exc.strerror)) from None
    return mutated(mutant, text)
