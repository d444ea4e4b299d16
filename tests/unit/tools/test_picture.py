# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rendering of a report as an SVG image, and the pictures in the documentation."""

from __future__ import annotations

import re
import xml.etree.ElementTree

import pytest

from tests.tools import picture
from tests.tools.common import ROOT

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>A report</title>
<style>@media (prefers-color-scheme: dark) { b > i { color: red } }</style></head>
<body>
<details class="node" open><summary>a &lt; b &#39;c&#39; &nbsp;</summary><br><input type="text" hidden></details>
<svg viewBox="0 0 1 1"><title>drawn</title><path d="M0 0"/></svg>
<p>/somewhere/checkout/report</p>
<script>if (1 < 2) { alert("&") }</script>
</body></html>
"""
PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())


def test_page_with_html_and_svg_becomes_well_formed_xml():
    made = picture.render_picture(PAGE, 70, "/somewhere/checkout")
    tree = xml.etree.ElementTree.fromstring(made)
    names = [element.tag for element in tree.iter()]
    assert (tree.get("width"), tree.get("height"), tree.get("viewBox")) == ("1000", "70", "0 0 1000 70")
    assert names.count("{%s}details" % picture.XHTML) == names.count("{%s}path" % picture.SVG) == 1
    assert "{%s}title" % picture.SVG in names and "alert" not in made and "A report" not in made
    details, inner = tree.find(".//{*}details"), tree.find(".//{*}body/{*}svg")
    assert (details.attrib, inner.get("viewBox")) == ({"class": "node", "open": ""}, "0 0 1 1")
    assert "".join(details.itertext()) == "a < b 'c' \xa0" and tree.find(".//{*}p").text == "report"
    assert "@media not all { b > i" in tree.find("{*}style").text


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "b", "high"]])
def test_wrong_arguments_print_the_usage(arguments, capsys):
    assert picture.main(arguments) == 2 and "usage" in capsys.readouterr().err


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_picture_loads_nothing_and_has_no_local_path(path):
    text = path.read_text(encoding="utf-8")
    tree = xml.etree.ElementTree.fromstring(text)
    assert not any(element.tag.rpartition("}")[2] in ("script", "img", "iframe") for element in tree.iter())
    assert not re.search(r"url\((?!#)|@import|/(?:tmp|root|home|work)/", text)


def test_documentation_has_two_pictures():
    assert [path.suffix for path in PICTURES] == [".svg", ".svg"]
