# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What built pages load from other hosts, which is nothing. Pure: text in, findings out."""

from __future__ import annotations

import html.parser
import re

# Attributes whose address a browser fetches by itself, by element; links that a reader follows are none of them.
FETCHED = ("src", "srcset", "data", "poster", "background")
# Relations of <link> that name an address and fetch nothing.
NAMED = {
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
FOREIGN = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.IGNORECASE)


def style(text):
    """Return the addresses on other hosts that a style sheet loads."""
    return [address for found in IN_STYLE.findall(text) for address in found if address and FOREIGN.match(address)]


class _Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self._in_style = [], False

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        addresses = [given[name] for name in FETCHED if name in given and tag != "a"]
        if tag == "link" and not set(given.get("rel", "").lower().split()) & NAMED:
            addresses.append(given.get("href", ""))
        for address in addresses:
            # An address of srcset is followed by a width; all of them are looked at.
            self.found += [one for one in address.split(", ") if FOREIGN.match(one)]
        self.found += style(given.get("style", ""))

    def handle_data(self, data):
        if self._in_style:
            self.found += style(data)

    def handle_endtag(self, tag):
        self._in_style = False


def page(text):
    """Return the addresses on other hosts that an HTML page loads."""
    reader = _Page()
    reader.feed(text)
    reader.close()
    return reader.found
