# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The charts of the capacity report as inline SVG, drawn by pygal.

Why pygal: it is pure Python without anything to compile, draws SVG and nothing else, needs no network, and is kept:
there since 2012, 3.1.3 is of June 2026, and Debian, Gentoo and Alpine package it. matplotlib would bring NumPy and
compiled code for a few charts; Plotly, Bokeh and Altair draw in the browser, with megabytes of script.

What pygal puts into a chart for a page of its own is taken out: its script, which it would load from elsewhere, its
style, which the page's policy refuses (capacity.css has the page's own), comments with a date, and the drawing of its
tooltips. The same report gives the same bytes.
"""

from __future__ import annotations

import typing as t
import xml.etree.ElementTree as etree

try:
    import pygal
    from pygal.style import Style

    MISSING = ""
except ImportError as exc:  # refused by capacity_report, with the next step
    pygal, Style, MISSING = None, None, str(exc)

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

WIDTH, HEIGHT, LABELS, BARS = 960, 320, 8, 24
SVG = "{http://www.w3.org/2000/svg}"
GONE = ("style", "script", "desc")
Values = t.List[t.Optional[float]]
# The sizes by which pygal finds room for text; capacity.css has the same.
SIZES = {"label_font_size": 12, "major_label_font_size": 12, "legend_font_size": 13, "title_font_size": 14}


def _bare(title: str) -> t.Callable[[etree.Element], etree.Element]:
    """Return what takes from a drawing all that is no drawing, and says what it shows."""

    def bare(element: etree.Element) -> etree.Element:
        for child in list(element):
            name = child.tag if isinstance(child.tag, str) else ""
            plain = name.rpartition("}")[2]
            overlay = bool(name) and not {"tooltip", "tooltip-overlay"}.isdisjoint((child.get("class") or "").split())
            if not name or plain in GONE or overlay:
                element.remove(child)
            else:
                bare(child)
        # A style beside a part would be refused by the page's policy, and an id could stand twice on it.
        for attribute in [
            key for key in element.attrib if key in ("style", "id") or key.startswith("on") or key.endswith("href")
        ]:
            del element.attrib[attribute]
        return element

    def whole(root: etree.Element) -> etree.Element:
        bare(root)
        # What a browser shows over the drawing, in the place of the library's name.
        for child in root.iter(SVG + "title"):
            child.text = title
            break
        root.set("role", "img")
        root.set("aria-label", title)
        return root

    return whole


def _draw(chart: t.Any, title: str, labels: t.List[str], rows: t.List[t.Tuple[str, Values]]) -> str:
    chart.title = None
    # One row: what pygal wraps it does not leave room for.
    chart.legend_at_bottom_columns = len(rows)
    chart.x_labels = [text.one_line(label) for label in labels]
    step = max(1, -(-len(labels) // LABELS))
    chart.x_labels_major = chart.x_labels[::step]
    for name, values in rows:
        chart.add(text.one_line(name), values)
    chart.add_xml_filter(_bare(title))
    return chart.render(is_unicode=True)


def _options(**more: t.Any) -> t.Dict[str, t.Any]:
    return dict(
        width=WIDTH,
        height=HEIGHT,
        style=Style(**SIZES),
        js=[],
        disable_xml_declaration=True,
        legend_at_bottom=True,
        show_minor_x_labels=False,
        margin=8,
        no_data_text="no data",
        truncate_label=-1,
        truncate_legend=-1,
        classes=("chart",),
        **more,
    )


def lines(title: str, labels: t.List[str], rows: t.List[t.Tuple[str, Values]], percent: bool = False) -> str:
    """Return a chart of lines; a value that is not known interrupts its line."""
    chart = pygal.Line(
        **_options(
            show_dots=False,
            allow_interruptions=True,
            range=(0, 1) if percent else None,
            include_x_axis=not percent,
            value_formatter=(lambda value: "%.0f %%" % (value * 100))
            if percent
            else (lambda value: "%g" % round(value, 2)),
        )
    )
    return _draw(chart, title, labels, rows)


def bars(title: str, labels: t.List[str], rows: t.List[t.Tuple[str, Values]], percent: bool = False) -> str:
    """Return a chart of bars beside each other, of the first names."""
    chart = pygal.Bar(
        **_options(
            range=(0, 1) if percent else None,
            value_formatter=(lambda value: "%.0f %%" % (value * 100)) if percent else "{:,.0f}".format,
        )
    )
    chart.show_minor_x_labels = True
    if len(labels) > LABELS:
        chart.x_label_rotation = 30
    return _draw(chart, title, labels[:BARS], [(name, values[:BARS]) for name, values in rows])
