# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles' values and where each of them is from, by profiles/sources.cfg."""

from __future__ import annotations

import configparser
import functools
import pathlib
from fnmatch import fnmatchcase

PROFILES = pathlib.Path(__file__).resolve().parent / "profiles"


def _read(*paths: pathlib.Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read([str(path) for path in paths], encoding="utf-8")
    return parser


def profiles() -> dict[str, dict[str, str]]:
    """Model -> key -> value, of the node and of its GPUs."""
    found = {}
    for path in sorted(PROFILES.glob("*.ini")):
        like = _read(path)["node"].get("like", path.stem)
        parser = _read(path.with_name(like + ".ini"), path)
        values = {key: value for section in ("node", "gpu") for key, value in parser[section].items()}
        found[path.stem] = {key: value for key, value in values.items() if value and key != "like"}
    return found


@functools.lru_cache(maxsize=None)
def sections() -> dict[str, dict[str, str]]:
    """Model, or all -> source -> patterns of keys."""
    parser = _read(PROFILES / "sources.cfg")
    return {section: dict(parser[section]) for section in parser.sections() if section != "sources"}


def source(model: str, key: str) -> str | None:
    """The source of a value: the first pattern that fits, an exact name before one with letters left open."""
    known = sections()
    for section in (model, "all"):
        for exact in (True, False):
            for name, patterns in known.get(section, {}).items():
                if any(("*" not in pattern) == exact and fnmatchcase(key, pattern) for pattern in patterns.split()):
                    return name
    return None


def named_captures() -> dict[str, str]:
    """Model -> what its profile says at its top about where its values are from."""
    return {
        path.stem: line[len("# Values: ") :]
        for path in sorted(PROFILES.glob("*.ini"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("# Values: ")
    }
