# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text format of Prometheus, as far as the proof of an exporter reads it: names, labels and values. Pure.

prometheus_client has a parser for it and is no requirement of this collection; the controller would need it for this
one question. Lines that this parser cannot read are counted, and fail the proof: nothing is skipped in silence.
"""

from __future__ import annotations

import re
import typing as t

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*\{(.*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?[ \t]*")
LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(t.NamedTuple):
    """One value of one series."""

    name: str
    labels: t.Dict[str, str]
    value: float


def labels(text: str) -> t.Optional[t.Dict[str, str]]:
    """Return what stands between the braces; None if it is not a list of labels."""
    found: t.Dict[str, str] = {}
    position = 0
    while position < len(text):
        match = LABEL.match(text, position)
        if not match:
            return None if text[position:].strip() else found
        found[match.group(1)] = re.sub(r"\\.", lambda one: ESCAPES.get(one.group(0), one.group(0)), match.group(2))
        position = match.end()
    return found


def parse(text: str) -> t.Tuple[t.List[Sample], t.List[int]]:
    """Return the samples, and the numbers of the lines that cannot be read."""
    samples: t.List[Sample] = []
    unread: t.List[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = SAMPLE.fullmatch(line.strip())
        known = labels(match.group(2) or "") if match else None
        try:
            value = float(match.group(3)) if match else None
        except ValueError:
            value = None
        if match is None or known is None or value is None:
            unread.append(number)
        else:
            samples.append(Sample(match.group(1), known, value))
    return samples, unread
