# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render the top of an HTML report as an SVG image for the documentation.

python3 -m tests.tools.picture .lab/report/report.html docs/pictures/rollout.svg 1535

The last argument is the height in pixels. Scripts and paths of this checkout are left out.
"""

from __future__ import annotations

import html.parser
import pathlib
import re
import sys
import xml.sax.saxutils

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 1000
VOID = {"br", "col", "hr", "img", "input", "link", "meta"}
SKIPPED = {"script", "title"}
XHTML, SVG = "http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"
PICTURE = """\
<svg xmlns="{svg}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<style>{style}</style>
<foreignObject width="{width}" height="{height}">
<body xmlns="{xhtml}">{body}</body>
</foreignObject>
</svg>
"""


class _Reader(html.parser.HTMLParser):
    """Rewrite the body of a page as XML, and keep its style sheets."""

    def __init__(self):
        super().__init__()
        self.body, self.style = [], []
        self._open_element, self._in_body, self._svg_depth = "", False, 0

    def handle_starttag(self, tag, attrs):
        if tag in ("style", "script"):
            self._open_element = tag
        elif tag == "body":
            self._in_body = True
        elif self._in_body and not self._is_skipped(tag):
            self._svg_depth += tag == "svg"
            # Not `tag` and `attrs`: the parser lowers the case of names, which SVG distinguishes.
            text = self.get_starttag_text().rstrip("/>")
            for name in (name for name, value in attrs if value is None):
                text = re.sub(r"\s%s(?=\s|$)" % re.escape(name), ' %s=""' % name, text)
            if tag == "svg" and "xmlns=" not in text:
                text += ' xmlns="%s"' % SVG
            self.body.append(text + (" />" if tag in VOID else ">"))
        if tag in SKIPPED and not self._svg_depth:
            self._open_element = tag

    def _is_skipped(self, tag):
        return tag in SKIPPED and not (tag == "title" and self._svg_depth)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag == self._open_element:
            self._open_element = ""
        elif tag == "body":
            self._in_body = False
        elif self._in_body and tag not in VOID and not self._is_skipped(tag):
            self.body.append("</%s>" % tag)
            self._svg_depth -= tag == "svg"

    def handle_data(self, data):
        if self._open_element == "style":
            self.style.append(data)
        elif self._in_body and not self._open_element:
            self.body.append(xml.sax.saxutils.escape(data))


def render_picture(page: str, height: int, root: str = str(ROOT)) -> str:
    """Return an SVG image of the top of a page in its light colours; the height is in pixels."""
    reader = _Reader()
    reader.feed(page.replace(root + "/", ""))
    reader.close()
    style = "".join(reader.style).replace("(prefers-color-scheme: dark)", "not all")
    return PICTURE.format(
        svg=SVG,
        xhtml=XHTML,
        width=WIDTH,
        height=height,
        style=xml.sax.saxutils.escape(style),
        body="".join(reader.body),
    )


def main(arguments: list[str]) -> int:
    """Write one picture; return the exit status."""
    if len(arguments) != 3 or not arguments[2].isdigit():
        print("usage: python3 -m tests.tools.picture REPORT.html PICTURE.svg HEIGHT", file=sys.stderr)
        return 2
    text = pathlib.Path(arguments[0]).read_text(encoding="utf-8")
    pathlib.Path(arguments[1]).write_text(render_picture(text, int(arguments[2])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
