# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of the site's pages, and the pages that are made of it. Pure but for reading the list: data in, text out."""

from __future__ import annotations

import fnmatch
import pathlib
import re

import tomllib

LIST = pathlib.Path(__file__).resolve().parent / "contents.toml"
START = "index.md"
# What antsibull-docs makes of the modules, the other plugins and the roles.
REFERENCE = "reference/index.rst"
# Which files of the repository are pages that have to be listed; others may be.
OBLIGATORY = ("README.md", "CONTRIBUTING.md", "CHANGELOG.rst", "docs/*.md", "roles/*/README.md")
TITLED = re.compile(r"(?P<title>.+) <(?P<page>[^<>]+)>")
LINK = re.compile(r"\]\(([^)\s]+)\)")
INTRODUCTION = """\
An Ansible collection that takes GPU nodes from bare operating system to production and keeps them there. Version {0}.
"""


def load():
    """Return the list as it is written."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def links(text):
    """Return the targets of the links in Markdown that lead to files, without their anchors, in order."""
    found = (target.split("#", 1)[0] for target in LINK.findall(text) if not re.match(r"[a-z]+:", target))
    return [target for target in found if target]


def _page(entry):
    found = TITLED.fullmatch(entry)
    return found["page"] if found else entry


def _fitting(pattern, files):
    """Return the pages that an entry stands for: itself, or those of the directory that fit, but for its own list."""
    if "*" not in pattern:
        return [pattern]
    depth = pattern.count("/")
    return sorted(name for name in files if fnmatch.fnmatchcase(name, pattern) and name.count("/") == depth)


def children(page, entries, files):
    """Return the pages that stand below PAGE, with their titles where they are given other ones."""
    found = [name for entry in entries for name in (_fitting(entry, files) if "*" in entry else [entry])]
    return [name for name in found if _page(name) != page]


def tree(contents, files):
    """Return (place, page) for each page of the tree of contents; the place is a caption or the page above."""
    placed = [(one["caption"], page) for one in contents["trees"] for page in children("", one["pages"], files)]
    for page, entries in contents["below"].items():
        placed += [(page, name) for name in children(page, entries, files)]
    for one in contents["lists"]:
        placed += [(one["page"], name) for name in children(one["page"], one["pages"], files)]
    return [(place, _page(entry)) for place, entry in placed]


def _patterns(contents):
    for one in (*contents["trees"], *contents["lists"]):
        yield from one["pages"]
    for entries in contents["below"].values():
        yield from entries


def problems(contents, files):
    """Return what is wrong with the list, FILES being those of the repository; nothing if it is complete."""
    made = {REFERENCE, *(one["page"] for one in contents["lists"])}
    listed = [page for dummy, page in tree(contents, files)]
    known = set(files) | made
    found = ["{0}: no page fits".format(entry) for entry in _patterns(contents) if not _fitting(entry, files)]
    found += ["{0}: is listed, and is not there".format(page) for page in listed if page not in known]
    found += ["{0}: is listed twice".format(page) for page in sorted(set(listed)) if listed.count(page) > 1]
    wanted = {name for name in files if any(fnmatch.fnmatchcase(name, one) for one in OBLIGATORY)} | made
    found += ["{0}: is not listed".format(page) for page in sorted(wanted - set(listed))]
    above = {place for place, dummy in tree(contents, files)} - {one["caption"] for one in contents["trees"]}
    found += ["{0}: has pages below it, and is not listed".format(page) for page in sorted(above - set(listed))]
    for heading, title, page in (
        (one["heading"], entry[0], page)
        for one in contents["ways"]
        for entry in one["entries"]
        for page in (entry[1].split("#", 1)[0], *links(entry[2]))
    ):
        if page not in listed:
            found.append("{0}, {1}: leads to {2}, which is not listed".format(heading, title, page))
    return found


def _toctree(entries, *options):
    return [
        "",
        "```{toctree}",
        *options,
        "",
        *("/" + entry if entry == _page(entry) else _rooted(entry) for entry in entries),
        "```",
    ]


def _rooted(entry):
    found = TITLED.fullmatch(entry)
    return "{0} </{1}>".format(found["title"], found["page"])


def start(contents, files, version):
    """Return the start page: the ways in, and the tree of contents for the margin."""
    lines = ["# gpufleet.lifecycle", "", *INTRODUCTION.format(version).splitlines()]
    for one in contents["ways"]:
        lines += ["", "## " + one["heading"], ""]
        lines += ["- **[{0}]({1})**: {2}".format(*entry) for entry in one["entries"]]
    for one in contents["trees"]:
        entries = children(START, one["pages"], files)
        lines += _toctree(entries, ":hidden:", ":caption: " + one["caption"], ":titlesonly:")
    return "\n".join(lines) + "\n"


def lists(contents, files):
    """Return the text of each page that only lists others, by its name."""
    return {
        one["page"]: "\n".join(
            [
                "# " + one["title"],
                "",
                one["text"],
                *_toctree(children(one["page"], one["pages"], files), ":titlesonly:"),
            ]
        )
        + "\n"
        for one in contents["lists"]
    }


def page(name, text, contents, files):
    """Return the text of a page of the repository with the pages below it in the tree of contents."""
    below = contents["below"].get(name)
    if below:
        text += "\n".join(_toctree(children(name, below, files), ":hidden:", ":titlesonly:")) + "\n"
    return text
