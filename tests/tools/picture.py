# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a picture for the documentation of the top of a report in HTML, as text: an SVG image with the page in it.

python3 -m tests.tools.picture .lab/report/report.html docs/pictures/rollout.svg 1535

The last word is the height in pixels. Scripts are left out, and paths of this checkout as well.
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
        self._within, self._inside, self._drawing = "", False, 0

    def handle_starttag(self, tag, attrs):
        if tag in ("style", "script"):
            self._within = tag
        elif tag == "body":
            self._inside = True
        elif self._inside and not self._dropped(tag):
            self._drawing += tag == "svg"
            # The text as it stands: the parser makes all names small, and those of SVG are not.
            text = self.get_starttag_text().rstrip("/>")
            for name in (name for name, value in attrs if value is None):
                text = re.sub(r"\s%s(?=\s|$)" % re.escape(name), ' %s=""' % name, text)
            if tag == "svg" and "xmlns=" not in text:
                text += ' xmlns="%s"' % SVG
            self.body.append(text + (" />" if tag in VOID else ">"))
        if tag in SKIPPED and not self._drawing:
            self._within = tag

    def _dropped(self, tag):
        return tag in SKIPPED and not (tag == "title" and self._drawing)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag == self._within:
            self._within = ""
        elif tag == "body":
            self._inside = False
        elif self._inside and tag not in VOID and not self._dropped(tag):
            self.body.append("</%s>" % tag)
            self._drawing -= tag == "svg"

    def handle_data(self, data):
        if self._within == "style":
            self.style.append(data)
        elif self._inside and not self._within:
            self.body.append(xml.sax.saxutils.escape(data))


def picture(page, height, root=str(ROOT)):
    """Return the image of the top of a page, in the colours of a light screen."""
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


def main(words):
    """Make one picture; return the exit status."""
    if len(words) != 3 or not words[2].isdigit():
        print("usage: python3 -m tests.tools.picture REPORT.html PICTURE.svg HEIGHT", file=sys.stderr)
        return 2
    text = pathlib.Path(words[0]).read_text(encoding="utf-8")
    pathlib.Path(words[1]).write_text(picture(text, int(words[2])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
