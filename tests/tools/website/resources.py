# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what built pages load from other hosts. Pure."""

from __future__ import annotations

import html.parser
import re

# Attributes whose address a browser loads by itself.
LOADED = ("src", "srcset", "data", "poster", "background")
# Relations of <link> whose address a browser does not load.
UNLOADED_RELATIONS = {
    "alternate",
    "author",
    "canonical",
    "help",
    "license",
    "next",
    "prev",
    "search",
    "index",
    "genindex",
    "top",
    "up",
}
REMOTE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.IGNORECASE)


def find_in_style(text: str) -> list[str]:
    """Return the addresses on other hosts that a style sheet loads."""
    return [address for found in IN_STYLE.findall(text) for address in found if address and REMOTE.match(address)]


class _Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self._in_style = [], False

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        addresses = [given[name] for name in LOADED if name in given and tag != "a"]
        if tag == "link" and not set(given.get("rel", "").lower().split()) & UNLOADED_RELATIONS:
            addresses.append(given.get("href", ""))
        for address in addresses:
            # An address of srcset is followed by a width; all of them are looked at.
            self.found += [one for one in address.split(", ") if REMOTE.match(one)]
        self.found += find_in_style(given.get("style", ""))

    def handle_data(self, data):
        if self._in_style:
            self.found += find_in_style(data)

    def handle_endtag(self, tag):
        self._in_style = False


def find_in_page(text: str) -> list[str]:
    """Return the addresses on other hosts that an HTML page loads."""
    reader = _Page()
    reader.feed(text)
    reader.close()
    return reader.found
