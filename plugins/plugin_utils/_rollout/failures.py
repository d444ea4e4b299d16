# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signature of a failure: the failed checks, or the text without what differs between nodes. Pure."""

from __future__ import annotations

import re

LENGTH = 120
# What differs between nodes that fail alike: UUIDs, PCI addresses, versions of kernels, paths, numbers, quoted names.
PARTICULAR = (
    re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE),
    re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE),
    re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE),
    re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE),
    re.compile(r"\d+"),
)


def signature(step, reason, checks=(), node=""):
    """Return a short text that is equal for equal failures. CHECKS: the ids of the health checks that failed."""
    if checks:
        return "%s: %s" % (step or "start", ", ".join(sorted(set(checks))))[:LENGTH]
    text = reason or ""
    if node:
        text = text.replace(node, "NODE")
    for pattern in PARTICULAR:
        text = pattern.sub("#", text)
    return "%s: %s" % (step or "start", " ".join(text.split()))[:LENGTH]
